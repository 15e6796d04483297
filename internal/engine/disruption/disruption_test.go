package disruption_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/render"
)

func file(path string) diff.Change {
	return diff.Change{Kind: render.KindFile, Key: path, Op: diff.Changed, Before: &diff.Item{}, After: &diff.Item{}}
}

func unit(name string) diff.Change {
	return diff.Change{Kind: render.KindUnit, Key: name, Op: diff.Changed}
}

func registries(before, after string) diff.Change {
	c := file("/etc/containers/registries.conf")
	c.Before.Contents, c.After.Contents = []byte(before), []byte(after)
	return c
}

var (
	karg   = diff.Change{Kind: render.KindKernelArgument, Key: "nosmt", Op: diff.Added}
	sshKey = diff.Change{Kind: render.KindSSHKey, Key: "core/ssh-ed25519 AAAA ann@home", Op: diff.Added}
)

func policy(t testing.TB, text string) disruption.Policy {
	t.Helper()
	var spec operatorv1.NodeDisruptionPolicyConfig
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	p, problems := disruption.Merge(spec)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

const digestMirror = "[[registry]]\nprefix = \"\"\nlocation = \"a.example\"\n[[registry.mirror]]\nlocation = \"m.example\"\npull-from-mirror = \"digest-only\"\n"

func TestDecide(t *testing.T) {
	user := policy(t, `
files:
- {path: /etc/chrony.conf, actions: [{type: Restart, restart: {serviceName: chronyd.service}}]}
- {path: /etc/app, actions: [{type: Reload, reload: {serviceName: app.service}}]}
- {path: /etc/app/secret, actions: [{type: Drain}, {type: DaemonReload}, {type: Restart, restart: {serviceName: app.service}}]}
- {path: /etc/containers/policy.json, actions: [{type: None}]}
units:
- {name: app.service, actions: [{type: DaemonReload}, {type: Reload, reload: {serviceName: app.service}}]}
`)
	strict := policy(t, "sshkey: {actions: [{type: Drain}]}")
	standard := disruption.Defaults()
	for _, row := range []struct {
		name    string
		policy  disruption.Policy
		changes []diff.Change
		want    string
		drain   bool
	}{
		{"nothing", standard, nil, "none", false},
		{"C18 mixed", standard, []diff.Change{sshKey, file("/etc/containers/policy.json"), karg}, "reboot, forced by kernel argument nosmt: kernel arguments change only with a reboot", true},
		{"C18 without the argument", standard, []diff.Change{sshKey, file("/etc/containers/policy.json")}, "reload crio.service, forced by file /etc/containers/policy.json: file policy /etc/containers/policy.json (default)", false},
		{"C18 only the key", standard, []diff.Change{sshKey}, "none, forced by ssh key of user core: ann@home: ssh key policy (default)", false},
		{"unknown file", standard, []diff.Change{file("/etc/b"), file("/etc/a")}, "reboot, forced by file /etc/a: no node disruption policy covers the file (and 1 more)", true},
		{"unknown unit", standard, []diff.Change{unit("a.service")}, "reboot, forced by unit a.service: no node disruption policy covers the unit", true},
		{"directory", standard, []diff.Change{file("/etc/containers/registries.d/a")}, "reload crio.service, forced by file /etc/containers/registries.d/a: file policy /etc/containers/registries.d (default)", false},
		{"only whole segments", standard, []diff.Change{file("/etc/containers/registries.dx")}, "reboot, forced by file /etc/containers/registries.dx: no node disruption policy covers the file", true},
		{"a default replaced", user, []diff.Change{file("/etc/containers/policy.json")}, "none, forced by file /etc/containers/policy.json: file policy /etc/containers/policy.json (set by the admin)", false},
		{"nearest rule", user, []diff.Change{file("/etc/app/secret/a")}, "drain, daemon-reload, restart app.service, forced by file /etc/app/secret/a: file policy /etc/app/secret (set by the admin)", true},
		{"a restart spares the reload", user, []diff.Change{file("/etc/app/a"), file("/etc/app/secret"), unit("app.service")}, "drain, daemon-reload, restart app.service, forced by file /etc/app/secret: file policy /etc/app/secret (set by the admin)", true},
		{"twice the same", user, []diff.Change{file("/etc/app/a"), file("/etc/app/b")}, "reload app.service, forced by file /etc/app/a: file policy /etc/app (set by the admin) (and 1 more)", false},
		{"drop-in counts as its unit", user, []diff.Change{{Kind: render.KindDropin, Key: "app.service/10.conf", Op: diff.Added}}, "daemon-reload, reload app.service, forced by drop-in app.service/10.conf: unit policy app.service (set by the admin)", false},
		{"strict keys", strict, []diff.Change{sshKey}, "drain, forced by ssh key of user core: ann@home: ssh key policy (set by the admin)", true},
		{"inert", standard, []diff.Change{{Kind: render.KindExtensionsImage, Inert: true}}, "none, forced by extensions image: a running node does not apply it", false},
		{"mirror by digest added", standard, []diff.Change{registries("", digestMirror)}, "reload crio.service, forced by file /etc/containers/registries.conf: file policy /etc/containers/registries.conf (default)", false},
		{"mirror removed", standard, []diff.Change{registries(digestMirror, "")}, "drain, reload crio.service, forced by file /etc/containers/registries.conf: file policy /etc/containers/registries.conf (default)", true},
		{"mirror for tags added", standard, []diff.Change{registries("", strings.Replace(digestMirror, "digest-only", "all", 1))}, "drain, reload crio.service, forced by file /etc/containers/registries.conf: file policy /etc/containers/registries.conf (default)", true},
		{"search list grows", standard, []diff.Change{registries(`unqualified-search-registries = ["a"]`, `unqualified-search-registries = ["a", "b"]`)}, "reload crio.service, forced by file /etc/containers/registries.conf: file policy /etc/containers/registries.conf (default)", false},
		{"search list reordered", standard, []diff.Change{registries(`unqualified-search-registries = ["a", "b"]`, `unqualified-search-registries = ["b", "a"]`)}, "drain, reload crio.service, forced by file /etc/containers/registries.conf: file policy /etc/containers/registries.conf (default)", true},
		{"not TOML", standard, []diff.Change{registries("", "[[")}, "drain, reload crio.service, forced by file /etc/containers/registries.conf: file policy /etc/containers/registries.conf (default)", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := disruption.Decide(row.changes, row.policy)
			if got.String() != row.want || got.Drain != row.drain {
				t.Errorf("got  %s, drain %t\nwant %s, drain %t", got, got.Drain, row.want, row.drain)
			}
		})
	}
}

