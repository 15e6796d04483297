package world

import (
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"millwright.io/millwright/internal/operator"
	"millwright.io/millwright/internal/pki"
	simworld "millwright.io/millwright/internal/sim/world"
)

// The empty API that puts machine.openshift.io before cluster.x-k8s.io for
// unqualified names. Its address is simulated; the egress proxy knows it.
const (
	frontName = "millwright-precedence"
	frontIP   = "10.255.255.1"
	frontPort = 8444
	// frontPriority beats the 1000 of definitions.
	frontPriority = 2000
)

// startFront serves the empty API and registers it.
func (s *supervisor) startFront(life context.Context) error {
	loopback := fmt.Sprintf("127.%d.255.1", s.dir.state.World)
	s.egress.AddStatic(frontIP, loopback)
	host := frontName + "." + operator.NamespaceMachineAPI + ".svc"
	certPEM, keyPEM, err := s.plane.CA().Issue(pki.Leaf{CommonName: host, DNSNames: []string{host}, Server: true, TTL: caLife})
	if err != nil {
		return fmt.Errorf("issue certificate of %s: %w", frontName, err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, fmt.Sprint(frontPort)))
	if err != nil {
		return fmt.Errorf("listen for %s: %w", frontName, err)
	}
	tl, err := simworld.Precedence(l, certPEM, keyPEM)
	if err != nil {
		return err
	}
	serve(life, tl, simworld.PrecedenceHandler(), s.opts.Log)
	return nil
}

// registerFront makes the objects that lead to it; its namespace exists.
func (s *supervisor) registerFront(ctx context.Context) error {
	meta := metav1.ObjectMeta{Namespace: operator.NamespaceMachineAPI, Name: frontName}
	slice := meta
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: frontName, discoveryv1.LabelManagedBy: "millwright.io"}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}}}
	endpoints := &discoveryv1.EndpointSlice{
		ObjectMeta: slice, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{frontIP}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(frontPort)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if err := s.create(ctx, service); err != nil {
		return err
	}
	if err := s.create(ctx, endpoints); err != nil {
		return err
	}
	return s.create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: simworld.PrecedenceVersion + "." + simworld.PrecedenceGroup},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: simworld.PrecedenceGroup, Version: simworld.PrecedenceVersion,
			GroupPriorityMinimum: frontPriority, VersionPriority: 1, CABundle: s.plane.CA().CertPEM,
			Service: &apiregistrationv1.ServiceReference{Namespace: operator.NamespaceMachineAPI, Name: frontName, Port: ptr.To(int32(443))},
		},
	})
}
