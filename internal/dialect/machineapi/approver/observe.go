package approver

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/kube"
)

// Fields by which Machines and requests are found in the cache.
const (
	// FieldInternalDNS is every InternalDNS address of a Machine, folded.
	FieldInternalDNS = "millwright.io/internal-dns"
	// FieldNode is the name of a Machine's node.
	FieldNode = "status.nodeRef.name"
	// FieldRequestNode is the node a signing request is for, folded.
	FieldRequestNode = "millwright.io/csr-node"
)

// Indexes returns the indexes these controllers need.
func Indexes() []kube.Index {
	return []kube.Index{
		{Object: machineObject(), Field: FieldInternalDNS, Extract: func(obj client.Object) []string {
			if m, ok := obj.(*machinev1beta1.Machine); ok {
				return internalDNS(m)
			}
			return nil
		}},
		{Object: machineObject(), Field: FieldNode, Extract: func(obj client.Object) []string {
			if m, ok := obj.(*machinev1beta1.Machine); ok && m.Status.NodeRef != nil {
				return []string{m.Status.NodeRef.Name}
			}
			return nil
		}},
		{Object: &certificatesv1.CertificateSigningRequest{}, Field: FieldRequestNode, Extract: func(obj client.Object) []string {
			if o, ok := obj.(*certificatesv1.CertificateSigningRequest); ok {
				if r, err := csr.Parse(o); err == nil && r.NodeName() != "" {
					return []string{csr.Fold(r.NodeName())}
				}
			}
			return nil
		}},
	}
}

// input is the planner's input, or why there is none.
type input struct {
	csr.Input
	unreadable error
}

// observe reads what may matter for a request: the machines with its node's
// name or node, and earlier requests for the same subject. Only live is asked
// whether the Node exists, since an old answer would let a second identity in.
func (c *controller) observe(ctx context.Context, r, live client.Reader, o *certificatesv1.CertificateSigningRequest) (input, error) {
	request, err := csr.Parse(o)
	in := input{Input: csr.Input{Request: request, ClientDisabled: c.ClientDisabled, Now: c.Clock.Now()}, unreadable: err}
	node := request.NodeName()
	if err != nil || node == "" {
		return in, nil
	}
	if in.Machines, err = machines(ctx, r, node); err != nil {
		return in, err
	}
	if in.Recent, err = recent(ctx, r, request, node); err != nil {
		return in, err
	}
	if o.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return in, nil
	}
	in.NodeExists, err = nodeExists(ctx, live, node)
	return in, err
}

// machines returns those with an internal DNS name of node and those linked
// to node, each once.
func machines(ctx context.Context, r client.Reader, node string) ([]csr.Machine, error) {
	var out []csr.Machine
	seen := map[types.UID]bool{}
	for _, by := range []client.MatchingFields{{FieldInternalDNS: csr.Fold(node)}, {FieldNode: node}} {
		var list machinev1beta1.MachineList
		if err := r.List(ctx, &list, by, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list machines of node %s: %w", node, err)
		}
		for i := range list.Items {
			if m := &list.Items[i]; !seen[m.UID] {
				seen[m.UID] = true
				out = append(out, machineOf(m))
			}
		}
	}
	return out, nil
}

// recent returns when the approved requests for the same subject and signer
// were made.
func recent(ctx context.Context, r client.Reader, request csr.Request, node string) ([]time.Time, error) {
	var out []time.Time
	var list certificatesv1.CertificateSigningRequestList
	if err := r.List(ctx, &list, client.MatchingFields{FieldRequestNode: csr.Fold(node)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list signing requests of node %s: %w", node, err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.Spec.SignerName != request.Signer || !approved(o) {
			continue
		}
		if other, err := csr.Parse(o); err == nil && other.CommonName == request.CommonName {
			out = append(out, other.Created)
		}
	}
	return out, nil
}

func nodeExists(ctx context.Context, live client.Reader, node string) (bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	err := live.Get(ctx, client.ObjectKey{Name: node}, meta)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get node %s: %w", node, err)
	}
	return true, nil
}

// requestsOfMachine maps a Machine to the pending requests of its names.
func (c *controller) requestsOfMachine(ctx context.Context, r client.Reader, obj client.Object) []types.NamespacedName {
	m, ok := obj.(*machinev1beta1.Machine)
	if !ok {
		return nil
	}
	names := internalDNS(m)
	if m.Status.NodeRef != nil {
		names = append(names, csr.Fold(m.Status.NodeRef.Name))
	}
	slices.Sort(names)
	var keys []types.NamespacedName
	for _, n := range slices.Compact(names) {
		var list certificatesv1.CertificateSigningRequestList
		if err := r.List(ctx, &list, client.MatchingFields{FieldRequestNode: n}, client.UnsafeDisableDeepCopy); err != nil {
			// The cache answers; it fails only while the process ends.
			return keys
		}
		for i := range list.Items {
			if c.pending(&list.Items[i]) {
				keys = append(keys, types.NamespacedName{Name: list.Items[i].Name})
			}
		}
	}
	return keys
}

// machineMatters says whether a request could be judged differently.
func machineMatters(a, b *machinev1beta1.Machine) bool {
	return nodeName(a) != nodeName(b) || !slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

func machineObject() client.Object { return &machinev1beta1.Machine{} }

func machineOf(m *machinev1beta1.Machine) csr.Machine {
	return csr.Machine{Name: m.Name, CreatedAt: m.CreationTimestamp.Time, Node: nodeName(m), Addresses: m.Status.Addresses}
}

func nodeName(m *machinev1beta1.Machine) string {
	if m.Status.NodeRef == nil {
		return ""
	}
	return m.Status.NodeRef.Name
}

func internalDNS(m *machinev1beta1.Machine) []string {
	var out []string
	for _, a := range m.Status.Addresses {
		if a.Type == corev1.NodeInternalDNS {
			out = append(out, csr.Fold(a.Address))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func answered(o *certificatesv1.CertificateSigningRequest) bool {
	return has(o, certificatesv1.CertificateApproved) || has(o, certificatesv1.CertificateDenied)
}

func approved(o *certificatesv1.CertificateSigningRequest) bool {
	return has(o, certificatesv1.CertificateApproved)
}

func has(o *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
}
