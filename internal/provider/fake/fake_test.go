package fake_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/cloud/cloudtest"
	"millwright.io/millwright/internal/provider/fake"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func harness(opts ...fake.Option) func(*testing.T) *cloudtest.Harness {
	return func(*testing.T) *cloudtest.Harness {
		clk := clocktesting.NewFakePassiveClock(start)
		c := fake.New(clk, opts...)
		ops := map[cloudtest.Step]string{
			cloudtest.FailObserve: fake.OpObserve, cloudtest.FailCreate: fake.OpCreateVM, cloudtest.FailList: fake.OpList,
			cloudtest.FailDelete: fake.OpDeleteVM, cloudtest.FailDeletePart: fake.OpDeleteDisk,
		}
		return &cloudtest.Harness{
			Cloud: c,
			Intent: func(name, uid string) cloud.Intent {
				return cloud.Intent{Key: cloud.Key{UID: uid, Name: name}, Owner: cloudtest.Owner, Group: "set",
					Spec: &fake.Spec{Kind: fake.Kind, Region: "nowhere", Zone: "1", Size: "small"}}
			},
			Fail: func(s cloudtest.Step, k cloud.Kind) bool {
				c.FailNext(ops[s], &cloud.Fault{Kind: k, Message: "scripted"})
				return true
			},
			Settle: func() { clk.SetTime(clk.Now().Add(time.Minute)) },
			Hang:   func() { c.Hang(fake.OpObserve) },
			Vanish: func(name string) { c.Vanish(name) },
			Leaks: func() []string {
				var out []string
				for _, p := range c.Parts() {
					out = append(out, p.Kind+" "+p.Key.Name)
				}
				return out
			},
		}
	}
}

func TestConformance(t *testing.T) {
	t.Run("instant", func(t *testing.T) { cloudtest.Run(t, harness()) })
	t.Run("slow", func(t *testing.T) {
		cloudtest.Run(t, harness(fake.WithCreateCalls(4), fake.WithBootDelay(90*time.Second), fake.WithDeleteDelay(90*time.Second)))
	})
}

func TestFaultsAreScripted(t *testing.T) {
	c := fake.New(clocktesting.NewFakePassiveClock(start))
	in := cloud.Intent{Key: cloud.Key{UID: "u", Name: "m"}, Owner: "o", Spec: &fake.Spec{Kind: fake.Kind, Region: "nowhere"}}
	quota := &cloud.Fault{Kind: cloud.Quota}
	c.FailNext(fake.OpCreateVM, quota)
	if _, err := c.Create(t.Context(), in); cloud.KindOf(err) != cloud.Quota {
		t.Fatalf("scripted create: got %v, want a quota fault", err)
	}
	var kinds []string
	for _, p := range c.Parts() {
		kinds = append(kinds, p.Kind)
	}
	if d := cmp.Diff([]string{"disk", "nic"}, kinds); d != "" {
		t.Errorf("parts after the fault (-want +got):\n%s", d)
	}
	c.FailEvery(fake.OpCreate, &cloud.Fault{Kind: cloud.Denied})
	for range 3 {
		if _, err := c.Create(t.Context(), in); cloud.KindOf(err) != cloud.Denied {
			t.Fatalf("standing fault: got %v, want Denied", err)
		}
	}
	c.FailEvery(fake.OpCreate, nil)
	if _, err := c.Create(t.Context(), in); err != nil {
		t.Fatalf("create after the faults: %v", err)
	}
	if got := c.Calls(fake.OpCreate); got != 5 {
		t.Errorf("calls of create: got %d, want 5", got)
	}
	if got := c.Calls(fake.OpCreateVM); got != 1 {
		t.Errorf("instances made: got %d, want 1", got)
	}
}

func TestRestartTakesTheBootDelay(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(start)
	c := fake.New(clk)
	in := cloud.Intent{Key: cloud.Key{UID: "u", Name: "m"}, Owner: "o", Spec: &fake.Spec{Kind: fake.Kind, Region: "nowhere"}}
	if _, err := c.Create(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	c.SetState("m", cloud.StateStopped, nil)
	c.Slow(fake.OpCreate, time.Minute)
	if err := c.Restart(t.Context(), in.Key); err != nil {
		t.Fatal(err)
	}
	states := []cloud.State{}
	for range 2 {
		i, err := c.Observe(t.Context(), in.Key)
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, i.State)
		clk.SetTime(clk.Now().Add(2 * time.Minute))
	}
	if d := cmp.Diff([]cloud.State{cloud.StateStarting, cloud.StateRunning}, states); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}
}

func TestCodecRoundTrip(t *testing.T) {
	raw := []byte(`{"kind":"FakeMachineProviderSpec","region":"nowhere","zone":"2","sise":"small"}`)
	var c fake.Codec
	s, problems, err := c.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 1 || !problems[0].Warning {
		t.Errorf("problems: got %v, want one warning about sise", problems)
	}
	s = c.Default(s, cloud.SpecContext{})
	out, err := c.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"kind": fake.Kind, "region": "nowhere", "zone": "2", "size": "small",
		"userDataSecret":    map[string]any{"name": "worker-user-data"},
		"credentialsSecret": map[string]any{"name": "fake-cloud-credentials"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("stored spec (-want +got):\n%s", d)
	}
	if u, _ := c.References(s); u.Name != "worker-user-data" {
		t.Errorf("user data: got %q", u.Name)
	}
}

func FuzzDecodeProviderSpec(f *testing.F) {
	f.Add([]byte(`{"kind":"FakeMachineProviderSpec","size":"small"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var c fake.Codec
		s, _, err := c.Decode(raw)
		if err != nil {
			return
		}
		out, err := c.Encode(s)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		again, _, err := c.Decode(out)
		if err != nil || c.Digest(again) != c.Digest(s) {
			t.Fatalf("round trip changed %s: %v", out, err)
		}
	})
}
