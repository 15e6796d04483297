package render_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/render"
)

// expected is a vector's answer.
type expected struct {
	Mode             string `json:"mode"`
	Pool             string `json:"pool"`
	ExpectedName     string `json:"expectedName"`
	MD5              string `json:"md5"`
	HashedBytes      string `json:"hashedBytes"`
	ControllerConfig struct {
		BaseOSContainerImage           string `json:"baseOSContainerImage"`
		BaseOSExtensionsContainerImage string `json:"baseOSExtensionsContainerImage"`
	} `json:"controllerConfig"`
}

func read(t testing.TB, path ...string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func machineConfigs(t testing.TB, raw []byte) []mcfgv1.MachineConfig {
	t.Helper()
	var out []mcfgv1.MachineConfig
	for _, doc := range bytes.Split(raw, []byte("\n---\n")) {
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		var mc mcfgv1.MachineConfig
		if err := yaml.Unmarshal(doc, &mc); err != nil {
			t.Fatal(err)
		}
		out = append(out, mc)
	}
	return out
}

func fragments(mcs []mcfgv1.MachineConfig) []render.Fragment {
	var out []render.Fragment
	for i := range mcs {
		out = append(out, render.FromMachineConfig(&mcs[i]))
	}
	return out
}

// pool selects its own role and, if it is a custom one, worker.
func pool(name string) render.Pool {
	roles := []string{name}
	if name != "master" && name != "worker" {
		roles = append(roles, "worker")
	}
	return render.Pool{Name: name, Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: render.RoleLabel, Operator: metav1.LabelSelectorOpIn, Values: roles},
	}}}
}

func TestVectorsGiveTheSameNameAndBytes(t *testing.T) {
	answers, err := filepath.Glob(filepath.Join("testdata", "vectors", "*.expected.json"))
	if err != nil || len(answers) != 12 {
		t.Fatalf("found %d vectors (%v), want 12", len(answers), err)
	}
	for _, file := range answers {
		name := strings.TrimSuffix(filepath.Base(file), ".expected.json")
		t.Run(name, func(t *testing.T) {
			var want expected
			if err := json.Unmarshal(read(t, "vectors", name+".expected.json"), &want); err != nil {
				t.Fatal(err)
			}
			mcs := machineConfigs(t, read(t, "vectors", name+".input.yaml"))
			var gotName string
			var hashed []byte
			switch want.Mode {
			case "hash-spec":
				gotName, hashed, err = render.Hash(want.Pool, mcs[0].Spec)
			case "merge-then-hash":
				var r render.Result
				r, err = render.Render(pool(want.Pool), fragments(mcs), render.Base{
					OSImageURL:                     want.ControllerConfig.BaseOSContainerImage,
					BaseOSExtensionsContainerImage: want.ControllerConfig.BaseOSExtensionsContainerImage,
				})
				gotName, hashed = r.Name, r.Hashed
			default:
				t.Fatalf("unknown mode %q", want.Mode)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(hashed), string(read(t, "vectors", want.HashedBytes))); diff != "" {
				t.Errorf("hashed bytes, got (-) want (+):\n%s", diff)
			}
			if gotName != want.ExpectedName {
				t.Errorf("got name %s, want %s", gotName, want.ExpectedName)
			}
		})
	}
}

var columns = regexp.MustCompile(`line \d+ col \d+`)

// TestValidationHasTheOriginalsVerdictAndWords has every rule about a single
// MachineConfig.
func TestValidationHasTheOriginalsVerdictAndWords(t *testing.T) {
	var cases []struct {
		ID           string                   `json:"id"`
		Spec         mcfgv1.MachineConfigSpec `json:"spec"`
		Error        string                   `json:"error"`
		ExpectedName string                   `json:"expectedName"`
	}
	if err := yaml.Unmarshal(read(t, "vectors", "validation-cases.yaml"), &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 26 {
		t.Fatalf("got %d cases, want at least 26", len(cases))
	}
	base := render.Base{OSImageURL: "B", BaseOSExtensionsContainerImage: "E"}
	for _, c := range cases {
		t.Run(c.ID, func(t *testing.T) {
			f := render.Fragment{Name: "99-case", Labels: map[string]string{render.RoleLabel: "worker"}, Spec: c.Spec}
			r, err := render.Render(pool("worker"), []render.Fragment{f}, base)
			got := ""
			if err != nil {
				got = columns.ReplaceAllString(strings.TrimSpace(err.Error()), "line N col N")
			}
			if want := columns.ReplaceAllString(c.Error, "line N col N"); got != want {
				t.Fatalf("got error %q, want %q", got, want)
			}
			if r.Name != c.ExpectedName {
				t.Errorf("got name %q, want %q", r.Name, c.ExpectedName)
			}
			// A rendered config that no node could read is not an error here, as
			// in the original, but it is said, with its author.
			var fatal []render.Problem
			for _, p := range r.Problems {
				if !p.Warning {
					fatal = append(fatal, p)
				}
			}
			unreadable := c.ID == "nosrc" || c.ID == "unk" || c.ID == "append"
			if unreadable != (len(fatal) > 0) {
				t.Errorf("got problems %v, want a fatal one: %v", fatal, unreadable)
			}
			for _, p := range fatal {
				if p.Fragment != "99-case" || p.Path != "config.storage.files.0.overwrite" {
					t.Errorf("got %v, want it to name the fragment and the field", p)
				}
			}
		})
	}
}

func TestDigestIsOfSaltAndText(t *testing.T) {
	// The salt is the only input that no vector shows.
	name, hashed, err := render.Hash("worker", mcfgv1.MachineConfigSpec{})
	if err != nil {
		t.Fatal(err)
	}
	plain := md5.Sum(hashed)
	if strings.HasSuffix(name, hex.EncodeToString(plain[:])) {
		t.Error("the name does not depend on the salt")
	}
}
