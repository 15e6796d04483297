package render_test

import (
	"encoding/json"
	"strings"
	"testing"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
)

func streams(images ...string) *machineconfigv1.OSImageStream {
	s := &machineconfigv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: wire.Cluster}}
	for _, i := range images {
		s.Status.AvailableStreams = append(s.Status.AvailableStreams, machineconfigv1.OSImageStreamSet{
			Name: i, OSImage: machineconfigv1.ImageDigestFormat("registry.example.com/" + i + "@sha256:1"), OSExtensionsImage: machineconfigv1.ImageDigestFormat("registry.example.com/" + i + "-ext@sha256:1")})
	}
	return s
}

func (w *world) follow(pool, stream string) {
	w.t.Helper()
	p := w.pool(pool)
	p.Spec.OSImageStream.Name = stream
	if err := w.api.Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) images(pool string) string {
	mc := w.config(w.pool(pool).Spec.Configuration.Name)
	return mc.Spec.OSImageURL + " " + mc.Spec.BaseOSExtensionsContainerImage
}

// TestPoolFollowsItsOSImageStream: a custom pool follows the worker's unless it
// names its own; a name that nobody knows keeps the target and says why.
func TestPoolFollowsItsOSImageStream(t *testing.T) {
	infra := workerPool("infra")
	delete(infra.Labels, wire.LabelBuiltIn)
	infra.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: wire.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: []string{"worker", "infra"}}}}
	w := newWorld(t, infra, streams("nine", "ten"))
	w.settle()
	plain := w.images("worker")
	w.follow("worker", "ten")
	w.settle()
	const ten = "registry.example.com/ten@sha256:1 registry.example.com/ten-ext@sha256:1"
	if got := w.images("worker"); got != ten {
		t.Errorf("worker has %s", got)
	}
	if got := w.images("infra"); got != ten {
		t.Errorf("infra follows the worker's stream: %s", got)
	}
	if got := w.images("master"); got != plain {
		t.Errorf("master follows nobody: %s", got)
	}
	w.follow("infra", "nine")
	w.settle()
	if got := w.images("infra"); !strings.Contains(got, "/nine@") {
		t.Errorf("infra has its own stream: %s", got)
	}
	w.follow("infra", "elf")
	w.settle()
	if got := w.degraded("infra"); !strings.Contains(got, `spec.osImageStream.name: there is no OS image stream "elf"; known are nine, ten`) {
		t.Errorf("degraded: %q", got)
	}
	w.follow("infra", "")
	w.settle()
	if got := w.degraded("infra"); got != "" || w.images("infra") != ten {
		t.Errorf("back with the worker's: %q, %s", got, w.images("infra"))
	}
	mc := file("99-worker-image", "worker", "/etc/x", "x", 0o644)
	mc.Spec.OSImageURL = "registry.example.com/mine@sha256:2"
	w.create(mc)
	w.settle()
	if got := w.degraded("worker"); !strings.Contains(got, "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously") || !strings.Contains(got, "99-worker-image") {
		t.Errorf("degraded: %q", got)
	}
}

// TestPoolWaitsForItsOSImageStream: it keeps its target until the object comes.
func TestPoolWaitsForItsOSImageStream(t *testing.T) {
	w := newWorld(t)
	w.settle()
	before := w.pool("worker").Spec.Configuration.Name
	w.follow("worker", "ten")
	w.settle()
	p := w.pool("worker")
	if p.Spec.Configuration.Name != before {
		t.Errorf("the target moved to %s", p.Spec.Configuration.Name)
	}
	said := false
	for _, c := range p.Status.Conditions {
		said = said || strings.Contains(c.Message, "waiting for OSImageStream cluster")
	}
	if !said {
		t.Errorf("conditions: %+v", p.Status.Conditions)
	}
	late := streams("ten")
	status := late.Status
	w.create(late)
	late.Status = status
	if err := w.api.Status().Update(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := w.images("worker"); !strings.Contains(got, "/ten@") {
		t.Errorf("worker has %s", got)
	}
}

// TestOverridesLiftRefusals: a section that running nodes refuse is let in when
// MachineConfiguration/cluster says so, and only that one.
func TestOverridesLiftRefusals(t *testing.T) {
	w := newWorld(t)
	w.settle()
	before := w.pool("worker").Spec.Configuration.Name
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.4.0"},
		"storage": map[string]any{"disks": []any{map[string]any{"device": "/dev/sdb", "wipeTable": true}}}})
	if err != nil {
		t.Fatal(err)
	}
	w.create(&machineconfigv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "99-worker-disk", Labels: map[string]string{wire.LabelRole: "worker"}},
		Spec:       machineconfigv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	})
	w.settle()
	if got := w.degraded("worker"); !strings.Contains(got, "ignition disks section contains changes") || !strings.Contains(got, "99-worker-disk") {
		t.Fatalf("degraded: %q", got)
	}
	allow := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: wire.MachineConfiguration}}
	allow.Spec.IrreconcilableValidationOverrides.Storage = []operatorv1.IrreconcilableValidationOverridesStorage{operatorv1.IrreconcilableValidationOverridesStorageRaid}
	w.create(allow)
	w.settle()
	if w.degraded("worker") == "" || w.pool("worker").Spec.Configuration.Name != before {
		t.Error("RAID is allowed, disks are not")
	}
	allow.Spec.IrreconcilableValidationOverrides.Storage = []operatorv1.IrreconcilableValidationOverridesStorage{operatorv1.IrreconcilableValidationOverridesStorageDisks}
	if err := w.api.Update(t.Context(), allow); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := w.degraded("worker"); got != "" || w.pool("worker").Spec.Configuration.Name == before {
		t.Errorf("disks are allowed: %q", got)
	}
}
