package transition

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/engine/disruption"
)

func ptr[T any](v T) *T { return &v }

func names(steps []Step) []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.String())
	}
	return out
}

func TestPlanOrdersTheStepsOfAChange(t *testing.T) {
	cases := []struct {
		name     string
		host     func(*model)
		cur, des config
		actions  []disruption.Action
		want     []string
	}{
		{
			name: "nothing differs", cur: config{Image: "image-0"}, des: config{Image: "image-0"},
			actions: []disruption.Action{{Kind: disruption.None}},
		},
		{
			name: "a file of the vendor is kept before it is written",
			host: func(m *model) { m.put("/etc/a", "vendor's", 0o644) },
			des:  config{Files: map[string]string{"/etc/a": "x"}},
			want: []string{"create file /etc/machine-config-daemon/orig/etc/a.mcdorig", "change file /etc/a"},
		},
		{
			name: "a file that the config brings is stamped",
			des:  config{Files: map[string]string{"/etc/a": "x"}},
			want: []string{"create file /etc/machine-config-daemon/noorig/etc/a.mcdnoorig", "create file /etc/a"},
		},
		{
			name: "a file that the host already has is not written",
			host: func(m *model) { m.put("/etc/a", "x", 0o644) },
			cur:  config{Files: map[string]string{"/etc/a": "old"}}, des: config{Files: map[string]string{"/etc/a": "x"}},
		},
		{
			name: "an enabled unit is disabled before its install section changes",
			host: func(m *model) {
				m.put(UnitDir+"/u.service", "old", 0o644)
				m.states[Ref{KindUnit, "u.service"}] = State{Type: Links, Value: "enabled", Values: []string{"a\x00b"}}
			},
			cur:     config{Units: map[string]unit{"u.service": {Contents: "old", Enabled: ptr(true)}}},
			des:     config{Units: map[string]unit{"u.service": {Contents: "new", Enabled: ptr(true)}}},
			actions: []disruption.Action{{Kind: disruption.DaemonReload}, {Kind: disruption.Restart, Service: "u.service"}},
			want:    []string{"change unit u.service", "change file /etc/systemd/system/u.service", "change unit u.service", "daemonReload", "restart u.service"},
		},
		{
			name: "system last, then the reboot that it needs though no rule asked",
			cur:  config{Image: "image-0"}, des: config{Image: "image-1", Kargs: []string{"nosmt"}, Files: map[string]string{"/etc/a": ""}},
			actions: []disruption.Action{{Kind: disruption.None}},
			want: []string{
				"create file /etc/machine-config-daemon/noorig/etc/a.mcdnoorig", "create file /etc/a",
				"change osImageURL", "change kernelArguments", "reboot",
			},
		},
		{
			name: "a lost kernel argument is set again",
			cur:  config{Kargs: []string{"nosmt"}}, des: config{Kargs: []string{"nosmt"}},
			want: []string{"change kernelArguments", "reboot"},
		},
		{
			name: "certificate files stay when no config names them",
			host: func(m *model) { m.put(cloudCA, "ca", 0o644); m.put("/etc/docker/certs.d/r/ca.crt", "ca", 0o644) },
			cur:  config{Files: map[string]string{cloudCA: "ca", "/etc/docker/certs.d/r/ca.crt": "ca", kubeletCA: "x"}},
		},
		{
			name: "trust is rebuilt the host's way",
			des:  config{}, actions: []disruption.Action{{Kind: disruption.Restart, Service: trustService}, {Kind: disruption.Restart, Service: "crio.service"}},
			want: []string{"trust", "restart crio.service"},
		},
		{
			name: "the last user's keys and password go, the account is locked",
			host: func(m *model) {
				m.put("/home/core/.ssh/authorized_keys.d/ignition", "k\n", 0o600)
				m.blobs[Digest([]byte("$6$x"))] = []byte("$6$x")
				m.states[Ref{KindPassword, "core"}] = State{Type: Value, Digest: Digest([]byte("$6$x"))}
			},
			cur:  config{Keys: []string{"k"}},
			want: []string{"change file /home/core/.ssh/authorized_keys.d/ignition", "change password core"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newModel()
			if c.host != nil {
				c.host(m)
			}
			p := m.plan(t, Input{Current: c.cur.spec(), Desired: c.des.spec(), Actions: c.actions})
			if d := cmp.Diff(c.want, names(p.Steps)); d != "" || len(p.Refused) > 0 {
				t.Errorf("(-want +got):\n%s\nrefused %v", d, p.Refused)
			}
		})
	}
}

