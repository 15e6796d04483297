package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/engine/plan"
)

// Record is what has to be remembered of a rollout in waves. It is the value
// of the annotation millwright.io/rollout-state of the pool. Without it the
// rollout starts at its first wave.
type Record struct {
	Target string   `json:"target,omitempty"`
	Wave   int      `json:"wave"`            // 0 is the first
	Nodes  []string `json:"nodes,omitempty"` // of the first wave
	// Allowed is how many nodes may have the target when the present wave is
	// over; the first wave goes by name.
	Allowed int `json:"allowed,omitempty"`
	// Healing are nodes that were broken already when they were asked for the
	// target. Their old failure, which they show until they are done, says
	// nothing about it.
	Healing []string `json:"healing,omitempty"`
	// Done is when the present wave's nodes had all finished, Since since when
	// they and the workloads have been healthy.
	Done  *metav1.Time `json:"done,omitempty"`
	Since *metav1.Time `json:"since,omitempty"`
	// Stopped says why no further node starts.
	Stopped string `json:"stopped,omitempty"`
	// Good is the config to go back to.
	Good string `json:"good,omitempty"`
}

const maxRecord = 64 << 10

// DecodeRecord reads the annotation's value; empty means none.
func DecodeRecord(value string) (Record, error) {
	if value == "" {
		return Record{}, nil
	}
	if len(value) > maxRecord {
		return Record{}, fmt.Errorf("decode rollout state: %d bytes, at most %d", len(value), maxRecord)
	}
	var r Record
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return Record{}, fmt.Errorf("decode rollout state: %w", err)
	}
	if r.Wave < 0 || r.Wave > 1000 || r.Allowed < 0 {
		return Record{}, errors.New("decode rollout state: wave and allowed are numbers from 0")
	}
	return r, nil
}

// Encode returns the annotation's value, empty for none.
func (r Record) Encode() string {
	if r.Target == "" {
		return ""
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode rollout state: %v", err)) // strings, numbers and decoded times always encode
	}
	return string(data)
}

// goal is the config that the pool's nodes shall have.
func (r Record) goal(p *Pool) string {
	if p.Settings != nil && p.Settings.OnFailure == OnFailureRollback && r.Target == p.Target && r.Stopped != "" && r.Good != "" {
		return r.Good
	}
	return p.Target
}

// wave brings the record up to date and finds the goal.
func (v *view) wave() {
	s, p := v.in.Pool.Settings, &v.in.Pool
	if s == nil || p.Target == "" {
		v.goal = p.Target
		return
	}
	r := v.in.Record
	r.Nodes = slices.Sorted(slices.Values(r.Nodes))
	if r.Target != p.Target {
		if !slices.ContainsFunc(v.nodes, func(n Node) bool { return !n.aims(p.Target) }) {
			v.keep(Record{Target: p.Target, Wave: lastWave, Good: p.Target}) // nothing to do: no rollout begins
			return
		}
		r = Record{Target: p.Target}
		if p.Settled != p.Target {
			r.Good = p.Settled
		}
	}
	v.healing(&r)
	v.judge(&r)
	if r.Stopped == "" {
		v.advance(&r)
	}
	v.keep(r)
}

// lastWave lets everything go.
const lastWave = 1000

func (v *view) keep(r Record) {
	v.d.Status.Record = r
	v.goal = r.goal(&v.in.Pool)
	v.gated = r.Wave != lastWave && r.Stopped == ""
	if v.gated && r.Wave > 0 {
		v.left = r.Allowed - v.on(r.Target)
	}
	switch {
	case r.Stopped == "":
	case v.goal != r.Target:
		v.wait(WaitRolledBack, fmt.Sprintf("MachineConfig %s is taken back: %s", r.Target, r.Stopped), time.Time{})
	default:
		v.wait(WaitStopped, fmt.Sprintf("MachineConfig %s is stopped: %s", r.Target, r.Stopped), time.Time{})
	}
}

// on counts the nodes that were asked for this config.
func (v *view) on(config string) int {
	n := 0
	for i := range v.nodes {
		if v.nodes[i].aims(config) {
			n++
		}
	}
	return n
}

// healing forgets the nodes that have healed, or do not aim at the target.
func (v *view) healing(r *Record) {
	old := slices.Sorted(slices.Values(r.Healing))
	r.Healing = nil
	for i := range v.nodes {
		n := &v.nodes[i]
		if _, ok := slices.BinarySearch(old, n.Name); ok && n.aims(r.Target) && n.degraded() {
			r.Healing = append(r.Healing, n.Name)
		}
	}
	slices.Sort(r.Healing)
}

