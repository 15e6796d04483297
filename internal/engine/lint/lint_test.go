package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/render"
)

// fragment reads a manifest.
func fragment(t testing.TB, manifest string) lint.Fragment {
	t.Helper()
	var mc mcfgv1.MachineConfig
	if err := yaml.Unmarshal([]byte(manifest), &mc); err != nil {
		t.Fatal(err)
	}
	return lint.Fragment{Fragment: render.FromMachineConfig(&mc), Manifest: []byte(manifest)}
}

// worker is a manifest of role worker with a spec in flow style.
func worker(name, spec string) string { return roled(name, "worker", spec) }

func roled(name, role, spec string) string {
	return fmt.Sprintf("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\n"+
		"metadata: {name: %s, labels: {machineconfiguration.openshift.io/role: %s}}\nspec: %s\n", name, role, spec)
}

func config(rest string) string { return "{config: {ignition: {version: 3.4.0}, " + rest + "}}" }

func file(rest string) string { return config("storage: {files: [{" + rest + "}]}") }

func pool(name string, roles ...string) lint.Pool {
	return lint.Pool{
		Name: name,
		Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: render.RoleLabel, Operator: metav1.LabelSelectorOpIn, Values: roles}}},
		NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}},
	}
}

// brief is rule, severity, field and value.
func brief(findings []lint.Finding) []string {
	out := []string{}
	for _, f := range findings {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", f.Severity, f.Rule, f.Field, f.Value)))
	}
	return out
}

func TestSeedManifests(t *testing.T) {
	read := func(name string) lint.Fragment {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		f := fragment(t, string(raw))
		f.Source = lint.Source{File: name, Line: 1}
		return f
	}
	got := lint.Lint(lint.Input{Fragments: []lint.Fragment{read("99-worker-always-degraded.yaml")}})
	want := `99-worker-always-degraded.yaml:1: error: MachineConfig/99-worker-always-degraded: spec.config.storage.files[0].path: "/tmp/tmpfile": ` +
		`the file on a volatile path vanishes at the reboot that its own application needs, so the node would be Degraded for ever; ` +
		`keep it on disk, e.g. below /etc or /var (/var/tmp survives), or let a unit or tmpfiles.d make it at boot [volatile-path]`
	if len(got) != 1 || got[0].String() != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if clean := lint.Lint(lint.Input{Fragments: []lint.Fragment{read("99-worker-add-mc-test.yaml")}}); len(clean) > 0 {
		t.Errorf("got %v, want nothing", clean)
	}
}

