// Package unitnames reads which systemd units the hosts of each pool have, as
// their agents publish it: a ConfigMap per different list and an annotation on
// each Node. It translates these objects for engine/lint, which owns the format
// and the rule; it writes nothing.
//
//	facts, err := unitnames.Read(ctx, live)
package unitnames

import (
	"context"
	"fmt"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/lint"
)

// Read gathers what is published. What cannot be read of one list counts as
// not told, so that nothing is refused because of it.
func Read(ctx context.Context, r client.Reader) (map[string]lint.UnitFacts, error) {
	var pools machineconfigv1.MachineConfigPoolList
	var nodes corev1.NodeList
	var lists corev1.ConfigMapList
	if err := r.List(ctx, &lists, client.InNamespace(wire.Namespace), client.HasLabels{lint.UnitNamesKey}); err != nil {
		return nil, fmt.Errorf("list unit names: %w", err)
	}
	if len(lists.Items) == 0 {
		return nil, nil // no host tells: nobody needs to be asked further
	}
	for _, l := range []client.ObjectList{&pools, &nodes} {
		if err := r.List(ctx, l); err != nil {
			return nil, fmt.Errorf("list %T: %w", l, err)
		}
	}
	return Facts(pools.Items, nodes.Items, lists.Items), nil
}

// Facts is Read for objects that were read already.
func Facts(pools []machineconfigv1.MachineConfigPool, nodes []corev1.Node, lists []corev1.ConfigMap) map[string]lint.UnitFacts {
	selectors := map[string]*metav1.LabelSelector{}
	for i := range pools {
		selectors[pools[i].Name] = pools[i].Spec.NodeSelector
	}
	told := make([]lint.UnitNode, 0, len(nodes))
	for i := range nodes {
		told = append(told, lint.UnitNode{Labels: nodes[i].Labels, Digest: nodes[i].Annotations[lint.UnitNamesKey]})
	}
	published := map[string]lint.UnitNames{}
	for i := range lists {
		digest := lists[i].Labels[lint.UnitNamesKey]
		if names, err := lint.ParseUnitNames(lists[i].Data[lint.UnitNamesData], digest); err == nil {
			published[digest] = names
		}
	}
	return lint.UnitsByPool(selectors, told, published)
}

// ConfigMap is what an agent publishes for a list.
func ConfigMap(names lint.UnitNames) *corev1.ConfigMap {
	digest := names.Digest()
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: lint.UnitNamesObject(digest), Labels: map[string]string{lint.UnitNamesKey: digest}},
		Data:       map[string]string{lint.UnitNamesData: names.Text()},
	}
}
