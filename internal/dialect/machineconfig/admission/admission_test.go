package admission_test

import (
	"encoding/json"
	"strings"
	"testing"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineconfig/admission"
	"millwright.io/millwright/internal/engine/lint"
)

const role = "machineconfiguration.openshift.io/role"

func config(path, source string) *machineconfigv1.MachineConfig {
	raw := `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"` + path + `","mode":420,"overwrite":true,"contents":{"source":"` + source + `"}}]}}`
	return &machineconfigv1.MachineConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: "99-worker-x", Labels: map[string]string{role: "worker"}},
		Spec:       machineconfigv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}},
	}
}

func validate(t *testing.T, now, old *machineconfigv1.MachineConfig) []cloud.Problem {
	t.Helper()
	req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create}
	var err error
	if req.Object.Raw, err = json.Marshal(now); err != nil {
		t.Fatal(err)
	}
	if old != nil {
		req.Operation = admissionv1.Update
		if req.OldObject.Raw, err = json.Marshal(old); err != nil {
			t.Fatal(err)
		}
	}
	v, err := admission.Validate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return v.Problems
}

func errorsOf(ps []cloud.Problem) (out []string) {
	for _, p := range ps {
		if !p.Warning {
			out = append(out, p.Rule+": "+p.String())
		}
	}
	return out
}

func TestWhatCanNeverWorkIsRefused(t *testing.T) {
	got := errorsOf(validate(t, config("/tmp/x", "data:,1"), nil))
	if len(got) != 1 || !strings.HasPrefix(got[0], lint.RuleVolatilePath) || !strings.Contains(got[0], "vanishes at the reboot") {
		t.Errorf("a volatile path: got %q", got)
	}
	if got := errorsOf(validate(t, config("/etc/x", "http://example.com/x"), nil)); len(got) != 1 || !strings.HasPrefix(got[0], lint.RuleRemoteSource) {
		t.Errorf("a remote source: got %q", got)
	}
	if got := errorsOf(validate(t, config("/etc/x", "data:,1"), nil)); len(got) != 0 {
		t.Errorf("a good one: got %q", got)
	}
}

func TestAcceptedRiskWarns(t *testing.T) {
	mc := config("/tmp/x", "data:,1")
	mc.Annotations = map[string]string{"millwright.io/accept-risk": lint.RuleVolatilePath}
	got := validate(t, mc, nil)
	if len(errorsOf(got)) != 0 || len(got) == 0 {
		t.Errorf("got %v, want warnings only", got)
	}
}

func TestWhatIsNotAPersonsChangePasses(t *testing.T) {
	bad := config("/tmp/x", "data:,1")
	if got := validate(t, bad, bad.DeepCopy()); len(got) != 0 {
		t.Errorf("an update of nothing: got %v", got)
	}
	owned := bad.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "ControllerConfig", Name: "x", Controller: ptr.To(true)}}
	if got := validate(t, owned, nil); len(got) != 0 {
		t.Errorf("a controller's: got %v", got)
	}
	rendered := bad.DeepCopy()
	rendered.Name, rendered.Labels = "rendered-worker-0", nil
	if got := validate(t, rendered, nil); len(got) != 0 {
		t.Errorf("a rendered one: got %v", got)
	}
}

func TestPoolsAndSourcesAreJudged(t *testing.T) {
	for _, r := range []struct {
		name, kind, raw, want string
	}{
		{"kubelet", "KubeletConfig", `{"metadata":{"name":"k"},"spec":{"kubeletConfig":{"clusterDNS":["1.1.1.1"]}}}`,
			"KubeletConfig/k: spec.kubeletConfig.clusterDNS: KubeletConfiguration: clusterDNS is not allowed to be set, but contains: [1.1.1.1] [kubelet-config]"},
		{"good kubelet", "KubeletConfig", `{"metadata":{"name":"k"},"spec":{"kubeletConfig":{"maxPods":300}}}`, ""},
		{"runtime", "ContainerRuntimeConfig", `{"metadata":{"name":"c"},"spec":{"containerRuntimeConfig":{"pidsLimit":1}}}`,
			"ContainerRuntimeConfig/c: spec.containerRuntimeConfig.pidsLimit: invalid PidsLimit 1 [container-runtime-config]"},
		{"pool", "MachineConfigPool", `{"metadata":{"name":"infra"},"spec":{"machineConfigSelector":{"matchLabels":{"` + role + `":"infra"}},"nodeSelector":{"matchLabels":{"node-role.kubernetes.io/infra":""}}}}`,
			"MachineConfigPool/infra: "},
		{"good pool", "MachineConfigPool", `{"metadata":{"name":"infra"},"spec":{"machineConfigSelector":{"matchExpressions":[{"key":"` + role + `","operator":"In","values":["worker","infra"]}]},"nodeSelector":{"matchLabels":{"node-role.kubernetes.io/infra":""}}}}`, ""},
	} {
		req := &admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Kind: r.kind}, Object: runtime.RawExtension{Raw: []byte(r.raw)}}
		v, err := admission.Validate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(v.Problems) > 0 {
			got = v.Problems[0].String()
		}
		if (r.want == "") != (got == "") || !strings.HasPrefix(got, r.want) {
			t.Errorf("%s: got %q, want %q", r.name, got, r.want)
		}
	}
}

// The original's rules come from one table; no two have the same name.
func TestRulesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range admission.Rules() {
		if seen[r.ID] || !r.Ours {
			t.Errorf("rule %+v", r)
		}
		seen[r.ID] = true
	}
}

// Whatever comes, it is answered.
func FuzzValidate(f *testing.F) {
	for _, mc := range []*machineconfigv1.MachineConfig{config("/tmp/x", "data:,1"), config("", ""), {}} {
		raw, err := json.Marshal(mc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"spec":{"config":{"ignition":{"version":"2.2.0"}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := admission.Validate(t.Context(), &admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: raw}})
		if err != nil {
			return
		}
		for _, p := range v.Problems {
			if p.Rule == "" || p.Detail == "" {
				t.Fatalf("problem without a rule or a text: %+v", p)
			}
		}
	})
}
