package target_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/engine/target"
)

var start = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func selector(role string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}
}

func outcome(name string) target.Outcome {
	return target.Outcome{Result: render.Result{Name: name, Sources: []string{"00-worker"}}}
}

func TestDecide(t *testing.T) {
	pool := target.Pool{Name: "worker", Selector: selector("worker"), Target: "old", Sources: []string{"00-worker"}}
	failed := target.Outcome{Err: &target.Failure{Text: "no", Problems: []render.Problem{{Fragment: "a", Path: "config", Value: "v", Detail: "d"}}}}
	for _, r := range []struct {
		name, why string
		in        target.Input
		want      string
		wake      time.Duration
	}{
		{"first", "a pool without a target gets one", target.Input{Pool: target.Pool{Name: "worker", Selector: selector("worker")}, Outcome: outcome("new")}, "create config new, aim at config new", 0},
		{"changed", "", target.Input{Pool: pool, Outcome: outcome("new")}, "create config new, aim at config new", 0},
		{"back", "the config is there still", target.Input{Pool: pool, Outcome: outcome("new"), Rendered: []target.Rendered{{Name: "new", Intact: true}}}, "aim at config new", 0},
		{"tampered", "", target.Input{Pool: pool, Outcome: outcome("old"), Rendered: []target.Rendered{{Name: "old"}}}, "update config old", 0},
		{"done", "", target.Input{Pool: pool, Outcome: outcome("old"), Rendered: []target.Rendered{{Name: "old", Intact: true}}}, "", 0},
		{"restless", "quiet for half a second", target.Input{Pool: pool, Outcome: outcome("new"), Changed: start.Add(-500 * time.Millisecond), Since: start.Add(-time.Second)}, "", 1500 * time.Millisecond},
		{"patience ends", "changing for 9.5 s", target.Input{Pool: pool, Outcome: outcome("new"), Changed: start, Since: start.Add(-9500 * time.Millisecond)}, "", 500 * time.Millisecond},
		{"same all the same", "a change that changes nothing waits for nothing", target.Input{Pool: pool, Outcome: outcome("old"), Changed: start, Since: start, Rendered: []target.Rendered{{Name: "old", Intact: true}}}, "", 0},
		{"gate", "", target.Input{Pool: pool, Outcome: outcome("new"), Waits: []string{"KubeletConfig x to be processed"}}, "", 0},
		{"refused", "", target.Input{Pool: pool, Outcome: failed}, "", 0},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.in.Now = start
			d := target.Decide(r.in)
			var got []string
			for _, a := range d.Actions {
				got = append(got, a.String())
			}
			if s := strings.Join(got, ", "); s != r.want || d.Wake != r.wake {
				t.Errorf("%s: got %q and wake %s, want %q and %s", r.why, s, d.Wake, r.want, r.wake)
			}
		})
	}
	d := target.Decide(target.Input{Now: start, Pool: pool, Outcome: failed})
	want := []plan.Condition{{Type: "RenderDegraded", Status: corev1.ConditionTrue,
		Message: `Failed to render configuration for pool worker: no (MachineConfig a, spec.config "v": d)`}}
	if diff := cmp.Diff(want, d.Conditions); diff != "" {
		t.Errorf("conditions (-want +got)\n%s", diff)
	}
}

// What is needed is never deleted, the newest that nobody needs are kept, and
// the input's order does not matter.
func TestCollectKeepsWhatIsNeeded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(rt, "n")
		in := target.Input{Now: start, Keep: rapid.IntRange(0, 4).Draw(rt, "keep"), Needed: map[string]bool{}, Outcome: outcome("now"),
			Pool:     target.Pool{Name: "worker", Selector: selector("worker"), Target: "now", Sources: []string{"00-worker"}},
			Rendered: []target.Rendered{{Name: "now", Intact: true, Owned: true}}}
		idle := 0
		for i := range n {
			x := target.Rendered{Name: fmt.Sprint("r", i), UID: fmt.Sprint(i), Owned: rapid.IntRange(0, 3).Draw(rt, "owned") > 0, Intact: true,
				Created: start.Add(-time.Duration(rapid.IntRange(0, 5).Draw(rt, "age")) * time.Hour)}
			if rapid.Bool().Draw(rt, "needed") {
				in.Needed[x.Name] = true
			} else if x.Owned {
				idle++
			}
			in.Rendered = append(in.Rendered, x)
		}
		d := target.Decide(in)
		if want := max(0, idle-in.Keep); len(d.Actions) != want {
			rt.Fatalf("deletes %d, want %d", len(d.Actions), want)
		}
		for _, a := range d.Actions {
			del, ok := a.(plan.DeleteConfig)
			if !ok || in.Needed[del.Name] || del.Name == "now" {
				rt.Fatalf("%s", a)
			}
		}
		slices.Reverse(in.Rendered)
		if diff := cmp.Diff(d.Actions, target.Decide(in).Actions); diff != "" {
			rt.Fatalf("order matters:\n%s", diff)
		}
	})
}

func TestPrimaryPool(t *testing.T) {
	m := target.NewMembers(map[string]*metav1.LabelSelector{"master": selector("master"), "worker": {MatchLabels: map[string]string{"worker": ""}},
		"infra": {MatchLabels: map[string]string{"infra": ""}}, "gpu": {MatchLabels: map[string]string{"gpu": ""}}, "none": nil, "all": {}})
	for _, r := range []struct {
		node map[string]string
		want string
		err  string
	}{
		{map[string]string{"worker": ""}, "worker", ""},
		{map[string]string{"worker": "", "infra": ""}, "infra", ""},
		{map[string]string{"role": "master", "worker": ""}, "master", ""},
		{map[string]string{"role": "master", "infra": ""}, "master", ""},
		{map[string]string{"infra": "", "gpu": ""}, "", "node belongs to 2 custom roles, cannot proceed with this Node"},
		{map[string]string{"worker": "", "kubernetes.io/os": "windows"}, "", ""},
		{nil, "", ""},
	} {
		got, err := m.Primary(r.node)
		if got != r.want || (err != nil && err.Error() != r.err) || (err == nil && r.err != "") {
			t.Errorf("%v: got %q, %v, want %q, %q", r.node, got, err, r.want, r.err)
		}
	}
}
