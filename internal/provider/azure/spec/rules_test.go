package spec_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millwright.io/millwright/internal/provider/azure/spec"
)

// Every rule that the code names is in the list, and no other.
func TestRulesListsThemAll(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	literal := regexp.MustCompile(`"((?:azure|provider|unknown)-[a-z-]+)"`)
	for _, file := range files {
		if file == "rules.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(src), -1) {
			named[m[1]] = true
		}
	}
	delete(named, spec.DefaultCredentialsSecret)
	var ids []string
	for _, r := range (spec.Codec{}).Rules() {
		ids = append(ids, r.ID)
		if !named[r.ID] {
			t.Errorf("rule %s is listed and no code names it", r.ID)
		}
	}
	for id := range named {
		if !slices.Contains(ids, id) {
			t.Errorf("rule %s is not listed", id)
		}
	}
	if !slices.IsSorted(ids) {
		t.Errorf("rules are not sorted: %v", ids)
	}
}
