package transition

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Any prefix, again from its start, then the rest: the new state.
// Any prefix, then its inverses: the old state.
func TestEveryPrefixEndsInOldOrNew(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := drawConfig(rt, "a "), drawConfig(rt, "b ")
		host := drawHost(rt)
		first := host.plan(t, Input{Desired: a.spec(), Actions: reboot(), Force: true})
		run(host, first.Steps, first.Blobs)
		p := host.plan(t, Input{Current: a.spec(), Desired: b.spec(), Actions: reboot(),
			Records: []Record{{Path: "/etc/machine-config-daemon/currentconfig", Body: []byte("b"), Mode: 0o644}}})
		if len(p.Refused) > 0 {
			rt.Skip(p.Refused)
		}
		whole := host.copy()
		run(whole, p.Steps, p.Blobs)
		for n := range len(p.Steps) + 1 {
			resumed := host.copy()
			run(resumed, p.Steps[:n], p.Blobs)
			if n > 0 {
				run(resumed, p.Steps[n-1:n], p.Blobs)
			}
			run(resumed, p.Steps[n:], p.Blobs)
			if d := cmp.Diff(whole.String(), resumed.String()); d != "" {
				rt.Fatalf("after %d steps, resumed (-whole +resumed):\n%s", n, d)
			}
			undone := host.copy()
			run(undone, p.Steps[:n], p.Blobs)
			run(undone, Undo(p.Steps[:n]), p.Blobs)
			if d := cmp.Diff(host.String(), undone.String()); d != "" {
				rt.Fatalf("after %d steps, undone (-old +undone):\n%s\nsteps: %v", n, d, p.Steps)
			}
		}
		missingBlobs(rt, p)
	})
}

// missingBlobs checks that whoever journals a plan can perform and undo all of it.
func missingBlobs(rt *rapid.T, p Planned) {
	for _, s := range p.Steps {
		for _, side := range []State{s.Before, s.After} {
			if _, ok := p.Blobs[side.Digest]; side.Digest != "" && !ok {
				rt.Fatalf("%s: no blob %s", s, side.Digest)
			}
		}
	}
}

// A host that took a config agrees with it, and a second plan has nothing to do.
func TestAHostThatTookAConfigAgreesWithIt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := drawConfig(rt, "a "), drawConfig(rt, "b ")
		host := drawHost(rt)
		first := host.plan(t, Input{Desired: a.spec(), Actions: reboot(), Force: true})
		run(host, first.Steps, first.Blobs)
		p := host.plan(t, Input{Current: a.spec(), Desired: b.spec()})
		if len(p.Refused) > 0 {
			rt.Skip(p.Refused)
		}
		run(host, p.Steps, p.Blobs)
		f := host.facts()
		refs, err := Watched(b.spec(), f)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := Differences(b.spec(), f, host.observe(refs), Everything)
		if err != nil || len(got) > 0 {
			rt.Fatalf("host differs from its config: %v %v", got, err)
		}
		again := host.plan(t, Input{Current: b.spec(), Desired: b.spec()})
		if len(again.Steps) > 0 {
			rt.Fatalf("got steps %v for a host that has everything", again.Steps)
		}
	})
}

// Taking a config away again leaves what the vendor had shipped.
func TestTakingAConfigAwayRestoresTheVendorsFiles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := drawConfig(rt, "a ")
		a.Image, a.Keys = "image-0", nil
		delete(a.Files, kubeletCA)
		for name, u := range a.Units {
			u.Mask = nil // an explicit false removes what the vendor put below /etc, as upstream
			a.Units[name] = u
		}
		host := drawHost(rt)
		before := host.String()
		none := config{Image: "image-0"}
		p := host.plan(t, Input{Current: none.spec(), Desired: a.spec()})
		if len(p.Refused) > 0 {
			rt.Skip(p.Refused)
		}
		run(host, p.Steps, p.Blobs)
		back := host.plan(t, Input{Current: a.spec(), Desired: none.spec()})
		run(host, back.Steps, back.Blobs)
		if d := cmp.Diff(before, host.String()); d != "" {
			rt.Fatalf("(-vendor's +left):\n%s\nsteps %v\nback %v", d, p.Steps, back.Steps)
		}
	})
}