func TestLintJudgesFragments(t *testing.T) {
	plain := `contents: {source: "data:,a"}`
	for _, row := range []struct {
		name, spec string
		want       []string
		says       string
	}{
		{name: "C01 tmp", spec: file("path: /tmp/scratch/note.txt, mode: 420, " + plain), want: []string{"error volatile-path spec.config.storage.files[0].path /tmp/scratch/note.txt"}},
		{name: "C01 run", spec: file("path: /run/a, " + plain), want: []string{"error volatile-path spec.config.storage.files[0].path /run/a"}},
		{name: "C01 dev shm", spec: file("path: /dev/shm/a, " + plain), want: []string{"error volatile-path spec.config.storage.files[0].path /dev/shm/a"}},
		{name: "C01 proc", spec: file("path: /proc/sys/a, " + plain), want: []string{"error volatile-path spec.config.storage.files[0].path /proc/sys/a"}, says: "belongs to the kernel"},
		{name: "C01 sys", spec: file("path: /sys/a, " + plain), want: []string{"error volatile-path spec.config.storage.files[0].path /sys/a"}},
		{name: "C01 var tmp survives", spec: file("path: /var/tmp/a, " + plain)},
		{name: "C01 only a whole segment counts", spec: file("path: /tmpfiles/a, " + plain)},
		{name: "C02 octal typo", spec: file("path: /etc/a, mode: 644, " + plain), want: []string{"error file-mode spec.config.storage.files[0].mode 644 (01204)"}, says: "write 420 if you mean 0644"},
		{name: "C02 setuid", spec: file("path: /etc/a, mode: 2541, " + plain), want: []string{"error file-mode spec.config.storage.files[0].mode 2541 (04755)"}, says: "write 493 (0755)"},
		{name: "C02 typo within range", spec: file("path: /etc/a, mode: 440, " + plain), want: []string{"warning mode-octal-typo spec.config.storage.files[0].mode 440 (0670)"}, says: "write 288 if you mean 0440"},
		{name: "C02 usual decimals", spec: config(`storage: {files: [{path: /a, mode: 420, ` + plain + `}, {path: /b, mode: 384, ` + plain + `}, {path: /c, mode: 493, ` + plain + `}, {path: /d, mode: 511, ` + plain + `}]}`)},
		{name: "C04 mode left out", spec: file("path: /etc/a, " + plain)},
		{name: "C05 octal in YAML", spec: file("path: /etc/a, mode: 0644, " + plain), want: []string{"warning yaml-octal-ambiguous mode 0644"}, says: "write 420"},
		{name: "C06 empty contents", spec: config(`systemd: {units: [{name: blank.service, enabled: true, contents: ""}]}`), want: []string{"warning unit-empty spec.config.systemd.units[0].contents blank.service"}},
		{name: "C06 nobody told", spec: config(`systemd: {units: [{name: kdump.service, enabled: true}]}`), want: []string{"warning unit-unknown spec.config.systemd.units[0].name kdump.service"}},
		{name: "masked and enabled", spec: config(`systemd: {units: [{name: a.service, enabled: true, mask: true}]}`), want: []string{"error unit-masked-enabled spec.config.systemd.units[0] a.service"}},
		{name: "C07 repeats are fine", spec: "{kernelArguments: [hugepagesz=1G, hugepages=4, hugepagesz=2M, hugepages=4]}"},
		{name: "open quote", spec: `{kernelArguments: ['a="b c']}`, want: []string{`error kernel-argument-quotes spec.kernelArguments[0] a="b c`}},
		{name: "quoted blank", spec: `{kernelArguments: ['a="b c"']}`, want: []string{`warning kernel-argument-quotes spec.kernelArguments[0] a="b c"`}},
		{name: "empty argument", spec: `{kernelArguments: [" "]}`, want: []string{"warning kernel-argument-empty spec.kernelArguments[0]"}},
		{name: "force file", spec: file("path: /run/machine-config-daemon-force, " + plain), want: []string{"error force-file spec.config.storage.files[0].path /run/machine-config-daemon-force"}},
		{name: "append", spec: file(`path: /etc/a, append: [{source: "data:,a"}]`), want: []string{"error file-append spec.config.storage.files[0].append /etc/a"}},
		{name: "no source", spec: file("path: /etc/a"), want: []string{"warning file-without-source spec.config.storage.files[0].contents.source /etc/a"}},
		{name: "fetched", spec: file(`path: /etc/a, contents: {source: "https://example.com/a"}`), want: []string{"error remote-source spec.config.storage.files[0].contents.source https:…"}},
		{name: "no gzip", spec: file(`path: /etc/a, contents: {source: "data:,a", compression: gzip}`), want: []string{"error broken-contents spec.config.storage.files[0].contents /etc/a"}},
		{name: "read-only", spec: file("path: /usr/bin/a, " + plain), want: []string{"warning read-only-path spec.config.storage.files[0].path /usr/bin/a"}},
		{name: "other user", spec: config("passwd: {users: [{name: bob}]}"), want: []string{"error user-not-applied spec.config.passwd.users[0].name bob"}},
		{name: "other fields", spec: config("passwd: {users: [{name: core, shell: /bin/sh, sshAuthorizedKeys: [k]}]}"), want: []string{"error user-not-applied spec.config.passwd.users[0] core"}},
		{name: "directories", spec: config("storage: {directories: [{path: /etc/a}]}"), want: []string{"warning first-boot-only spec.config.storage.directories"}},
		{name: "FIPS", spec: "{fips: true}", want: []string{"warning fips-change spec.fips true"}},
		{name: "kernel type", spec: "{kernelType: fast}", want: []string{"error kernel-type spec.kernelType fast"}},
		{name: "extension", spec: "{config: {ignition: {version: 3.4.0}}, extensions: [usbgaurd]}", want: []string{"error extension-unknown spec.extensions[0] usbgaurd"}},
		{name: "version", spec: "{config: {ignition: {version: 3.9.0}}}", want: []string{"error ignition-config spec.config.ignition.version 3.9.0"}},
		{name: "near miss in spec", spec: "{kernelArgument: [a]}", want: []string{"error unknown-field spec.kernelArgument"}, says: `did you mean "kernelArguments"?`},
		{name: "near miss in the config", spec: file(`path: /etc/a, overwrite: false, content: {source: "data:,a"}`), want: []string{"error unknown-field spec.config.storage.files[0].content"}, says: `did you mean "contents"?`},
		{name: "near miss in spec 2", spec: `{config: {ignition: {version: 2.2.0}, storage: {files: [{filesystem: root, path: /etc/a, contnets: {source: "data:,a"}}]}}}`, want: []string{"error unknown-field spec.config.storage.files[0].contnets"}},
		{name: "stranger", spec: "{color: red}", want: []string{"warning unknown-field spec.color"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			findings := lint.Lint(lint.Input{Fragments: []lint.Fragment{fragment(t, worker("99-x", row.spec))}})
			if row.want == nil {
				row.want = []string{}
			}
			if d := cmp.Diff(brief(findings), row.want); d != "" {
				t.Errorf("got -, want +:\n%s%v", d, findings)
			}
			if row.says != "" && !strings.Contains(fmt.Sprint(findings), row.says) {
				t.Errorf("got %v, want it to say %q", findings, row.says)
			}
			for _, f := range findings {
				if f.Why == "" {
					t.Errorf("%s says no why", f.Rule)
				}
			}
		})
	}
}

