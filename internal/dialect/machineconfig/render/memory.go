package render

import (
	"sync"
	"time"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/target"
)

// memory is what is remembered of one pool between two looks. Nothing is lost
// with it: a new process merges again and waits until it has seen the inputs
// stay as they are.
type memory struct {
	sync.Mutex

	digest  string         // of the inputs that outcome is made of
	outcome target.Outcome // kept, since merging costs time
	against string         // the present target that judged is about
	allowed diff.Overrides // what judged is lenient about
	judged  target.Outcome // outcome, unless nodes of against cannot take it

	seen           string // inputs at the last look
	changed, since time.Time

	told bool // an event of the pool's state that lasts

	intact map[string]string // name → resourceVersion whose body was compared
}

// settle puts into the picture since when its inputs have been as they are.
func (m *memory) settle(p *picture) {
	if m.seen != p.digest {
		m.seen, m.changed = p.digest, p.in.Now
		if m.since.IsZero() {
			m.since = p.in.Now
		}
	}
	p.in.Changed, p.in.Since = m.changed, m.since
}

// merged notes that the inputs have become a target, or a refusal.
func (m *memory) merged(p *picture, d plan.Decision[target.Status]) {
	if d.Wake == 0 && len(p.in.Waits) == 0 {
		m.since = time.Time{}
	}
}
