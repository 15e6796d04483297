package host

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/engine/transition"
)

func systemStep(k transition.Kind, key string, before, after transition.State) transition.Step {
	return transition.Step{ID: 1, Ref: transition.Ref{Kind: k, Key: key}, Before: before, After: after}
}

func list(values ...string) transition.State {
	return transition.State{Type: transition.List, Values: values}
}

func value(v string) transition.State { return transition.State{Type: transition.Value, Value: v} }

// What is staged is what the next boot will use, and becomes true with it.
func TestAMachineInMemoryStagesAndBoots(t *testing.T) {
	ctx := context.Background()
	m := NewMemory(MemoryOptions{Image: "image-0", Arguments: []string{"root=x", "a"}, BootID: "first"})
	before, err := m.Facts(ctx)
	must(t, err)
	steps := []transition.Step{
		systemStep(transition.KindImage, "", value("image-0"), value("image-1")),
		systemStep(transition.KindKernelArguments, "", list("a"), list("b", "c")),
		systemStep(transition.KindKernelType, "", value("default"), value("realtime")),
		systemStep(transition.KindExtensions, "", list(), list("ipsec")),
		systemStep(transition.KindReboot, "", value(before.BootID), transition.State{}),
	}
	for range 2 { // each is safe to repeat
		for _, s := range steps {
			must(t, m.Perform(ctx, s, nil))
		}
	}
	if err := m.Verify(ctx, steps[4]); err == nil || !m.RebootAsked() {
		t.Errorf("got %v, asked %v; want a reboot that was asked for and has not happened", err, m.RebootAsked())
	}
	want := map[transition.Kind]transition.State{
		transition.KindImage: value("image-1"), transition.KindKernelArguments: list("root=x", "b", "c"),
		transition.KindKernelType: value("realtime"), transition.KindExtensions: list("ipsec"),
	}
	check := func(m *Memory) {
		t.Helper()
		for kind, state := range want {
			ref := transition.Ref{Kind: kind}
			got, _, err := m.Observe(ctx, []transition.Ref{ref})
			must(t, err)
			if diff := cmp.Diff(state, got[ref]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", kind, diff)
			}
		}
	}
	check(m)
	if f, err := m.Facts(ctx); err != nil || f.Booted != "image-0" || f.BootID != "first" {
		t.Errorf("before the boot: got %q in boot %q, %v", f.Booted, f.BootID, err)
	}
	m = m.Boot(false, nil)
	check(m)
	must(t, m.Verify(ctx, steps[4]))
	f, err := m.Facts(ctx)
	must(t, err)
	if f.Booted != "image-1" || strings.Join(f.CommandLine, " ") != "root=x b c" || f.BootID == "first" || m.RebootAsked() {
		t.Errorf("after the boot: got %+v", f)
	}
}

func TestAFailedFinalizeBootsWhatRanBefore(t *testing.T) {
	ctx := context.Background()
	m := NewMemory(MemoryOptions{Image: "image-0"})
	must(t, m.Perform(ctx, systemStep(transition.KindImage, "", value("image-0"), value("image-1")), nil))
	m.FailFinalize()
	m = m.Boot(false, nil)
	if f, err := m.Facts(ctx); err != nil || f.Booted != "image-0" || f.BootID == "boot-1" {
		t.Errorf("got %q in boot %q, %v", f.Booted, f.BootID, err)
	}
}

func TestABootEmptiesWhatIsVolatile(t *testing.T) {
	for _, cut := range []bool{false, true} {
		m := NewMemory(MemoryOptions{})
		write(t, m.Files(), map[string]string{"/tmp/a": "x", "/run/deep/a": "x", "/dev/shm/a": "x", "/var/run": "-> /run", "/etc/a": "x"})
		must(t, m.mem.Create("/etc/unsynced"))
		m = m.Boot(cut, nil)
		for _, p := range []string{"/tmp/a", "/run/deep", "/var/run/deep/a", "/dev/shm/a"} {
			if _, err := m.Files().Lstat(p); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("power cut %v: %s: got %v, want that it is gone", cut, p, err)
			}
		}
		if _, err := m.Files().ReadFile("/etc/a"); err != nil {
			t.Error(err)
		}
		if _, err := m.Files().ReadFile("/etc/unsynced"); err == nil == cut {
			t.Errorf("power cut %v: got %v for a file that was not synced", cut, err)
		}
		info, err := m.Files().Lstat("/tmp")
		if err != nil || fs.FileMode(info.Mode) != fs.ModeDir|fs.ModeSticky|0o777 {
			t.Errorf("/tmp: got %v, %v", fs.FileMode(info.Mode), err)
		}
	}
}

// An orderly shutdown writes everything; a power cut after the next boot cannot take
// it back.
func TestAnOrderlyShutdownSyncs(t *testing.T) {
	m := NewMemory(MemoryOptions{})
	must(t, m.mem.Create("/etc/unsynced"))
	m = m.Boot(false, nil).Boot(true, nil)
	if _, err := m.Files().ReadFile("/etc/unsynced"); err != nil {
		t.Error(err)
	}
}

func TestServicesOfAMachineInMemory(t *testing.T) {
	ctx := context.Background()
	m := NewMemory(MemoryOptions{})
	restart := systemStep(transition.KindRestart, "crio.service", transition.State{}, transition.State{})
	reload := systemStep(transition.KindReload, "crio.service", transition.State{}, transition.State{})
	must(t, m.Perform(ctx, restart, nil), m.Perform(ctx, reload, nil), m.Verify(ctx, restart))
	if diff := cmp.Diff([]string{"restart crio.service", "reload crio.service"}, m.Done()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.FailService("crio.service", true)
	for _, s := range []transition.Step{restart, reload} {
		if err := m.Perform(ctx, s, nil); err == nil || !strings.HasPrefix(err.Error(), "could not apply update: re") {
			t.Errorf("got %v, want a failure in the original's words", err)
		}
	}
	m.FailService("crio.service", false)
	must(t, m.Perform(ctx, restart, nil))
}

func TestArgumentsKeepTheHostsOwn(t *testing.T) {
	rows := []struct {
		name                      string
		have, before, after, want []string
	}{
		{"added at the end", []string{"root=x"}, nil, []string{"a"}, []string{"root=x", "a"}},
		{"moved to the end", []string{"a", "root=x"}, []string{"a"}, []string{"a", "b"}, []string{"root=x", "a", "b"}},
		{"done before", []string{"root=x", "a", "b"}, []string{"a"}, []string{"a", "b"}, []string{"root=x", "a", "b"}},
		{"gone by hand", []string{"root=x"}, []string{"a"}, nil, []string{"root=x"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			once := Arguments(row.have, row.before, row.after)
			if diff := cmp.Diff(row.want, once); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(once, Arguments(once, row.before, row.after)); diff != "" {
				t.Errorf("a second time (-want +got):\n%s", diff)
			}
		})
	}
}
