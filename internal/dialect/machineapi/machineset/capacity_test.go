package machineset_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/machineset"
	"millwright.io/millwright/internal/provider/azure/spec"
)

// shop is a cloud that has nothing but a catalogue.
type shop struct {
	cloud.Cloud
	asked int
}

func (s *shop) Open(context.Context, cloud.Account) (cloud.Cloud, error) { return s, nil }
func (*shop) Regions(context.Context) ([]string, error)                  { return nil, nil }
func (s *shop) Sizes(context.Context, string) ([]cloud.Size, error) {
	s.asked++
	return []cloud.Size{{Name: "Standard_D4ps_v5", VCPUs: 4, MemoryMiB: 16384, Arch: "arm64"}, {Name: "Standard_NC6s_v3", VCPUs: 6, MemoryMiB: 114688, GPUs: 1, Arch: "amd64"}}, nil
}

func TestCapacityIsTold(t *testing.T) {
	for _, tc := range []struct {
		name, size string
		have, want map[string]string
		event      string
	}{
		{name: "arm", size: "Standard_D4ps_V5", want: map[string]string{"machine.openshift.io/vCPU": "4", "machine.openshift.io/memoryMb": "16384",
			"machine.openshift.io/GPU": "0", "capacity.cluster-autoscaler.kubernetes.io/labels": "kubernetes.io/arch=arm64"}},
		{name: "others stay", size: "Standard_NC6s_v3", have: map[string]string{"a": "b", "machine.openshift.io/vCPU": "1",
			"capacity.cluster-autoscaler.kubernetes.io/labels": "x=y,kubernetes.io/arch=arm64,z=1"},
			want: map[string]string{"a": "b", "machine.openshift.io/vCPU": "6", "machine.openshift.io/memoryMb": "114688",
				"machine.openshift.io/GPU": "1", "capacity.cluster-autoscaler.kubernetes.io/labels": "x=y,kubernetes.io/arch=amd64,z=1"}},
		{name: "unknown", size: "Standard_X", event: "Warning FailedUpdate Failed to set autoscaling from zero annotations, instance type unknown or unavailable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw := `{"kind":"AzureMachineProviderSpec","location":"francecentral","vmSize":"` + tc.size + `"}`
			set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: tc.have}}
			set.Spec.Template.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: []byte(raw)}
			w := newWorld(t, set, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "azure-cloud-credentials"}})
			w.cache.Sync()
			market := &shop{}
			c := machineset.NewCapacity(machineset.CapacityDeps{Client: w.cache.Client(), Live: w.api, Opener: market, Codec: spec.Codec{}, Clock: w.clk, Recorder: w.rec, Log: logr.Discard()})
			for range 2 {
				if _, err := c.Step(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				w.cache.Sync()
			}
			var got machinev1beta1.MachineSet
			if err := w.api.Get(t.Context(), key, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if tc.event == "" && w.api.Writes() > 1 {
				t.Errorf("%d writes, want one", w.api.Writes())
			}
			if market.asked != 1 {
				t.Errorf("asked the cloud %d times", market.asked)
			}
			if tc.event != "" {
				if e := <-w.rec.Events; !strings.Contains(e, tc.event) {
					t.Errorf("event %q, want %q", e, tc.event)
				}
			}
		})
	}
}
