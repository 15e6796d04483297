package approver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/csr"
)

// C25: approval is tied to a real, new machine; a wrong group is denied and
// told, everything else stays pending.
func TestFirstRequestsAreTiedToARealNewMachine(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "c25.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list certificatesv1.CertificateSigningRequestList
	if err := yaml.Unmarshal(raw, &list); err != nil || len(list.Items) != 2 {
		t.Fatalf("%d requests: %v", len(list.Items), err)
	}
	const name = "demo-w-z1-a1b2c"
	for _, tt := range []struct {
		name   string
		change func(*machinev1beta1.Machine)
		node   bool
		want   map[string]certificatesv1.RequestConditionType
	}{
		{"a real new machine", nil, false, map[string]certificatesv1.RequestConditionType{"csr-ok": certificatesv1.CertificateApproved, "csr-masters-group": certificatesv1.CertificateDenied}},
		{"already joined", func(m *machinev1beta1.Machine) { m.Status.NodeRef = &corev1.ObjectReference{Name: name} }, false, map[string]certificatesv1.RequestConditionType{"csr-masters-group": certificatesv1.CertificateDenied}},
		{"the node exists", nil, true, map[string]certificatesv1.RequestConditionType{"csr-masters-group": certificatesv1.CertificateDenied}},
		{"too late", func(m *machinev1beta1.Machine) { m.CreationTimestamp = metav1.NewTime(start.Add(-3 * time.Hour)) }, false, map[string]certificatesv1.RequestConditionType{"csr-masters-group": certificatesv1.CertificateDenied}},
		{"no such machine", func(m *machinev1beta1.Machine) { m.Status.Addresses = nil }, false, map[string]certificatesv1.RequestConditionType{"csr-masters-group": certificatesv1.CertificateDenied}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machine(func(m *machinev1beta1.Machine) {
				m.Name = name
				m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: name}}
			})
			if tt.change != nil {
				tt.change(m)
			}
			w := newWorld(t, m)
			if tt.node {
				w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			for i := range list.Items {
				o := list.Items[i].DeepCopy()
				w.create(o)
				var got certificatesv1.RequestConditionType
				for _, c := range w.step(o.Name) {
					got = c.Type
				}
				if got != tt.want[o.Name] {
					t.Errorf("%s: %q, want %q\n%s", o.Name, got, tt.want[o.Name], w.log)
				}
			}
			select {
			case e := <-w.rec.Events:
				if !strings.Contains(e, csr.DenyReason) {
					t.Errorf("event %q, want %s", e, csr.DenyReason)
				}
			default:
				t.Error("the denial was told to nobody")
			}
		})
	}
}
