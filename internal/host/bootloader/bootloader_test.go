package bootloader

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
)

// fakeRun has some programs; grubby keeps arguments as the tool does.
type fakeRun struct {
	has  []string
	args []string
	did  []string
	fail bool
}

func (f *fakeRun) Has(name string) bool { return slices.Contains(f.has, name) }
func (f *fakeRun) Query(_ context.Context, name string, args ...string) (string, error) {
	if name != "grubby" || args[0] != "--info=DEFAULT" {
		return "", errors.New("no such question")
	}
	return "index=0\nkernel=\"/boot/vmlinuz\"\nargs=\"" + strings.Join(f.args, " ") + "\"\nroot=\"UUID=1\"\nid=\"x\"\n", nil
}

func (f *fakeRun) Captured(ctx context.Context, name string, args ...string) (string, error) {
	return f.Query(ctx, name, args...)
}

func (f *fakeRun) Run(_ context.Context, name string, args ...string) error {
	f.did = append(f.did, name+" "+strings.Join(args, " "))
	if f.fail {
		return errors.New("error running " + name)
	}
	for _, a := range args {
		if list, ok := strings.CutPrefix(a, "--remove-args="); ok {
			for _, r := range strings.Fields(list) {
				f.args = slices.DeleteFunc(f.args, func(h string) bool { return h == r })
			}
		}
		if list, ok := strings.CutPrefix(a, "--args="); ok {
			f.args = append(f.args, strings.Fields(list)...)
		}
	}
	return nil
}

