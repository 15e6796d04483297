package diff_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/render"
)

// spec reads a MachineConfigSpec.
func spec(t testing.TB, text string) mcfgv1.MachineConfigSpec {
	t.Helper()
	var s mcfgv1.MachineConfigSpec
	if err := yaml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func config(rest string) string { return "{config: {ignition: {version: 3.4.0}, " + rest + "}}" }

func compute(t testing.TB, a, b string) diff.Diff {
	t.Helper()
	d, err := diff.Compute(spec(t, a), spec(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func brief(d diff.Diff) []string {
	out := []string{}
	for _, c := range d.Changes {
		s := fmt.Sprintf("%s %s %s", c.Op, c.Kind, c.Key)
		if len(c.Fields) > 0 {
			s += " " + strings.Join(c.Fields, ",")
		}
		out = append(out, s)
	}
	return out
}

func gz(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return "data:;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestComputeComparesByMeaning(t *testing.T) {
	f := func(rest string) string { return config("storage: {files: [{path: /etc/a, " + rest + "}]}") }
	unit := func(rest string) string { return config("systemd: {units: [{name: a.service" + rest + "}]}") }
	user := func(rest string) string { return config("passwd: {users: [{name: core, " + rest + "}]}") }
	for _, row := range []struct {
		name, a, b string
		want       []string
	}{
		{name: "C04 mode left out is 0644", a: f(`mode: 420, contents: {source: "data:,a"}`), b: f(`contents: {source: "data:,a"}`)},
		{name: "owner left out is root", a: f(`user: {name: root}, group: {id: 0}, contents: {source: "data:,a"}`), b: f(`contents: {source: "data:,a"}`)},
		{name: "overwrite does not count", a: f(`overwrite: true, contents: {source: "data:,a"}`), b: f(`overwrite: false, contents: {source: "data:,a"}`)},
		{name: "base64 is the same", a: f(`contents: {source: "data:,a%0A"}`), b: f(`contents: {source: "data:;base64,YQo="}`)},
		{name: "gzip is the same", a: f(`contents: {source: "data:,a%0A"}`), b: f(`contents: {source: "` + gz("a\n") + `", compression: gzip}`)},
		{name: "no source is empty", a: f(`overwrite: false`), b: f(`contents: {source: "data:,"}`)},
		{name: "another spec version is the same", a: f(`contents: {source: "data:,a"}`), b: strings.Replace(f(`contents: {source: "data:,a"}`), "3.4.0", "3.1.0", 1)},
		{name: "no config is an empty one", a: "{}", b: "{config: {ignition: {version: 3.4.0}}}"},
		{name: "contents and mode", a: f(`contents: {source: "data:,a"}`), b: f(`mode: 384, user: {id: 5}, contents: {source: "data:,b"}`), want: []string{"changed file /etc/a contents,mode,owner"}},
		{name: "file added", a: "{}", b: f(`contents: {source: "data:,a"}`), want: []string{"added file /etc/a"}},
		{name: "file removed", a: f(`contents: {source: "data:,a"}`), b: "{}", want: []string{"removed file /etc/a"}},
		{name: "unit enabled", a: unit(`, contents: "[Unit]"`), b: unit(`, contents: "[Unit]", enabled: true`), want: []string{"changed unit a.service enabled"}},
		{name: "false is not unset", a: unit(`, contents: "[Unit]"`), b: unit(`, contents: "[Unit]", enabled: false`), want: []string{"changed unit a.service enabled"}},
		{name: "unit masked", a: unit(`, contents: "[Unit]"`), b: unit(`, contents: "[Unit]", mask: true`), want: []string{"changed unit a.service mask"}},
		{name: "mask false is unset", a: unit(`, contents: "[Unit]"`), b: unit(`, contents: "[Unit]", mask: false`)},
		{name: "masked contents are not written", a: unit(`, mask: true, contents: "[Unit]"`), b: unit(`, mask: true, contents: "[Service]"`)},
		{name: "drop-in only", a: "{}", b: unit(`, dropins: [{name: 10.conf, contents: "[Unit]"}]`), want: []string{"added dropin a.service/10.conf"}},
		{name: "empty drop-in is none", a: "{}", b: unit(`, dropins: [{name: 10.conf, contents: ""}]`)},
		{name: "ssh key", a: user(`sshAuthorizedKeys: [k1]`), b: user(`sshAuthorizedKeys: [k2, k1]`), want: []string{"added sshKey core/k2"}},
		{name: "order of keys", a: user(`sshAuthorizedKeys: [k1, k2]`), b: user(`sshAuthorizedKeys: [k2, k1]`)},
		{name: "password", a: user(`passwordHash: one`), b: user(`passwordHash: two`), want: []string{"changed passwordHash core"}},
		{name: "C07 one of repeated pairs", a: "{kernelArguments: [hugepagesz=1G, hugepages=4, hugepagesz=2M, hugepages=512]}", b: "{kernelArguments: [hugepagesz=1G, hugepages=4, hugepagesz=2M, hugepages=1024]}", want: []string{"changed kernelArgument hugepages=1024"}},
		{name: "C07 a repeat counts", a: "{kernelArguments: [a]}", b: "{kernelArguments: [a, a]}", want: []string{"added kernelArgument a"}},
		{name: "C07 order counts", a: "{kernelArguments: [a, b]}", b: "{kernelArguments: [b, a]}", want: []string{"removed kernelArgument a", "added kernelArgument a"}},
		{name: "one entry may hold several", a: `{kernelArguments: ['a b="c d"']}`, b: `{kernelArguments: [a, 'b="c d"']}`},
		{name: "extensions are a set", a: "{extensions: [usbguard, ipsec, ipsec]}", b: "{extensions: [ipsec, usbguard, sysstat]}", want: []string{"added extension sysstat"}},
		{name: "no kernel type is the default one", a: "{kernelType: ''}", b: "{kernelType: default}"},
		{name: "system", a: "{osImageURL: a}", b: "{osImageURL: b, kernelType: realtime, fips: true}", want: []string{"changed osImageURL ", "changed kernelType ", "changed fips "}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.want == nil {
				row.want = []string{}
			}
			if d := cmp.Diff(brief(compute(t, row.a, row.b)), row.want); d != "" {
				t.Errorf("got -, want +:\n%s", d)
			}
		})
	}
}

func TestPasswordHashesAreNotShown(t *testing.T) {
	const secret = "$6$salt$hash"
	d := compute(t, "{}", config("passwd: {users: [{name: core, passwordHash: "+secret+"}]}"))
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := diff.Text(&out, d); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw)+out.String(), secret) {
		t.Errorf("the hash is shown: %s\n%s", raw, out.String())
	}
}

func TestUnreconcilableTexts(t *testing.T) {
	file := `contents: {source: "data:,a"}`
	for _, row := range []struct{ name, a, b, want string }{
		{"groups", "{}", config("passwd: {groups: [{name: a}]}"), "invalid passwd change(s): ignition Passwd Groups section contains changes"},
		{"other user", "{}", config("passwd: {users: [{name: bob}]}"), "invalid passwd change(s): ignition passwd user section contains unsupported changes: non-core user"},
		{"no keys", "{}", config("passwd: {users: [{name: core}]}"), "invalid passwd change(s): ignition passwd user section contains unsupported changes: user must be core and have 1 or more sshKeys"},
		{"other fields", "{}", config("passwd: {users: [{name: core, shell: /bin/sh, sshAuthorizedKeys: [k]}]}"), "invalid passwd change(s): SSH keys and password hash are not reconcilable"},
		{"all users gone", config("passwd: {users: [{name: core, sshAuthorizedKeys: [k]}]}"), "{}", ""},
		{"kernel arguments of Ignition", "{}", config("kernelArguments: {shouldExist: [a]}"), "ignition kargs section contains changes"},
		{"disks", "{}", config("storage: {disks: [{device: /dev/sdb}]}"), "ignition disks section contains changes"},
		{"filesystems", "{}", config("storage: {filesystems: [{device: /dev/sdb, format: xfs}]}"), "ignition filesystems section contains changes"},
		{"raid", "{}", config("storage: {raid: [{name: a, level: stripe, devices: [/dev/a]}]}"), "ignition raid section contains changes"},
		{"directories", "{}", config("storage: {directories: [{path: /etc/a}]}"), "ignition directories section contains changes"},
		{"links", "{}", config("storage: {links: [{path: /etc/a, target: /b}]}"), "ignition links section contains changes"},
		{"all links gone", config("storage: {links: [{path: /etc/a, target: /b}]}"), "{}", ""},
		{"append unchanged", config(`storage: {files: [{path: /etc/a, append: [{source: "data:,a"}]}]}`), config(`storage: {files: [{path: /etc/a, append: [{source: "data:,a"}]}]}`), "ignition file /etc/a includes append"},
		{"force file", "{}", config("storage: {files: [{path: /run/machine-config-daemon-force, " + file + "}]}"), "cannot create /run/machine-config-daemon-force via Ignition"},
		{"FIPS", "{}", "{fips: true}", "detected change to FIPS flag; refusing to modify FIPS on a running cluster"},
		{"encrypted disks are not looked at", "{}", config("storage: {luks: [{name: a, device: /dev/a}]}"), ""},
		{"files are fine", "{}", config("storage: {files: [{path: /etc/a, " + file + "}]}"), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := ""
			if d := compute(t, row.a, row.b); len(d.Unreconcilable) > 0 {
				got = d.Unreconcilable[0].Reason
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestReconcileVectors(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "reconcile-cases.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		MachineConfigs map[string]mcfgv1.MachineConfigSpec `json:"machineconfigs"`
		Cases          []struct {
			ID                              string
			Old, New                        []string
			Error, ErrorPrefix, ErrorSuffix string
		}
	}
	if err := yaml.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, c := range vectors.Cases {
		t.Run(c.ID, func(t *testing.T) {
			merged := func(names []string, as string) (diff.Named, []diff.Named) {
				var in []render.Fragment
				var sources []diff.Named
				for _, n := range names {
					in = append(in, render.Fragment{Name: n, Labels: map[string]string{render.RoleLabel: "worker"}, Spec: vectors.MachineConfigs[n]})
					sources = append(sources, diff.Named{Name: n, Spec: vectors.MachineConfigs[n]})
				}
				r, err := render.RenderSelected("worker", in, render.Base{})
				if err != nil {
					t.Fatal(err)
				}
				return diff.Named{Name: as, Spec: r.Spec}, sources
			}
			before, _ := merged(c.Old, "rendered-worker-OLD")
			after, sources := merged(c.New, "rendered-worker-NEW")
			refusal := diff.Reconcile(before, after, diff.Overrides{})
			if refusal == nil {
				t.Fatal("got no refusal")
			}
			got := diff.Blame(refusal, before, sources, diff.Overrides{}).Error()
			if c.Error != "" && got != c.Error {
				t.Errorf("got  %q\nwant %q", got, c.Error)
			}
			if !strings.HasPrefix(got, c.ErrorPrefix) || !strings.HasSuffix(got, c.ErrorSuffix) {
				t.Errorf("got  %q\nwant %q … %q", got, c.ErrorPrefix, c.ErrorSuffix)
			}
		})
	}
	if len(vectors.Cases) < 7 {
		t.Errorf("got %d cases, want all 7", len(vectors.Cases))
	}
}

func TestOverridesLiftDisks(t *testing.T) {
	a := diff.Named{Name: "a", Spec: spec(t, "{config: {ignition: {version: 3.4.0}}}")}
	b := diff.Named{Name: "b", Spec: spec(t, config("storage: {disks: [{device: /dev/sdb}]}"))}
	if err := diff.Reconcile(a, b, diff.Overrides{Disks: true}); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := diff.Reconcile(a, b, diff.Overrides{Raid: true}); err == nil {
		t.Error("got nil, want a refusal")
	}
}

func TestText(t *testing.T) {
	a := `{kernelArguments: [quiet, a=1], config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/a, contents: {source: "data:,1%0A2%0A3%0A4%0A5%0A6%0A7%0A8%0A9%0A"}}]}}}`
	b := `{kernelArguments: [quiet, a=2, nosmt], config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/a, mode: 384, contents: {source: "data:,1%0A2%0A3%0A4%0A5x%0A6%0A7%0A8%0A9"}}]}, systemd: {units: [{name: a.service, enabled: true, contents: "[Unit]\n"}]}}}`
	var out bytes.Buffer
	if err := diff.Text(&out, compute(t, a, b)); err != nil {
		t.Fatal(err)
	}
	want := `~ kernel argument a=2
    was: a=1 → a=2
+ kernel argument nosmt
~ file /etc/a
    mode: 0644 → 0600
    @@ -2,8 +2,8 @@
     2
     3
     4
    -5
    +5x
     6
     7
     8
    -9
    +9
    \ No newline at end
+ unit a.service
    enabled: (none) → true
    @@ -0,0 +1,1 @@
    +[Unit]
`
	if d := cmp.Diff(out.String(), want); d != "" {
		t.Errorf("got -, want +:\n%s", d)
	}
}

// world is a config in a form that is easy to change.
type world struct {
	Kargs []string
	Files map[string]string
	Units map[string]string
}

func drawWorld(rt *rapid.T, label string) world {
	return world{
		Kargs: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "a=1", "a=2", "c=3"}), 0, 8).Draw(rt, label+" kargs"),
		Files: rapid.MapOfN(rapid.SampledFrom([]string{"/a", "/b", "/etc/c", "/d"}), rapid.StringMatching("[ -~\n]{0,8}"), 0, 4).Draw(rt, label+" files"),
		Units: rapid.MapOfN(rapid.SampledFrom([]string{"a.service", "b.timer"}), rapid.StringMatching("[a-z]{1,4}"), 0, 2).Draw(rt, label+" units"),
	}
}

// spec encodes contents in a way of its own, files in an order of its own.
func (w world) spec(rt *rapid.T, label string) mcfgv1.MachineConfigSpec {
	type m = map[string]any
	files, units := []any{}, []any{}
	for _, p := range rapid.Permutation(slices.Sorted(maps.Keys(w.Files))).Draw(rt, label+" order") {
		source, contents := w.Files[p], m{}
		switch rapid.IntRange(0, 2).Draw(rt, label+" encoding") {
		case 0:
			contents["source"] = "data:," + url.PathEscape(source)
		case 1:
			contents["source"] = "data:;base64," + base64.StdEncoding.EncodeToString([]byte(source))
		case 2:
			contents["source"], contents["compression"] = gz(source), "gzip"
		}
		files = append(files, m{"path": p, "contents": contents})
	}
	for name, text := range w.Units {
		units = append(units, m{"name": name, "contents": text})
	}
	raw, err := json.Marshal(m{"ignition": m{"version": "3.4.0"}, "storage": m{"files": files}, "systemd": m{"units": units}})
	if err != nil {
		rt.Fatal(err)
	}
	return mcfgv1.MachineConfigSpec{KernelArguments: w.Kargs, Config: runtime.RawExtension{Raw: raw}}
}

// apply makes the changes to a world.
func (w world) apply(changes []diff.Change) world {
	out := world{Files: maps.Clone(w.Files), Units: maps.Clone(w.Units)}
	gone, put := map[int]bool{}, map[int]string{}
	for _, c := range changes {
		target := out.Files
		switch c.Kind {
		case render.KindKernelArgument:
			if c.Before != nil {
				gone[c.Before.Index] = true
			}
			if c.After != nil {
				put[c.After.Index] = c.After.Value
			}
			continue
		case render.KindUnit:
			target = out.Units
		}
		if c.After == nil {
			delete(target, c.Key)
		} else {
			target[c.Key] = string(c.After.Contents)
		}
	}
	var kept []string
	for i, k := range w.Kargs {
		if !gone[i] {
			kept = append(kept, k)
		}
	}
	for i := 0; len(kept) > 0 || len(put) > 0; i++ {
		if v, ok := put[i]; ok {
			out.Kargs = append(out.Kargs, v)
			delete(put, i)
			continue
		}
		if len(kept) == 0 {
			return world{Kargs: []string{"a hole in the list"}}
		}
		out.Kargs, kept = append(out.Kargs, kept[0]), kept[1:]
	}
	return out
}

func TestApplyingChangesGivesTheOtherConfig(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := drawWorld(rt, "a"), drawWorld(rt, "b")
		if len(b.Kargs) == 0 {
			b.Kargs = nil
		}
		d, err := diff.Compute(a.spec(rt, "a"), b.spec(rt, "b"))
		if err != nil {
			rt.Fatal(err)
		}
		if x := cmp.Diff(a.apply(d.Changes), b); x != "" {
			rt.Fatalf("got -, want +:\n%s", x)
		}
		same, err := diff.Compute(a.spec(rt, "a again"), a.spec(rt, "a once more"))
		if err != nil || !same.Empty() {
			rt.Fatalf("got %v, %v between two encodings of one config", brief(same), err)
		}
	})
}

