// Package nodelink is the controller that ties Nodes to Machines of the
// Machine API: it finds the Machine behind a Node, records the Node in the
// Machine's status.nodeRef, and brings the Machine's labels, annotations,
// taints and role onto the Node. What to do is decided by engine/machine.
//
// It alone writes status.nodeRef. It must never take anything off a Node, and
// never clear a nodeRef: a Machine whose Node is gone still tells which one it
// was.
package nodelink

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/go-logr/logr"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	engine "millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups=machine.openshift.io,resources=machines/status,verbs=patch,namespace=openshift-machine-api
//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch

// Deps are the collaborators of the controller. All are required.
type Deps struct {
	Client client.Client // reads from the cache
	Clock  clock.PassiveClock
	Log    logr.Logger
}

// workers is how many Nodes are linked at a time: a link is two writes and
// hardly any work of our own.
const workers = 32

// New returns the controller. Its keys are Nodes.
func New(d Deps) kube.Controller {
	c := &controller{d: d, act: act.New(d.Client), written: map[string]versions{}}
	return kube.Controller{
		Name:    wire.ControllerNodeLink,
		For:     &corev1.Node{},
		Changed: kube.Typed(nodeChanged),
		Watches: []kube.Watch{{Object: &machinev1.Machine{}, Map: nodesOfMachine, Changed: kube.Typed(machineChanged)}},
		Indexes: Indexes(),
		Workers: workers,
		Decide: func(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
			_, _, dec, err := c.decide(ctx, r, key)
			return plan.Erase(dec), err
		},
		Reconcile: c.reconcile,
	}
}

type controller struct {
	d   Deps
	act *act.Runner

	mu      sync.Mutex
	written map[string]versions // by Node
}

// versions are those that our last writes made. As long as the cache shows an
// older one, also one that somebody else made in between, it has not shown
// that write.
type versions struct {
	node, machine string
	of            types.UID // the Machine that was written
}

// shown says whether the cache has come to a version that we wrote. What
// cannot be compared counts as shown: the worst is a second, equal write.
func shown(cached, wrote string) bool {
	if wrote == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(cached, wrote)
	return err != nil || order >= 0
}

// reconcile links one Node. Its two writes do not depend on each other.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	node, m, d, err := c.decide(ctx, c.d.Client, key)
	if err != nil || node == nil {
		if err == nil {
			c.remember(key.Name, versions{})
		}
		return reconcile.Result{}, err
	}
	d, last := c.unwritten(node, m, d)
	wrote, refErr := c.report(ctx, m, d)
	out, actErr := c.act.Run(ctx, node, act.Binding{}, nil, d.Actions)
	if wrote != "" {
		last.machine, last.of = wrote, m.UID
	}
	if actErr == nil && len(d.Actions) > 0 {
		last.node = out.Object.GetResourceVersion()
	}
	c.remember(key.Name, last)
	return kube.Result(d.Wake, refErr, actErr)
}

// unwritten drops from a decision what was written already and is only not
// shown yet. Its arrival is an event.
func (c *controller) unwritten(node *corev1.Node, m *machinev1.Machine, d plan.Decision[engine.LinkStatus]) (plan.Decision[engine.LinkStatus], versions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.written[node.Name]
	if !shown(node.ResourceVersion, last.node) {
		d.Actions = nil
	}
	if m != nil && m.UID == last.of && !shown(m.ResourceVersion, last.machine) {
		d.Status.NodeRef, d.Notes = nil, nil
	}
	return d, last
}

func (c *controller) remember(node string, v versions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v == (versions{}) {
		delete(c.written, node)
		return
	}
	c.written[node] = v
}

