package journal

import (
	"context"
	"errors"
	"strings"
	"testing"

	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/host"
)

func TestAServiceThatFailsTakesTheChangeBackAndIsRemembered(t *testing.T) {
	m := machine(t)
	old := m.Tree(kept...)
	des := spec(newConfig, "image-1", "a=1")
	restart := []disruption.Action{{Kind: disruption.Restart, Service: "crio.service"}}
	c := Change{From: "old", To: "new", Digest: "d"}
	m.FailService("crio.service", true)
	for try := 1; try <= 2; try++ {
		j, err := Open(m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := j.Run(context.Background(), c, plan(t, m, spec(oldConfig, "image-1", "a=1"), des, false, restart...))
		if err != nil || out.Kind != RolledBack || out.Cause != "could not apply update: restarting crio.service service failed. Error: exit status 1" || out.Step.Key != "crio.service" {
			t.Fatalf("try %d: got %+v, %v", try, out, err)
		}
		if got := m.Tree(kept...); got != old {
			t.Fatalf("try %d: not the old state:\n%s", try, difference(old, "", got))
		}
		again, err := Open(m)
		if err != nil {
			t.Fatal(err)
		}
		if n, cause := again.Failures(c); n != try || cause != out.Cause {
			t.Errorf("after try %d: %d failures, cause %q", try, n, cause)
		}
	}
	m.FailService("crio.service", false)
	j, err := Open(m)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := j.Run(context.Background(), c, plan(t, m, spec(oldConfig, "image-1", "a=1"), des, false, restart...)); err != nil || out.Kind != Completed {
		t.Fatalf("got %+v, %v", out, err)
	}
	if n, _ := j.Failures(c); n != 0 {
		t.Errorf("%d failures are remembered after success", n)
	}
}

func TestAnEmptyPlanLeavesNoTrace(t *testing.T) {
	m := machine(t)
	fault := &host.Faulty{}
	m = m.Restart(fault)
	j, err := Open(m)
	if err != nil {
		t.Fatal(err)
	}
	p := plan(t, m, spec(oldConfig, "image-1", "a=1"), spec(oldConfig, "image-1", "a=1"), false)
	if out, err := j.Run(context.Background(), Change{To: "old"}, p); err != nil || out.Kind != Completed || fault.Ops != 0 {
		t.Errorf("got %+v, %v with %d operations; want none", out, err, fault.Ops)
	}
}

func TestJournalsOfOthersAreLeftAlone(t *testing.T) {
	cases := []struct {
		name, body string
		version    bool // a *VersionError
		corrupt    bool // moved aside
	}{
		{"another version", `{"journalVersion":2,"whatever":{}}` + "\n", true, false},
		{"no version", `{"begin":{}}` + "\n", false, true},
		{"no JSON", "garbage\n", false, true},
		{"torn before its first line ended", `{"journalVer`, false, false},
		{"torn after it", `{"journalVersion":1}` + "\n" + `{"begin":{"change":{"to":"x"},"st`, false, false},
		{"empty", "", false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := host.NewMemory(host.MemoryOptions{})
			if err := m.Files().Replace(Path, []byte(c.body), host.Attr{Mode: 0o600}); err != nil {
				t.Fatal(err)
			}
			j, err := Open(m)
			if c.version {
				var v *VersionError
				if !errors.As(err, &v) || v.Found != 2 || !strings.Contains(err.Error(), Path) {
					t.Fatalf("got %v, want a version error that names the file", err)
				}
				if body, _ := m.Files().ReadFile(Path); string(body) != c.body {
					t.Errorf("the journal was changed to %q", body)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if (j.Corrupt != "") != c.corrupt {
				t.Errorf("Corrupt is %q, want some: %v", j.Corrupt, c.corrupt)
			}
			if out, err := j.Resume(context.Background()); err != nil || out.Kind != Idle {
				t.Errorf("resume: %+v, %v; want nothing under way", out, err)
			}
		})
	}
}

func TestRebootIsAskedForAgainUntilTheBootIDChanges(t *testing.T) {
	m := machine(t)
	j, err := Open(m)
	if err != nil {
		t.Fatal(err)
	}
	p := plan(t, m, spec(oldConfig, "image-1", "a=1"), spec(newConfig, "image-2", "a=1"), false, disruption.Action{Kind: disruption.Reboot})
	if out, err := j.Run(context.Background(), Change{To: "new"}, p); err != nil || out.Kind != RebootPending {
		t.Fatalf("got %+v, %v", out, err)
	}
	for range 2 {
		if j, err = Open(m); err != nil {
			t.Fatal(err)
		}
		if out, err := j.Resume(context.Background()); err != nil || out.Kind != RebootPending {
			t.Fatalf("before the reboot: %+v, %v", out, err)
		}
	}
	m = m.Boot(false, nil)
	if j, err = Open(m); err != nil {
		t.Fatal(err)
	}
	if out, err := j.Resume(context.Background()); err != nil || out.Kind != Completed || !out.Rebooted {
		t.Fatalf("after the reboot: %+v, %v", out, err)
	}
}

// FuzzDecode asserts that no bytes make decoding panic, and that whole lines that
// were read once are read again the same.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "{}\n", `{"journalVersion":1}` + "\n" + `{"begin":{"change":{"to":"x"},"steps":[{"id":1,"kind":"file","key":"/etc/a"}]}}` + "\n" + `{"undo":{"step":1}}` + "\n", `{"journalVersion":1,"failures":[{"count":-1}]}` + "\n" + `{"end":"RolledBack"}` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, b := &Journal{}, &Journal{}
		errA, errB := a.decode(raw), b.decode(append(raw[:len(raw):len(raw)], "torn"...))
		if (errA == nil) != (errB == nil) {
			t.Fatalf("a torn tail changes the answer: %v, %v", errA, errB)
		}
		if errA == nil && a.Pending() != b.Pending() {
			t.Fatal("a torn tail changes what is under way")
		}
	})
}