func TestVolatilePathWarnsWhenNoRebootFollows(t *testing.T) {
	policy := disruption.Defaults()
	policy.Files = append(policy.Files, disruption.Rule{Match: "/run/app", Actions: []disruption.Action{{Kind: disruption.Reload, Service: "app.service"}}})
	got := lint.Lint(lint.Input{Policy: &policy, Fragments: []lint.Fragment{fragment(t, worker("99-x", file(`path: /run/app/a, contents: {source: "data:,a"}`)))}})
	if d := cmp.Diff(brief(got), []string{"warning volatile-path spec.config.storage.files[0].path /run/app/a"}); d != "" {
		t.Errorf("got -, want +:\n%s", d)
	}
}

func TestUnitsAreRefusedOnlyWhenEveryNodeDenies(t *testing.T) {
	f := fragment(t, worker("99-x", config(`systemd: {units: [{name: kdump.service, enabled: true}, {name: no-such-thing.service, enabled: true}, {name: blank.service, enabled: true, contents: ""}]}`)))
	in := lint.Input{Fragments: []lint.Fragment{f}, Pools: []lint.Pool{pool("worker", "worker")}}
	for _, row := range []struct {
		name     string
		complete bool
		want     []string
	}{
		{"all told", true, []string{"error unit-unknown spec.config.systemd.units[1].name no-such-thing.service", "warning unit-empty spec.config.systemd.units[2].contents blank.service"}},
		{"some told", false, []string{"warning unit-unknown spec.config.systemd.units[1].name no-such-thing.service", "warning unit-empty spec.config.systemd.units[2].contents blank.service"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in.Units = map[string]lint.UnitFacts{"worker": {Units: map[string]bool{"kdump.service": true, "chronyd.service": true}, Complete: row.complete}}
			if d := cmp.Diff(brief(lint.Lint(in)), row.want); d != "" {
				t.Errorf("got -, want +:\n%s", d)
			}
		})
	}
}