// judge stops a rollout whose failures reach the threshold, and lets one go on
// that only had to stop when they are gone.
func (v *view) judge(r *Record) {
	s := v.in.Pool.Settings
	if r.Stopped != "" && s.OnFailure == OnFailureRollback && r.Good != "" {
		return // it ends with another target
	}
	why := v.failures(r)
	switch {
	case why != "" && r.Stopped == "":
		what := "no further node starts"
		if s.OnFailure == OnFailureRollback && r.Good != "" {
			what = "nodes go back to MachineConfig " + r.Good
		}
		v.tell(plan.Warning, ReasonRolloutStopped, fmt.Sprintf("Rollout of MachineConfig %s stopped in wave %d: %s; %s", r.Target, r.Wave+1, why, what))
	case why == "" && r.Stopped != "":
		v.tell(plan.Normal, ReasonRolloutResumed, fmt.Sprintf("Rollout of MachineConfig %s goes on: its failures are gone", r.Target))
		r.Done, r.Since = nil, nil
	}
	r.Stopped = why
}

// failures says what has failed, when it is enough to stop.
func (v *view) failures(r *Record) string {
	s := v.in.Pool.Settings
	var failed []string
	for i := range v.nodes {
		n := &v.nodes[i]
		if !n.aims(r.Target) {
			continue
		}
		if _, old := slices.BinarySearch(r.Healing, n.Name); n.degraded() && !old {
			failed = append(failed, fmt.Sprintf("node %s: %s", n.Name, brief(n.Reason)))
			continue
		}
		if d := s.Deadline.Duration; d > 0 && n.busy() && v.mine(n) {
			if end := v.claims[n.Name].Since.Add(d); v.in.Now.Before(end) {
				v.wakeAt(end)
			} else {
				failed = append(failed, fmt.Sprintf("node %s: not done after %s", n.Name, d))
			}
		}
	}
	slices.Sort(failed)
	if n := s.threshold(len(v.nodes)); len(failed) >= n {
		return fmt.Sprintf("%d of %d nodes failed: %s", len(failed), len(v.nodes), list(failed))
	}
	if d := s.Deadline.Duration; d > 0 && r.Done != nil {
		if sick := v.sick(); sick != "" {
			end := r.Done.Add(d)
			if !v.in.Now.Before(end) {
				return fmt.Sprintf("unhealthy for %s: %s", d, sick)
			}
			v.wakeAt(end)
		}
	}
	return ""
}

// sick names the workloads that are not healthy.
func (v *view) sick() string {
	var out []string
	for _, w := range v.in.Pool.Settings.Workloads {
		switch why, known := v.in.Workloads[w]; {
		case !known:
			out = append(out, w+": not seen yet")
		case why != "":
			out = append(out, w+": "+why)
		}
	}
	return strings.Join(out, ", ")
}

// advance goes to the next wave when the present one is over.
func (v *view) advance(r *Record) {
	s := v.in.Pool.Settings
	if r.Wave == lastWave {
		return
	}
	if !s.hasCanary() {
		r.Wave = lastWave
		return
	}
	if !v.canaries(r) {
		return
	}
	left, pending := v.progress(r)
	if len(pending) > 0 || left > 0 {
		r.Done, r.Since = nil, nil
		return
	}
	if r.Done == nil {
		r.Done = v.stamp()
	}
	if v.sick() != "" {
		r.Since = nil
		return
	}
	if r.Since == nil {
		r.Since = v.stamp()
	}
	if end := r.Since.Add(s.Soak.Duration); v.in.Now.Before(end) {
		return
	}
	v.next(r)
}

func (v *view) stamp() *metav1.Time {
	t := metav1.NewTime(v.in.Now.UTC().Truncate(time.Second))
	return &t
}

// canaries chooses the nodes of the first wave, others in place of those that
// are gone or cannot start. It returns false when there are none.
func (v *view) canaries(r *Record) bool {
	if r.Wave > 0 {
		return true
	}
	s := v.in.Pool.Settings
	want := min(s.canarySize(len(v.nodes)), maxCanaries)
	old := r.Nodes
	r.Nodes = nil
	var fresh []string
	for i := range v.nodes {
		n := &v.nodes[i]
		_, chosen := slices.BinarySearch(old, n.Name)
		able := !n.busy() && (!v.claimed(n) || v.mine(n)) && n.Current != "" && len(n.Join) == 0
		switch {
		case chosen && (n.aims(r.Target) || able):
			r.Nodes = append(r.Nodes, n.Name)
		case able && !n.aims(r.Target) && s.selects(n) && !v.same(n, r.Target):
			fresh = append(fresh, n.Name)
		}
	}
	r.Nodes = append(r.Nodes, fresh[:max(0, min(len(fresh), want-len(r.Nodes)))]...)
	slices.Sort(r.Nodes)
	return len(r.Nodes) > 0
}

