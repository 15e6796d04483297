// Package observe holds the readers that several dialects share: the Node of
// a provider ID, the pods of a Node, and an overlay that shows writes of ours
// before the cache does. It only reads, and it never waits for a cache.
package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/kube"
)

// Fields by which objects are found.
const (
	// FieldProviderID finds Nodes by spec.providerID; see NodeIndexes.
	FieldProviderID = "spec.providerID"
	// FieldPodNode finds Pods; the API server knows it itself.
	FieldPodNode = "spec.nodeName"
)

// NodeIndexes returns the indexes NodeByProviderID needs. Put them into
// Controller.Indexes.
func NodeIndexes() []kube.Index {
	return []kube.Index{{Object: &corev1.Node{}, Field: FieldProviderID, Extract: func(obj client.Object) []string {
		if n, ok := obj.(*corev1.Node); ok && n.Spec.ProviderID != "" {
			return []string{n.Spec.ProviderID}
		}
		return nil
	}}}
}

// NodeByProviderID returns the Node with this provider ID, compared byte for
// byte, and nil when there is none. Several Nodes with one provider ID are an
// error that names them: nobody can tell which one the machine is.
func NodeByProviderID(ctx context.Context, r client.Reader, providerID string) (*corev1.Node, error) {
	if providerID == "" {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.MatchingFields{FieldProviderID: providerID}); err != nil {
		return nil, fmt.Errorf("find node of %s: %w", providerID, err)
	}
	switch len(nodes.Items) {
	case 0:
		return nil, nil
	case 1:
		return &nodes.Items[0], nil
	}
	var names []string
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("find node of %s: %d nodes carry it: %s", providerID, len(names), strings.Join(names, ", "))
}

// PodsOnNode lists the pods bound to a Node, ordered by namespace and name.
// Hand it a reader that asks the server (Manager.GetAPIReader): pods are not
// cached.
func PodsOnNode(ctx context.Context, r client.Reader, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.MatchingFields{FieldPodNode: node}); err != nil {
		return nil, fmt.Errorf("list pods on node %s: %w", node, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return pods.Items, nil
}
