package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

func TestLinksBetweenPagesLead(t *testing.T) {
	pages := []string{filepath.Join("..", "README.md")}
	err := filepath.WalkDir(filepath.Join("..", "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: link to %s leads nowhere", page, m[1])
			}
		}
	}
}

func TestReadmeStaysShort(t *testing.T) {
	if n := strings.Count(read(t, filepath.Join("..", "README.md")), "\n"); n > 200 {
		t.Errorf("README.md has %d lines, want at most 200", n)
	}
}

func TestEveryDirectDependencyIsExplained(t *testing.T) {
	page := read(t, filepath.Join("..", "docs", "reference", "dependencies.md"))
	for line := range strings.Lines(read(t, filepath.Join("..", "go.mod"))) {
		fields := strings.Fields(line)
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "v") {
			continue // no requirement, or an indirect one
		}
		if !strings.Contains(page, "`"+fields[0]+"`") {
			t.Errorf("docs/reference/dependencies.md has no row for %s", fields[0])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
