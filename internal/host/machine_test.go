package host

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millwright.io/millwright/internal/engine/transition"
)

// machines runs a test on a rooted host and on one in memory, both empty.
func machines(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Helper()
	disks(t, func(t *testing.T, d Disk) { test(t, newMachine(d, Options{})) })
}

func TestFactsTellWhatAHostIs(t *testing.T) {
	rows := []struct {
		name, release string
		want          transition.Facts
	}{
		{"RHCOS", "ID=rhcos\nVERSION=\"418.94.202501221327-0\"\nVARIANT_ID=coreos\nVERSION_ID=\"4.18\"\nOPENSHIFT_VERSION=\"4.18\"\nRHEL_VERSION=\"9.4\"\n",
			transition.Facts{ID: "rhcos", Version: "9.4", Class: transition.CoreOS, EnterpriseLinux: true, ReadOnly: readOnlyCoreOS}},
		{"RHCOS without RHEL_VERSION", "ID=\"rhcos\"\nVERSION=\"418.94.202501221327-0\"\nOPENSHIFT_VERSION=\"4.18\"\n",
			transition.Facts{ID: "rhcos", Version: "94.202501221327-0", Class: transition.CoreOS, EnterpriseLinux: true, ReadOnly: readOnlyCoreOS}},
		{"RHEL CoreOS", "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID='10.1'\n",
			transition.Facts{ID: "rhel", Version: "10.1", Class: transition.CoreOS, EnterpriseLinux: true, ReadOnly: readOnlyCoreOS}},
		{"Fedora CoreOS", "ID=fedora\nVARIANT_ID=coreos\nVERSION=\"43 (CoreOS)\"\nVERSION_ID=43\n",
			transition.Facts{ID: "fedora", Version: "43", Class: transition.CoreOS, ReadOnly: readOnlyCoreOS}},
		{"Debian 10 is no enterprise Linux 10", "# comment\nID=debian\nVERSION_ID=\"10\"\n",
			transition.Facts{ID: "debian", Version: "10", Class: transition.Plain}},
		{"traditional RHEL", "ID=rhel\nVERSION_ID=\"9.6\"\n", transition.Facts{ID: "rhel", Version: "9.6", Class: transition.Plain}},
		{"Flatcar", "ID=flatcar\nVERSION_ID=4459.2.0\n", transition.Facts{ID: "flatcar", Version: "4459.2.0", Class: transition.Plain, ReadOnly: []string{"/usr"}}},
		{"nothing known", "", transition.Facts{Class: transition.Plain}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			machines(t, func(t *testing.T, m *machine) {
				write(t, m.files, map[string]string{"/usr/lib/os-release": row.release, "/etc/os-release": "-> ../usr/lib/os-release"})
				got, err := m.Facts(context.Background())
				must(t, err)
				want := row.want
				want.Volatile = []string{"/tmp", "/run", "/var/run", "/dev/shm"}
				want.Users = map[string]transition.User{}
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestFactsTellWhatRuns(t *testing.T) {
	machines(t, func(t *testing.T, m *machine) {
		write(t, m.files, map[string]string{
			"/proc/sys/kernel/random/boot_id": "11-22\n", "/proc/cmdline": "BOOT_IMAGE=x  nosmt\n", "/proc/sys/crypto/fips_enabled": "1\n",
			"/etc/passwd":                              "root:x:0:0::/root:/bin/sh\ncore:x:1000:1001::/home/core:/bin/sh\n\nbroken\n",
			"/usr/lib/passwd":                          "bin:x:1:1::/bin:/bin/sh\n",
			"/usr/lib/systemd/system/a.service":        "",
			"/etc/systemd/system/b.timer":              "",
			"/etc/systemd/system/a.service":            "-> /dev/null",
			"/etc/systemd/system/README":               "",
			"/usr/local/share/ca-certificates/x.crt":   "",
			"/etc/systemd/system/b.timer.d/10-no.conf": "",
		})
		got, err := m.Facts(context.Background())
		must(t, err)
		on := true
		want := transition.Facts{
			Class: transition.Plain, BootID: "11-22", CommandLine: []string{"BOOT_IMAGE=x", "nosmt"}, FIPS: &on,
			Volatile: []string{"/tmp", "/run", "/var/run", "/dev/shm"}, SSHKeys: "/home/core/.ssh/authorized_keys",
			TrustAnchors: "/usr/local/share/ca-certificates", UnitFiles: []string{"a.service", "b.timer"},
			Users: map[string]transition.User{"root": {Home: "/root"}, "core": {UID: 1000, GID: 1001, Home: "/home/core"}, "bin": {UID: 1, GID: 1, Home: "/bin"}},
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestMountsTellWhatIsReadOnlyAndVolatile(t *testing.T) {
	machines(t, func(t *testing.T, m *machine) {
		write(t, m.files, map[string]string{
			"/usr/bin/x": "", "/usr/lib/x": "", "/usr/local": "-> ../var/usrlocal", "/opt/x": "",
			"/proc/1/mounts": "overlay / overlay ro 0 0\n/dev/a /usr ext4 ro,seclabel 0 0\n/dev/b /opt\\040x ext4 ro 0 0\n" +
				"tmpfs /scratch tmpfs rw 0 0\ntmpfs /tmp tmpfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nproc /proc proc ro 0 0\ntmpfs /var/lib/kubelet/pods/x tmpfs ro 0 0\nbad\n",
		})
		f := transition.Facts{Volatile: []string{"/tmp"}}
		m.mounts(&f)
		want := transition.Facts{Volatile: []string{"/tmp", "/scratch"}, ReadOnly: []string{"/usr/bin", "/usr/lib", "/opt x"}}
		if diff := cmp.Diff(want, f); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func fileStep(p string, after transition.State) transition.Step {
	return transition.Step{ID: 1, Ref: transition.Ref{Kind: transition.KindFile, Key: p}, After: after}
}

func blobs(bodies ...string) transition.Blobs {
	out := transition.Blobs{}
	for _, b := range bodies {
		out[transition.Digest([]byte(b))] = []byte(b)
	}
	return out
}

func digest(s string) string { return transition.Digest([]byte(s)) }

// What a step says is there afterwards, Observe says too; then the way back.
func TestFileStepsAndTheirInverses(t *testing.T) {
	file := func(body string, mode uint32, uid, gid int) transition.State {
		return transition.State{Type: transition.File, Digest: digest(body), Mode: mode, UID: uid, GID: gid}
	}
	rows := []struct {
		name          string
		before, after transition.State
	}{
		{"a new file", transition.State{Type: transition.Absent}, file("new", 0o644, 0, 0)},
		{"other contents", file("old", 0o600, 1, 2), file("new", 0o755, 0, 0)},
		{"other mode", file("old", 0o600, 1, 2), file("old", 0o640, 1, 2)},
		{"other owner", file("old", 0o600, 1, 2), file("old", 0o600, 0, 2)},
		{"a file with special bits", file("old", 0o755|uint32(fs.ModeSetuid), 0, 0), file("new", 0o644, 0, 0)},
		{"an empty file", file("old", 0o600, 1, 2), file("", 0o600, 1, 2)},
		{"a removed file", file("old", 0o600, 1, 2), transition.State{Type: transition.Absent}},
		{"a mask", file("old", 0o644, 0, 0), transition.State{Type: transition.Link, Target: "/dev/null"}},
		{"a link that becomes a file", transition.State{Type: transition.Link, Target: "../x"}, file("new", 0o644, 0, 0)},
		{"another link", transition.State{Type: transition.Link, Target: "../x"}, transition.State{Type: transition.Link, Target: "../y"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			machines(t, func(t *testing.T, m *machine) {
				contents := blobs("old", "new", "")
				step := fileStep("/etc/deep/a", row.after)
				step.Before = row.before
				for _, s := range []transition.Step{step.Inverse(), step, step, step.Inverse()} {
					must(t, m.Perform(context.Background(), s, contents))
					got, found, err := m.Observe(context.Background(), []transition.Ref{s.Ref})
					must(t, err)
					if diff := cmp.Diff(s.After, got[s.Ref]); diff != "" {
						t.Fatalf("(-want +got):\n%s", diff)
					}
					if d := s.After.Digest; d != "" && transition.Digest(found[d]) != d {
						t.Errorf("got no contents for %s", d)
					}
				}
			})
		})
	}
}

func TestAStepThatIsDoneWritesNothing(t *testing.T) {
	faulty := &Faulty{}
	m := NewMemory(MemoryOptions{Fault: faulty})
	steps := []transition.Step{
		fileStep("/etc/a", transition.State{Type: transition.File, Digest: digest("a"), Mode: 0o644, Owner: "core:core"}),
		fileStep("/etc/l", transition.State{Type: transition.Link, Target: "/dev/null"}),
		{ID: 3, Ref: transition.Ref{Kind: transition.KindPassword, Key: "core"}, After: transition.State{Type: transition.Value, Digest: digest("$6$x")}},
		{ID: 4, Ref: transition.Ref{Kind: transition.KindUnit, Key: "u.service"}, After: transition.State{Type: transition.Value, Value: "enabled"}},
	}
	write(t, m.Files(), map[string]string{"/etc/systemd/system/u.service": "[Install]\nWantedBy=a.target\n"})
	for _, s := range steps {
		must(t, m.Perform(context.Background(), s, blobs("a", "$6$x")))
	}
	before := faulty.Ops
	for _, s := range steps {
		must(t, m.Perform(context.Background(), s, blobs("a", "$6$x")))
	}
	if faulty.Ops != before {
		t.Errorf("repeating what is done changed the disk %d times", faulty.Ops-before)
	}
}

func TestWhatCannotBeWritten(t *testing.T) {
	rows := []struct {
		name string
		key  string
		want transition.State
		text string
	}{
		{"unknown user", "/etc/a", transition.State{Type: transition.File, Digest: digest("x"), Owner: "nobody9:0"},
			`failed to retrieve file ownership for file "/etc/a": failed to retrieve UserID for username: nobody9`},
		{"unknown group", "/etc/a", transition.State{Type: transition.File, Digest: digest("x"), Owner: "core:nobody9"},
			`failed to retrieve file ownership for file "/etc/a": failed to retrieve GroupID for group name: nobody9`},
		{"missing contents", "/etc/a", transition.State{Type: transition.File, Digest: digest("y")},
			"write /etc/a: its contents " + digest("y") + " are missing or damaged"},
		{"a folder", "/etc/a", transition.State{Type: transition.Dir}, "write /etc/a: a dir is nothing that can be written"},
		{"below a file", "/etc/passwd/a/b", transition.State{Type: transition.File, Digest: digest("x")},
			`failed to create directory "/etc/passwd/a": mkdir /etc/passwd: not a directory`},
		{"in place of a folder", "/etc", transition.State{Type: transition.File, Digest: digest("x")}, "rename /etc: file exists"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			machines(t, func(t *testing.T, m *machine) {
				write(t, m.files, map[string]string{"/etc/passwd": "core:x:1000:1000::/home/core:/bin/sh\n"})
				err := m.Perform(context.Background(), fileStep(row.key, row.want), blobs("x"))
				if err == nil || err.Error() != row.text {
					t.Errorf("got  %v\nwant %s", err, row.text)
				}
			})
		})
	}
}

func TestOwnersAreLookedUpByName(t *testing.T) {
	machines(t, func(t *testing.T, m *machine) {
		write(t, m.files, map[string]string{
			"/etc/passwd": "core:x:1000:1000::/home/core:/bin/sh\n", "/etc/group": "wheel:x:10:core\n", "/usr/lib/group": "kvm:x:36:\n"})
		for owner, want := range map[string]Info{"core:wheel": {UID: 1000, GID: 10}, "7:kvm": {UID: 7, GID: 36}, "core:0": {UID: 1000}} {
			must(t, m.Perform(context.Background(), fileStep("/etc/a", transition.State{Type: transition.File, Digest: digest("x"), Mode: 0o600, Owner: owner}), blobs("x")))
			got, err := m.files.Lstat("/etc/a")
			must(t, err)
			want.Mode, want.Size = 0o600, 1
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", owner, diff)
			}
		}
	})
}

func TestPipesAreNothingToWriteOver(t *testing.T) {
	d := openTemp(t)
	must(t, os.MkdirAll(filepath.Join(d.dir, "run"), 0o755), syscall.Mkfifo(filepath.Join(d.dir, "run/pipe"), 0o600))
	ref := transition.Ref{Kind: transition.KindFile, Key: "/run/pipe"}
	got, _, err := newMachine(d, Options{}).Observe(context.Background(), []transition.Ref{ref})
	if err != nil || got[ref].Type != transition.Dir {
		t.Errorf("got %+v, %v; want what planning refuses to replace", got[ref], err)
	}
}

func TestPasswords(t *testing.T) {
	const shadow = "root:*:1:0:99999:7:::\ncore:!!:20000:0:99999:7:::\nlast:x:1::::::"
	rows := []struct {
		name, user, shadow, hash string
		want                     string
		text                     string
	}{
		{"a new hash", "core", shadow, "$6$abc", "root:*:1:0:99999:7:::\ncore:$6$abc:20000:0:99999:7:::\nlast:x:1::::::\n", ""},
		{"an empty hash locks", "core", shadow, "", "root:*:1:0:99999:7:::\ncore:*:20000:0:99999:7:::\nlast:x:1::::::\n", ""},
		{"a user without a line", "new", shadow, "*", "root:*:1:0:99999:7:::\ncore:!!:20000:0:99999:7:::\nlast:x:1::::::\nnew:*::0:99999:7:::\n", ""},
		{"no prefix of a name", "cor", shadow, "*", "root:*:1:0:99999:7:::\ncore:!!:20000:0:99999:7:::\nlast:x:1::::::\ncor:*::0:99999:7:::\n", ""},
		{"more than a hash", "core", shadow, "x:0:0\nevil::", shadow, "set password of core: the hash holds a colon or a line break; want one line as mkpasswd prints it"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			machines(t, func(t *testing.T, m *machine) {
				must(t, m.files.Replace("/etc/shadow", []byte(row.shadow), Attr{Mode: 0o640, GID: 42}))
				step := transition.Step{ID: 1, Ref: transition.Ref{Kind: transition.KindPassword, Key: row.user}, After: transition.State{Type: transition.Value, Digest: digest(row.hash)}}
				err := m.Perform(context.Background(), step, blobs(row.hash))
				if row.text != "" && (err == nil || err.Error() != row.text) || row.text == "" && err != nil {
					t.Fatalf("got %v, want %q", err, row.text)
				}
				got, err := m.files.ReadFile("/etc/shadow")
				must(t, err)
				if diff := cmp.Diff(row.want, string(got)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				info, err := m.files.Lstat("/etc/shadow")
				must(t, err)
				if info.Mode != 0o640 || info.GID != 42 {
					t.Errorf("got %+v, want its attributes kept", info)
				}
			})
		})
	}
}

func TestPasswordHashesAreObservedAndTakenBack(t *testing.T) {
	machines(t, func(t *testing.T, m *machine) {
		ref := transition.Ref{Kind: transition.KindPassword, Key: "core"}
		write(t, m.files, map[string]string{"/etc/shadow": "root:*:1:::::\n"})
		step := transition.Step{ID: 1, Ref: ref, Before: transition.State{Type: transition.Absent}, After: transition.State{Type: transition.Value, Digest: digest("$6$x")}}
		for _, s := range []transition.Step{step, step.Inverse()} {
			must(t, m.Perform(context.Background(), s, blobs("$6$x")))
			got, _, err := m.Observe(context.Background(), []transition.Ref{ref})
			must(t, err)
			if diff := cmp.Diff(s.After, got[ref]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
}

func TestSSHKeysLieInTheUsersOwnFolders(t *testing.T) {
	for _, p := range []string{"/home/core/.ssh/authorized_keys", "/home/core/.ssh/authorized_keys.d/ignition"} {
		t.Run(p, func(t *testing.T) {
			machines(t, func(t *testing.T, m *machine) {
				write(t, m.files, map[string]string{"/home": "-> var/home", "/var/home/core/.bashrc": ""})
				must(t, m.Perform(context.Background(), fileStep(p, transition.State{Type: transition.File, Digest: digest("key\n"), Mode: 0o600, UID: 1000, GID: 1000}), blobs("key\n")))
				for dir := p; dir != "/home/core"; dir = filepath.Dir(dir) {
					info, err := m.files.Lstat(dir)
					must(t, err)
					want := uint32(0o700)
					if dir == p {
						want = 0o600
					}
					if info.UID != 1000 || info.GID != 1000 || info.Mode&0o777 != want {
						t.Errorf("%s: got %+v, want it to be the user's alone", dir, info)
					}
				}
			})
		})
	}
}

func TestALinkInPlaceOfTheKeysFolderIsNotFollowed(t *testing.T) {
	machines(t, func(t *testing.T, m *machine) {
		write(t, m.files, map[string]string{"/home/core/.ssh": "-> /etc", "/etc/x": ""})
		err := m.Perform(context.Background(), fileStep("/home/core/.ssh/authorized_keys", transition.State{Type: transition.File, Digest: digest("key\n"), Mode: 0o600, UID: 1000}), blobs("key\n"))
		if err == nil || !strings.Contains(err.Error(), "/home/core/.ssh: not a directory") {
			t.Errorf("got %v, want a refusal", err)
		}
		info, err := m.files.Lstat("/etc")
		if err != nil || info.UID != 0 || info.Mode&0o777 != 0o755 {
			t.Errorf("the link's target was changed: %+v, %v", info, err)
		}
	})
}

func TestAHostWithoutASystemSaysSo(t *testing.T) {
	machines(t, func(t *testing.T, m *machine) {
		step := transition.Step{ID: 1, Ref: transition.Ref{Kind: transition.KindReboot}}
		for _, err := range []error{m.Perform(context.Background(), step, nil), m.Verify(context.Background(), step)} {
			if err == nil || !strings.Contains(err.Error(), "this host has no system") {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestFactsOfTheMachineThisRunsOn(t *testing.T) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("no /proc here")
	}
	h, err := New("/", Options{})
	must(t, err)
	f, err := h.Facts(context.Background())
	must(t, err)
	if f.BootID != strings.TrimSpace(string(boot)) || len(f.CommandLine) == 0 || f.Users["root"].UID != 0 || f.Live {
		t.Errorf("got %+v", f)
	}
	ref := transition.Ref{Kind: transition.KindFile, Key: "/etc/passwd"}
	got, contents, err := h.Observe(context.Background(), []transition.Ref{ref})
	if err != nil || got[ref].Type != transition.File || len(contents[got[ref].Digest]) == 0 {
		t.Errorf("got %+v, %v", got[ref], err)
	}
}