func TestUnitContentsMayComeFromAnotherFragment(t *testing.T) {
	got := lint.Lint(lint.Input{Fragments: []lint.Fragment{
		fragment(t, worker("01-a", config(`systemd: {units: [{name: a.service, contents: "[Unit]"}]}`))),
		fragment(t, worker("99-a", config(`systemd: {units: [{name: a.service, enabled: true}]}`))),
	}})
	if len(got) > 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

func TestRiskIsAcceptedByAnnotationOrMode(t *testing.T) {
	f := fragment(t, worker("99-x", file(`path: /tmp/a, contents: {source: "data:,a"}`)))
	if got := lint.Lint(lint.Input{Fragments: []lint.Fragment{f}, Modes: map[string]lint.Mode{lint.RuleVolatilePath: lint.Off}}); len(got) > 0 {
		t.Errorf("off: got %v", got)
	}
	if got := lint.Lint(lint.Input{Fragments: []lint.Fragment{f}, Modes: map[string]lint.Mode{lint.RuleVolatilePath: lint.Warn}}); lint.HasErrors(got) || len(got) != 1 {
		t.Errorf("warn: got %v", got)
	}
	f.Annotations = map[string]string{"millwright.io/accept-risk": "other, volatile-path"}
	got := lint.Lint(lint.Input{Fragments: []lint.Fragment{f}})
	if len(got) != 1 || got[0].Severity != lint.Warning || !strings.Contains(got[0].Why, "(accepted by annotation millwright.io/accept-risk: volatile-path)") {
		t.Errorf("accepted: got %v", got)
	}
}

func TestCustomPoolWinsAndSaysSo(t *testing.T) {
	limits := func(v string) string {
		return file(`path: /etc/limits.d/pods, mode: 420, overwrite: true, contents: {source: "data:,` + v + `"}`)
	}
	got := lint.Lint(lint.Input{
		Fragments: []lint.Fragment{fragment(t, worker("99-worker-limits", limits("110"))), fragment(t, roled("99-infra-limits", "infra", limits("250")))},
		Pools:     []lint.Pool{pool("infra", "worker", "infra")},
	})
	if d := cmp.Diff(brief(got), []string{"warning pool-order file /etc/limits.d/pods"}); d != "" {
		t.Fatalf("got -, want +:\n%s", d)
	}
	if want := "99-infra-limits wins over 99-worker-limits"; !strings.Contains(got[0].Why, want) {
		t.Errorf("got %q, want %q in it", got[0].Why, want)
	}
}

func TestNodeInTwoCustomPools(t *testing.T) {
	node := func(name string, roles ...string) lint.Node {
		n := lint.Node{Name: name, Labels: map[string]string{}}
		for _, r := range roles {
			n.Labels["node-role.kubernetes.io/"+r] = ""
		}
		return n
	}
	got := lint.Lint(lint.Input{
		Fragments: []lint.Fragment{fragment(t, worker("00-worker", "{}")), fragment(t, roled("00-master", "master", "{}"))},
		Pools:     []lint.Pool{pool("infra", "worker", "infra"), pool("gpu", "worker", "gpu"), pool("worker", "worker"), pool("master", "master")},
		Nodes:     []lint.Node{node("n1", "worker", "infra", "gpu"), node("n2", "worker", "infra"), node("n3", "worker", "master"), node("n4")},
	})
	if d := cmp.Diff(brief(got), []string{"error node-in-two-pools metadata.labels gpu, infra"}); d != "" || got[0].Object != "Node/n1" {
		t.Errorf("got -, want +:\n%s%v", d, got)
	}
}

func TestPools(t *testing.T) {
	role := func(r string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{render.RoleLabel: r}}
	}
	twin := pool("twin", "worker", "infra")
	twin.NodeSelector = pool("infra").NodeSelector
	for _, row := range []struct {
		name string
		in   []lint.Pool
		want []string
	}{
		{"sound", []lint.Pool{pool("worker", "worker"), pool("infra", "worker", "infra")}, []string{}},
		{"no selector", []lint.Pool{{Name: "a", NodeSelector: role("a")}}, []string{"error pool-selector spec.machineConfigSelector", "warning no-pool metadata.labels worker"}},
		{"selects all", []lint.Pool{{Name: "a", Selector: &metav1.LabelSelector{}, NodeSelector: role("a")}}, []string{"error pool-selector spec.machineConfigSelector", "warning no-pool metadata.labels worker"}},
		{"without worker", []lint.Pool{pool("infra", "infra")}, []string{"error pool-selector spec.machineConfigSelector", "warning no-pool metadata.labels worker"}},
		{"no nodes", []lint.Pool{{Name: "a", Selector: role("worker")}}, []string{"warning pool-node-selector spec.nodeSelector"}},
		{"same nodes", []lint.Pool{pool("infra", "worker", "infra"), twin}, []string{"error pool-node-selector spec.nodeSelector node-role.kubernetes.io/infra="}},
		{"matches nothing", []lint.Pool{pool("worker", "worker"), pool("master", "master")}, []string{"warning pool-selects-nothing spec.machineConfigSelector"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := brief(lint.Lint(lint.Input{Fragments: []lint.Fragment{fragment(t, worker("00-worker", "{}"))}, Pools: row.in}))
			if d := cmp.Diff(sortedCopy(got), sortedCopy(row.want)); d != "" {
				t.Errorf("got -, want +:\n%s", d)
			}
		})
	}
}

