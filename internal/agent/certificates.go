package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/host"
)

// Files of trust that come from the ControllerConfig, at any time and without a
// reboot, also while the pool is paused.
const (
	kubeletCAPath    = "/etc/kubernetes/kubelet-ca.crt"
	cloudCAPath      = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	registryAuthPath = "/etc/mco/internal-registry-pull-secret.json"
	registriesDir    = "/etc/docker/certs.d"
)

// Annotations of a Node about them.
const (
	annotationSynced   = "machineconfiguration.openshift.io/lastSyncedControllerConfigResourceVersion"
	annotationServerCA = "machineconfiguration.openshift.io/lastObservedServerCAAnnotation"
	annotationRotate   = "machineconfiguration.openshift.io/service-ca-rotate"
)

// syncCertificates writes what the ControllerConfig holds, if it changed.
func (a *Agent) syncCertificates(ctx context.Context, s *situation) error {
	cc, err := a.Cluster.ControllerConfig(ctx)
	if err != nil {
		return fmt.Errorf("read ControllerConfig: %w", err)
	}
	if cc == nil || s.node.Annotations[annotationSynced] == cc.ResourceVersion {
		return nil
	}
	for _, f := range []struct {
		path string
		body []byte
		mode uint32
	}{
		{kubeletCAPath, cc.Spec.KubeAPIServerServingCAData, 0o644},
		{cloudCAPath, cc.Spec.CloudProviderCAData, 0o644},
		{registryAuthPath, cc.Spec.InternalRegistryPullSecret, 0o600},
	} {
		if err := a.writeTrust(f.path, f.body, f.mode); err != nil {
			return err
		}
	}
	if err := a.syncRegistries(cc); err != nil {
		return err
	}
	version, rotate := cc.ResourceVersion, cc.Annotations[annotationRotate]
	if rotate == "" {
		rotate = "false"
	}
	s.note(map[string]*string{annotationSynced: &version, annotationServerCA: &rotate})
	a.Log.Infof("Certificate was synced from controllerconfig resourceVersion %s", cc.ResourceVersion)
	return nil
}

// writeTrust writes a file that differs. It ends in a line break, and a mode that
// somebody gave it stays.
func (a *Agent) writeTrust(p string, body []byte, mode uint32) error {
	if len(body) == 0 || body[len(body)-1] != '\n' {
		body = append(bytes.Clone(body), '\n')
	}
	f := a.Host.Files()
	attr := host.Attr{Mode: mode}
	info, err := f.Lstat(p)
	switch {
	case err == nil && info.Mode&^0o777 == 0:
		attr.Mode, attr.UID, attr.GID, attr.Label = info.Mode, info.UID, info.GID, info.Label
		if have, err := f.ReadFile(p); err == nil && bytes.Equal(have, body) {
			return nil
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("look at %s: %w", p, err)
	}
	if err := f.Replace(p, body, attr); err != nil {
		return fmt.Errorf("write %s: %w", p, err)
	}
	return nil
}

// syncRegistries makes the folder of registries' CAs hold exactly those of the
// ControllerConfig. A host without the folder has no use for them.
func (a *Agent) syncRegistries(cc *mcfgv1.ControllerConfig) error {
	f := a.Host.Files()
	have, err := f.ReadDir(registriesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", registriesDir, err)
	}
	wanted := map[string][]byte{}
	for _, list := range [][]mcfgv1.ImageRegistryBundle{cc.Spec.ImageRegistryBundleData, cc.Spec.ImageRegistryBundleUserData} {
		for _, b := range list {
			name := strings.ReplaceAll(b.File, "..", ":")
			if name == "" || name == "." || strings.Contains(name, "/") {
				a.Log.Errorf("Ignoring the CA of a registry with the name %q: want a host and perhaps a port", b.File)
				continue
			}
			wanted[name] = b.Data
		}
	}
	for _, name := range have {
		if _, ok := wanted[name]; ok {
			continue
		}
		if err := a.removeRegistry(path.Join(registriesDir, name)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := a.writeTrust(path.Join(registriesDir, name, "ca.crt"), wanted[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeRegistry removes the folder of a registry with the files in it.
func (a *Agent) removeRegistry(dir string) error {
	f := a.Host.Files()
	info, err := f.Lstat(dir)
	if err != nil || fs.FileMode(info.Mode)&fs.ModeDir == 0 {
		return err // what is no folder is not ours
	}
	names, err := f.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for _, name := range names {
		if err := f.Remove(path.Join(dir, name)); err != nil {
			return fmt.Errorf("remove the CA of a registry: %w", err)
		}
	}
	if err := f.Remove(dir); err != nil {
		return fmt.Errorf("remove the CA of a registry: %w", err)
	}
	return nil
}