func TestMergeReplacesInPlaceAndAppends(t *testing.T) {
	got := policy(t, `{files: [{path: /etc/crio/policies, actions: [{type: Reboot}]}, {path: /etc/new, actions: [{type: None}]}]}`)
	want := disruption.Defaults()
	want.Files[5] = disruption.Rule{Match: "/etc/crio/policies", Actions: []disruption.Action{{Kind: disruption.Reboot}}, User: true}
	want.Files = append(want.Files, disruption.Rule{Match: "/etc/new", Actions: []disruption.Action{{Kind: disruption.None}}, User: true})
	if d := cmp.Diff(got, want, cmpopts.IgnoreUnexported(disruption.Action{})); d != "" {
		t.Errorf("got -, want +:\n%s", d)
	}
}

func TestMergeNamesWhatTheAPIWouldRefuse(t *testing.T) {
	for text, want := range map[string]string{
		`{files: [{path: etc/a, actions: [{type: None}]}]}`:        `spec.nodeDisruptionPolicy.files[0].path: "etc/a": start the path with /`,
		`{units: [{name: a.service, actions: []}]}`:                "spec.nodeDisruptionPolicy.units[0]: no actions",
		`{units: [{name: a.service, actions: [{type: Restart}]}]}`: `action "Restart": want None`,
		`{sshkey: {actions: [{type: Special}]}}`:                   `action "Special": want None`,
		`{sshkey: {actions: [{type: Reboot}, {type: Drain}]}}`:     "action Reboot must stand alone",
	} {
		var spec operatorv1.NodeDisruptionPolicyConfig
		if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		if _, problems := disruption.Merge(spec); !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("%s: got %v, want %q", text, problems, want)
		}
	}
}

