// Package noderecord keeps one MachineConfigNode for each Node: the object in which
// agent and drain controller tell how far the Node's update is. It writes spec only:
// conditions belong to those who cause them. It never makes one for a Node that
// belongs to no pool.
package noderecord

import (
	"context"
	"fmt"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/target"
	"millwright.io/millwright/internal/kube"
)

//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=get;list;watch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfignodes,verbs=get;list;watch;create;update;patch;delete

// notYetSet stands for a config that nobody has named so far.
const notYetSet = "not-yet-set"

// Deps are what the controller needs.
type Deps struct{ Client client.Client }

type controller struct{ Deps }

// New returns the controller. Its keys are Nodes.
func New(d Deps) kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, "machine-config-operator")
	c := &controller{d}
	return kube.Controller{
		Name: "machineconfigoperator-noderecords", For: &corev1.Node{},
		Changed: func(a, b client.Object) bool {
			return !sameMap(a.GetLabels(), b.GetLabels()) || desired(a) != desired(b)
		},
		Watches: []kube.Watch{
			{Object: &machineconfigv1.MachineConfigNode{}, Map: sameName, Changed: func(a, b client.Object) bool { return a.GetGeneration() != b.GetGeneration() }},
			{Object: &machineconfigv1.MachineConfigPool{}, Map: everyNode, Changed: func(a, b client.Object) bool { return a.GetGeneration() != b.GetGeneration() }},
		},
		Decide: func(context.Context, client.Reader, types.NamespacedName) (plan.Erased, error) {
			return plan.Erased{}, nil // bookkeeping: no node notices
		},
		Reconcile: c.reconcile,
	}
}

func sameName(_ context.Context, _ client.Reader, o client.Object) []types.NamespacedName {
	return []types.NamespacedName{{Name: o.GetName()}}
}

func everyNode(ctx context.Context, r client.Reader, _ client.Object) []types.NamespacedName {
	var nodes corev1.NodeList
	if r.List(ctx, &nodes) != nil {
		return nil
	}
	out := make([]types.NamespacedName, 0, len(nodes.Items))
	for i := range nodes.Items {
		out = append(out, types.NamespacedName{Name: nodes.Items[i].Name})
	}
	return out
}

func sameMap(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func desired(n client.Object) string {
	if name := n.GetAnnotations()[wire.AnnotationDesiredConfig]; name != "" {
		return name
	}
	return notYetSet
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	var node corev1.Node
	err := c.Client.Get(ctx, key, &node)
	if apierrors.IsNotFound(err) || err == nil && node.DeletionTimestamp != nil {
		return kube.Result(0, c.remove(ctx, key.Name))
	}
	if err != nil {
		return kube.Result(0, fmt.Errorf("read node: %w", err))
	}
	pool, err := c.pool(ctx, &node)
	if err != nil || pool == "" {
		return kube.Result(0, err)
	}
	return kube.Result(0, c.keep(ctx, &node, pool))
}

// pool is the one the node belongs to; "" if to none, or to too many.
func (c *controller) pool(ctx context.Context, node *corev1.Node) (string, error) {
	var pools machineconfigv1.MachineConfigPoolList
	if err := c.Client.List(ctx, &pools); err != nil {
		return "", fmt.Errorf("list pools: %w", err)
	}
	selectors := map[string]*metav1.LabelSelector{}
	for i := range pools.Items {
		selectors[pools.Items[i].Name] = pools.Items[i].Spec.NodeSelector
	}
	pool, err := target.NewMembers(selectors).Primary(node.Labels)
	if err != nil {
		return "", nil // the pools say it
	}
	return pool, nil
}

func (c *controller) remove(ctx context.Context, name string) error {
	m := &machineconfigv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := c.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete machine config node %s: %w", name, err)
	}
	return nil
}

func (c *controller) keep(ctx context.Context, node *corev1.Node, pool string) error {
	m := &machineconfigv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(m), m)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read machine config node %s: %w", node.Name, err)
	}
	after := m.DeepCopy()
	after.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	after.Spec.Node.Name, after.Spec.Pool.Name, after.Spec.ConfigVersion.Desired = node.Name, pool, desired(node)
	if apierrors.IsNotFound(err) {
		if err := c.Client.Create(ctx, after); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create machine config node %s: %w", node.Name, err)
		}
		return nil
	}
	return kube.Patch(ctx, c.Client, m, after)
}
