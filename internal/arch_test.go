// Package internal_test holds the rules about who may import whom. It reads the
// tables in docs/explanation/architecture.md; it contains no rule itself.
package internal_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "millwright.io/millwright/"

var update = flag.Bool("update", false, "rewrite the import rules in .golangci.yml")

// listed is what go list says about one package, with our own paths relative to
// the module.
type listed struct {
	ImportPath string
	Imports    []string
	Tests      []string
}

func TestImportsKeepTheArchitecture(t *testing.T) {
	rules := readRules(t)
	for _, p := range goList(t, "./...") {
		for _, err := range rules.check(p.ImportPath, "", p.Imports) {
			t.Error(err)
		}
		if rules.match(p.ImportPath, "tests") != nil {
			for _, err := range rules.check(p.ImportPath, "tests", p.Tests) {
				t.Error(err)
			}
		}
	}
}

// TestForbiddenPackagesStayOutOfShippedBinaries looks through all levels.
func TestForbiddenPackagesStayOutOfShippedBinaries(t *testing.T) {
	forbidden := []string{
		"internal/provider/fake/...", "internal/sim/...", "internal/cloud/cloudtest",
		"internal/testenv/...", "internal/memapi/...",
	}
	for _, binary := range []string{"millwright-manager", "millwright-agent", "millwright-ignition"} {
		if _, err := os.Stat(filepath.Join("..", "cmd", binary)); err != nil {
			t.Logf("cmd/%s is not there yet", binary)
			continue
		}
		for _, dep := range goDeps(t, "./cmd/"+binary) {
			for _, f := range forbidden {
				if fits(f, strings.TrimPrefix(dep, module)) {
					t.Errorf("cmd/%s contains %s, which is for tests and simulation only", binary, dep)
				}
			}
		}
	}
}

func TestCheckFindsABadImport(t *testing.T) {
	rules := readRules(t)
	for _, row := range []struct {
		name, pkg, imported string
		allowed             bool
	}{
		{"planner opens files", "internal/engine/fleet", "os", false},
		{"planner takes a context", "internal/engine/fleet", "context", false},
		{"planner draws lots", "internal/engine/fleet", "math/rand/v2", false},
		{"planner calls the API server", "internal/engine/fleet", "k8s.io/client-go/rest", false},
		{"planner logs", "internal/engine/fleet", "github.com/go-logr/logr", false},
		{"planner uses another planner", "internal/engine/fleet", "internal/engine/plan", true},
		{"planner uses a value type", "internal/engine/fleet", "k8s.io/api/core/v1", true},
		{"dialect names a cloud", "internal/dialect/machineapi/machine", "internal/provider/azure", false},
		{"dialect uses another", "internal/dialect/machineapi/machine", "internal/dialect/clusterapi", false},
		{"dialect uses its own wire texts", "internal/dialect/machineapi/machine", "internal/dialect/machineapi/wire", true},
		{"cloud uses another cloud", "internal/provider/azure", "internal/provider/fake", false},
		{"cloud's spec calls the SDK", "internal/provider/azure/spec", "github.com/Azure/azure-sdk-for-go/sdk/azcore", false},
		{"simulator uses the client side", "internal/sim/arm", "internal/provider/azure", false},
		{"main does the work", "cmd/millwright", "internal/cli", false},
		{"main hands over", "cmd/millwright", "internal/app/cli", true},
		{"exact pattern reaches no child", "internal/cloud", "k8s.io/apimachinery/pkg/runtime/serializer", false},
		{"similar prefix is another module", "internal/pki", "k8s.io/apimachinery/pkg/typesetting", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			errs := rules.check(row.pkg, "", []string{row.imported})
			if got := len(errs) == 0; got != row.allowed {
				t.Errorf("%s imports %s: allowed %v, want %v (%v)", row.pkg, row.imported, got, row.allowed, errs)
			}
		})
	}
	if errs := rules.check("internal/unheard/of", "", nil); len(errs) != 1 {
		t.Errorf("package without a row: got %v, want one complaint", errs)
	}
}

// TestPlantedPackageIsFound lays a real package into the engine, for go list
// only, and expects the test above to see it.
func TestPlantedPackageIsFound(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "engine", "planted", "planted.go"): filepath.Join(here, "testdata", "planted.go.txt"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, content, 0o600); err != nil {
		t.Fatal(err)
	}
	found := goList(t, "-overlay="+overlay, "./internal/engine/...")
	i := slices.IndexFunc(found, func(p listed) bool { return p.ImportPath == "internal/engine/planted" })
	if i < 0 {
		t.Fatalf("go list does not show the planted package in %v", found)
	}
	if errs := readRules(t).check(found[i].ImportPath, "", found[i].Imports); len(errs) != 2 {
		t.Errorf("got %v, want one complaint for os and one for the cloud", errs)
	}
}

