package admission_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/admission"
	"millwright.io/millwright/internal/dialect/machineconfig/unitnames"
	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/memapi"
)

func enabling(name, unit, contents string) *machineconfigv1.MachineConfig {
	u := map[string]any{"name": unit, "enabled": true}
	if contents != "" {
		u["contents"] = contents
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.2.0"}, "systemd": map[string]any{"units": []any{u}}})
	if err != nil {
		panic(err)
	}
	mc := config("/etc/x", "data:,")
	mc.Name, mc.Spec.Config.Raw = name, raw
	return mc
}

// TestUnitsAreRefusedWhenEveryNodeDenies publishes what two hosts have, as
// their agents do.
func TestUnitsAreRefusedWhenEveryNodeDenies(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, machineconfigv1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	names := lint.NewUnitNames([]string{"kdump.service", "getty@.service"})
	worker := map[string]string{"node-role.kubernetes.io/worker": ""}
	node := func(name string, told bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: worker}}
		if told {
			n.Annotations = map[string]string{lint.UnitNamesKey: names.Digest()}
		}
		return n
	}
	pool := &machineconfigv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: machineconfigv1.MachineConfigPoolSpec{
		MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{role: "worker"}},
		NodeSelector:          &metav1.LabelSelector{MatchLabels: worker}}}
	all := []client.Object{pool, node("w-1", true), node("w-2", true), unitnames.ConfigMap(names)}
	edited := unitnames.ConfigMap(names)
	edited.Data[lint.UnitNamesData] = "other.service\n"
	for _, tt := range []struct {
		why, unit         string
		objs              []client.Object
		refused, problems bool
	}{
		{"no node has it", "nobody.service", all, true, true},
		{"the hosts ship it", "kdump.service", all, false, false},
		{"an instance of a template that the hosts ship", "getty@tty3.service", all, false, false},
		{"another config brings it", "nobody.service", append([]client.Object{enabling("50-worker-unit", "nobody.service", "[Unit]")}, all...), false, false},
		{"one node has not told", "nobody.service", append([]client.Object{node("w-3", false)}, all...), false, true},
		{"nobody has told", "nobody.service", []client.Object{pool, node("w-1", true)}, false, true},
		{"the list was edited", "nobody.service", []client.Object{pool, node("w-1", true), edited}, false, true},
	} {
		api := memapi.New(scheme, clock.RealClock{}, tt.objs...)
		raw, err := json.Marshal(enabling("99-worker-x", tt.unit, ""))
		if err != nil {
			t.Fatal(err)
		}
		req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}}
		v, err := admission.ValidateWith(t.Context(), api, req)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(errorsOf(v.Problems)) > 0; got != tt.refused || (len(v.Problems) > 0) != tt.problems {
			t.Errorf("%s: refused %t, problems %v", tt.why, got, v.Problems)
		}
		if tt.refused && !strings.Contains(v.Problems[0].Detail, "no node of pool worker has this unit and no config gives its contents") {
			t.Errorf("%s: %s", tt.why, v.Problems[0].Detail)
		}
		api.FailNext("list", "*", errors.New("not now"))
		if v, err = admission.ValidateWith(t.Context(), api, req); err != nil || len(errorsOf(v.Problems)) > 0 || len(v.Problems) == 0 {
			t.Errorf("%s, and the server does not answer: %v, %v", tt.why, v.Problems, err)
		}
	}
}
