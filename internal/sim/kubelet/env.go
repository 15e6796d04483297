package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// source reads what pods refer to, with the node's own identity.
type source struct{ core coreclient.CoreV1Interface }

// secret returns nil without an error when it is missing and optional.
func (s source) secret(ctx context.Context, ns, name string, optional *bool) (map[string][]byte, error) {
	got, err := s.core.Secrets(ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if optional != nil && *optional {
			return nil, nil
		}
		return nil, fmt.Errorf("secret %q not found", name)
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", ns, name, err)
	}
	return got.Data, nil
}

func (s source) configMap(ctx context.Context, ns, name string, optional *bool) (map[string][]byte, error) {
	got, err := s.core.ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if optional != nil && *optional {
			return nil, nil
		}
		return nil, fmt.Errorf("configmap %q not found", name)
	}
	if err != nil {
		return nil, fmt.Errorf("read configmap %s/%s: %w", ns, name, err)
	}
	data := make(map[string][]byte, len(got.Data)+len(got.BinaryData))
	for k, v := range got.Data {
		data[k] = []byte(v)
	}
	for k, v := range got.BinaryData {
		data[k] = v
	}
	return data, nil
}

// env is an ordered environment; a later value of a name wins.
type env struct {
	names  []string
	values map[string]string
}

func (e *env) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *env) list() []string {
	out := make([]string, 0, len(e.names))
	for _, n := range e.names {
		out = append(out, n+"="+e.values[n])
	}
	return out
}

// baseEnv is what every real process gets before its container's own values.
func (k *Kubelet) baseEnv(r *podRun, c *corev1.Container) *env {
	e := &env{values: map[string]string{}}
	e.set("PATH", os.Getenv("PATH"))
	e.set("HOME", r.dir)
	e.set("TMPDIR", filepath.Join(r.dir, "tmp"))
	e.set("HOSTNAME", r.name)
	for _, kv := range k.cfg.ExtraEnv {
		if name, value, ok := strings.Cut(kv, "="); ok {
			e.set(name, value)
		}
	}
	if r.automount {
		e.set("KUBECONFIG", r.kubeconfig())
	}
	e.set("MILLWRIGHT_BIND_IP", r.loopback)
	e.set("MILLWRIGHT_NODE_NAME", k.cfg.NodeName)
	var mounts []string
	for _, m := range c.VolumeMounts {
		dir, ok := r.volumeDir(m.Name)
		if !ok {
			continue
		}
		mounts = append(mounts, m.MountPath+"="+filepath.Join(dir, m.SubPath))
		e.set("MILLWRIGHT_VOLUME_"+strings.ToUpper(strings.ReplaceAll(m.Name, "-", "_")), dir)
	}
	sort.Strings(mounts)
	e.set(mountsEnv, strings.Join(mounts, ";"))
	return e
}

// containerEnv adds envFrom and env, in the API's order of precedence.
func (k *Kubelet) containerEnv(ctx context.Context, r *podRun, pod *corev1.Pod, c *corev1.Container, ip string) (*env, error) {
	e := k.baseEnv(r, c)
	for _, from := range c.EnvFrom {
		var data map[string][]byte
		var err error
		switch {
		case from.ConfigMapRef != nil:
			data, err = k.source.configMap(ctx, pod.Namespace, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			data, err = k.source.secret(ctx, pod.Namespace, from.SecretRef.Name, from.SecretRef.Optional)
		}
		if err != nil {
			return nil, err
		}
		for _, key := range sortedKeys(data) {
			e.set(from.Prefix+key, string(data[key]))
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			e.set(v.Name, expand(v.Value, e.values))
			continue
		}
		value, ok, err := k.valueFrom(ctx, pod, c, v.ValueFrom, ip)
		if err != nil {
			return nil, err
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	return e, nil
}

func (k *Kubelet) valueFrom(ctx context.Context, pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, ip string) (string, bool, error) {
	var data map[string][]byte
	var err error
	var kind, name, key string
	var optional *bool
	switch {
	case from.FieldRef != nil:
		value, err := podField(pod, from.FieldRef.FieldPath, ip, internalIP(k.cfg.Addresses))
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err := resourceField(c, k.cfg.Capacity, from.ResourceFieldRef)
		return value, err == nil, err
	case from.SecretKeyRef != nil:
		kind, name, key, optional = "secret", from.SecretKeyRef.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Optional
		data, err = k.source.secret(ctx, pod.Namespace, name, optional)
	case from.ConfigMapKeyRef != nil:
		kind, name, key, optional = "configmap", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional
		data, err = k.source.configMap(ctx, pod.Namespace, name, optional)
	default:
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, pod.Namespace, name)
	}
	return string(value), ok, nil
}

// podField reads one downward API field. ip and hostIP stand in for the
// status, which may not have been written yet.
func podField(pod *corev1.Pod, path, ip, hostIP string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return ip, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	}
	for prefix, m := range map[string]map[string]string{"metadata.labels['": pod.Labels, "metadata.annotations['": pod.Annotations} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			return m[strings.TrimSuffix(key, "']")], nil
		}
	}
	return "", fmt.Errorf("unsupported field path %q", path)
}

func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, k := range sortedKeys(m) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

func resourceField(c *corev1.Container, capacity corev1.ResourceList, ref *corev1.ResourceFieldSelector) (string, error) {
	list, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || list != "limits" && list != "requests" {
		return "", fmt.Errorf("unsupported resource %q", ref.Resource)
	}
	q, ok := c.Resources.Limits[corev1.ResourceName(name)], true
	if list == "requests" {
		q, ok = c.Resources.Requests[corev1.ResourceName(name)]
	} else if q.IsZero() {
		q, ok = capacity[corev1.ResourceName(name)]
	}
	if !ok {
		return "0", nil
	}
	div := ref.Divisor
	if div.IsZero() {
		div = resource.MustParse("1")
	}
	per := div.MilliValue()
	return fmt.Sprint((q.MilliValue() + per - 1) / per), nil
}

// expand replaces $(NAME) by its value; $$ stands for $, unknown names stay.
func expand(in string, values map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(in); i++ {
		if in[i] != '$' || i+1 == len(in) {
			out.WriteByte(in[i])
			continue
		}
		switch in[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(in[i:], ')')
			if end < 0 {
				out.WriteByte('$')
				continue
			}
			name := in[i+2 : i+end]
			if v, ok := values[name]; ok {
				out.WriteString(v)
			} else {
				out.WriteString(in[i : i+end+1])
			}
			i += end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

func expandAll(in []string, values map[string]string) []string {
	out := slices.Clone(in)
	for i := range out {
		out[i] = expand(out[i], values)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// loopbackPrefix is the /24 a machine's pods take their addresses from.
func loopbackPrefix(bindIP string) netip.Prefix {
	ip, _ := netip.ParseAddr(bindIP) // checked by Config.complete
	return netip.PrefixFrom(ip, 24)
}
