package ostree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"millwright.io/millwright/internal/engine/transition"
	sim "millwright.io/millwright/internal/sim/ostree"
)

const (
	image1 = "quay.io/os/rhcos@sha256:1111111111111111"
	image2 = "quay.io/os/rhcos@sha256:2222222222222222"
)

// machine runs the stand-in in this process and remembers what changed it.
type machine struct {
	t    *testing.T
	root string
	tree *sim.Tree
	did  []string
	fail int // rebases that fail
}

func newMachine(t *testing.T, arguments ...string) *machine {
	t.Helper()
	root := t.TempDir()
	tree, err := sim.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	if err := tree.Install(sim.Deployment{Image: image1, Origin: "ostree-unverified-registry:" + image1, Arguments: arguments}); err != nil {
		t.Fatal(err)
	}
	return &machine{t: t, root: root, tree: tree}
}

func (m *machine) Has(name string) bool { return name == "rpm-ostree" || name == "bootc" }

func (m *machine) Query(_ context.Context, name string, args ...string) (string, error) {
	var out, said bytes.Buffer
	run := m.tree.Run
	if name == "bootc" {
		run = m.tree.RunBootc
	}
	if code := run(args, &out, &said); code != 0 {
		return "", fmt.Errorf("error running %s %s: %s: exit status %d", name, strings.Join(args, " "), strings.TrimSpace(said.String()), code)
	}
	return out.String(), nil
}

func (m *machine) Captured(ctx context.Context, name string, args ...string) (string, error) {
	return m.Query(ctx, name, args...)
}

func (m *machine) Run(ctx context.Context, name string, args ...string) error {
	m.did = append(m.did, name+" "+strings.Join(args, " "))
	if m.fail > 0 && args[0] == "rebase" {
		m.fail--
		return errors.New("the registry is away")
	}
	_, err := m.Query(ctx, name, args...)
	return err
}

func (m *machine) boot() {
	m.t.Helper()
	if _, err := m.tree.Boot(); err != nil {
		m.t.Fatal(err)
	}
}

func step(kind transition.Kind, before, after transition.State) transition.Step {
	return transition.Step{Ref: transition.Ref{Kind: kind}, Before: before, After: after}
}

func list(values ...string) transition.State {
	return transition.State{Type: transition.List, Values: values}
}

func value(v string) transition.State { return transition.State{Type: transition.Value, Value: v} }