func TestLintDoesNotDependOnOrder(t *testing.T) {
	all := []lint.Fragment{
		fragment(t, worker("01-a", file(`path: /tmp/a, contents: {source: "data:,a"}`))),
		fragment(t, worker("02-b", file("path: /etc/b, mode: 644"))),
		fragment(t, roled("03-c", "infra", "{kernelType: fast, color: red}")),
		fragment(t, roled("04-d", "infra", config(`systemd: {units: [{name: a.service, enabled: true}]}`))),
	}
	pools := []lint.Pool{pool("infra", "worker", "infra"), pool("worker", "worker"), pool("x", "x")}
	want := lint.Lint(lint.Input{Fragments: all, Pools: pools})
	rapid.Check(t, func(rt *rapid.T) {
		in := lint.Input{Fragments: rapid.Permutation(all).Draw(rt, "fragments"), Pools: rapid.Permutation(pools).Draw(rt, "pools")}
		if d := cmp.Diff(lint.Lint(in), want); d != "" {
			rt.Fatalf("got -, want +:\n%s", d)
		}
	})
}

func TestPermissionsMeanOneModeInEveryFormat(t *testing.T) {
	for text, want := range map[string]struct {
		mode  int
		finds bool
	}{"0644": {0o644, false}, "644": {0o644, true}, "0o755": {0o755, false}, "1777": {0o1777, true}} {
		mode, finding, err := lint.Permissions(text)
		if err != nil || mode != want.mode || (finding != nil) != want.finds {
			t.Errorf("%s: got 0%o, %v, %v", text, mode, finding, err)
		}
	}
	for _, text := range []string{"", "0888", "rw", "77777", "-1"} {
		if _, _, err := lint.Permissions(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

func TestEveryRuleIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range lint.Rules() {
		if seen[r.ID] || r.ID == "" || r.What == "" || r.Why == "" || r.Severity == "" || r.Mode != lint.Enforce {
			t.Errorf("rule %+v is not whole or not the only one of its name", r)
		}
		seen[r.ID] = true
	}
}

func FuzzLint(f *testing.F) {
	f.Add([]byte(worker("a", file(`path: /tmp/a, mode: 0644, contents: {source: "data:,a"}`))))
	f.Add([]byte(worker("a", config(`systemd: {units: [{name: a.service, enabled: true}]}, passwd: {users: [{name: core}]}`))))
	f.Fuzz(func(t *testing.T, manifest []byte) {
		var mc mcfgv1.MachineConfig
		if yaml.Unmarshal(manifest, &mc) != nil {
			return
		}
		in := lint.Input{Fragments: []lint.Fragment{{Fragment: render.FromMachineConfig(&mc), Manifest: manifest}}, Pools: []lint.Pool{pool("worker", "worker")}}
		for _, found := range lint.Lint(in) {
			if found.Rule == "" || found.Why == "" || found.Severity == "" || found.Object == "" {
				t.Errorf("finding is not whole: %+v", found)
			}
		}
	})
}

func sortedCopy(in []string) []string { return slices.Sorted(slices.Values(in)) }

func BenchmarkLint(b *testing.B) {
	for _, n := range []int{10, 200} {
		b.Run(fmt.Sprintf("fragments=%d", n), func(b *testing.B) {
			in := lint.Input{Pools: []lint.Pool{pool("worker", "worker")}}
			for i := range n {
				var files []string
				for j := range 10 {
					files = append(files, fmt.Sprintf(`{path: /etc/f/%d-%d, mode: 420, contents: {source: "data:,%s"}}`, i, j, strings.Repeat("x", 100)))
				}
				f := fragment(b, worker(fmt.Sprintf("50-%03d", i), config("storage: {files: ["+strings.Join(files, ", ")+"]}")))
				in.Fragments = append(in.Fragments, f)
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := lint.Lint(in); len(got) > 0 {
					b.Fatal(got)
				}
			}
		})
	}
}
