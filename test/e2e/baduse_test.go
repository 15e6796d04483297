package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadUse(t *testing.T) {
	bin, err := binDir()
	if err != nil {
		t.Fatal(err)
	}
	fresh := func(t *testing.T) string { return filepath.Join(t.TempDir(), "world") }
	tests := []struct {
		name string
		why  string
		dir  func(t *testing.T) string
		args []string
		env  []string
		code int
		want []string // what is wrong and what to do
	}{{
		name: "busy directory", why: "one directory is one world",
		dir:  func(t *testing.T) string { return sharedWorld(t).dir },
		code: 1, want: []string{"running", "millwright down --dir", "--dir"},
	}, {
		name: "a file in the directory's place", why: "nothing can be written there, whoever asks",
		dir: func(t *testing.T) string {
			file := fresh(t)
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return file
		},
		code: 1, want: []string{"not a directory", "--dir"},
	}, {
		name: "a directory that nobody may write", why: "/proc refuses even root",
		dir:  func(*testing.T) string { return "/proc/millwright" },
		code: 1, want: []string{"/proc/millwright", "--dir"},
	}, {
		name: "unknown kind of machines", why: "the known ones are named",
		dir: fresh, args: []string{"--machines", "wooden"},
		code: 2, want: []string{"wooden", "rooted", "hollow"},
	}, {
		name: "number of workers", why: "the bounds are named",
		dir: fresh, args: []string{"--workers", "-1"},
		code: 2, want: []string{"-1", "0 to 200"},
	}, {
		name: "delay without a unit", why: "the flag and the value are named",
		dir: fresh, args: []string{"--boot-delay", "fast"},
		code: 2, want: []string{"boot-delay", "fast", "up --help"},
	}, {
		name: "admission mode", why: "the modes are named",
		dir: fresh, args: []string{"--admission", "azure-disk-size=maybe"},
		code: 2, want: []string{"maybe", "enforce, warn or off"},
	}, {
		name: "admission rule", why: "the rules are named",
		dir: fresh, args: []string{"--admission", "azure-disk=warn"},
		code: 2, want: []string{`"azure-disk"`, "azure-disk-size"},
	}, {
		name: "unknown flag", why: "the command's help is named",
		dir: fresh, args: []string{"--frobnicate"},
		code: 2, want: []string{"--frobnicate", "up --help"},
	}, {
		name: "argument", why: "up takes none",
		dir: fresh, args: []string{"now"},
		code: 2, want: []string{"now", "up --help"},
	}, {
		name: "a newer world", why: "its state is not touched; the way out is named",
		dir: func(t *testing.T) string {
			dir := fresh(t)
			state, err := json.Marshal(map[string]any{"formatVersion": 99, "world": 3})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "world.json"), state, 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		code: 1, want: []string{"formatVersion 99", "millwright down --purge --dir"},
	}, {
		name: "a control plane that does not start", why: "it is a program that ends at once",
		dir: fresh, env: []string{"MILLWRIGHT_DEVPLANE=/bin/false"},
		code: 1, want: []string{"control plane", "MILLWRIGHT_DEVPLANE"},
	}, {
		name: "a control plane that is not there", why: "the variable names no file",
		dir: fresh, env: []string{"MILLWRIGHT_DEVPLANE=/nowhere/devplane"},
		code: 1, want: []string{"/nowhere/devplane", "MILLWRIGHT_DEVPLANE"},
	}}
	for _, tt := range tests {
		for _, detach := range []bool{true, false} {
			name := tt.name
			args := []string{filepath.Join(bin, "millwright"), "up"}
			if detach {
				name, args = name+", detached", append(args, "--detach")
			}
			t.Run(name, func(t *testing.T) {
				w := &world{bin: bin, dir: tt.dir(t)}
				ctx, cancel := context.WithTimeout(t.Context(), shellLimit)
				defer cancel()
				r := execute(ctx, environ(tt.env...), append(append(args, "--dir", w.dir), tt.args...)...)
				if r.code != tt.code {
					t.Errorf("exit code %d, want %d (%s)\n%s", r.code, tt.code, tt.why, r.stderr)
				}
				last := r.stderr[strings.LastIndex(strings.TrimRight(r.stderr, "\n"), "\nmillwright: ")+1:]
				if err := has(tt.want...)(last); err != nil {
					t.Errorf("%v (%s), got:\n%s", err, tt.why, r.stderr)
				}
				if r.stdout != "" {
					t.Errorf("printed %q as a result, want nothing", r.stdout)
				}
				if shared.w == nil || w.dir != shared.w.dir {
					if err := w.nothingLeft(0); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
