package render_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/engine/ignition"
	"millwright.io/millwright/internal/engine/render"
)

func mc(name, role, config string) render.Fragment {
	f := render.Fragment{Name: name, Labels: map[string]string{render.RoleLabel: role}}
	if config != "" {
		f.Spec.Config = runtime.RawExtension{Raw: []byte(config)}
	}
	return f
}

func file(path, content string) string {
	return `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"` + path + `","mode":420,"overwrite":true,"contents":{"source":"data:,` + content + `"}}]}}`
}

// TestCustomPoolBeatsWorkerWhateverTheNames also asks who lost.
func TestCustomPoolBeatsWorkerWhateverTheNames(t *testing.T) {
	const path = "/etc/limits.d/pods"
	for _, names := range [][2]string{{"99-worker-limits", "99-infra-limits"}, {"99-worker-limits", "00-infra"}, {"00-worker", "99-infra"}} {
		r, err := render.Render(pool("infra"), []render.Fragment{
			mc(names[1], "infra", file(path, "250")), mc(names[0], "worker", file(path, "110")), mc("50-master", "master", file(path, "1")),
		}, render.Base{})
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := ignition.Parse(r.Spec.Config.Raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ignition.Contents(cfg.Storage.Files[0].Contents)
		if err != nil || string(got) != "250" {
			t.Errorf("%v: got %q (%v), want 250", names, got, err)
		}
		i := slices.IndexFunc(r.Origins, func(o render.Origin) bool { return o.Kind == render.KindFile && o.Key == path })
		want := render.Origin{Kind: render.KindFile, Key: path, SetBy: names[1], Overrode: []string{names[0]}}
		if i < 0 {
			t.Fatalf("%v: no origin of %s in %v", names, path, r.Origins)
		}
		if diff := cmp.Diff(r.Origins[i], want); diff != "" {
			t.Errorf("%v: got (-) want (+):\n%s", names, diff)
		}
		if diff := cmp.Diff(r.Sources, []string{names[0], names[1]}); diff != "" {
			t.Errorf("sources, got (-) want (+):\n%s", diff)
		}
	}
}

func TestOriginsRememberEveryKindOfItem(t *testing.T) {
	a := mc("10-a", "worker", `{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-rsa A ann","ssh-rsa B"]}]},"storage":{"files":[{"path":"/x","contents":{"source":"data:,"}}]},"systemd":{"units":[{"name":"u.service","dropins":[{"name":"1.conf"}]}]}}`)
	b := mc("20-b", "worker", `{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-rsa C carl"]}]},"storage":{"directories":[{"path":"/x"}]},"systemd":{"units":[{"name":"u.service","enabled":true,"dropins":[{"name":"1.conf","contents":"[Unit]"}]}]}}`)
	b.Spec.FIPS, b.Spec.KernelType, b.Spec.OSImageURL = true, "realtime", "img@sha256:1"
	r, err := render.Render(pool("worker"), []render.Fragment{b, a}, render.Base{OSImageURL: "base"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range r.Origins {
		line := o.Kind + " " + o.Key + " by " + o.SetBy
		if len(o.Overrode) > 0 {
			line += " over " + strings.Join(o.Overrode, ", ")
		}
		got = append(got, line)
	}
	want := []string{
		"user core by 20-b over 10-a",
		"sshKey core/ann by 10-a",
		"sshKey core/1 by 10-a",
		"sshKey core/carl by 20-b",
		"directory /x by 20-b over 10-a",
		"unit u.service by 20-b over 10-a",
		"dropin u.service/1.conf by 20-b over 10-a",
		"kernelType realtime by 20-b",
		"fips true by 20-b",
		"osImageURL img@sha256:1 by 20-b",
		"baseOSExtensionsContainerImage  by ",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("got (-) want (+):\n%s", diff)
	}
	if !r.OSImageOverridden {
		t.Error("the OS image was overridden")
	}
}

// TestKernelArgumentsKeepOrderAndRepeats: sets would break pairs such as huge
// page sizes, which depend on the order.
func TestKernelArgumentsKeepOrderAndRepeats(t *testing.T) {
	pairs := []string{"hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=512"}
	old := mc("50-huge", "worker", "")
	old.Spec.KernelArguments = pairs
	again := mc("60-more", "worker", "")
	again.Spec.KernelArguments = []string{"hugepages=4", "quiet", "quiet"}
	r, err := render.Render(pool("worker"), []render.Fragment{again, old}, render.Base{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Spec.KernelArguments, append(slices.Clone(pairs), "hugepages=4", "quiet", "quiet")); diff != "" {
		t.Errorf("got (-) want (+):\n%s", diff)
	}
	changed := slices.Clone(pairs)
	changed[3] = "hugepages=1024"
	old.Spec.KernelArguments = changed
	next, err := render.Render(pool("worker"), []render.Fragment{old}, render.Base{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(next.Spec.KernelArguments, changed); diff != "" {
		t.Errorf("changing one value moved others, got (-) want (+):\n%s", diff)
	}
	if next.Name == r.Name {
		t.Error("another value must give another name")
	}
}

func TestLaterDefaultDoesNotUndoARealtimeKernel(t *testing.T) {
	a, b := mc("10-a", "worker", ""), mc("20-b", "worker", "")
	a.Spec.KernelType, b.Spec.KernelType = "realtime", "default"
	r, err := render.Render(pool("worker"), []render.Fragment{a, b}, render.Base{})
	if err != nil || r.Spec.KernelType != "realtime" {
		t.Errorf("got %q (%v), want realtime", r.Spec.KernelType, err)
	}
}

// TestRefusalsHaveTheOriginalsWordsAndNameTheGuilty has the rules about one
// MachineConfig and about several.
func TestRefusalsHaveTheOriginalsWordsAndNameTheGuilty(t *testing.T) {
	with := func(f render.Fragment, set func(*mcfgv1.MachineConfigSpec)) render.Fragment {
		set(&f.Spec)
		return f
	}
	innocent := mc("00-worker", "worker", file("/a", "a"))
	for _, c := range []struct {
		name string
		in   []render.Fragment
		base render.Base
		wire string
		want string // the first problem
	}{
		{
			name: "kernel type",
			in:   []render.Fragment{innocent, with(mc("99-k", "worker", ""), func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "rt" })},
			wire: "kernelType=rt is invalid",
			want: `99-k: kernelType: "rt": want default, realtime or 64k-pages`,
		},
		{
			name: "extension",
			in: []render.Fragment{innocent, with(mc("99-e", "worker", file("/b", "b")), func(s *mcfgv1.MachineConfigSpec) {
				s.Extensions = []string{"usbguard", "nope", "neither"}
			})},
			wire: "invalid extensions found: [nope neither]",
			want: `99-e: extensions.1: "nope": no such extension; want one of ipsec, kerberos, kernel-devel, sandboxed-containers, sysstat, two-node-ha, usbguard`,
		},
		{
			name: "mode",
			in:   []render.Fragment{innocent, mc("99-m", "worker", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/m","mode":644}]}}`)},
			wire: "invalid mode 01204 for /m, cannot exceed 0777",
			want: `99-m: config.storage.files.0.mode: "644 (01204, while 0644 is 420)": invalid mode 01204 for /m, cannot exceed 0777`,
		},
		{
			name: "config",
			in:   []render.Fragment{innocent, mc("99-v", "worker", `{"ignition":{"version":"3.6.0"}}`)},
			wire: "parsing Ignition config failed: unknown version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5",
			want: `99-v: config.ignition.version: "3.6.0": this version is not known; want one of 2.0.0 to 2.4.0 or 3.0.0 to 3.5.0`,
		},
		{
			name: "kernel-devel with another kernel",
			in: []render.Fragment{
				with(mc("10-rt", "worker", ""), func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "64k-pages" }),
				with(mc("20-dev", "worker", ""), func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"kernel-devel"} }),
			},
			wire: "installing kernel-devel extension is not supported with kernelType: 64k-pages",
			want: `20-dev: extensions.0: "kernel-devel": kernel-devel needs the default kernel, but 10-rt asks for 64k-pages; drop one of the two`,
		},
		{
			name: "OS image and stream",
			in:   []render.Fragment{with(mc("10-os", "worker", ""), func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "x@sha256:1" })},
			base: render.Base{OSImageURL: "y", Stream: "rhel-10"},
			wire: "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously",
			want: `10-os: osImageURL: "x@sha256:1": the pool follows OS image stream rhel-10; drop osImageURL or the pool's stream`,
		},
		{
			name: "one name twice",
			in:   []render.Fragment{innocent, innocent},
			wire: "more than one MachineConfig is named 00-worker",
			want: "00-worker: another MachineConfig has this name; rename or remove one of them",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := render.Render(pool("worker"), c.in, c.base)
			var e *render.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want *render.Error", err)
			}
			if err.Error() != c.wire {
				t.Errorf("got %q, want %q", err, c.wire)
			}
			if len(e.Problems) == 0 || e.Problems[0].String() != c.want {
				t.Errorf("got %v, want first %s", e.Problems, c.want)
			}
		})
	}
}

func TestValidateFindsWhatRenderRefuses(t *testing.T) {
	bad := mc("99-k", "worker", "")
	bad.Spec.KernelType = "rt"
	if got := render.Validate(bad); len(got) != 1 || got[0].Fragment != "99-k" {
		t.Errorf("got %v, want one problem of 99-k", got)
	}
	// Render stops at the first fault; Validate tells all of them.
	bad.Spec.Extensions = []string{"nope"}
	if got := render.Validate(bad); len(got) != 2 || !got[1].Warning {
		t.Errorf("got %v, want a fault and a warning, since an extension without a config passes", got)
	}
	bad.Spec.Config.Raw = []byte(`{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"bob"}]},"storage":{"files":[{"filesystem":"root","path":"/a","mode":2541}]}}`)
	if got := render.Validate(bad); len(got) != 4 || got[2].Warning || got[3].Path != "config.passwd.users.0.name" {
		t.Errorf("got %v, want four faults", got)
	}
	if got := render.Validate(mc("00-worker", "worker", file("/a", "a"))); got != nil {
		t.Errorf("got %v, want none", got)
	}
}

func TestSelectKnowsEmptyFromMissing(t *testing.T) {
	in := []render.Fragment{mc("b", "worker", ""), mc("a", "worker", ""), mc("c", "master", "")}
	got, err := render.Select(pool("worker"), in)
	if err != nil || len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("got %v (%v), want a and b", got, err)
	}
	if _, err := render.Select(render.Pool{Name: "all", Selector: &metav1.LabelSelector{}}, in); !errors.Is(err, render.ErrSelectsAll) {
		t.Errorf("got %v, want ErrSelectsAll", err)
	}
	if _, err := render.Select(render.Pool{Name: "none"}, in); err == nil || !strings.HasPrefix(err.Error(), "no MachineConfigs found matching selector") {
		t.Errorf("got %v, want nothing to match", err)
	}
	if _, err := render.Select(pool("infra"), in[2:]); err == nil || err.Error() != "no MachineConfigs found matching selector machineconfiguration.openshift.io/role in (infra,worker)" {
		t.Errorf("got %v", err)
	}
}