// decide observes a Node and its candidates and decides. The Node is nil when
// it is gone, the Machine when there is none.
func (c *controller) decide(ctx context.Context, r client.Reader, key types.NamespacedName) (*corev1.Node, *machinev1.Machine, plan.Decision[engine.LinkStatus], error) {
	var d plan.Decision[engine.LinkStatus]
	var node corev1.Node
	if err := r.Get(ctx, key, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil, d, nil
		}
		return nil, nil, d, fmt.Errorf("read node %s: %w", key.Name, err)
	}
	in := engine.LinkInput{Node: linkNode(&node)}
	known := map[types.NamespacedName]*machinev1.Machine{}
	for field, value := range map[string]string{FieldMachineProviderID: in.Node.ProviderID, FieldMachineAddress: in.Node.InternalIP} {
		found, err := candidates(ctx, r, field, value, known)
		if err != nil {
			return nil, nil, d, err
		}
		if field == FieldMachineProviderID {
			in.ByProviderID = found
		} else {
			in.ByInternalIP = found
		}
	}
	d, err := engine.Link(in)
	if err != nil || d.Status.Machine == nil {
		return &node, nil, d, err
	}
	return &node, known[types.NamespacedName{Namespace: d.Status.Machine.Namespace, Name: d.Status.Machine.Name}], d, nil
}

func candidates(ctx context.Context, r client.Reader, field, value string, known map[types.NamespacedName]*machinev1.Machine) ([]engine.LinkMachine, error) {
	if value == "" {
		return nil, nil
	}
	var list machinev1.MachineList
	if err := r.List(ctx, &list, client.MatchingFields{field: value}); err != nil {
		return nil, fmt.Errorf("find machines by %s %s: %w", field, value, err)
	}
	out := make([]engine.LinkMachine, 0, len(list.Items))
	for i := range list.Items {
		m := &list.Items[i]
		known[client.ObjectKeyFromObject(m)] = m
		out = append(out, linkMachine(m))
	}
	return out, nil
}

// report records the Node in the Machine and returns the version that made.
func (c *controller) report(ctx context.Context, m *machinev1.Machine, d plan.Decision[engine.LinkStatus]) (wrote string, err error) {
	if ref := d.Status.NodeRef; ref != nil && m != nil {
		after := m.DeepCopy()
		after.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: ref.Name, UID: types.UID(ref.UID)}
		now := metav1.NewTime(c.d.Clock.Now())
		after.Status.LastUpdated = &now
		if err := kube.PatchStatus(ctx, c.d.Client, m, after); err != nil {
			return "", fmt.Errorf("record node %s: %w", ref.Name, err)
		}
		wrote = after.ResourceVersion
	}
	kube.LogNotes(c.d.Log, d.Notes)
	return wrote, nil
}

func linkNode(n *corev1.Node) engine.LinkNode {
	return engine.LinkNode{
		Name: n.Name, UID: string(n.UID), ProviderID: n.Spec.ProviderID, InternalIP: firstInternalIP(n),
		Deleting: n.DeletionTimestamp != nil, Labels: n.Labels, Annotations: n.Annotations, Taints: n.Spec.Taints,
	}
}

func linkMachine(m *machinev1.Machine) engine.LinkMachine {
	out := engine.LinkMachine{
		Namespace: m.Namespace, Name: m.Name, ProviderID: ptr.Deref(m.Spec.ProviderID, ""),
		Labels: maps.Clone(m.Spec.ObjectMeta.Labels), Annotations: maps.Clone(m.Spec.ObjectMeta.Annotations), Taints: m.Spec.Taints,
	}
	for _, a := range m.Status.Addresses {
		if a.Type == corev1.NodeInternalDNS {
			out.DNSNames = append(out.DNSNames, a.Address)
		}
	}
	if r := m.Status.NodeRef; r != nil {
		out.NodeRef = &engine.NodeRef{Name: r.Name, UID: string(r.UID)}
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	for _, role := range roles(m) {
		out.Labels[role] = ""
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[wire.AnnotationNodeMachine] = m.Namespace + "/" + m.Name
	return out
}

// roles returns the role labels of a Machine's Node. A kubelet may not set
// them itself. What is no master is a worker, whatever else its set calls it:
// an infra Machine boots as a worker and carries its further role as a label.
func roles(m *machinev1.Machine) []string {
	switch m.Labels[wire.LabelMachineRole] {
	case "":
		return nil
	case wire.RoleMaster:
		return []string{wire.NodeRoleControlPlane, wire.NodeRoleMaster}
	default:
		return []string{wire.NodeRoleWorker}
	}
}