// maxCanaries bounds the first wave, so that its names fit into an annotation.
const maxCanaries = 500

func (s *Settings) selects(n *Node) bool {
	return s.canary == nil || s.canary.Matches(labels.Set(n.Labels))
}

// progress counts what the present wave still has to start, and what it has
// started that is not in service with the target yet.
func (v *view) progress(r *Record) (left int, pending []string) {
	on, startable := 0, 0
	for i := range v.nodes {
		n := &v.nodes[i]
		switch {
		case n.aims(r.Target):
			on++
			if !n.updated(r.Target) || n.Down != "" || n.Cordoned && n.Ours {
				pending = append(pending, n.Name)
			}
		case r.Wave == 0:
			if _, canary := slices.BinarySearch(r.Nodes, n.Name); canary {
				left++
			}
		case !n.busy() && n.Current != "":
			startable++
		}
	}
	if r.Wave > 0 {
		left = min(startable, max(0, r.Allowed-on))
	}
	slices.Sort(pending)
	return left, pending
}

func (v *view) next(r *Record) {
	s := v.in.Pool.Settings
	r.Wave, r.Done, r.Since = r.Wave+1, nil, nil
	r.Allowed = v.on(r.Target) + s.size(r.Wave, len(r.Nodes), len(v.nodes))
	if r.Allowed >= len(v.nodes) || r.Wave >= lastWave {
		r.Wave, r.Allowed = lastWave, 0
		return
	}
	v.tell(plan.Normal, ReasonNextWave, fmt.Sprintf("Wave %d of MachineConfig %s starts: up to %d of %d nodes", r.Wave+1, r.Target, r.Allowed, len(v.nodes)))
}

// permits says whether the present wave lets this node go at all.
func (v *view) permits(n *Node) bool {
	r := &v.d.Status.Record
	switch {
	case v.in.Pool.Settings == nil:
		return true
	case r.Stopped != "":
		return v.goal != r.Target
	case r.Wave == 0:
		_, ok := slices.BinarySearch(r.Nodes, n.Name)
		return ok
	}
	return r.Wave == lastWave || v.left > 0
}

// inWave returns those of cand that the present wave lets go.
func (v *view) inWave(cand []*Node) []*Node {
	r := &v.d.Status.Record
	switch {
	case v.in.Pool.Settings == nil, r.Stopped == "" && r.Wave == lastWave, r.Stopped != "" && v.goal != r.Target:
		return cand
	case r.Stopped != "":
		return nil
	}
	out := v.ofWave(cand)
	if held := len(cand) - len(out); held > 0 {
		v.waitForWave(held)
	}
	return out
}

// ofWave returns those of cand that are in the present wave. A mere change of
// name needs no trial.
func (v *view) ofWave(cand []*Node) []*Node {
	left := len(cand)
	if v.d.Status.Record.Wave > 0 {
		left = v.left
	}
	var out []*Node
	for _, n := range cand {
		if v.same(n, v.goal) {
			out = append(out, n)
		} else if left > 0 && v.permits(n) {
			out = append(out, n)
			left--
		}
	}
	return out
}

// waitForWave says what holds nodes back.
func (v *view) waitForWave(held int) {
	r, s := &v.d.Status.Record, v.in.Pool.Settings
	wave := fmt.Sprintf("%d nodes wait for wave %d of MachineConfig %s", held, r.Wave+1, r.Target)
	switch {
	case r.Wave == 0 && len(r.Nodes) == 0:
		v.wait(WaitCanary, fmt.Sprintf("no node in service can be the first: canary.selector %q", s.Canary.Selector), time.Time{})
	case r.Done == nil:
		reason := WaitWave
		if r.Wave == 0 {
			reason, wave = WaitCanary, wave+" ("+list(r.Nodes)+")"
		}
		if _, pending := v.progress(r); len(pending) > 0 {
			wave += "; not done yet: " + list(pending)
		}
		v.wait(reason, wave, time.Time{})
	case r.Since == nil:
		v.wait(WaitGate, wave+": "+v.sick(), time.Time{})
	default:
		until := r.Since.Add(s.Soak.Duration)
		v.wait(WaitSoak, fmt.Sprintf("%s, which has to be healthy until %s", wave, until.UTC().Format(time.RFC3339)), until)
	}
}

// brief is the first line of a reason, cut.
func brief(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	const most = 200
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}
