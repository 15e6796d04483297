package render

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/render/canon"
)

// salt precedes the hashed text; it has no meaning but must not change, since
// every name depends on it.
var salt = [80]byte{
	16, 124, 206, 228, 139, 56, 175, 175, 79, 229, 134, 118, 157, 154, 211, 110, 25, 93, 47, 253,
	172, 106, 37, 7, 174, 13, 160, 185, 110, 17, 87, 52, 219, 131, 12, 206, 218, 141, 116, 135,
	188, 181, 192, 151, 233, 62, 126, 165, 64, 83, 179, 119, 15, 168, 208, 197, 146, 107, 58, 227,
	133, 188, 238, 26, 33, 26, 235, 202, 32, 173, 31, 234, 41, 144, 148, 79, 6, 206, 23, 22,
}

// Hash returns the name of a rendered config of a pool and the YAML it is the
// hash of. Only the spec counts: metadata does not, and the pool only stands
// before the digest. Nil and empty lists differ.
func Hash(pool string, spec mcfgv1.MachineConfigSpec) (name string, hashed []byte, err error) {
	hashed, ok := quickYAML(&spec)
	if !ok {
		hashed, err = yaml.Marshal(spec)
		if err != nil {
			return "", nil, fmt.Errorf("hash spec: %w", err)
		}
	}
	h := md5.New()
	h.Write(salt[:])
	h.Write(hashed)
	return "rendered-" + pool + "-" + hex.EncodeToString(h.Sum(nil)), hashed, nil
}

// quickYAML writes the same as yaml.Marshal, several times faster, or gives up.
func quickYAML(spec *mcfgv1.MachineConfigSpec) ([]byte, bool) {
	raw := spec.Config.Raw
	if spec.Config.Object != nil || raw != nil && len(raw) == 0 {
		return nil, false
	}
	texts := []string{spec.BaseOSExtensionsContainerImage, spec.KernelType, spec.OSImageURL}
	texts = append(append(texts, spec.KernelArguments...), spec.Extensions...)
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return nil, false
		}
	}
	// What ends the document must not be a block.
	if strings.Contains(spec.OSImageURL, "\n") {
		return nil, false
	}
	d := canon.New(len(raw))
	d.Text("baseOSExtensionsContainerImage", spec.BaseOSExtensionsContainerImage)
	if raw == nil {
		d.Null("config")
	} else {
		d.JSON("config", string(raw))
	}
	d.Texts("extensions", spec.Extensions)
	d.Bool("fips", spec.FIPS)
	d.Texts("kernelArguments", spec.KernelArguments)
	d.Text("kernelType", spec.KernelType)
	d.Text("osImageURL", spec.OSImageURL)
	return d.YAML()
}