func TestStepsRunTheCommandsOfTheOriginal(t *testing.T) {
	for _, row := range []struct {
		name, why string
		steps     []transition.Step
		want      []string
	}{
		{
			"arguments", "one command, deletions of the old list first",
			[]transition.Step{step(transition.KindKernelArguments, list("a=1", `b="x y"`), list("a=2", "nosmt"))},
			[]string{`rpm-ostree kargs --delete-if-present=a=1 --delete-if-present=b="x y" --append=a=2 --append=nosmt`},
		},
		{"image", "by its registry", []transition.Step{step(transition.KindImage, value(image1), value(image2))}, []string{
			"rpm-ostree rebase --experimental ostree-unverified-registry:" + image2,
		}},
		{"same image", "nothing to do", []transition.Step{step(transition.KindImage, value(image2), value(image1))}, nil},
		{"kernel", "the image's kernel makes room", []transition.Step{step(transition.KindKernelType, value("default"), value("realtime"))}, []string{
			"rpm-ostree override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra" +
				" --install kernel-rt-core --install kernel-rt-modules --install kernel-rt-modules-extra",
		}},
		{"image below another kernel", "its packages belong to the image before", []transition.Step{
			step(transition.KindKernelType, value("default"), value("realtime")),
			step(transition.KindImage, value(image1), value(image2)),
		}, []string{
			"rpm-ostree override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra" +
				" --install kernel-rt-core --install kernel-rt-modules --install kernel-rt-modules-extra",
			"rpm-ostree override reset kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra" +
				" --uninstall kernel-rt-core --uninstall kernel-rt-modules --uninstall kernel-rt-modules-extra",
			"rpm-ostree rebase --experimental ostree-unverified-registry:" + image2,
			"rpm-ostree override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra" +
				" --install kernel-rt-core --install kernel-rt-modules --install kernel-rt-modules-extra",
		}},
		{"extensions", "sorted packages; managed ones that nobody wants go", []transition.Step{
			step(transition.KindExtensions, list(), list("usbguard", "kerberos")),
			step(transition.KindExtensions, list(), list("usbguard")),
		}, []string{
			"rpm-ostree update --install krb5-workstation --install libkadm5 --install usbguard",
			"rpm-ostree update --uninstall krb5-workstation --uninstall libkadm5",
		}},
		{"taken back", "nothing is left pending", []transition.Step{
			step(transition.KindImage, value(image1), value(image2)),
			step(transition.KindImage, value(image2), value(image1)),
		}, []string{
			"rpm-ostree rebase --experimental ostree-unverified-registry:" + image2,
			"rpm-ostree rebase --experimental ostree-unverified-registry:" + image1,
			"rpm-ostree cleanup -p",
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMachine(t, "root=x", "a=1", `b="x y"`)
			sys := New(m, Options{})
			for _, s := range row.steps {
				if err := sys.Perform(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				did := len(m.did)
				if err := sys.Perform(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if len(m.did) != did {
					t.Errorf("%s repeated: got %v more, want nothing", s, m.did[did:])
				}
			}
			if diff := cmp.Diff(row.want, m.did); diff != "" {
				t.Errorf("commands (-want +got), %s:\n%s", row.why, diff)
			}
		})
	}
}

func TestWhatIsSetIsObservedAndTrueAfterTheBoot(t *testing.T) {
	m := newMachine(t, "root=x", "a=1")
	sys := New(m, Options{})
	steps := []transition.Step{
		step(transition.KindImage, value(image1), value(image2)),
		step(transition.KindKernelArguments, list("a=1"), list("a=2")),
		step(transition.KindKernelType, value("default"), value("realtime")),
		step(transition.KindExtensions, list(), list("ipsec", "usbguard")),
	}
	for _, s := range steps {
		if err := sys.Perform(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	want := map[transition.Kind]transition.State{
		transition.KindImage: value(image2), transition.KindKernelArguments: list("root=x", "a=2"),
		transition.KindKernelType: value("realtime"), transition.KindExtensions: list("ipsec", "usbguard"),
	}
	for _, when := range []string{"before the boot", "after it"} {
		got := map[transition.Kind]transition.State{}
		for k := range want {
			s, err := sys.Observe(t.Context(), transition.Ref{Kind: k})
			if err != nil {
				t.Fatal(err)
			}
			got[k] = s
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		m.boot()
	}
	var f transition.Facts
	if err := sys.Facts(t.Context(), &f); err != nil || f.Booted != image2 || f.Kernel != transition.RPMOSTree || f.Image != transition.RPMOSTree {
		t.Errorf("facts: got %+v, %v; want rpm-ostree and the second image booted", f, err)
	}
	// Back again, in the order of an undo.
	for _, s := range slices.Backward(steps) {
		if err := sys.Perform(t.Context(), s.Inverse()); err != nil {
			t.Fatal(err)
		}
	}
	m.boot()
	if err := sys.Facts(t.Context(), &f); err != nil || f.Booted != image1 {
		t.Errorf("after the undo: got %q, %v; want the first image", f.Booted, err)
	}
	if cmdline, err := os.ReadFile(filepath.Join(m.root, "proc/cmdline")); err != nil || !strings.HasSuffix(string(cmdline), "root=x a=1\n") {
		t.Errorf("command line: got %q, %v; want the first arguments at its end", cmdline, err)
	}
}

func TestRebaseIsTriedAgain(t *testing.T) {
	for _, row := range []struct {
		name  string
		fails int
		want  string
	}{{"a while", 2, ""}, {"for good", 100, "failed to update OS to " + image2 + " after retries: the registry is away"}} {
		t.Run(row.name, func(t *testing.T) {
			m := newMachine(t)
			m.fail = row.fails
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			done := make(chan error, 1)
			go func() {
				done <- New(m, Options{Clock: clk}).Perform(t.Context(), step(transition.KindImage, value(image1), value(image2)))
			}()
			deadline := time.Now().Add(10 * time.Second)
			for {
				select {
				case err := <-done:
					if err == nil && row.want != "" || err != nil && err.Error() != row.want {
						t.Errorf("got %v, want %q", err, row.want)
					}
					return
				default:
				}
				if clk.HasWaiters() {
					clk.Step(maxPause)
				}
				if time.Now().After(deadline) {
					t.Fatal("no end after 10 s")
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

func TestFailuresSayWhatTheProgramSaid(t *testing.T) {
	m := newMachine(t)
	if err := os.MkdirAll(filepath.Join(m.root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.root, sim.FailingPath), []byte("rpm-ostree kargs\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := New(m, Options{}).Perform(t.Context(), step(transition.KindKernelArguments, list(), list("a")))
	if want := "error running rpm-ostree kargs: error: kargs was made to fail by /etc/standin-failing: exit status 1"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := New(m, Options{}).Perform(t.Context(), step(transition.KindExtensions, list(), list("nonsense"))); err == nil || err.Error() != "invalid extensions found: [nonsense]" {
		t.Errorf("unknown extension: got %v", err)
	}
}

func TestBootcSwitchesImages(t *testing.T) {
	m := newMachine(t)
	sys := NewBootc(m)
	s := step(transition.KindImage, value(image1), value(image2))
	for range 2 {
		if err := sys.Perform(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"bootc switch " + image2}, m.did); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	got, err := sys.Observe(t.Context(), transition.Ref{Kind: transition.KindImage})
	if err != nil || got.Value != image2 {
		t.Errorf("next: got %q, %v; want the second image", got.Value, err)
	}
	var f transition.Facts
	if err := sys.Facts(t.Context(), &f); err != nil || f.Booted != image1 || f.Image != transition.Bootc {
		t.Errorf("facts: got %+v, %v; want bootc and the first image booted", f, err)
	}
}

func TestBareImage(t *testing.T) {
	for ref, want := range map[string]string{
		"ostree-unverified-registry:q/a:1":                    "q/a:1",
		"ostree-unverified-image:docker://q/a@sha256:1":       "q/a@sha256:1",
		"ostree-unverified-image:containers-storage:sha256:1": "sha256:1",
		"ostree-image-signed:docker://q/a":                    "q/a",
		"ostree-remote-registry:fedora:q/a:1":                 "q/a:1",
		"ostree-remote-image:fedora:docker://q/a:1":           "q/a:1",
		"fedora:fedora/x86_64/coreos/stable":                  "", "": "", "x": "",
	} {
		if got := bare(ref); got != want {
			t.Errorf("bare(%q): got %q, want %q", ref, got, want)
		}
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(`{"deployments":[{"booted":true,"container-image-reference":"ostree-unverified-registry:q/a:1","requested-packages":["kernel-rt-core"]}]}`))
	f.Add([]byte(`{"deployments":[{"custom-origin":["pivot://q/a","x"]}]}`))
	f.Add([]byte(`{"status":{"booted":{"image":{"image":{"image":"q/a"}}},"staged":null}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _, _ = parseBootc(raw)
		s, err := parseStatus(raw)
		if err != nil {
			return
		}
		if _, i := s.booted(); i >= len(s.Deployments) {
			t.Errorf("booted at %d of %d", i, len(s.Deployments))
		}
		n := s.next()
		for _, e := range n.extensions() {
			if layered, _ := Layers("", []string{e}); len(layered) == 0 {
				t.Errorf("extension %q has no packages", e)
			}
		}
		if image := n.image(); len(n.CustomOrigin) == 0 && !strings.HasSuffix(n.Image, image) {
			t.Errorf("image %q is no part of %q", image, n.Image)
		}
	})
}
