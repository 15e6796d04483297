package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const controllerManifest = `apiVersion: machineconfiguration.openshift.io/v1
kind: ControllerConfig
metadata:
  name: machine-config-controller
  annotations: {machineconfiguration.openshift.io/release-image-version: 4.20.4}
spec:
  baseOSContainerImage: %s
  baseOSExtensionsContainerImage: %s
`

func TestRenderGivesTheNamesOfTheVectors(t *testing.T) {
	for stem, v := range vectors(t, "merge-then-hash") {
		t.Run(filepath.Base(stem), func(t *testing.T) {
			base := write(t, t.TempDir(), "base.yaml", fmt.Sprintf(controllerManifest, v.ControllerConfig.BaseOSContainerImage, v.ControllerConfig.BaseOSExtensionsContainerImage))
			args := []string{"render", "--pool", v.Pool, "-f", stem + ".input.yaml", "-f", base}
			got := call(t, "", append(args, "-o", "name")...)
			if got.code != 0 || got.stdout != v.ExpectedName+"\n" {
				t.Fatalf("got %+v, want %s", got, v.ExpectedName)
			}
			for _, format := range []string{"yaml", "json"} {
				object := call(t, "", append(args, "-o", format)...)
				again := call(t, object.stdout, "hash", "-")
				if again.stdout != v.ExpectedName+"\n" {
					t.Errorf("the name of what -o %s prints: %+v\n%s", format, again, object.stdout)
				}
			}
		})
	}
}

func TestRenderExplainsWhoSetWhat(t *testing.T) {
	v := "testdata/mco-hash/07-merge-custom-pool"
	base := write(t, t.TempDir(), "base.yaml", fmt.Sprintf(controllerManifest, "quay.example.com/os@sha256:01", "quay.example.com/ext@sha256:02"))
	got := call(t, "", "render", "--pool", "infra", "-f", v+".input.yaml", "-f", base, "--explain")
	golden(t, "render-explain.txt", got.stdout+"--- stderr\n"+got.stderr)
}

func TestRenderPrintsTheObject(t *testing.T) {
	v := "testdata/mco-hash/06-merge-seed-single"
	got := call(t, "", "render", "--pool", "worker", "-f", v+".input.yaml", "--os-image", "quay.example.com/os@sha256:01", "--extensions-image", "quay.example.com/ext@sha256:02")
	golden(t, "render-object.yaml", got.stdout)
}

func TestRenderRefuses(t *testing.T) {
	mc := func(name, spec string) string {
		return fmt.Sprintf("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: %s, labels: {machineconfiguration.openshift.io/role: worker}}\nspec: %s\n---\n", name, spec)
	}
	for _, tt := range []struct {
		name, in string
		args     []string
		code     int
		want     []string
	}{
		{"no pool flag", mc("a", "{}"), nil, 2, []string{"--pool worker"}},
		{"no such role", mc("a", "{}"), []string{"--pool", "master"}, 1, []string{"no MachineConfigs found matching selector machineconfiguration.openshift.io/role=master"}},
		{"bad field", mc("10-good", "{}") + mc("99-bad", "{kernelType: rt}"), []string{"--pool", "worker"}, 1,
			[]string{"kernelType=rt is invalid", "MachineConfig 99-bad: spec.kernelType:"}},
		{"bad mode", mc("99-bad", `{config: {ignition: {version: 3.5.0}, storage: {files: [{path: /a, mode: 2541, contents: {source: "data:,"}}]}}}`), []string{"--pool", "worker"}, 1,
			[]string{"cannot exceed 0777", "MachineConfig 99-bad: spec.config.storage.files.0.mode"}},
		{"bad format", mc("a", "{}"), []string{"--pool", "worker", "-o", "wide"}, 2, []string{"want yaml, json or name"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := call(t, tt.in, append([]string{"render", "-f", "-"}, tt.args...)...)
			if got.code != tt.code || got.stdout != "" {
				t.Errorf("got %+v, want code %d", got, tt.code)
			}
			for _, w := range tt.want {
				if !strings.Contains(got.stderr, w) {
					t.Errorf("stderr lacks %q:\n%s", w, got.stderr)
				}
			}
		})
	}
	if got := call(t, "", "render", "--pool", "worker"); got.code != 2 || !strings.Contains(got.stderr, "-f FILE") {
		t.Errorf("without -f: %+v", got)
	}
}
