package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/rollout"
)

func settings(t testing.TB, text string) *rollout.Settings {
	t.Helper()
	s, err := rollout.ParseSettings(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func many(n int, config string) []rollout.Node {
	var out []rollout.Node
	for i := range n {
		out = append(out, node(fmt.Sprintf("n%02d", i), config, func(n *rollout.Node) {
			if i == n.Pods+7 {
				n.Labels = map[string]string{"canary": "true"}
			}
		}))
	}
	return out
}

// run plays well-behaved agents: what was asked for is done at the next look.
type run struct {
	in   rollout.Input
	fail map[string]string // node → config it fails on
}

func (r *run) step(after time.Duration) []string {
	r.in.Now = r.in.Now.Add(after)
	d := rollout.Decide(r.in)
	r.in.Claims, r.in.Record = d.Status.Claims, d.Status.Record
	for i := range r.in.Nodes {
		n := &r.in.Nodes[i]
		if slices.Contains(d.Status.Started, n.Name) {
			n.Desired, n.State = d.Status.Goal, rollout.StateWorking
		}
	}
	return d.Status.Started
}

func (r *run) work() {
	for i := range r.in.Nodes {
		n := &r.in.Nodes[i]
		switch {
		case n.Desired != "" && r.fail[n.Name] == n.Desired:
			n.State, n.Reason = rollout.StateDegraded, "cannot write /etc/x"
		case n.Desired != n.Current || n.State != rollout.StateDone:
			n.Current, n.State, n.Reason = n.Desired, rollout.StateDone, ""
		}
	}
}

func TestWavesGrowAfterTheCanary(t *testing.T) {
	r := run{in: rollout.Input{Now: now, Nodes: many(20, "v0"), Pool: pool("v1", 20)}}
	r.in.Pool.Settings = settings(t, `{"canary": {"nodes": 1}, "growth": 3, "soak": "10m"}`)
	var sizes []int
	for range 200 {
		if got := r.step(time.Minute); len(got) > 0 {
			sizes = append(sizes, len(got))
		}
		r.work()
	}
	if diff := cmp.Diff([]int{1, 3, 9, 7}, sizes); diff != "" {
		t.Errorf("waves (-want +got)\n%s", diff)
	}
	if d := rollout.Decide(r.in); !d.Status.Settled || len(d.Status.Waits) != 0 || d.Wake != 0 {
		t.Errorf("at the end: settled %t, waits %v, wake %s", d.Status.Settled, d.Status.Waits, d.Wake)
	}
}

func TestSoakHasToBeHealthyThroughout(t *testing.T) {
	r := run{in: rollout.Input{Now: now, Nodes: many(4, "v0"), Pool: pool("v1", 4), Workloads: map[string]string{"shop/Deployment/web": ""}}}
	r.in.Pool.Settings = settings(t, `{"canary": {"nodes": 1}, "soak": "10m", "workloads": ["shop/Deployment/web"]}`)
	r.step(0)
	r.work()
	r.step(time.Minute)
	d := rollout.Decide(r.in)
	if c := cond(d, "Waiting"); c.Reason != "Soak" || !strings.Contains(c.Message, "healthy until 2026-12-01T12:11:00Z") || d.Wake != 10*time.Minute {
		t.Errorf("waiting %+v, wake %s", c, d.Wake)
	}
	r.in.Workloads["shop/Deployment/web"] = "1 of 3 available"
	r.step(9 * time.Minute)
	if c := cond(rollout.Decide(r.in), "Waiting"); c.Reason != "Workloads" || !strings.Contains(c.Message, "1 of 3 available") {
		t.Errorf("waiting %+v", c)
	}
	r.in.Workloads["shop/Deployment/web"] = ""
	r.step(time.Minute)
	if got := r.step(9 * time.Minute); got != nil {
		t.Errorf("started %v before the soak began again and ended", got)
	}
	if got := r.step(time.Minute); len(got) != 3 {
		t.Errorf("started %v after the soak", got)
	}
}

func TestCanariesBySelector(t *testing.T) {
	r := run{in: rollout.Input{Now: now, Nodes: many(9, "v0"), Pool: pool("v1", 9)}}
	r.in.Pool.Settings = settings(t, `canary: {selector: canary=true}`)
	if got := r.step(0); !slices.Equal(got, []string{"n07"}) {
		t.Errorf("canaries %v", got)
	}
	r.work()
	if got := r.step(time.Minute); len(got) != 8 {
		t.Errorf("then %v", got)
	}
	r = run{in: rollout.Input{Now: now, Nodes: many(3, "v0"), Pool: r.in.Pool}}
	if got := r.step(0); got != nil {
		t.Errorf("no node matches, and %v start", got)
	}
	if c := cond(rollout.Decide(r.in), "Waiting"); c.Reason != "Canary" || !strings.Contains(c.Message, "canary=true") {
		t.Errorf("waiting %+v", c)
	}
}

func TestFailedCanaryStopsAndRollsBack(t *testing.T) {
	for _, r := range []struct {
		name, settings string
		back           bool
	}{
		{"stop", `{"canary": {"nodes": 1}}`, false},
		{"roll back", `{"canary": {"nodes": 1}, "onFailure": "Rollback"}`, true},
	} {
		t.Run(r.name, func(t *testing.T) {
			x := run{in: rollout.Input{Now: now, Nodes: many(5, "v0"), Pool: pool("v1", 5)}, fail: map[string]string{"n00": "v1"}}
			x.in.Pool.Settings = settings(t, r.settings)
			touched := map[string]bool{}
			for range 20 {
				for _, n := range x.step(time.Minute) {
					touched[n] = true
				}
				x.work()
			}
			if diff := cmp.Diff(map[string]bool{"n00": true}, touched); diff != "" {
				t.Errorf("touched (-want +got)\n%s", diff)
			}
			d := rollout.Decide(x.in)
			want := "Stopped"
			if r.back {
				want = "RolledBack"
			}
			if c := cond(d, "Waiting"); c.Reason != want || !strings.Contains(c.Message, "node n00: cannot write /etc/x") {
				t.Errorf("waiting %+v", c)
			}
			if got := x.in.Nodes[0].Current; got != "v0" || (x.in.Nodes[0].State == rollout.StateDone) != r.back {
				t.Errorf("the canary has %s and is %s", got, x.in.Nodes[0].State)
			}
			if c := cond(d, "NodeDegraded"); (c.Status == corev1.ConditionFalse) != r.back {
				t.Errorf("degraded %+v", c)
			}
			x.in.Pool.Target, x.fail = "v2", nil
			for range 20 {
				x.step(time.Minute)
				x.work()
			}
			if d := rollout.Decide(x.in); !d.Status.Settled {
				t.Errorf("the next config does not arrive: %+v", d.Status)
			}
		})
	}
}

func TestRollbackTakesBackWhatWentWell(t *testing.T) {
	x := run{in: rollout.Input{Now: now, Nodes: many(10, "v0"), Pool: pool("v1", 3)}, fail: map[string]string{"n02": "v1"}}
	x.in.Pool.Settings = settings(t, `{"canary": {"nodes": 1}, "growth": 2, "onFailure": "Rollback"}`)
	for range 30 {
		x.step(time.Minute)
		x.work()
	}
	for _, n := range x.in.Nodes {
		if n.Current != "v0" || n.State != rollout.StateDone {
			t.Errorf("node %s has %s and is %s", n.Name, n.Current, n.State)
		}
	}
}

func TestDeadlineStopsWhatNeverEnds(t *testing.T) {
	x := run{in: rollout.Input{Now: now, Nodes: many(3, "v0"), Pool: pool("v1", 3)}}
	x.in.Pool.Settings = settings(t, `{"canary": {"nodes": 1}, "deadline": "30m", "onFailure": "Rollback"}`)
	x.step(0)
	x.in.Nodes[0].Down = "node n00 is reporting NotReady=Unknown"
	if d := rollout.Decide(x.in); d.Wake != 30*time.Minute {
		t.Errorf("wake %s", d.Wake)
	}
	if got := x.step(31 * time.Minute); !slices.Equal(got, []string{"n00"}) || x.in.Nodes[0].Desired != "v0" {
		t.Errorf("after the deadline %v, desired %s", got, x.in.Nodes[0].Desired)
	}
}

func TestWindowsHoldConfigAndLetBrokenNodesHeal(t *testing.T) {
	w, err := rollout.ParseWindows("Sat 22:00-04:00 Europe/Paris")
	if err != nil {
		t.Fatal(err)
	}
	in := rollout.Input{Now: now, Pool: pool("v2", 2), Nodes: []rollout.Node{node("a", "v0", to("v1", rollout.StateDegraded)), node("b", "v0")}}
	in.Pool.Windows = w
	d := rollout.Decide(in)
	if !slices.Equal(d.Status.Started, []string{"a"}) {
		t.Errorf("started %v", d.Status.Started)
	}
	if c := cond(d, "Waiting"); c.Reason != "MaintenanceWindow" || !strings.Contains(c.Message, "2026-12-05T22:00:00+01:00") {
		t.Errorf("waiting %+v", c)
	}
	in.Now = now.Add(d.Wake)
	if d = rollout.Decide(in); !slices.Contains(d.Status.Started, "b") {
		t.Errorf("at the opening %v, after %s", d.Status.Started, d.Wake)
	}
	in.Content = map[string]string{"v0": "x", "v2": "x"}
	in.Now = now
	if d = rollout.Decide(in); !slices.Contains(d.Status.Started, "b") {
		t.Errorf("a change of name only: %v", d.Status.Started)
	}
}

func TestWindows(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	rows := []struct {
		windows, at   string
		open          bool
		closes, opens string
	}{
		{"", "2026-12-01T12:00:00Z", true, "", ""},
		{"daily 22:00-04:00", "2026-12-01T12:00:00Z", false, "", "2026-12-01T22:00:00Z"},
		{"daily 22:00-04:00", "2026-12-01T03:59:59Z", true, "2026-12-01T04:00:00Z", "2026-12-01T22:00:00Z"},
		{"daily 22:00-04:00", "2026-12-01T04:00:00Z", false, "", "2026-12-01T22:00:00Z"},
		{"Mon 22:00-04:00", "2026-12-01T01:00:00Z", true, "2026-12-01T04:00:00Z", "2026-12-07T22:00:00Z"},
		{"Sat,Sun 00:00-24:00; Wed 01:00-02:00", "2026-12-01T12:00:00Z", false, "", "2026-12-02T01:00:00Z"},
		{"Fri-Mon 00:00-24:00", "2026-12-01T00:00:00Z", false, "", "2026-12-04T00:00:00Z"},
		{"Sun 01:00-04:00 Europe/Paris", "2026-03-29T00:30:00Z", true, "2026-03-29T02:00:00Z", "2026-04-04T23:00:00Z"},
	}
	for _, r := range rows {
		t.Run(r.windows+" at "+r.at, func(t *testing.T) {
			w, err := rollout.ParseWindows(r.windows)
			if err != nil {
				t.Fatal(err)
			}
			now := at(r.at)
			text := func(t time.Time) string {
				if t.IsZero() {
					return ""
				}
				return t.UTC().Format(time.RFC3339)
			}
			if w.Open(now) != r.open || text(w.Closes(now)) != r.closes || text(w.Opens(now)) != r.opens {
				t.Errorf("open %t until %q, opens %q", w.Open(now), text(w.Closes(now)), text(w.Opens(now)))
			}
		})
	}
}

func TestBadSettingsNameFieldValueAndRemedy(t *testing.T) {
	for text, want := range map[string]string{
		`{"canary": {"nodes": 0}}`:         `canary.nodes: "0": a number of nodes or a percentage, at least 1`,
		`{"canary": {"nodes": "x%"}}`:      `canary.nodes: "x%": a number`,
		`{"canary": {"selector": "a in"}}`: `canary.selector: "a in": a label selector such as canary=true`,
		`{"growth": -1}`:                   `growth: -1: 0 to 100`,
		`{"onFailure": "Undo"}`:            `onFailure: "Undo": Stop or Rollback`,
		`{"workloads": ["web"]}`:           `workloads: "web": namespace/Kind/name`,
		`{"soak": "-1m"}`:                  `soak: -1m0s: not below 0`,
		`{"soaking": "1m"}`:                `unknown field "soaking"`,
		`{"failureThreshold": "-3%"}`:      `failureThreshold: "-3%"`,
		`[]`:                               `read settings`,
	} {
		if _, err := rollout.ParseSettings(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"22:00-04:00":          "days, hours and a time zone",
		"Mon-Foo 1:00-2:00":    `days "Mon-Foo"`,
		"Mon 22-4":             `time of day "22"`,
		"Mon 25:00-26:00":      `time of day "25:00"`,
		"Mon 02:00-02:00":      "a whole day is 00:00-24:00",
		"Mon 02:00-03:00 Mars": `time zone "Mars"`,
		"Mon 0200":             `hours "0200"`,
	} {
		if _, err := rollout.ParseWindows(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestUnreadableSettingsStartNothingButHeal(t *testing.T) {
	in := rollout.Input{Now: now, Pool: pool("v2", 5), Nodes: []rollout.Node{node("a", "v0"), node("b", "v0", to("v1", rollout.StateDegraded))}}
	in.Pool.SettingsError = "annotation millwright.io/rollout: growth: -1: 0 to 100"
	d := rollout.Decide(in)
	if !slices.Equal(d.Status.Started, []string{"b"}) || cond(d, "Waiting").Reason != "InvalidSetting" || d.Status.Invalid == "" {
		t.Errorf("started %v, waiting %+v", d.Status.Started, cond(d, "Waiting"))
	}
}

func TestRecordSurvives(t *testing.T) {
	x := run{in: rollout.Input{Now: now, Nodes: many(6, "v0"), Pool: pool("v1", 6)}}
	x.in.Pool.Settings = settings(t, `{"canary": {"nodes": 2}, "growth": 1, "soak": "5m"}`)
	for range 40 {
		x.step(time.Minute)
		x.work()
		got, err := rollout.DecodeRecord(x.in.Record.Encode())
		if err != nil || got.Encode() != x.in.Record.Encode() {
			t.Fatalf("%v: %s became %s", err, x.in.Record.Encode(), got.Encode())
		}
		x.in.Record = got // as a restarted controller reads it
	}
	if d := rollout.Decide(x.in); !d.Status.Settled {
		t.Errorf("%+v", d.Status)
	}
	if _, err := rollout.DecodeRecord(`{"wave": -1}`); err == nil {
		t.Error("a negative wave was read")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(`{"target":"rendered-worker-a","wave":2,"nodes":["a"],"allowed":4,"since":"2026-12-01T12:00:00Z"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := rollout.DecodeRecord(text)
		if err != nil {
			return
		}
		again, err := rollout.DecodeRecord(r.Encode())
		if r.Target != "" && (err != nil || again.Encode() != r.Encode()) {
			t.Errorf("%q became %q: %v", r.Encode(), again.Encode(), err)
		}
	})
}

func FuzzParseSettings(f *testing.F) {
	f.Add(`{"canary": {"nodes": "10%"}, "soak": "1m"}`, "Mon-Fri 22:00-04:00 Europe/Paris; daily 00:00-24:00")
	f.Fuzz(func(t *testing.T, text, windows string) {
		if s, err := rollout.ParseSettings(text); err == nil && s != nil {
			d := rollout.Decide(rollout.Input{Now: now, Nodes: many(9, "v0"), Pool: pool("v1", 2, func(p *rollout.Pool) { p.Settings = s })})
			if len(d.Status.Started) > 2 {
				t.Errorf("%q starts %v", text, d.Status.Started)
			}
		}
		if w, err := rollout.ParseWindows(windows); err == nil && len(w) > 0 {
			if o := w.Opens(now); o.IsZero() || !w.Open(o) && !o.IsZero() && w.Closes(o).IsZero() {
				t.Errorf("%q opens at %s", windows, o)
			}
		}
	})
}
