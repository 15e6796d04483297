package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	defaultTokenSeconds = 3607 // what the API server puts into the volumes it injects
	minTokenSeconds     = 600
)

type tokenKey struct {
	audience string
	seconds  int64
}

type token struct {
	value   string
	renewAt time.Time // after four fifths of its life
}

// token returns a token of the pod's ServiceAccount, bound to the pod, from
// memory until it is due for renewal.
func (k *Kubelet) token(ctx context.Context, r *podRun, pod *corev1.Pod, key tokenKey) (string, error) {
	key.seconds = max(key.seconds, minTokenSeconds)
	now := k.cfg.Clock.Now()
	r.mu.Lock()
	have, ok := r.tokens[key]
	r.mu.Unlock()
	if ok && now.Before(have.renewAt) {
		return have.value, nil
	}
	req := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
		ExpirationSeconds: &key.seconds,
		BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if key.audience != "" {
		req.Spec.Audiences = []string{key.audience}
	}
	got, err := k.source.core.ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, req, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request token of service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	life := got.Status.ExpirationTimestamp.Sub(now)
	r.mu.Lock()
	r.tokens[key] = token{value: got.Status.Token, renewAt: now.Add(life * 4 / 5)}
	r.mu.Unlock()
	return got.Status.Token, nil
}

// writeKubeconfig writes the token and, once, the kubeconfig that points at it.
func (k *Kubelet) writeKubeconfig(ctx context.Context, r *podRun, pod *corev1.Pod) error {
	value, err := k.token(ctx, r, pod, tokenKey{seconds: defaultTokenSeconds})
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, "token")
	if have, err := os.ReadFile(path); err != nil || string(have) != value {
		if err := writeFile(path, []byte(value)); err != nil {
			return fmt.Errorf("write token: %w", err)
		}
	}
	if _, err := os.Stat(r.kubeconfig()); err == nil {
		return nil
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["cluster"] = &clientcmdapi.Cluster{Server: k.cfg.APIServer, CertificateAuthorityData: k.cfg.CAData}
	cfg.AuthInfos["pod"] = &clientcmdapi.AuthInfo{TokenFile: path}
	cfg.Contexts["pod"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "pod", Namespace: pod.Namespace}
	cfg.CurrentContext = "pod"
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := writeFile(r.kubeconfig(), data); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// writeFile replaces path in one step; only the owner may read it.
func writeFile(path string, data []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
