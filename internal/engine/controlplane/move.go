package controlplane

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/engine/plan"
)

// move returns the next step towards the template. st.Waits says why there is
// none where one is due.
func (w world) move(in Input, st *Status) []plan.Action {
	acts := w.remove(in, st)
	for _, g := range w.vacant(in, st) {
		name := w.name(in, g)
		st.Placed[name] = g.domain
		acts = append(acts, plan.CreateMachine{Name: name})
	}
	return acts
}

// remove returns the removal of one replaced machine, if nothing else is
// going: two that drain at once may take a quorum with them.
func (w world) remove(in Input, st *Status) []plan.Action {
	if in.Set.Strategy == OnDelete {
		return nil
	}
	for _, g := range w.groups {
		old := g.old()
		if g.settled() == 0 || len(old) == 0 {
			continue
		}
		if going := w.goingNow(); going != "" {
			st.Waits = fmt.Sprintf("machine %s was replaced and goes when machine %s is gone", old[0].Name, going)
			return nil
		}
		return []plan.Action{plan.DeleteMachine{Name: old[0].Name, UID: old[0].UID}}
	}
	return nil
}

func (w world) goingNow() string {
	for _, m := range w.members {
		if m.Deleting {
			return m.Name
		}
	}
	return ""
}

// vacant returns the groups that get a machine now: every empty one, and at
// most one whose machine is to be replaced, while there is no surge.
func (w world) vacant(in Input, st *Status) []group {
	var out []group
	var due []group
	surge := 0
	for _, g := range w.groups {
		surge += max(0, len(g.all)-1)
		switch {
		case len(g.all) == 0:
			out = append(out, g)
		case g.current() > 0: // a successor is there already
			st.wait(g)
		case in.Set.Strategy == OnDelete && g.staying() > 0:
		case in.Set.Strategy == OnDelete:
			out = append(out, g)
		default:
			due = append(due, g)
		}
	}
	if len(due) == 0 {
		return out
	}
	next := w.first(due)
	switch blocker := w.blocker(next); {
	case surge > 0:
		if st.Waits == "" {
			st.Waits = fmt.Sprintf("index %d waits until no machine is in excess", next.index)
		}
	case len(out) > 0:
		st.Waits = fmt.Sprintf("index %d waits until the missing machines are there", next.index)
	case blocker != "":
		st.Waits = fmt.Sprintf("index %d waits until %s has a ready node", next.index, blocker)
	default:
		out = append(out, next)
	}
	return out
}

// wait notes what the replacement under way waits for.
func (st *Status) wait(g group) {
	if st.Waits != "" || len(g.all) < 2 {
		return
	}
	for _, m := range g.all {
		if !m.Deleting && g.why(m) == "" && !m.Ready {
			st.Waits = fmt.Sprintf("index %d waits until replacement machine %s has a ready node", g.index, m.Name)
			return
		}
	}
}

// first returns the group to replace next: one without a ready machine, which
// costs nothing, else the lowest index.
func (w world) first(due []group) group {
	for _, g := range due {
		if g.ready() == 0 {
			return g
		}
	}
	return due[0]
}

// blocker names the machine of another index that is not ready: a control
// plane that has lost one already is not changed elsewhere.
func (w world) blocker(next group) string {
	for _, g := range w.groups {
		if g.index != next.index && len(g.all) > 0 && g.ready() == 0 {
			return "machine " + g.all[0].Name
		}
	}
	return ""
}

// name returns the name of a group's next machine. The same members give the
// same name, so that deciding twice on one stale picture asks for one machine.
func (w world) name(in Input, g group) string {
	used := map[string]bool{}
	seed := []string{in.Set.UID, strconv.FormatInt(in.Set.Generation, 10), strconv.Itoa(g.index)}
	var uids []string
	for _, m := range w.members {
		used[m.Name] = true
		uids = append(uids, m.UID)
	}
	for _, n := range in.Taken {
		used[n] = true
	}
	slices.Sort(uids)
	seed = append(seed, uids...)
	for i := uint64(0); ; i++ {
		if name := fmt.Sprintf("%s-%s-%d", in.Set.Prefix, fleet.Suffix(seed, i), g.index); !used[name] {
			return name
		}
	}
}

// IndexOf returns the index at the end of a machine's name, after its last
// dash, e.g. 2 of demo-master-x7k2p-2; NoIndex when there is none.
func IndexOf(name string) int {
	i := strings.LastIndexByte(name, '-')
	tail := name[i+1:]
	if i < 0 || tail == "" || len(tail) > maxIndexDigits || strings.Trim(tail, "0123456789") != "" {
		return NoIndex
	}
	n, err := strconv.Atoi(tail)
	if err != nil {
		return NoIndex
	}
	return n
}

// maxIndexDigits keeps a random suffix of five digits from being an index.
const maxIndexDigits = 3