func TestPlanRefusesWhatTheHostCannotHave(t *testing.T) {
	cases := []struct {
		name     string
		facts    func(*Facts)
		host     func(*model)
		cur, des config
		kernel   string
		exts     []string
		want     string
	}{
		{name: "image on a plain host", facts: func(f *Facts) { f.Image = NoBackend; f.ID = "debian" },
			cur: config{Image: "a"}, des: config{Image: "b"},
			want: "updating the OS on non-CoreOS nodes is not supported: this host (debian) has neither rpm-ostree nor bootc"},
		{name: "kernel argument without a boot loader", facts: func(f *Facts) { f.Kernel = NoBackend },
			des: config{Kargs: []string{"nosmt"}}, want: "cannot change kernel arguments: this host (rhcos) has none of"},
		{name: "read-only folder", facts: func(f *Facts) { f.ReadOnly = []string{"/usr"}; f.ID = "flatcar" },
			des: config{Files: map[string]string{"/usr/local/bin/x": ""}}, want: `cannot write "/usr/local/bin/x": /usr is read-only on this host (flatcar)`},
		{name: "folder in place of the file", host: func(m *model) { m.states[Ref{KindFile, "/etc/a"}] = State{Type: Dir} },
			des: config{Files: map[string]string{"/etc/a": ""}}, want: `cannot write file "/etc/a": a directory is there`},
		{name: "64k pages elsewhere", kernel: "64k-pages", want: "64k-pages is only supported for aarch64 architecture"},
		{name: "unknown extension", exts: []string{"nope"}, want: "invalid extensions found: [nope]"},
		{name: "extension on Fedora CoreOS", facts: func(f *Facts) { f.EnterpriseLinux = false; f.ID = "fedora" }, exts: []string{"usbguard"},
			want: "extensions [usbguard] are not available on this host (fedora)"},
		{name: "masked unit to enable", host: func(m *model) {
			m.units = []string{"u.service"}
			m.states[Ref{KindUnit, "u.service"}] = State{Type: Links, Value: "masked"}
		}, des: config{Units: map[string]unit{"u.service": {Enabled: ptr(true)}}}, want: "error enabling units: unit u.service is masked"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newModel()
			if c.host != nil {
				c.host(m)
			}
			in := Input{Current: c.cur.spec(), Desired: c.des.spec(), Facts: m.facts()}
			in.Desired.KernelType, in.Desired.Extensions = c.kernel, c.exts
			if c.facts != nil {
				c.facts(&in.Facts)
			}
			refs, err := Touches(in)
			if err != nil {
				t.Fatal(err)
			}
			in.Live = m.observe(refs)
			p, err := Plan(in)
			if err != nil || len(p.Refused) != 1 || !strings.Contains(p.Refused[0].Reason, c.want) || len(p.Steps) > 0 {
				t.Errorf("got refused %v, steps %v, error %v; want one refusal with %q", p.Refused, names(p.Steps), err, c.want)
			}
		})
	}
}

func TestDifferencesHaveTheOriginalsWords(t *testing.T) {
	c := config{
		Files: map[string]string{"/etc/a": "a", "/etc/b": "b", "/etc/c": "c", "/tmp/tmpfile": "", kubeletCA: "any"},
		Units: map[string]unit{
			"m.service": {Mask: ptr(true)}, "on.service": {Contents: "x", Enabled: ptr(true)}, "off.service": {Contents: "x", Enabled: ptr(false)},
		},
		Kargs: []string{"nosmt", "quiet"}, Image: "image-9",
	}
	m := newModel()
	m.put("/etc/a", "changed", 0o644)
	m.put("/etc/b", "b", 0o600)
	m.states[Ref{KindFile, "/etc/c"}] = State{Type: Link, Target: "/etc/x"}
	m.put(UnitDir+"/m.service", "x", 0o644)
	m.put(UnitDir+"/on.service", "x", 0o644)
	m.put(UnitDir+"/off.service", "x", 0o644)
	m.states[Ref{KindUnit, "on.service"}] = State{Type: Links, Value: "disabled"}
	m.states[Ref{KindUnit, "off.service"}] = State{Type: Links, Value: "enabled"}
	f := m.facts()
	refs, err := Watched(c.spec(), f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Differences(c.spec(), f, m.observe(refs), Everything)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, d := range got {
		reasons = append(reasons, d.Reason)
	}
	want := []string{
		`expected target osImageURL "image-9", have "image-0"`,
		`missing expected kernel arguments: [nosmt]`,
		`content mismatch for file "/etc/a"`,
		`mode mismatch for file: "/etc/b"; expected: -rw-r--r--/420/0644; received: -rw-------/384/0600`,
		`mode mismatch for file: "/etc/c"; expected: -rw-r--r--/420/0644; received: Lrwxrwxrwx/134218239/01000000777`,
		`could not stat file "/tmp/tmpfile": lstat /tmp/tmpfile: no such file or directory`,
		`state validation: invalid unit masked setting. path: /etc/systemd/system/m.service; expected: /dev/null; received: /etc/systemd/system/m.service`,
		`unit "off.service" expected enabled=false, but systemd reports "enabled"`,
		`unit "on.service" expected enabled=true, but systemd reports "disabled"`,
	}
	if d := cmp.Diff(want, reasons); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
