package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/admission"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/memapi"
	"millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/webhook"
)

const infraID = "demo-abc12"

// shop is a cloud that has nothing but a catalogue.
type shop struct {
	cloud.Cloud
	regions func(ctx context.Context) ([]string, error)
}

func (s *shop) Open(context.Context, cloud.Account) (cloud.Cloud, error) { return s, nil }

func (s *shop) Regions(ctx context.Context) ([]string, error) {
	if s.regions != nil {
		return s.regions(ctx)
	}
	return []string{"francecentral", "westeurope"}, nil
}

func (*shop) Sizes(_ context.Context, region string) ([]cloud.Size, error) {
	if region != "francecentral" {
		return nil, errors.New("asked for a region that is not used here")
	}
	return []cloud.Size{
		{Name: "Standard_D4s_v3", VCPUs: 4, Zones: []string{"1", "2", "3"}},
		{Name: "Standard_D8s_v3", VCPUs: 8, Zones: []string{"1", "3"}},
	}, nil
}

// door is admission as the API server meets it.
type door struct {
	t   *testing.T
	api *memapi.API
	mux *http.ServeMux
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1.Install, configv1.Install, corev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func cluster() []client.Object {
	return []client.Object{
		&configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Status: configv1.InfrastructureStatus{
			InfrastructureName: infraID, PlatformStatus: &configv1.PlatformStatus{Type: configv1.AzurePlatformType,
				Azure: &configv1.AzurePlatformStatus{ResourceGroupName: infraID + "-rg", CloudName: configv1.AzurePublicCloud}}}},
		&configv1.DNS{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: configv1.DNSSpec{PublicZone: &configv1.DNSZone{ID: "z"}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: "azure-cloud-credentials"}, Data: map[string][]byte{"azure_client_id": []byte("x")}},
	}
}

func newDoor(t *testing.T, cl *shop, settings []string, objs ...client.Object) *door {
	t.Helper()
	api := memapi.New(newScheme(t), clock.RealClock{}, append(cluster(), objs...)...)
	modes, err := webhook.ParseModes(settings, admission.Rules(spec.Codec{}))
	if err != nil {
		t.Fatal(err)
	}
	r := admission.New(admission.Deps{Client: api, Live: api, Codec: spec.Codec{}, Opener: cl, Clock: clock.RealClock{}, Log: logr.Discard()})
	d := &door{t: t, api: api, mux: http.NewServeMux()}
	for path, review := range r.Reviews() {
		d.mux.Handle(path, webhook.Handler(func(ctx context.Context, req ctrladmission.Request) ctrladmission.Response {
			v, err := review(ctx, &req.AdmissionRequest)
			if err != nil {
				return webhook.Malformed(err)
			}
			return modes.Respond(req, webhook.Finding{Annotations: v.Annotations, Problems: v.Problems, Patched: v.Patched})
		}))
	}
	return d
}

// knock sends one AdmissionReview over HTTP; old is nil for a creation.
func (d *door) knock(path string, now, old any) *admissionv1.AdmissionResponse {
	d.t.Helper()
	req := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Namespace: wire.Namespace, Object: runtime.RawExtension{Raw: encode(d.t, now)}}
	if old != nil {
		req.Operation, req.OldObject.Raw = admissionv1.Update, encode(d.t, old)
	}
	body := encode(d.t, admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req})
	rec := httptest.NewRecorder()
	hr := httptest.NewRequestWithContext(d.t.Context(), http.MethodPost, path, bytes.NewReader(body))
	hr.Header.Set("Content-Type", "application/json")
	d.mux.ServeHTTP(rec, hr)
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		d.t.Fatalf("answer of %s: %v: %s", path, err, rec.Body)
	}
	return out.Response
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	if raw, ok := v.([]byte); ok {
		return raw
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// value is a spec as a user writes it: what has a default is left out.
func value(changes ...func(m map[string]any)) *runtime.RawExtension {
	m := map[string]any{
		"kind": "AzureMachineProviderSpec", "apiVersion": "machine.openshift.io/v1beta1",
		"location": "francecentral", "zone": "1", "vmSize": "Standard_D4s_v3",
		"image":          map[string]any{"resourceID": "/resourceGroups/rg/providers/Microsoft.Compute/galleries/g/images/i/versions/latest"},
		"osDisk":         map[string]any{"diskSizeGB": 128, "osType": "Linux", "managedDisk": map[string]any{"storageAccountType": "Premium_LRS"}},
		"userDataSecret": map[string]any{"name": "worker-user-data"}, "credentialsSecret": map[string]any{"name": "azure-cloud-credentials", "namespace": wire.Namespace},
		"vnet": "v", "subnet": "s",
	}
	for _, c := range changes {
		c(m)
	}
	raw, _ := json.Marshal(m)
	return &runtime.RawExtension{Raw: raw}
}

func with(key string, v any) func(map[string]any) { return func(m map[string]any) { m[key] = v } }
func without(key string) func(map[string]any)     { return func(m map[string]any) { delete(m, key) } }

func machine(name string, v *runtime.RawExtension) *machinev1.Machine {
	return &machinev1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: name, Labels: map[string]string{wire.LabelCluster: infraID}},
		Spec:       machinev1.MachineSpec{ProviderSpec: machinev1.ProviderSpec{Value: v}},
	}
}

func machineSet(name string, v *runtime.RawExtension) *machinev1.MachineSet {
	labels := map[string]string{wire.LabelMachineSet: name}
	return &machinev1.MachineSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: name},
		Spec: machinev1.MachineSetSpec{
			Replicas: ptr.To[int32](1), Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: machinev1.MachineTemplateSpec{ObjectMeta: machinev1.ObjectMeta{Labels: labels}, Spec: machinev1.MachineSpec{ProviderSpec: machinev1.ProviderSpec{Value: v}}},
		},
	}
}

func controlled(m *machinev1.Machine, set string) *machinev1.Machine {
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "machine.openshift.io/v1beta1", Kind: "MachineSet", Name: set, UID: "s", Controller: ptr.To(true)}}
	return m
}

func deleting(m *machinev1.Machine) *machinev1.Machine {
	m.DeletionTimestamp = ptr.To(metav1.NewTime(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)))
	m.Finalizers = []string{wire.MachineFinalizer}
	return m
}

// quiet is a reader of an empty world.
type quiet struct{ scheme *runtime.Scheme }

func (quiet) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("thing"), key.Name)
}

func (quiet) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