func TestStatusRoundTrip(t *testing.T) {
	p := disruption.Defaults()
	status := p.Status()
	if got := status.Files[3].Actions[0].Type; got != operatorv1.SpecialStatusAction {
		t.Errorf("registries.conf: got %s, want Special", got)
	}
	if d := cmp.Diff(disruption.FromStatus(status), p, cmp.AllowUnexported(disruption.Action{})); d != "" {
		t.Errorf("got -, want +:\n%s", d)
	}
}

// TestDecideOrdersCausesOfOneItem holds two changes of one item that differ only
// in the rule that judges them.
func TestDecideOrdersCausesOfOneItem(t *testing.T) {
	a := diff.Change{Kind: render.KindUser, Key: "core", Op: diff.Changed}
	b := a
	b.Inert = true
	p := disruption.Defaults()
	one, other := disruption.Decide([]diff.Change{a, b}, p).String(), disruption.Decide([]diff.Change{b, a}, p).String()
	if one != other {
		t.Errorf("got %q and %q, want the same for both orders", one, other)
	}
}

func TestDecideIsNeverWeakerThanOneChangeAndIgnoresOrder(t *testing.T) {
	kinds := []string{render.KindFile, render.KindUnit, render.KindDropin, render.KindSSHKey, render.KindKernelArgument, render.KindUser, "new kind"}
	keys := []string{"/etc/crio/policies/a", "/etc/app/a", "/etc/app/secret", "/etc/nmstate/openshift/x", "iri-registry.service", "iri-registry.service/1.conf", "b.service"}
	p := policy(t, `{files: [{path: /etc/app, actions: [{type: Reload, reload: {serviceName: app.service}}]}, {path: /etc/app/secret, actions: [{type: Drain}, {type: Restart, restart: {serviceName: app.service}}]}]}`)
	rapid.Check(t, func(rt *rapid.T) {
		changes := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) diff.Change {
			return diff.Change{Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), Key: rapid.SampledFrom(keys).Draw(rt, "key"), Op: diff.Changed, Inert: rapid.IntRange(0, 5).Draw(rt, "inert") == 0}
		}), 0, 6).Draw(rt, "changes")
		got := disruption.Decide(changes, p)
		for _, c := range changes {
			one := disruption.Decide([]diff.Change{c}, p)
			if one.Strongest > got.Strongest || (one.Drain && !got.Drain) {
				rt.Fatalf("got %s, but %s alone asks for %s", got, c.Label(), one)
			}
		}
		if d := cmp.Diff(disruption.Decide(rapid.Permutation(changes).Draw(rt, "order"), p).String(), got.String()); d != "" {
			rt.Fatalf("the order matters: %s", d)
		}
	})
}

func FuzzRegistries(f *testing.F) {
	f.Add("", digestMirror)
	f.Add(digestMirror, `unqualified-search-registries = ["a"]`)
	f.Fuzz(func(t *testing.T, before, after string) {
		d := disruption.Decide([]diff.Change{registries(before, after)}, disruption.Defaults())
		if d.Strongest != disruption.Reload && d.Strongest != disruption.Drain {
			t.Errorf("got %s, want a reload or a drain", d)
		}
	})
}

func manyFiles(n int, text string) mcfgv1.MachineConfigSpec {
	var b strings.Builder
	b.WriteString(`{"ignition":{"version":"3.5.0"},"storage":{"files":[`)
	for i := range n {
		fmt.Fprintf(&b, `{"path":"/etc/f/%06d","mode":420,"overwrite":true,"contents":{"source":"data:,%s"}},`, i, text)
	}
	return mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(strings.TrimSuffix(b.String(), ",") + "]}}")}}
}

// BenchmarkPlan is what one pool costs: all of its files change.
func BenchmarkPlan(b *testing.B) {
	one, two, p := manyFiles(2000, strings.Repeat("x", 200)), manyFiles(2000, strings.Repeat("y", 200)), disruption.Defaults()
	b.ReportAllocs()
	for b.Loop() {
		d, err := diff.Compute(one, two)
		if err != nil {
			b.Fatal(err)
		}
		if got := disruption.Decide(d.Changes, p); got.Strongest != disruption.Reboot {
			b.Fatal(got)
		}
	}
}
