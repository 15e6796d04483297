package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// source is one folder of definitions in one pinned module.
type source struct {
	family string   // folder below config/crd/upstream, and the name that config.CRDs takes
	module string   // module path, pinned in go.mod
	dir    string   // folder inside the module
	only   []string // plurals to take; nil takes all
}

const (
	openshiftAPI = "github.com/openshift/api"
	clusterAPI   = "sigs.k8s.io/cluster-api"
)

// sources lists what is taken. Of openshift/api's configuration and operator
// groups only the kinds that the Machine API or Machine Config reads or writes.
var sources = []source{
	{family: "machine", module: openshiftAPI, dir: "machine/v1beta1/zz_generated.crd-manifests"},
	{family: "machine", module: openshiftAPI, dir: "machine/v1/zz_generated.crd-manifests"},
	{family: "machineconfig", module: openshiftAPI, dir: "machineconfiguration/v1/zz_generated.crd-manifests"},
	{family: "machineconfig", module: openshiftAPI, dir: "operator/v1/zz_generated.crd-manifests",
		only: []string{"machineconfigurations"}},
	{family: "openshift", module: openshiftAPI, dir: "config/v1/zz_generated.crd-manifests",
		only: []string{
			"apiservers", "clusterimagepolicies", "clusteroperators", "clusterversions",
			"criocredentialproviderconfigs", "dnses", "featuregates", "imagecontentpolicies",
			"imagedigestmirrorsets", "imagepolicies", "images", "imagetagmirrorsets",
			"infrastructures", "ingresses", "networks", "nodes", "proxies", "schedulers",
		}},
	{family: "openshift", module: openshiftAPI, dir: "operator/v1alpha1/zz_generated.crd-manifests",
		only: []string{"imagecontentsourcepolicies"}},
	{family: "clusterapi", module: clusterAPI, dir: "core/config/crd/bases"},
	{family: "clusterapi", module: clusterAPI, dir: "bootstrap/kubeadm/config/crd/bases"},
	{family: "clusterapi", module: clusterAPI, dir: "controlplane/kubeadm/config/crd/bases"},
}

// variants are the endings of the files for a self-managed cluster with the
// default feature set, the strongest last. A plain file has none of them.
var variants = []string{"", "-Default", "-SelfManagedHA", "-SelfManagedHA-Default"}

// files picks, for each kind wanted, the file for the default feature set.
func (s source) files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	var out []string
	found := map[string]string{}
	for _, e := range entries {
		stem, ok := strings.CutSuffix(strings.TrimSuffix(e.Name(), ".yaml"), ".crd")
		if !ok && !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		plural, variant := split(stem)
		if !slices.Contains(variants, variant) || s.only != nil && !slices.Contains(s.only, plural) {
			continue
		}
		if other, twice := found[plural]; twice {
			return nil, fmt.Errorf("%s: both %s and %s are default files", plural, other, e.Name())
		}
		found[plural] = e.Name()
		out = append(out, filepath.Join(dir, e.Name()))
	}
	for _, plural := range s.only {
		if found[plural] == "" {
			return nil, fmt.Errorf("%s: no file for the default feature set", plural)
		}
	}
	return out, nil
}

// split takes "0000_80_machine-config_01_machineconfigpools-SelfManagedHA" or
// "cluster.x-k8s.io_machines" apart into plural and variant.
func split(stem string) (plural, variant string) {
	last := stem[strings.LastIndex(stem, "_")+1:]
	if i := strings.Index(last, "-"); i >= 0 {
		return last[:i], last[i:]
	}
	return last, ""
}

// commonLabels returns the labels that a kustomization puts on its definitions:
// Cluster API marks with them which contract a version of a kind keeps.
func commonLabels(path string) (map[string]string, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read kustomization: %w", err)
	}
	var k struct {
		Labels []struct {
			Pairs map[string]string `json:"pairs"`
		} `json:"labels"`
	}
	if err := yaml.Unmarshal(raw, &k); err != nil {
		return nil, fmt.Errorf("parse kustomization: %w", err)
	}
	out := map[string]string{}
	for _, l := range k.Labels {
		for key, value := range l.Pairs {
			out[key] = value
		}
	}
	return out, nil
}

// moduleDir returns where a pinned module lies, fetching it when needed.
func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := goTool(ctx, ".", "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var m struct{ Dir, Error string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", fmt.Errorf("parse answer of go mod download: %w", err)
	}
	if m.Error != "" {
		return "", fmt.Errorf("download %s: %s", module, m.Error)
	}
	return m.Dir, nil
}

// samePin fails when the root module and this one pin different versions: the
// Go types and the definitions of one kind must come from one commit.
func samePin(ctx context.Context, root, module string) error {
	ours, err := goTool(ctx, ".", "list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return err
	}
	theirs, err := goTool(ctx, root, "list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return err
	}
	if string(ours) != string(theirs) {
		return fmt.Errorf("%s: pinned at %s here and at %s in the root module; make them one",
			module, strings.TrimSpace(string(ours)), strings.TrimSpace(string(theirs)))
	}
	return nil
}

func goTool(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
