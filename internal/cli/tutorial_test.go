package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTutorialSaysWhatHappens runs the commands of the tutorial and looks for
// every line that it shows.
func TestTutorialSaysWhatHappens(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorials/first-config-change.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf("#!/bin/sh\nMILLWRIGHT_TEST_COMMAND=1 exec %q \"$@\"\n", self)
	if err := os.WriteFile(filepath.Join(dir, "millwright"), []byte(command), 0o755); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "first-change")
	if err := os.MkdirAll(filepath.Join(work, "cluster"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := ""
	for i, block := range strings.Split(string(page), "```")[1:] {
		kind, text, _ := strings.Cut(block, "\n")
		switch {
		case i%2 == 1:
		case kind == "sh" && strings.Contains(text, "make build"):
		case kind == "sh":
			cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", text)
			cmd.Dir = work
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG=")
			b, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, text, b)
			}
			out = string(b)
		case kind == "text":
			for line := range strings.Lines(text) {
				if !strings.Contains(out, strings.TrimSpace(line)) {
					t.Errorf("the page shows %q, the command printed:\n%s", strings.TrimSpace(line), out)
				}
			}
		}
	}
	names := strings.Fields(out)
	if len(names) < 2 || names[len(names)-1] != names[len(names)-2] {
		t.Errorf("the two names: %q", out)
	}
}
