package vm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vincent-petithory/dataurl"
	"golang.org/x/sys/unix"

	"millwright.io/millwright/internal/sim/ostree"
	"millwright.io/millwright/internal/sim/services"
)

// provisioned is a machine whose first boot brings an image and kernel arguments.
func provisioned(t *testing.T, name string) Hardware {
	t.Helper()
	hw := hardwareNamed(name)
	mc := `{"spec":{"osImageURL":"q/os:1.0","kernelArguments":["a=1 b","c"],"kernelType":"realtime","extensions":["usbguard"]}}`
	quoted, err := json.Marshal(dataurl.EncodeBytes([]byte(mc)))
	if err != nil {
		t.Fatal(err)
	}
	hw.UserData = config("3.2.0", `,"storage":{"files":[
	  {"path":"/etc/ignition-machine-config-encapsulated.json","contents":{"source":`+string(quoted)+`}},
	  {"path":"/etc/owned","user":{"name":"core"},"group":{"id":7},"contents":{"source":"data:,x"}}]},
	 "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA one","ssh-ed25519 AAAA two"],"passwordHash":"$6$x"}]},
	 "systemd":{"units":[
	  {"name":"on.service","enabled":true,"contents":"[Install]\nWantedBy=multi-user.target\nAlias=other.service\n"},
	  {"name":"off.service","enabled":false,"contents":"[Install]\nWantedBy=multi-user.target\n"},
	  {"name":"gone.service","enabled":true},{"name":"sshd.service","enabled":false}]}`)
	return hw
}

func command(t *testing.T, root, line string) {
	t.Helper()
	tree, err := ostree.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	var said strings.Builder
	if code := tree.Run(strings.Fields(line), &said, &said); code != 0 {
		t.Fatalf("%s: %s", line, said.String())
	}
}