// TestLinterHasTheSameRules keeps the allow-lists that editors use equal to the
// table; run with -update to rewrite them.
func TestLinterHasTheSameRules(t *testing.T) {
	const begin, end = "        # import rules: begin\n", "        # import rules: end\n"
	path := filepath.Join("..", ".golangci.yml")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), begin)
	got, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for the import rules", path)
	}
	want := readRules(t).depguard()
	if got == want {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("run go test ./internal -update (-table +linter):\n%s", cmp.Diff(want, got))
}

// goList runs go list from the root of the module.
func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	readTree(t)
	format := `{{.ImportPath}}|{{join .Imports " "}}|{{join .TestImports " "}} {{join .XTestImports " "}}`
	out := runGo(t, append([]string{"list", "-f", format}, args...)...)
	var pkgs []listed
	for line := range strings.Lines(out) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 3 {
			continue
		}
		pkgs = append(pkgs, listed{
			ImportPath: strings.TrimPrefix(cells[0], module),
			Imports:    relative(strings.Fields(cells[1])),
			Tests:      relative(strings.Fields(cells[2])),
		})
	}
	if len(pkgs) == 0 {
		t.Fatal("go list shows no package")
	}
	return pkgs
}

// readTree lists the folders of the module. The cache of test results sees what
// a test opens, but not what go list opens; without this an old result would
// stand for new files.
func readTree(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"cmd", "config", "hack", "internal", "test"} {
		err := filepath.WalkDir(filepath.Join("..", folder), func(_ string, _ fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func goDeps(t *testing.T, pkg string) []string {
	t.Helper()
	return strings.Fields(runGo(t, "list", "-deps", pkg))
}

func runGo(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

func relative(paths []string) []string {
	for i, p := range paths {
		paths[i] = strings.TrimPrefix(p, module)
	}
	return paths
}

// rule is one pattern of one row.
type rule struct {
	pattern string
	scope   string // "" or "tests"
	any     bool
	allow   []string
	never   []string
}

type rules []rule

// match returns the rule with the longest pattern that fits, or nil.
func (rs rules) match(pkg, scope string) *rule {
	var best *rule
	for i := range rs {
		r := &rs[i]
		if r.scope == scope && fits(r.pattern, pkg) && (best == nil || weight(r.pattern) > weight(best.pattern)) {
			best = r
		}
	}
	return best
}

// weight orders patterns from vague to exact.
func weight(pattern string) int {
	n := 4 * strings.Count(pattern, "/")
	if !strings.HasSuffix(pattern, "...") {
		n += 2
	}
	if !strings.Contains(pattern, "*") {
		n++
	}
	return n
}

// check returns one error for each import that the rules do not allow.
func (rs rules) check(pkg, scope string, imports []string) []error {
	r := rs.match(pkg, scope)
	if r == nil {
		return []error{fmt.Errorf("%s: no row in the table of docs/explanation/architecture.md fits", pkg)}
	}
	var errs []error
	for _, imported := range imports {
		if !r.allows(pkg, imported) {
			errs = append(errs, fmt.Errorf("%s imports %s, which row %s of docs/explanation/architecture.md does not allow",
				pkg, imported, r.pattern))
		}
	}
	return errs
}

func (r *rule) allows(pkg, imported string) bool {
	if r.any {
		return true
	}
	for _, never := range r.never {
		if fits(never, imported) {
			return false
		}
	}
	if isStandard(imported) {
		return true
	}
	for _, pattern := range r.allow {
		if fits(capture(r.pattern, pkg, pattern), imported) {
			return true
		}
	}
	return false
}

// isStandard tells standard library paths from ours: a first element without a
// dot that is none of our folders.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	if slices.Contains([]string{"internal", "config", "api", "cmd", "hack", "test"}, first) {
		return false
	}
	return !strings.Contains(first, ".")
}

// capture puts what * stood for in the package's own path into an allowed pattern.
func capture(pattern, pkg, allowed string) string {
	if !strings.Contains(allowed, "*") {
		return allowed
	}
	have := strings.Split(pkg, "/")
	for i, element := range strings.Split(pattern, "/") {
		if element == "*" && i < len(have) {
			return strings.Replace(allowed, "*", have[i], 1)
		}
	}
	return allowed
}

// fits matches element by element: * is one element, a last ... is any number.
func fits(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, element := range want {
		if element == "..." {
			return true
		}
		if i >= len(have) || element != "*" && element != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}

// readRules parses the two tables of the architecture page.
func readRules(t *testing.T) rules {
	t.Helper()
	path := filepath.Join("..", "docs", "explanation", "architecture.md")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{}
	for _, cells := range table(t, string(raw), "## Names in import rules") {
		names[cells[0]] = expand(t, cells[1], names)
	}
	var out rules
	for _, cells := range table(t, string(raw), "## Who may import whom") {
		scope := ""
		if strings.HasSuffix(cells[0], " tests") {
			scope = "tests"
		}
		for _, pattern := range strings.Fields(strings.TrimSuffix(cells[0], " tests")) {
			allow := append(expand(t, cells[1], names), names["EVERYONE"]...)
			out = append(out, rule{
				pattern: strings.Trim(pattern, "`"),
				scope:   scope,
				any:     slices.Contains(allow, "ANY"),
				allow:   allow,
				never:   expand(t, cells[2], names),
			})
		}
	}
	return out
}

// table returns the cells of the first table below a heading, without its head.
func table(t *testing.T, page, heading string) [][]string {
	t.Helper()
	_, rest, ok := strings.Cut(page, heading+"\n")
	if !ok {
		t.Fatalf("architecture page has no heading %q", heading)
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("no table below %q", heading)
	}
	return rows[2:]
}

// expand replaces group names in a cell and drops the quotes of paths.
func expand(t *testing.T, cell string, names map[string][]string) []string {
	t.Helper()
	var out []string
	for _, word := range strings.Fields(cell) {
		switch {
		case strings.HasPrefix(word, "`"):
			out = append(out, strings.Trim(word, "`"))
		case word == "ANY":
			out = append(out, word)
		case names[word] != nil:
			out = append(out, names[word]...)
		default:
			t.Fatalf("architecture page: %q is neither a quoted path nor a known name", word)
		}
	}
	return out
}

// depguard writes the rules as golangci-lint's depguard wants them. It matches
// prefixes, a trailing $ makes an entry exact.
func (rs rules) depguard() string {
	var b strings.Builder
	for i, r := range rs {
		if r.any || r.scope != "" {
			continue
		}
		fmt.Fprintf(&b, "        %s:\n          list-mode: strict\n          files:\n", ruleName(r.pattern))
		fmt.Fprintf(&b, "            - %q\n            - \"!$test\"\n", glob(r.pattern))
		for j, other := range rs {
			if i != j && other.scope == "" && weight(other.pattern) > weight(r.pattern) && overlap(r.pattern, other.pattern) {
				fmt.Fprintf(&b, "            - %q\n", "!"+glob(other.pattern))
			}
		}
		fmt.Fprintf(&b, "          allow:\n            - $gostd\n")
		for _, e := range guards(r.allow) {
			fmt.Fprintf(&b, "            - %s\n", e)
		}
		if len(r.never) == 0 {
			continue
		}
		fmt.Fprintf(&b, "          deny:\n")
		for _, n := range r.never {
			fmt.Fprintf(&b, "            - pkg: %s\n              desc: see docs/explanation/architecture.md\n", n)
		}
	}
	return b.String()
}

func ruleName(pattern string) string {
	return strings.NewReplacer("/...", "-below", "/", "-", "*", "each").Replace(pattern)
}

func glob(pattern string) string {
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return "**/" + folder + "/{*.go,**/*.go}" // ** wants a folder
	}
	return "**/" + pattern + "/*.go"
}

// overlap tells whether some package fits both patterns.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(as), len(bs)) {
		switch {
		case as[i] == "..." || bs[i] == "...":
			return true
		case as[i] != bs[i] && as[i] != "*" && bs[i] != "*":
			return false
		}
	}
	return len(as) == len(bs)
}

// guards turns patterns into sorted depguard entries. It leaves out an entry
// that a wider one covers: depguard looks only at the nearest entry.
func guards(patterns []string) []string {
	entries := make([]string, 0, len(patterns))
	for _, p := range patterns {
		entries = append(entries, guard(p))
	}
	sort.Strings(entries)
	var out []string
	for _, e := range slices.Compact(entries) {
		covered := slices.ContainsFunc(out, func(wide string) bool {
			return !strings.HasSuffix(wide, "$") && strings.HasPrefix(e, wide)
		})
		if !covered {
			out = append(out, e)
		}
	}
	return out
}

// guard turns a pattern into a depguard entry. What * stands for is left open,
// so the linter is a little laxer than the test.
func guard(pattern string) string {
	exact := !strings.HasSuffix(pattern, "/...")
	pattern = strings.TrimSuffix(pattern, "/...")
	pattern, _, cut := strings.Cut(pattern, "*")
	if !isStandard(pattern) && !strings.Contains(strings.SplitN(pattern, "/", 2)[0], ".") {
		pattern = module + pattern
	}
	if exact && !cut {
		return pattern + "$"
	}
	return pattern
}
