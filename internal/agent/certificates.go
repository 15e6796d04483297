package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"millwright.io/millwright/internal/host"
)

// Files of trust that come from the ControllerConfig, at any time and without a
// reboot, also while the pool is paused.
const (
	kubeletCAPath    = "/etc/kubernetes/kubelet-ca.crt"
	cloudCAPath      = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem"
	registryAuthPath = "/etc/mco/internal-registry-pull-secret.json"
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
	version, rotate := cc.ResourceVersion, cc.Annotations[annotationRotate]
	if rotate == "" {
		rotate = "false"
	}
	if err := a.annotate(ctx, s, map[string]*string{annotationSynced: &version, annotationServerCA: &rotate}); err != nil {
		return err
	}
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
