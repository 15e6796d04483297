package world_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/cloud"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/sim/world"
)

func params() world.Params {
	return world.Params{InfraID: "dev-abcde", Version: "4.20.0", APIServer: "https://127.0.0.1:1", Workers: 4, VMSize: "Standard_D4s_v3"}
}

func TestWorkerSetsAreWhatAnInstallerLeaves(t *testing.T) {
	sets, err := world.WorkerSets(params())
	if err != nil {
		t.Fatal(err)
	}
	var replicas []int32
	for _, s := range sets {
		replicas = append(replicas, *s.Spec.Replicas)
		sel, err := metav1.LabelSelectorAsSelector(&s.Spec.Selector)
		if err != nil || !sel.Matches(labels.Set(s.Spec.Template.Labels)) {
			t.Errorf("%s: selector %v does not match its template", s.Name, sel)
		}
		checkProviderSpec(t, s.Spec.Template.Spec)
	}
	if sets[0].Name != "dev-abcde-worker-francecentral1" || len(sets) != 3 {
		t.Errorf("got %d sets, the first named %s; want 3, dev-abcde-worker-francecentral1", len(sets), sets[0].Name)
	}
	if replicas[0] != 2 || replicas[1] != 1 || replicas[2] != 1 {
		t.Errorf("got replicas %v for 4 workers, want 2 1 1", replicas)
	}
}

// checkProviderSpec holds the spec against the rules of admission.
func checkProviderSpec(t *testing.T, s machinev1beta1.MachineSpec) {
	t.Helper()
	c := azurespec.Codec{}
	spec, problems, err := c.Decode(s.ProviderSpec.Value.Raw)
	if err != nil {
		t.Fatal(err)
	}
	problems = append(problems, c.Validate(spec, cloud.SpecContext{InfraID: "dev-abcde", Region: world.Region})...)
	for _, p := range problems {
		t.Errorf("provider spec: %s", p)
	}
}

func TestMastersPassAdmission(t *testing.T) {
	for i := range world.ControlPlaneNodes {
		m, err := world.Master(params(), i)
		if err != nil {
			t.Fatal(err)
		}
		checkProviderSpec(t, m.Spec)
	}
}

func TestPrecedenceAnswersDiscovery(t *testing.T) {
	h := world.PrecedenceHandler()
	for _, row := range []struct{ path, accept, kind string }{
		{"/apis", "application/json", "APIGroupList"},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", "APIGroupDiscoveryList"},
		{"/apis/machine.openshift.io", "", "APIGroup"},
		{"/apis/machine.openshift.io/v1alpha1", "", "APIResourceList"},
	} {
		r := httptest.NewRequest(http.MethodGet, row.path, nil)
		r.Header.Set("Accept", row.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var got struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Errorf("%s: got %d %q, %v", row.path, w.Code, w.Body, err)
		}
		if got.Kind != row.kind {
			t.Errorf("%s as %q: got kind %q, want %s", row.path, row.accept, got.Kind, row.kind)
		}
	}
}
