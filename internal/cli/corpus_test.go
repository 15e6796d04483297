package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/lint"
)

// The corpus holds small inputs with a known fault, each standing for its whole
// kind, as people would give them to the commands.

func corpus(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/corpus/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// linted checks a manifest and returns its findings, one line each.
func linted(t *testing.T, manifest string, args ...string) (int, []string) {
	t.Helper()
	got := call(t, manifest, append([]string{"lint", "-f", "-", "-o", "json"}, args...)...)
	var r LintReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s %s %s %s: %s; %s", f.Severity, f.Rule, f.Field, f.Value, f.Why, f.Fix))
	}
	return got.code, lines
}

func TestCorpusC01VolatilePath(t *testing.T) {
	text := corpus(t, "C01")
	for _, path := range []string{"/tmp/scratch/note.txt", "/run/a", "/dev/shm/a", "/proc/sys/a", "/sys/a"} {
		code, found := linted(t, strings.ReplaceAll(text, "/tmp/scratch/note.txt", path))
		if code != ExitFailure || len(found) != 1 || !strings.HasPrefix(found[0], "error volatile-path spec.config.storage.files[0].path "+path+": ") {
			t.Errorf("%s: code %d, %q", path, code, found)
		}
	}
	if _, found := linted(t, text); !strings.Contains(found[0], "vanishes at the reboot that its own application needs, so the node would be Degraded for ever") {
		t.Errorf("message: %q", found)
	}
	if code, found := linted(t, strings.ReplaceAll(text, "/tmp/scratch", "/var/tmp")); code != 0 || len(found) != 0 {
		t.Errorf("/var/tmp survives: %d, %q", code, found)
	}
	accepted := strings.Replace(text, "metadata:\n", "metadata:\n  annotations: {millwright.io/accept-risk: volatile-path}\n", 1)
	if code, found := linted(t, accepted); code != 0 || len(found) != 1 || !strings.HasPrefix(found[0], "warning") {
		t.Errorf("an accepted risk: %d, %q", code, found)
	}
	if code, found := linted(t, text, "--rule", "volatile-path=off"); code != 0 || len(found) != 0 {
		t.Errorf("a rule that is off: %d, %q", code, found)
	}
}

func TestCorpusC02OctalTypo(t *testing.T) {
	text := corpus(t, "C02")
	code, found := linted(t, text)
	if code != ExitFailure || len(found) != 1 || !strings.Contains(found[0], "644 (01204)") || !strings.Contains(found[0], "write 420 if you mean 0644") {
		t.Errorf("code %d, %q", code, found)
	}
	if got := call(t, text, "render", "-f", "-", "--pool", "worker"); got.code != ExitFailure || !strings.Contains(got.stderr, "cannot exceed 0777") || !strings.Contains(got.stderr, "60-worker-forwarding") {
		t.Errorf("render: %+v", got)
	}
	if code, found := linted(t, strings.ReplaceAll(text, "mode: 644", "mode: 440")); code != 0 || len(found) != 1 || !strings.Contains(found[0], "288") {
		t.Errorf("within range: %d, %q", code, found)
	}
	if code, found := linted(t, strings.ReplaceAll(text, "mode: 644", "mode: 420")); code != 0 || len(found) != 0 {
		t.Errorf("what was meant: %d, %q", code, found)
	}
}

// between plans from one manifest to another.
func between(t *testing.T, old, next string) PoolPlan {
	t.Helper()
	dir := t.TempDir()
	p, _ := planned(t, "-f", write(t, t.TempDir(), "new.yaml", next), "--from", write(t, dir, "old.yaml", old))
	if len(p.Pools) != 1 {
		t.Fatalf("pools: %+v", p)
	}
	return p.Pools[0]
}

func TestCorpusC04ModeLeftOut(t *testing.T) {
	p := between(t, corpus(t, "C04-old"), corpus(t, "C04-new"))
	if len(p.Items) != 0 || p.Action != "none" || len(p.Refused) != 0 {
		t.Errorf("a mode left out is 0644: %+v", p)
	}
}

func TestCorpusC05OnePermissionTwoFormats(t *testing.T) {
	code, found := linted(t, corpus(t, "C05"))
	if code != 0 || len(found) != 1 || !strings.HasPrefix(found[0], "warning yaml-octal-ambiguous") || !strings.Contains(found[0], "420") {
		t.Errorf("code %d, %q", code, found)
	}
	c := newCluster()
	ms, err := parseManifests("C05", []byte(corpus(t, "C05")))
	if err == nil {
		err = c.apply(ms)
	}
	if err != nil {
		t.Fatal(err)
	}
	source, err := ignition.ReadMachineConfig(c.configs["99-worker-modes"].Spec.Config.Raw)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := source.Config()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range cfg.Storage.Files {
		if *f.Mode != 0o644 {
			t.Errorf("%s has mode %#o", f.Path, *f.Mode)
		}
	}
	for text, rule := range map[string]string{"0644": "", "644": lint.RuleNoZero} {
		mode, finding, err := lint.Permissions(text)
		if err != nil || mode != 0o644 || (finding == nil) != (rule == "") || finding != nil && finding.Rule != rule {
			t.Errorf("permissions %q: %#o, %v, %v", text, mode, finding, err)
		}
	}
}