// newFiles is a host's disk with some files.
func newFiles(t testing.TB, files map[string]string) host.Files {
	t.Helper()
	h, err := host.New(t.TempDir(), host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for p, body := range files {
		if err := h.Files().Replace(p, []byte(body), host.Attr{Mode: 0o640}); err != nil {
			t.Fatal(err)
		}
	}
	return h.Files()
}

func kargs(before, after []string) transition.Step {
	return transition.Step{
		Ref: transition.Ref{Kind: transition.KindKernelArguments}, Before: transition.State{Type: transition.List, Values: before}, After: transition.State{Type: transition.List, Values: after},
	}
}

func TestArgumentsAreSetWhereTheHostKeepsThem(t *testing.T) {
	const (
		old    = "title Old\nversion 5\noptions root=x ro a=1\nlinux /vmlinuz-5\n"
		newest = "title New\nlinux /vmlinuz-10\noptions root=x ro\noptions a=1 quiet\n"
		rescue = "title Rescue\noptions root=x a=1\n"
	)
	for _, row := range []struct {
		name    string
		has     []string
		files   map[string]string
		backend transition.Backend
		saw     []string
		want    map[string]string
		did     []string
		now     []string
	}{
		{
			"grubby", []string{"grubby"}, nil, transition.Grubby, []string{"root=UUID=1", "a=1", "quiet"}, nil,
			[]string{"grubby --update-kernel=ALL --remove-args=a=1 --args=a=2 nosmt"}, []string{"root=UUID=1", "quiet", "a=2", "nosmt"},
		},
		{
			"entries", nil, map[string]string{
				"/boot/loader/entries/id-5.conf": old, "/boot/loader/entries/id-10.conf": newest, "/boot/loader/entries/id-0-rescue.conf": rescue, "/etc/kernel/cmdline": "root=x a=1\n",
			}, transition.BLS, []string{"root=x", "ro", "a=1", "quiet"}, map[string]string{
				"/boot/loader/entries/id-5.conf":        "title Old\nversion 5\noptions root=x ro a=2 nosmt\nlinux /vmlinuz-5\n",
				"/boot/loader/entries/id-10.conf":       "title New\nlinux /vmlinuz-10\noptions root=x ro quiet a=2 nosmt\n",
				"/boot/loader/entries/id-0-rescue.conf": rescue, "/etc/kernel/cmdline": "root=x a=2 nosmt\n",
			}, nil, []string{"root=x", "ro", "quiet", "a=2", "nosmt"},
		},
		{
			"grub", []string{"update-grub"}, map[string]string{grubPath: "# grub\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX='a=1 b=\"x y\"' # mine\n"},
			transition.Grub, []string{"a=1", `b="x y"`, "quiet"},
			map[string]string{grubPath: "# grub\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"b=\\\"x y\\\" a=2 nosmt\"\n"},
			[]string{"update-grub "}, []string{`b="x y"`, "a=2", "nosmt", "quiet"},
		},
		{
			"grub without a line", []string{"grub2-mkconfig"}, map[string]string{grubPath: "GRUB_TIMEOUT=5"}, transition.Grub, nil,
			map[string]string{grubPath: "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=\"a=2 nosmt\"\n"}, []string{"grub2-mkconfig -o /boot/grub2/grub.cfg"}, []string{"a=2", "nosmt"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			run := &fakeRun{has: row.has, args: []string{"a=1", "quiet"}}
			files := newFiles(t, row.files)
			sys, ok := Find(run, files)
			if !ok {
				t.Fatal("got no way, want one")
			}
			var f transition.Facts
			if err := sys.Facts(t.Context(), &f); err != nil || f.Kernel != row.backend {
				t.Errorf("facts: got %q, %v; want %q", f.Kernel, err, row.backend)
			}
			check(t, sys, row.saw)
			step := kargs([]string{"a=1"}, []string{"a=2", "nosmt"})
			for range 2 {
				if err := sys.Perform(t.Context(), step); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(row.did, slices.Compact(run.did)); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			for p, want := range row.want {
				if got, err := files.ReadFile(p); err != nil || string(got) != want {
					t.Errorf("%s: got %q, %v; want %q", p, got, err, want)
				}
				if i, err := files.Lstat(p); err != nil || i.Mode&0o777 != 0o640 {
					t.Errorf("mode of %s: got %o, %v; want it kept", p, i.Mode, err)
				}
			}
			check(t, sys, row.now)
			if err := sys.Perform(t.Context(), step.Inverse()); err != nil {
				t.Fatal(err)
			}
			got, err := sys.Observe(t.Context(), step.Ref)
			if err != nil || slices.Contains(got.Values, "nosmt") || !slices.Contains(got.Values, "a=1") {
				t.Errorf("after the undo: got %v, %v; want a=1 and no nosmt", got.Values, err)
			}
		})
	}
}

func check(t *testing.T, sys *System, want []string) {
	t.Helper()
	got, err := sys.Observe(t.Context(), transition.Ref{Kind: transition.KindKernelArguments})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Values); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestNoWay(t *testing.T) {
	if _, ok := Find(&fakeRun{}, newFiles(t, map[string]string{grubPath: "x=1\n"})); ok {
		t.Error("got a way without a program that builds grub's menu, want none")
	}
}

func TestMenuIsBuiltAgainAfterAFailure(t *testing.T) {
	run := &fakeRun{has: []string{"update-grub"}, fail: true}
	sys, _ := Find(run, newFiles(t, map[string]string{grubPath: "GRUB_CMDLINE_LINUX=\n"}))
	if err := sys.Perform(t.Context(), kargs(nil, []string{"a"})); err == nil || err.Error() != "set kernel arguments: error running update-grub" {
		t.Errorf("got %v, want that update-grub went wrong", err)
	}
	run.fail = false
	if err := sys.Perform(t.Context(), kargs(nil, []string{"a"})); err != nil || len(run.did) != 2 {
		t.Errorf("got %v and %v, want the menu built", err, run.did)
	}
}

func TestGrubLinesThatNeedAShellAreLeftAlone(t *testing.T) {
	for line, want := range map[string]string{
		`GRUB_CMDLINE_LINUX="a $(uname)"`: `it needs a shell ('$')`,
		`GRUB_CMDLINE_LINUX="a`:           "its quote is not closed",
		`GRUB_CMDLINE_LINUX=a b`:          `"b" follows it`,
		`GRUB_CMDLINE_LINUX=a\`:           "it goes on in the next line",
	} {
		files := newFiles(t, map[string]string{grubPath: line + "\n"})
		sys, _ := Find(&fakeRun{has: []string{"update-grub"}}, files)
		err := sys.Perform(t.Context(), kargs(nil, []string{"x"}))
		if err == nil || !strings.Contains(err.Error(), "/etc/default/grub, line 1: GRUB_CMDLINE_LINUX: "+want) {
			t.Errorf("%s: got %v, want it to say %q", line, err, want)
		}
		if got, _ := files.ReadFile(grubPath); string(got) != line+"\n" {
			t.Errorf("%s: got %q, want the file untouched", line, got)
		}
	}
}

func TestNewestEntryCounts(t *testing.T) {
	want := []string{"id-10.0.conf", "id-9.12.conf", "id-9.2.conf", "id-9.conf"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b string) int { return compareVersions(b, a) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// FuzzEntry asserts that other lines stay and that what is written is read again.
func FuzzEntry(f *testing.F) {
	f.Add("title a\noptions x y\noptions \"z z\"\nlinux v", "n=1")
	f.Add("options", "")
	f.Fuzz(func(t *testing.T, text, argument string) {
		list := optionsOf("options " + strings.NewReplacer("\n", " ", "\r", " ").Replace(argument))
		got := withOptions(text, list)
		if diff := cmp.Diff(list, optionsOf(got)); diff != "" {
			t.Errorf("written and read again (-want +got):\n%s", diff)
		}
		if again := withOptions(got, list); again != got {
			t.Errorf("got %q, want the same a second time: %q", again, got)
		}
	})
}

// FuzzGrub asserts that a value that was written is the value that is read.
func FuzzGrub(f *testing.F) {
	f.Add("GRUB_CMDLINE_LINUX='a'\n", "b=\"c d\" $e")
	f.Add("x=1\nGRUB_CMDLINE_LINUX=\"a\" # c", "")
	f.Fuzz(func(t *testing.T, text, value string) {
		value = strings.NewReplacer("\n", "", "\r", "").Replace(value)
		_, line, err := assignment(text, grubKey)
		if err != nil {
			return
		}
		got, _, err := assignment(assign(text, line, grubKey, value), grubKey)
		if err != nil || got != value {
			t.Errorf("got %q, %v; want %q", got, err, value)
		}
	})
}

func FuzzGrubby(f *testing.F) {
	f.Add("args=\"a b\"\nroot=\"x\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := grubbyArguments(text)
		if err == nil && len(list) > len(text) {
			t.Errorf("got %d arguments of %d bytes", len(list), len(text))
		}
	})
}
