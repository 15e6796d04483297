package world

import (
	"encoding/json"
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_2/types"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// File is one file of a first-boot config.
type File struct {
	Path     string // absolute
	Mode     int    // e.g. 0o600
	Contents []byte
}

// Ignition returns a whole first-boot config, spec 3.2.
func Ignition(files ...File) ([]byte, error) {
	cfg := types.Config{Ignition: types.Ignition{Version: "3.2.0"}}
	for _, f := range files {
		cfg.Storage.Files = append(cfg.Storage.Files, types.File{
			Node: types.Node{Path: f.Path, Overwrite: ptr.To(true)},
			FileEmbedded1: types.FileEmbedded1{
				Mode:     ptr.To(f.Mode),
				Contents: types.Resource{Source: ptr.To(dataurl.EncodeBytes(f.Contents))},
			},
		})
	}
	cfg.Systemd.Units = []types.Unit{{Name: "kubelet.service", Enabled: ptr.To(true), Contents: ptr.To(kubeletUnit)}}
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encode first-boot config: %w", err)
	}
	return raw, nil
}

const kubeletUnit = `[Unit]
Description=Kubernetes Kubelet
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet --kubeconfig=/var/lib/kubelet/kubeconfig --bootstrap-kubeconfig=/etc/kubernetes/kubeconfig --cloud-provider=external
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
`

// BootstrapKubeconfig is what a first boot needs to ask for certificates. An
// empty token makes one without identity, for machines that bring theirs.
func BootstrapKubeconfig(server string, ca []byte, token string) ([]byte, error) {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["local"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	cfg.AuthInfos["kubelet"] = &clientcmdapi.AuthInfo{Token: token}
	cfg.Contexts["kubelet"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "kubelet"}
	cfg.CurrentContext = "kubelet"
	raw, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap kubeconfig: %w", err)
	}
	return raw, nil
}

// UserDataSecret is <role>-user-data, in the shape Machines refer to.
func UserDataSecret(role string, ignition []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: NamespaceMachineAPI, Name: role + "-user-data"},
		Data:       map[string][]byte{"disableTemplating": []byte("true"), "userData": ignition},
	}
}
