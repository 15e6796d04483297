package world

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenDirKeepsTheWorldsIdentity(t *testing.T) {
	path := t.TempDir()
	d, err := openDir(path)
	if err != nil {
		t.Fatal(err)
	}
	first := d.state
	d.close()
	if d, err = openDir(path); err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if d.state != first {
		t.Errorf("got %+v after reopening, want %+v", d.state, first)
	}
	if first.World < 1 || first.World > maxWorlds || !strings.HasPrefix(first.InfraID, "dev-") {
		t.Errorf("got %+v, want a world number and an infra ID", first)
	}
}

func TestTwoWorldsHaveTwoNumbers(t *testing.T) {
	seen := map[int]bool{}
	for range 8 {
		d, err := openDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.close)
		if seen[d.state.World] {
			t.Errorf("number %d is held twice", d.state.World)
		}
		seen[d.state.World] = true
	}
}

func TestOpenDirRefusesInWords(t *testing.T) {
	write := func(t *testing.T, body string) string {
		path := t.TempDir()
		if err := os.WriteFile(filepath.Join(path, "world.json"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, row := range []struct {
		name string
		path func(*testing.T) string
		want []string
	}{
		{"newer format", func(t *testing.T) string { return write(t, `{"formatVersion":2,"world":1}`) }, []string{"formatVersion 2", "millwright down --purge --dir"}},
		{"no JSON", func(t *testing.T) string { return write(t, `{`) }, []string{"world.json", "millwright down --purge --dir"}},
		{"senseless number", func(t *testing.T) string { return write(t, `{"formatVersion":1,"world":999}`) }, []string{"world 999", "1..254"}},
		{"a file in its place", func(t *testing.T) string {
			p := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(p, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return p
		}, []string{"make state directory", "--dir"}},
		{"in use", func(t *testing.T) string {
			path := t.TempDir()
			d, err := openDir(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.close)
			return path
		}, []string{"running in", "millwright down --dir"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d, err := openDir(row.path(t))
			if err == nil {
				d.close()
				t.Fatal("got no error")
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to say %q", err, want)
				}
			}
		})
	}
}

func TestPurgeRemovesOnlyWorlds(t *testing.T) {
	say := func(string, ...any) {}
	strange := t.TempDir()
	if err := os.WriteFile(filepath.Join(strange, "thesis.txt"), []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), strange, true, say); err == nil || !strings.Contains(err.Error(), "somebody else's") {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := os.Stat(filepath.Join(strange, "thesis.txt")); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
	own := filepath.Join(t.TempDir(), "w")
	d, err := openDir(own)
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	if err := Down(t.Context(), own, true, say); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(own); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the world gone", err)
	}
	if err := Down(t.Context(), own, true, say); err != nil {
		t.Errorf("a second purge: got %v, want nothing", err)
	}
}

func TestStartTimeTellsProcessesApart(t *testing.T) {
	own, err := startTime(os.Getpid())
	if err != nil || own == 0 {
		t.Fatalf("got %d, %v; want a start time", own, err)
	}
	if s := (state{PID: os.Getpid(), StartTime: own}); !s.alive() {
		t.Error("the running process counts as dead")
	}
	if s := (state{PID: os.Getpid(), StartTime: own + 1}); s.alive() {
		t.Error("another process under a reused PID counts as the supervisor")
	}
}

func TestOptionsCheckNamesValueAndChoice(t *testing.T) {
	ok := Options{Machines: MachinesRooted, Workers: 3}
	for _, row := range []struct {
		name string
		edit func(*Options)
		want string
	}{
		{"machines", func(o *Options) { o.Machines = "tin" }, `--machines "tin": want rooted, nspawn or hollow`},
		{"workers", func(o *Options) { o.Workers = 201 }, "--workers 201: want 0 to 200 with --machines rooted"},
		{"negative workers", func(o *Options) { o.Workers = -1 }, "--workers -1: want 0 to 200"},
		{"boot delay", func(o *Options) { o.BootDelay = -1 }, "--boot-delay"},
		{"admission without mode", func(o *Options) { o.Admission = []string{"azure-zone"} }, "want RULE=MODE"},
		{"admission mode", func(o *Options) { o.Admission = []string{"azure-zone=maybe"} }, `mode "maybe": want enforce, warn or off`},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := ok
			row.edit(&o)
			err := o.Check()
			var usage *UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want a usage error that says %q", err, row.want)
			}
		})
	}
	if err := ok.Check(); err != nil {
		t.Errorf("got %v for good options", err)
	}
}

func TestFailureSurvivesTheReport(t *testing.T) {
	for _, want := range []error{errors.New("first line\n  second line"), &UsageError{"--x: want y"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		report := &Report{f: w}
		report.Say("one\ntwo")
		report.Failed(want)
		report.Say("after the end")
		buf := make([]byte, 4096)
		n, _ := r.Read(buf)
		lines := strings.Split(strings.TrimSpace(string(buf[:n])), "\n")
		if len(lines) != 2 || lines[0] != "one two" {
			t.Fatalf("got %q, want two lines", lines)
		}
		got := decodeFailure(strings.TrimPrefix(lines[1], reportFailed))
		var a, b *UsageError
		if got.Error() != want.Error() || errors.As(got, &a) != errors.As(want, &b) {
			t.Errorf("got %#v, want %#v", got, want)
		}
	}
}
