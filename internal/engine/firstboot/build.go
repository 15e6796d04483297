package firstboot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"millwright.io/millwright/internal/engine/ignition"
)

// Paths of the files that a first boot gets besides its config.
const (
	annotationsPath  = "/etc/machine-config-daemon/node-annotations.json"
	kubeconfigPath   = "/etc/kubernetes/kubeconfig"
	contentPath      = "/etc/mcs-machine-config-content.json"
	encapsulatedPath = "/etc/ignition-machine-config-encapsulated.json"
	kubeletCAPath    = "/etc/kubernetes/kubelet-ca.crt"
	cloudCAPath      = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
)

const prefix = "machineconfiguration.openshift.io/"

// Served is everything that the answer is made of.
type Served struct {
	Config     *mcfgv1.MachineConfig // rendered; not changed
	Controller mcfgv1.ControllerConfigSpec
	Kubeconfig []byte // with the bootstrap token
	Version    string // of Ignition, as the client asked for
}

// Build returns the Ignition config of a first boot. It fails with
// *ignition.UnsupportedError on a version that cannot be written.
func Build(in Served) ([]byte, error) {
	mc := in.Config.DeepCopy()
	source, err := ignition.ReadMachineConfig(rawConfig(mc))
	if err != nil {
		return nil, fmt.Errorf("read config of %s: %w", mc.Name, err)
	}
	cfg, err := source.Config()
	if err != nil {
		return nil, fmt.Errorf("read config of %s: %w", mc.Name, err)
	}
	if err := moveArguments(mc, &cfg, in.Version); err != nil {
		return nil, err
	}
	put(&cfg, kubeletCAPath, in.Controller.KubeAPIServerServingCAData)
	put(&cfg, cloudCAPath, in.Controller.CloudProviderCAData)
	mc.Spec.Config.Raw = ignition.Marshal(cfg)
	if err := addFiles(mc, &cfg, in); err != nil {
		return nil, err
	}
	return ignition.Encode(cfg, in.Version)
}

func rawConfig(mc *mcfgv1.MachineConfig) []byte {
	if len(mc.Spec.Config.Raw) == 0 {
		return []byte(`{"ignition":{"version":"` + ignition.InternalVersion + `"}}`)
	}
	return mc.Spec.Config.Raw
}

// moveArguments hands Ignition's own kernel arguments to the agent where the
// client's Ignition knows none.
func moveArguments(mc *mcfgv1.MachineConfig, cfg *ignition.Config, version string) error {
	if strings.HasPrefix(version, "3.") && version >= "3.3.0" {
		return nil
	}
	if len(cfg.KernelArguments.ShouldNotExist) > 0 {
		return fmt.Errorf("config %s: kernelArguments.shouldNotExist cannot be written for Ignition %s, which knows no kernel arguments", mc.Name, version)
	}
	for _, a := range cfg.KernelArguments.ShouldExist {
		mc.Spec.KernelArguments = append(mc.Spec.KernelArguments, string(a))
	}
	cfg.KernelArguments.ShouldExist = nil
	return nil
}

// addFiles appends what makes the machine a node that runs the rendered config.
func addFiles(mc *mcfgv1.MachineConfig, cfg *ignition.Config, in Served) error {
	annotations, err := json.Marshal(map[string]string{
		prefix + "currentConfig": mc.Name, prefix + "desiredConfig": mc.Name,
		prefix + "firstPivotConfig": mc.Name, prefix + "state": "Done",
	})
	if err != nil {
		return fmt.Errorf("encode node annotations: %w", err)
	}
	mc.APIVersion, mc.Kind = mcfgv1.GroupVersion.String(), "MachineConfig"
	var content bytes.Buffer
	enc := json.NewEncoder(&content)
	enc.SetIndent("", "    ")
	if err := enc.Encode(mc); err != nil {
		return fmt.Errorf("encode config %s: %w", mc.Name, err)
	}
	bare := mc.DeepCopy()
	bare.Spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"` + in.Version + `"}}`)}
	encapsulated, err := json.Marshal(bare)
	if err != nil {
		return fmt.Errorf("encode config %s: %w", mc.Name, err)
	}
	for _, f := range []struct {
		path string
		body []byte
	}{
		{annotationsPath, annotations}, {kubeconfigPath, in.Kubeconfig},
		{contentPath, bytes.TrimSuffix(content.Bytes(), []byte("\n"))}, {encapsulatedPath, encapsulated},
	} {
		put(cfg, f.path, f.body)
	}
	return nil
}

// put replaces or adds a file; no contents change nothing.
func put(cfg *ignition.Config, path string, body []byte) {
	if len(body) == 0 {
		return
	}
	f := types.File{
		Node: types.Node{Path: path, Overwrite: ptr.To(true)},
		FileEmbedded1: types.FileEmbedded1{
			Mode:     ptr.To(0o644),
			Contents: types.Resource{Source: ptr.To("data:," + escape(body)), Compression: ptr.To("")},
		},
	}
	for i := range cfg.Storage.Files {
		if cfg.Storage.Files[i].Path == path {
			cfg.Storage.Files[i] = f
			return
		}
	}
	cfg.Storage.Files = append(cfg.Storage.Files, f)
}

// escape percent-encodes all but letters, digits and - _ . ! ~ * ' ( ), as the
// original does.
func escape(body []byte) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(body) * 2)
	for _, c := range body {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.!~*'()", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}
