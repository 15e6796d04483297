package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// refreshEvery is how old the content of a Secret or ConfigMap volume may be.
const refreshEvery = 30 * time.Second

// mount makes the pod's volumes. It may be repeated, and then brings their
// content up to date.
func (k *Kubelet) mount(ctx context.Context, r *podRun, pod *corev1.Pod, ip string) error {
	if err := os.MkdirAll(filepath.Join(r.dir, "tmp"), 0o755); err != nil {
		return fmt.Errorf("create pod directory: %w", err)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		dir := filepath.Join(r.dir, "volumes", v.Name)
		files, ok, err := k.volumeFiles(ctx, r, pod, v, ip)
		if err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
		switch {
		case ok:
			err = publish(dir, files)
		case v.HostPath != nil:
			dir, err = k.hostPath(v.HostPath)
		default: // emptyDir, and everything a simulated machine has no disk for
			err = os.MkdirAll(dir, 0o777)
		}
		if err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
		}
		r.setVolume(v.Name, dir)
	}
	if r.automount {
		return k.writeKubeconfig(ctx, r, pod)
	}
	return nil
}

func (k *Kubelet) hostPath(hp *corev1.HostPathVolumeSource) (string, error) {
	dir := filepath.Join(k.cfg.Root, filepath.Join("/", hp.Path))
	switch ptr.Deref(hp.Type, corev1.HostPathUnset) {
	case corev1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("create host path: %w", err)
		}
	case corev1.HostPathFileOrCreate:
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return "", fmt.Errorf("create host path: %w", err)
		}
		f, err := os.OpenFile(dir, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return "", fmt.Errorf("create host path: %w", err)
		}
		f.Close()
	}
	return dir, nil
}

type file struct {
	data []byte
	mode os.FileMode
}

// volumeFiles is the content of a volume that comes from the API; ok tells
// whether v is such a volume.
func (k *Kubelet) volumeFiles(ctx context.Context, r *podRun, pod *corev1.Pod, v *corev1.Volume, ip string) (files map[string]file, ok bool, err error) {
	files = map[string]file{}
	switch {
	case v.Secret != nil:
		data, err := k.source.secret(ctx, pod.Namespace, v.Secret.SecretName, v.Secret.Optional)
		if err != nil {
			return nil, true, err
		}
		return files, true, pick(files, data, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional)
	case v.ConfigMap != nil:
		data, err := k.source.configMap(ctx, pod.Namespace, v.ConfigMap.Name, v.ConfigMap.Optional)
		if err != nil {
			return nil, true, err
		}
		return files, true, pick(files, data, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.DownwardAPI != nil:
		return files, true, k.downward(files, pod, v.DownwardAPI.Items, ip)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if err := k.project(ctx, r, pod, &v.Projected.Sources[i], files, ip); err != nil {
				return nil, true, err
			}
		}
		return files, true, nil
	}
	return nil, false, nil
}

func (k *Kubelet) project(ctx context.Context, r *podRun, pod *corev1.Pod, s *corev1.VolumeProjection, files map[string]file, ip string) error {
	switch {
	case s.Secret != nil:
		data, err := k.source.secret(ctx, pod.Namespace, s.Secret.Name, s.Secret.Optional)
		if err != nil {
			return err
		}
		return pick(files, data, s.Secret.Items, nil, s.Secret.Optional)
	case s.ConfigMap != nil:
		data, err := k.source.configMap(ctx, pod.Namespace, s.ConfigMap.Name, s.ConfigMap.Optional)
		if err != nil {
			return err
		}
		return pick(files, data, s.ConfigMap.Items, nil, s.ConfigMap.Optional)
	case s.DownwardAPI != nil:
		return k.downward(files, pod, s.DownwardAPI.Items, ip)
	case s.ServiceAccountToken != nil:
		token, err := k.token(ctx, r, pod, tokenKey{audience: s.ServiceAccountToken.Audience, seconds: ptr.Deref(s.ServiceAccountToken.ExpirationSeconds, defaultTokenSeconds)})
		if err != nil {
			return err
		}
		files[s.ServiceAccountToken.Path] = file{data: []byte(token), mode: 0o600}
	}
	return nil
}

