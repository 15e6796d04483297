package approver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A serving request that asks for more than its machine has names the exact
// difference, and is approved as soon as the machine has the address.
func TestServingRequestNamesTheDifferenceAndWaits(t *testing.T) {
	m := machine(linked, func(m *machinev1beta1.Machine) { m.Status.Addresses = m.Status.Addresses[:2] })
	w := newWorld(t, m)
	w.create(servingRequest(t, "csr-1"))
	if got := w.step("csr-1"); len(got) != 0 {
		t.Fatalf("answered with %v", got)
	}
	select {
	case e := <-w.rec.Events:
		if want := "Warning NodeCSRPending IP address '10.0.128.5' not in machine addresses:"; !strings.HasPrefix(e, want) {
			t.Errorf("event %q, want %q", e, want)
		}
	default:
		t.Error("nobody was told")
	}
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Fatal(err)
	}
	m.Status.Addresses = append(m.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.128.5"})
	if err := w.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(approval, w.step("csr-1")); diff != "" {
		t.Errorf("after the address appeared (-want +got):\n%s\n%s", diff, w.log)
	}
}