func ask(t *testing.T, root, verb string) {
	t.Helper()
	m, err := services.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if code := m.Systemctl([]string{verb}, os.Stdout, os.Stderr); code != 0 {
		t.Fatalf("%s: code %d", verb, code)
	}
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFirstBootIsProvisioned(t *testing.T) {
	dir := t.TempDir()
	h := newHypervisor(t, dir, &joins{})
	if err := h.PowerOn(provisioned(t, "a")); err != nil {
		t.Fatal(err)
	}
	waitStage(t, h, "a", StageUp)
	root := filepath.Join(dir, "machines", "a")
	if got := read(t, root, "proc/cmdline"); !strings.HasSuffix(got, " rw a=1 b c\n") {
		t.Errorf("command line: got %q, want the config's arguments at its end", got)
	}
	tree, err := ostree.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	s, err := tree.Load()
	if err != nil || s.Booted.Image != "q/os:1.0" || s.Staged != nil {
		t.Fatalf("got %+v, %v; want the config's image booted", s, err)
	}
	if diff := cmp.Diff([]string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra", "usbguard"}, s.Booted.Packages); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(root, pathEncapsulated)); err == nil {
		t.Error("the encapsulated config is still there; want it renamed")
	}
	if got, want := read(t, root, "home/core/.ssh/authorized_keys.d/ignition"), "ssh-ed25519 AAAA one\nssh-ed25519 AAAA two\n"; got != want {
		t.Errorf("keys: got %q, want %q", got, want)
	}
	for name, want := range map[string]os.FileMode{"var/home/core/.ssh": 0o700, "var/home/core/.ssh/authorized_keys.d": 0o700, "var/home/core/.ssh/authorized_keys.d/ignition": 0o600} {
		if i, err := os.Stat(filepath.Join(root, name)); err != nil || i.Mode().Perm() != want {
			t.Errorf("mode of %s: got %v, %v; want %v", name, i, err, want)
		}
	}
	for name, want := range map[string]string{"etc/owned": "1000:7", "var/home/core/.ssh/authorized_keys.d/ignition": "1000:1000"} {
		if got := ownerAt(t, filepath.Join(root, name)); got != want {
			t.Errorf("owner of %s: got %s, want %s", name, got, want)
		}
	}
	if got := read(t, root, "etc/shadow"); !strings.Contains(got, "core:$6$x:") {
		t.Errorf("shadow: got %q, want core's hash", got)
	}
	for name, there := range map[string]bool{"multi-user.target.wants/on.service": true, "other.service": true, "multi-user.target.wants/off.service": false, "multi-user.target.wants/gone.service": false, "multi-user.target.wants/sshd.service": false} {
		if _, err := os.Lstat(filepath.Join(root, unitDir, name)); (err == nil) != there {
			t.Errorf("link %s: got %v, want it there: %v", name, err, there)
		}
	}
}

// ownerAt is uid:gid of a file, where root's rights are missing from its attribute.
func ownerAt(t *testing.T, p string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		b := make([]byte, 64)
		n, err := unix.Getxattr(p, "user.millwright.owner", b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	var st unix.Stat_t
	if err := unix.Stat(p, &st); err != nil {
		t.Fatal(err)
	}
	return strings.Join([]string{itoa(st.Uid), itoa(st.Gid)}, ":")
}

func itoa(n uint32) string { b, _ := json.Marshal(n); return string(b) }

func TestMachineRebootsFromInside(t *testing.T) {
	for _, row := range []struct {
		name, failing, want string
	}{
		{"finalized", "", " c nosmt\n"},
		{"finalizing fails", ostree.FinalizeUnit + "\n", " c\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			j := &joins{}
			h := newHypervisor(t, dir, j)
			if err := h.PowerOn(provisioned(t, "a")); err != nil {
				t.Fatal(err)
			}
			first := waitStage(t, h, "a", StageUp)
			root := filepath.Join(dir, "machines", "a")
			for name, body := range map[string]string{"tmp/lost": "", "etc/kept": "", ostree.FailingPath: row.failing} {
				if err := os.WriteFile(filepath.Join(root, name), []byte(body), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			command(t, root, "kargs --append=nosmt")
			if got := read(t, root, "proc/cmdline"); strings.Contains(got, "nosmt") {
				t.Errorf("before the reboot: got %q, want the arguments of this boot", got)
			}
			ask(t, root, "reboot")
			second := first
			for deadline := newDeadline(t); second.BootID == first.BootID || second.Stage != StageUp; deadline() {
				second = h.List()[0]
			}
			if got := read(t, root, "proc/cmdline"); !strings.HasSuffix(got, row.want) {
				t.Errorf("after the reboot: got %q, want %q at its end", got, row.want)
			}
			if got := strings.TrimSpace(read(t, root, "proc/sys/kernel/random/boot_id")); got != second.BootID {
				t.Errorf("boot ID on disk: got %s, want %s", got, second.BootID)
			}
			if _, err := os.Stat(filepath.Join(root, "tmp/lost")); err == nil {
				t.Error("/tmp/lost survived the reboot")
			}
			if _, err := os.Stat(filepath.Join(root, "etc/kept")); err != nil {
				t.Errorf("/etc/kept: %v", err)
			}
			if !second.Powered || j.count() != 2 {
				t.Errorf("got power %v and %d joins, want on and 2", second.Powered, j.count())
			}
		})
	}
}

func TestMachineTurnsItselfOffAndComesBack(t *testing.T) {
	dir := t.TempDir()
	h := newHypervisor(t, dir, &joins{})
	hw := provisioned(t, "a")
	if err := h.PowerOn(hw); err != nil {
		t.Fatal(err)
	}
	waitStage(t, h, "a", StageUp)
	ask(t, filepath.Join(dir, "machines", "a"), "poweroff")
	if r := waitStage(t, h, "a", StageOff); r.Powered {
		t.Error("got power on, want off")
	}
	if err := h.PowerOn(hw); err != nil {
		t.Fatal(err)
	}
	waitStage(t, h, "a", StageUp)
}

func TestOSImageIsThatOfTheBootedDeployment(t *testing.T) {
	root, dir := openRoot(t)
	if got, want := osImage(rootDisk{root}), "Red Hat Enterprise Linux CoreOS "+ostree.FirstVersion; got != want {
		t.Errorf("without a system: got %q, want %q", got, want)
	}
	tree, err := ostree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	if err := tree.Install(ostree.Deployment{Version: "1"}); err != nil {
		t.Fatal(err)
	}
	if err := tree.Provision("q/os@sha256:0123456789abcdef", nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := osImage(rootDisk{root}), "Red Hat Enterprise Linux CoreOS 9.6.01234567"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