func (k *Kubelet) downward(files map[string]file, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, ip string) error {
	for _, it := range items {
		if it.FieldRef == nil {
			continue
		}
		value, err := podField(pod, it.FieldRef.FieldPath, ip, internalIP(k.cfg.Addresses))
		if err != nil {
			return err
		}
		files[it.Path] = file{data: []byte(value), mode: 0o644}
	}
	return nil
}

// pick copies data, or only its items, into files.
func pick(files map[string]file, data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool) error {
	perm := os.FileMode(ptr.Deref(mode, 0o644)).Perm()
	if len(items) == 0 {
		for key, b := range data {
			files[key] = file{data: b, mode: perm}
		}
		return nil
	}
	for _, it := range items {
		b, ok := data[it.Key]
		if !ok {
			if ptr.Deref(optional, false) {
				continue
			}
			return fmt.Errorf("references non-existent key: %s", it.Key)
		}
		m := perm
		if it.Mode != nil {
			m = os.FileMode(*it.Mode).Perm()
		}
		files[it.Path] = file{data: b, mode: m}
	}
	return nil
}

const dataLink = "..data"

// publish makes dir hold exactly files. All change in one rename, so that a
// reader never sees a new certificate beside an old key.
func publish(dir string, files map[string]file) error {
	for name := range files {
		if !filepath.IsLocal(name) || strings.HasPrefix(name, "..") {
			return fmt.Errorf("path %q leaves its volume", name)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create volume directory: %w", err)
	}
	if same(dir, files) {
		return nil
	}
	old, _ := os.Readlink(filepath.Join(dir, dataLink)) // none at first
	next, err := os.MkdirTemp(dir, "..v")
	if err != nil {
		return fmt.Errorf("create volume content: %w", err)
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return fmt.Errorf("create volume content: %w", err)
	}
	for name, f := range files {
		path := filepath.Join(next, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("create volume content: %w", err)
		}
		if err := os.WriteFile(path, f.data, f.mode); err != nil {
			return fmt.Errorf("write volume content: %w", err)
		}
	}
	if err := relink(dir, dataLink, filepath.Base(next)); err != nil {
		return err
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(dir, filepath.Base(old))); err != nil {
			return fmt.Errorf("remove old volume content: %w", err)
		}
	}
	return linkNames(dir, files)
}

// linkNames gives every top-level name a link through ..data.
func linkNames(dir string, files map[string]file) error {
	want := map[string]bool{}
	for name := range files {
		top, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		want[top] = true
	}
	have, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list volume: %w", err)
	}
	for _, e := range have {
		if name := e.Name(); !strings.HasPrefix(name, "..") && !want[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("remove old volume name: %w", err)
			}
		}
	}
	for name := range want {
		if err := relink(dir, name, filepath.Join(dataLink, name)); err != nil {
			return err
		}
	}
	return nil
}

func relink(dir, name, target string) error {
	tmp := filepath.Join(dir, "..link")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link volume content: %w", err)
	}
	if err := os.Symlink(target, tmp); err != nil {
		return fmt.Errorf("link volume content: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("link volume content: %w", err)
	}
	return nil
}

// same tells whether the published content is files already.
func same(dir string, files map[string]file) bool {
	root := filepath.Join(dir, dataLink)
	seen := 0
	err := filepath.WalkDir(root+string(filepath.Separator), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		want, ok := files[rel]
		have, err := os.ReadFile(path)
		if err != nil || !ok || !bytes.Equal(have, want.data) {
			return errors.Join(errors.New("differs"), err)
		}
		seen++
		return nil
	})
	return err == nil && seen == len(files)
}