func TestOrderNeedsLabels(t *testing.T) {
	_, err := render.RenderSelected("worker", []render.Fragment{{Name: "x"}}, render.Base{})
	if err == nil || err.Error() != "cannot find label in MachineConfig x" {
		t.Errorf("got %v", err)
	}
}

func TestTagWarnsAndControllersImagesDoNotCount(t *testing.T) {
	tag := mc("50-os", "worker", "")
	tag.Spec.OSImageURL = "quay.io/os:latest"
	made := mc("60-made", "worker", "")
	made.Spec.OSImageURL = "old@sha256:2"
	made.Annotations = map[string]string{render.GeneratedByControllerVersion: "abc"}
	r, err := render.Render(pool("worker"), []render.Fragment{tag, made}, render.Base{OSImageURL: "base"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Spec.OSImageURL != "quay.io/os:latest" || len(r.Problems) != 1 || !r.Problems[0].Warning || r.Problems[0].Fragment != "50-os" {
		t.Errorf("got %q, %v, want the tag and a warning", r.Spec.OSImageURL, r.Problems)
	}
}

func TestSizeIsBounded(t *testing.T) {
	if err := render.CheckSize("rendered-worker-x", 1572864); err != nil {
		t.Errorf("got %v, want the limit to pass", err)
	}
	err := render.CheckSize("rendered-worker-x", 1572865)
	if err == nil || !strings.HasPrefix(err.Error(), "size validation failed: rendered MachineConfig rendered-worker-x is too large (1572865 bytes, max 1572864 bytes)") {
		t.Errorf("got %v", err)
	}
}

func TestFragmentsWithoutConfigGiveAnEmptyOne(t *testing.T) {
	r, err := render.Render(pool("worker"), []render.Fragment{mc("a", "worker", "")}, render.Base{})
	if err != nil || string(r.Spec.Config.Raw) != `{"ignition":{"version":"3.5.0"}}` {
		t.Errorf("got %s (%v)", r.Spec.Config.Raw, err)
	}
}

func TestInputsOfAnotherVersionWait(t *testing.T) {
	self := render.Build{Version: "v4.20", Commit: "abc"}
	mine := map[string]string{render.GeneratedByVersion: "v4.20"}
	made := func(by string) []render.Fragment {
		f := mc("98-made", "worker", "")
		f.Annotations = map[string]string{render.GeneratedByControllerVersion: by}
		return []render.Fragment{mc("50-user", "worker", ""), f}
	}
	for _, c := range []struct {
		name        string
		annotations map[string]string
		in          []render.Fragment
		want        string
	}{
		{"all mine", mine, made("abc"), ""},
		{"empty counts as unmade", mine, made(""), ""},
		{"older fragment", mine, made("old"), "ignoring MC 98-made generated by older version old (my version: abc)"},
		{"older cluster facts", map[string]string{render.GeneratedByVersion: "v4.19"}, nil, "ignoring controller config generated from v4.19 (my version: v4.20)"},
		{"no version", nil, nil, "ignoring controller config generated without machineconfiguration.openshift.io/generated-by-version annotation (my version: v4.20)"},
	} {
		err := render.CheckVersions(c.annotations, c.in, self)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSizeIsThatOfTheJSON(t *testing.T) {
	got, err := render.Size(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	if err != nil || got < 50 {
		t.Errorf("got %d (%v)", got, err)
	}
}

func TestExtensionsNameTheirPackages(t *testing.T) {
	if diff := cmp.Diff(render.ExtensionPackages("kerberos"), []string{"krb5-workstation", "libkadm5"}); diff != "" {
		t.Errorf("got (-) want (+):\n%s", diff)
	}
	if got := render.ExtensionPackages("nope"); got != nil {
		t.Errorf("got %v, want none", got)
	}
}

// TestUnreadableResultNamesTheAuthor: two good fragments can make a config that
// no node reads, a unit and a file in one place.
func TestUnreadableResultNamesTheAuthor(t *testing.T) {
	unit := mc("10-unit", "worker", `{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nA=1\n"}]}}`)
	same := mc("20-file", "worker", file("/etc/systemd/system/a.service", "x"))
	r, err := render.Render(pool("worker"), []render.Fragment{unit, same}, render.Base{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Problems) != 1 || r.Problems[0].Warning || r.Problems[0].Fragment != "20-file" || r.Problems[0].Path != "config.storage.files.0.path" {
		t.Errorf("got %v, want the file's fragment", r.Problems)
	}
}
