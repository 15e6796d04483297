package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// shownNodes and shownItems are how many nodes and changes of a pool people
// are shown.
const (
	shownNodes = 20
	shownItems = 40
)

// text prints the plan for people: what is forced and by what comes first.
func (r Plan) text(w io.Writer, p paint) error {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	if r.Source == "" {
		line("Compared with nothing: the files are all there is.\n")
	} else {
		line("Compared with %s.\n", r.Source)
	}
	if len(r.Generated) > 0 {
		line("configs that the cluster makes of the settings")
		for _, g := range r.Generated {
			line("  %s %s", g.Change, g.Config)
		}
		line("")
	}
	for _, pool := range r.Pools {
		pool.text(w, p)
	}
	for _, s := range r.MachineSets {
		s.text(w, p)
	}
	if len(r.Findings) > 0 {
		line("%s", p.bold("findings"))
		for _, f := range r.Findings {
			findingText(w, p, f)
		}
		line("")
	}
	for _, n := range r.Notes {
		line("note: %s", n)
	}
	if !r.Changes && !r.bad() {
		line("Nothing would change.")
	}
	return nil
}

func (pp PoolPlan) text(w io.Writer, p paint) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("pool %s: %s", p.bold(pp.Pool), pp.headline(p))
	if pp.Error != "" {
		line("  %s\n", strings.ReplaceAll(pp.Error, "\n", "\n  "))
		return
	}
	for _, r := range pp.Refused {
		line("  %s %s", p.red("cannot be applied to running nodes:"), r)
	}
	if pp.Changed {
		table(w, "  ", [][]string{{"old", cmp.Or(pp.Old, "(none)")}, {"new", pp.New}})
	} else {
		line("  config %s", pp.New)
	}
	if len(pp.Items) > 0 {
		rows := [][]string{{"CHANGE", "ITEM", "ACTION", "BECAUSE OF", "SET BY"}}
		for n, i := range pp.Items {
			if n == shownItems {
				rows = append(rows, []string{"…", fmt.Sprintf("and %d more; -o json lists them all", len(pp.Items)-n)})
				break
			}
			rows = append(rows, []string{i.Change, i.Item, p.action(i.Action), cmp.Or(i.Rule, "-"), cmp.Or(i.SetBy, "-")})
		}
		line("")
		table(w, "  ", rows)
	}
	pp.nodesText(w, p)
	for _, n := range pp.Notes {
		line("  note: %s", n)
	}
	line("")
}

// headline is the forced action and its cause.
func (pp PoolPlan) headline(p paint) string {
	switch {
	case pp.Error != "":
		return p.red("it cannot be rendered")
	case len(pp.Refused) > 0:
		return p.red("nodes would refuse it")
	case !pp.Changed && pp.Waves == 0:
		return p.green("no change")
	case !pp.Changed:
		return "no change of the config; a rollout is not finished"
	case pp.Old == "":
		return "a first config"
	case pp.Action == "":
		return "a new config; what its nodes have to do is not known"
	case pp.Action == "none":
		return p.action("none") + ": nodes take it without reload, drain or reboot"
	case pp.ForcedBy == "":
		return p.action(pp.Action)
	}
	text := p.action(pp.Action) + ", forced by " + pp.ForcedBy
	if !pp.Drains {
		text += "; no drain"
	}
	return text
}

func (p paint) action(a string) string {
	switch a {
	case "none":
		return p.green(a)
	case "reboot":
		return p.red(a)
	}
	return p.yellow(a)
}

func (pp PoolPlan) nodesText(w io.Writer, p paint) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	if pp.Waves == 0 {
		return
	}
	todo := 0
	rows := [][]string{{"WAVE", "NODE", "ZONE", "ACTION", "FORCED BY", "NOW"}}
	for _, n := range pp.Nodes {
		if n.Wave == 0 {
			continue
		}
		if todo++; todo > shownNodes {
			continue
		}
		rows = append(rows, []string{strconv.Itoa(n.Wave), n.Node, cmp.Or(n.Zone, "-"), p.action(n.Action) + n.drainMark(), cmp.Or(n.ForcedBy, "-"), cmp.Or(n.State, "in service")})
	}
	line("\n  %d of %s, at most %d at a time: %s, %s", todo, plural(len(pp.Nodes), "node"), pp.MaxUnavailable, plural(pp.Waves, "wave"), pp.estimate())
	table(w, "  ", rows)
	if todo > shownNodes {
		line("  … and %d more; -o json lists them all", todo-shownNodes)
	}
	pp.blockersText(w, p)
}

// estimate says how long it takes, and what that leaves out.
func (pp PoolPlan) estimate() string {
	text := "about " + duration(pp.Seconds)
	for _, n := range pp.Nodes {
		if n.Action == actionUnknown {
			return "for a time that is not known"
		}
		if len(n.Blockers) > 0 {
			text = "about " + duration(pp.Seconds) + " once the blocked drains go on"
		}
	}
	return text
}

func (n NodePlan) drainMark() string {
	if n.Drains && !strings.Contains(n.Action, "drain") {
		return " after a drain"
	}
	return ""
}

func (pp PoolPlan) blockersText(w io.Writer, p paint) {
	first := true
	shown, more := 0, 0
	for _, n := range pp.Nodes {
		for _, b := range n.Blockers {
			if first {
				_, _ = fmt.Fprintf(w, "\n  %s\n", p.red("drains that would be blocked now"))
				first = false
			}
			if shown++; shown > shownNodes {
				more++
				continue
			}
			_, _ = fmt.Fprintf(w, "    node %s: %s\n", n.Node, b)
		}
	}
	if more > 0 {
		_, _ = fmt.Fprintf(w, "    … and %d more\n", more)
	}
}

func (s SetPlan) text(w io.Writer, p paint) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	var heads []string
	if s.New {
		heads = append(heads, "new")
	}
	if s.Created > 0 {
		heads = append(heads, plural(s.Created, "machine")+" made")
	}
	if len(s.Deleted) > 0 {
		heads = append(heads, p.red(plural(len(s.Deleted), "machine")+" deleted"))
	}
	if len(s.ForNew) > 0 {
		heads = append(heads, "no machine is replaced: what changes in the template counts for new machines only")
	}
	if len(heads) == 0 {
		heads = append(heads, "changed in place, no machine made or deleted")
	}
	line("machine set %s: %s", p.bold(s.Set), strings.Join(heads, ", "))
	for _, part := range []struct {
		title string
		items []string
	}{
		{"in place", s.InPlace}, {"for new machines", s.ForNew}, {"deleted", s.Deleted},
		{"machines that keep the old template until somebody replaces them", s.Outdated}, {p.red("problem"), s.Problems},
	} {
		if len(part.items) == 0 {
			continue
		}
		line("  %s", part.title)
		for i, it := range part.items {
			if i == shownNodes {
				line("    … and %d more", len(part.items)-shownNodes)
				break
			}
			line("    %s", it)
		}
	}
	line("")
}

// duration prints seconds as people say them.
func duration(seconds int) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}
