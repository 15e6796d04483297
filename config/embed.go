// Package config carries what an installation applies: the definitions of all
// kinds and the roles of all components. It only reads what make generate wrote
// beside it; it never talks to a cluster and never edits what it returns.
//
//	crds, err := config.CRDs("machine", "openshift")
//	cluster, namespaced, err := config.Role("machine-approver")
package config

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

//go:embed crd rbac
var files embed.FS

// Families lists what CRDs knows: the Machine API, Machine Config, Cluster API,
// and the cluster-wide kinds that the first two read.
func Families() []string { return []string{"machine", "machineconfig", "clusterapi", "openshift"} }

// CRDs returns the definitions of the named families, in the order asked for
// and by name within one; without a name, of all of them. The caller owns the
// result.
func CRDs(family ...string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if len(family) == 0 {
		family = Families()
	}
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, f := range family {
		names, err := fs.Glob(files, path.Join("crd", "*", f, "*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("list definitions of %s: %w", f, err)
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("no definitions of family %q: known are %s", f, strings.Join(Families(), ", "))
		}
		for _, name := range names {
			raw, err := files.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("read definition: %w", err)
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := sigsyaml.UnmarshalStrict(raw, crd); err != nil {
				return nil, fmt.Errorf("decode %s: %w", name, err)
			}
			out = append(out, crd)
		}
	}
	return out, nil
}

// Components lists the components that have generated roles, sorted.
func Components() ([]string, error) {
	names, err := fs.Glob(files, "rbac/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list roles: %w", err)
	}
	for i, name := range names {
		names[i] = strings.TrimSuffix(path.Base(name), ".yaml")
	}
	return names, nil
}

// Role returns what a component may do: one ClusterRole, and one Role for each
// namespace in which it may do more. Either may be missing (nil); a component
// with neither is an error. The caller owns the result and binds it.
func Role(component string) (*rbacv1.ClusterRole, []*rbacv1.Role, error) {
	raw, err := files.ReadFile("rbac/" + component + ".yaml")
	if err != nil {
		known, _ := Components()
		return nil, nil, fmt.Errorf("no roles of component %q: known are %s", component, strings.Join(known, ", "))
	}
	cluster, roles, err := decodeRoles(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("decode roles of %s: %w", component, err)
	}
	return cluster, roles, nil
}

func decodeRoles(raw []byte) (*rbacv1.ClusterRole, []*rbacv1.Role, error) {
	var cluster *rbacv1.ClusterRole
	var roles []*rbacv1.Role
	docs := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(raw)))
	buf := make([]byte, len(raw)+1)
	for {
		n, err := docs.Read(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("split documents: %w", err)
		}
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := sigsyaml.Unmarshal(buf[:n], &kind); err != nil {
			return nil, nil, fmt.Errorf("read kind: %w", err)
		}
		switch kind.Kind {
		case "":
		case "ClusterRole":
			cluster = &rbacv1.ClusterRole{}
			err = sigsyaml.UnmarshalStrict(buf[:n], cluster)
		case "Role":
			role := &rbacv1.Role{}
			err = sigsyaml.UnmarshalStrict(buf[:n], role)
			roles = append(roles, role)
		default:
			err = fmt.Errorf("unexpected kind %q", kind.Kind)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if cluster == nil && len(roles) == 0 {
		return nil, nil, errors.New("no role in the file")
	}
	return cluster, roles, nil
}
