package version

import (
	"strings"
	"testing"
)

func TestUserAgentNamesComponentVersionAndCommit(t *testing.T) {
	oldVersion, oldCommit := Version, Commit
	t.Cleanup(func() { Version, Commit = oldVersion, oldCommit })
	for _, row := range []struct {
		name, commit, prefix, suffix string
	}{
		{name: "commit known", commit: "0123abc", prefix: "machine-controller/1.2.3 (", suffix: ") 0123abc"},
		{name: "commit unknown", prefix: "machine-controller/1.2.3 (", suffix: ")"},
	} {
		t.Run(row.name, func(t *testing.T) {
			Version, Commit = "1.2.3", row.commit
			got := UserAgent("machine-controller")
			if !strings.HasPrefix(got, row.prefix) || !strings.HasSuffix(got, row.suffix) {
				t.Errorf("got %q, want %q … %q", got, row.prefix, row.suffix)
			}
		})
	}
}