func FuzzCompute(f *testing.F) {
	f.Add([]byte(`{"ignition":{"version":"3.4.0"}}`), []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,a"}}]}}`))
	f.Add([]byte(`{"ignition":{"version":"2.2.0"}}`), []byte(`{"ignition":{"version":"3.4.0"},"passwd":{"users":[{"name":"core"}]}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		one := mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: a}, KernelArguments: []string{string(a)}}
		two := mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: b}, KernelArguments: []string{string(b)}}
		there, err := diff.Compute(one, two)
		if err != nil {
			return
		}
		if err := diff.Text(&bytes.Buffer{}, there); err != nil {
			t.Fatal(err)
		}
		back, err := diff.Compute(two, one)
		if err != nil || len(back.Changes) == 0 != there.Empty() {
			t.Errorf("got %v there, %v and %v back", brief(there), brief(back), err)
		}
		if self, err := diff.Compute(one, one); err != nil || !self.Empty() {
			t.Errorf("got %v, %v against itself", brief(self), err)
		}
	})
}

func manyFiles(n int, last string) mcfgv1.MachineConfigSpec {
	var b strings.Builder
	b.WriteString(`{"ignition":{"version":"3.5.0"},"storage":{"files":[`)
	for i := range n {
		text := strings.Repeat("x", 200)
		if i == n-1 {
			text = last
		}
		fmt.Fprintf(&b, `{"path":"/etc/f/%06d","mode":420,"overwrite":true,"contents":{"source":"data:,%s"}},`, i, text)
	}
	raw := strings.TrimSuffix(b.String(), ",") + "]}}"
	return mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}}
}

func BenchmarkCompute(b *testing.B) {
	for _, n := range []int{10, 2000, 10000} {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			one, two := manyFiles(n, "a"), manyFiles(n, "b")
			b.ReportAllocs()
			for b.Loop() {
				if d, err := diff.Compute(one, two); err != nil || len(d.Changes) != 1 {
					b.Fatal(d, err)
				}
			}
		})
	}
}