func TestCorpusC06UnitEnabledWithoutContents(t *testing.T) {
	names := lint.NewUnitNames([]string{"kdump.service", "chronyd.service"})
	hosts := fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: u, namespace: openshift-machine-config-operator, labels: {millwright.io/unit-names: %q}}\ndata: {units: %q}\n"+
		"---\napiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {node-role.kubernetes.io/worker: ''}, annotations: {millwright.io/unit-names: %[1]q}}\n", names.Digest(), names.Text())
	code, found := linted(t, corpus(t, "C06")+hosts)
	if code != ExitFailure || len(found) != 2 || !strings.HasPrefix(found[0], "error unit-unknown spec.config.systemd.units[1].name no-such-thing.service") ||
		!strings.HasPrefix(found[1], "warning unit-empty spec.config.systemd.units[2].contents blank.service") {
		t.Errorf("all hosts have told: code %d, %q", code, found)
	}
	code, found = linted(t, corpus(t, "C06"))
	if code != 0 || len(found) != 3 || strings.Contains(strings.Join(found, "\n"), "error") {
		t.Errorf("no host has told: code %d, %q", code, found)
	}
}

func TestCorpusC07KernelArgumentsKeepOrderAndRepeats(t *testing.T) {
	p := between(t, corpus(t, "C07-old"), corpus(t, "C07-new"))
	if p.Action != "reboot" || len(p.Items) != 1 || p.Items[0].Change != "changed" || p.Items[0].Item != "kernel argument hugepages=1024" {
		t.Errorf("plan: %+v", p)
	}
	got := call(t, corpus(t, "C07-new"), "render", "-f", "-", "--pool", "worker", "-o", "yaml")
	if !strings.Contains(got.stdout, "kernelArguments:\n  - hugepagesz=1G\n  - hugepages=4\n  - hugepagesz=2M\n  - hugepages=1024\n") {
		t.Errorf("rendered: %s", got.stdout)
	}
}

func TestCorpusC09CustomPoolWinsWhateverTheNames(t *testing.T) {
	text := corpus(t, "C09")
	content := func(manifest, want string) {
		t.Helper()
		if got := call(t, manifest, "render", "-f", "-", "--pool", "infra"); !strings.Contains(got.stdout, "source: data:,"+want) {
			t.Errorf("want %s: %+v", want, got)
		}
	}
	content(text, "250")
	explained := call(t, text, "render", "-f", "-", "--pool", "infra", "--explain")
	if !strings.Contains(strings.Join(strings.Fields(explained.stdout), " "), "file /etc/limits.d/pods 99-infra-limits 99-worker-limits") {
		t.Errorf("explain: %s", explained.stdout)
	}
	if _, found := linted(t, text); !strings.Contains(strings.Join(found, "\n"), "99-infra-limits wins over 99-worker-limits") {
		t.Errorf("lint: %q", found)
	}
	release := "---\napiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nmetadata: {name: machine-config-controller, annotations: {machineconfiguration.openshift.io/release-image-version: %s}}\nspec: {}\n"
	content(text+fmt.Sprintf(release, "4.14.9"), "110")
	content(text+fmt.Sprintf(release, "4.15.0"), "250")
}

func TestCorpusC11NodeInTwoCustomPools(t *testing.T) {
	text := corpus(t, "C11")
	code, found := linted(t, text)
	if all := strings.Join(found, "\n"); code != ExitFailure || !strings.Contains(all, "error node-in-two-pools metadata.labels gpu, infra") || strings.Count(all, "error") != 1 {
		t.Errorf("code %d, %q", code, found)
	}
	dir := t.TempDir()
	from := write(t, dir, "cluster.yaml", text)
	change := "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 99-all, labels: {machineconfiguration.openshift.io/role: worker}}\nspec: {kernelArguments: [nosmt]}\n"
	p, _ := planned(t, "-f", write(t, t.TempDir(), "new.yaml", change), "--from", from)
	where := map[string]string{}
	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			where[n.Node] += pool.Pool
		}
	}
	if fmt.Sprint(where) != "map[n2:infra n3:master]" {
		t.Errorf("nodes: %v", where)
	}
	if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, "node n1: node belongs to 2 custom roles") || strings.Contains(notes, "n4") {
		t.Errorf("notes: %s", notes)
	}
}

func TestCorpusC18SmallestActionOfAMixedChange(t *testing.T) {
	old := corpus(t, "C18-old")
	key := strings.NewReplacer("AAAA one@", "BBBB two@").Replace(old)
	file := strings.NewReplacer(`"data:,a"`, `"data:,b"`).Replace(key)
	karg := strings.Replace(file, "spec:\n", "spec:\n  kernelArguments: [nosmt]\n", 1)
	for _, tt := range []struct{ next, action, forced string }{
		{karg, "reboot", "kernel argument nosmt"},
		{file, "reload crio.service", "file /etc/containers/policy.json"},
		{key, "none", ""},
	} {
		if p := between(t, old, tt.next); p.Action != tt.action || p.ForcedBy != tt.forced || p.Drains != (tt.action == "reboot") {
			t.Errorf("want %s: %+v", tt.action, p)
		}
	}
}
