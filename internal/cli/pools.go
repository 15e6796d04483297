package cli

import (
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/engine/target"
	"millwright.io/millwright/internal/observe"
)

const (
	mcPrefix         = "machineconfiguration.openshift.io/"
	labelRole        = mcPrefix + "role"
	annoCurrent      = mcPrefix + "currentConfig"
	annoDesired      = mcPrefix + "desiredConfig"
	annoState        = mcPrefix + "state"
	annoGenerated    = mcPrefix + "generated-by-controller-version"
	annoRelease      = mcPrefix + "release-image-version"
	annoOverridden   = mcPrefix + "os-image-url-overridden"
	labelNodeRole    = "node-role.kubernetes.io/"
	labelZone        = "topology.kubernetes.io/zone"
	poolMaster       = "master"
	poolWorker       = "worker"
	renderedPrefix   = "rendered-"
	controllerConfig = "machine-config-controller"
	namespaceMCO     = "openshift-machine-config-operator"
)

// defaultPool is what a pool of that name usually looks like, for files that
// hold MachineConfigs only: the built-in ones select their own role, a custom
// pool also takes the workers' configs.
func defaultPool(name string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{labelNodeRole + name: ""}}
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{labelRole: name}}
	if name != poolMaster && name != poolWorker && name != "arbiter" {
		p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: labelRole, Operator: metav1.LabelSelectorOpIn, Values: []string{poolWorker, name}},
		}}
	}
	return p
}

// pool returns the pool of that name; known tells whether it was in the
// cluster or the files.
func (c *cluster) pool(name string) (p *mcfgv1.MachineConfigPool, known bool) {
	if p := c.pools[name]; p != nil {
		return p, true
	}
	return defaultPool(name), false
}

// poolNames are the pools to look at, sorted: the known ones, and, where files
// hold MachineConfigs for others, those roles.
func (c *cluster) poolNames() []string {
	names := cloneMap(c.pools)
	if len(names) == 0 {
		for _, mc := range c.configs {
			if role := mc.Labels[labelRole]; role != "" {
				names[role] = nil
			}
		}
	}
	return sortedKeys(names)
}

// selected returns the MachineConfigs of a pool, by name. A pool without a
// selector or with an empty one selects nothing, as its controller does.
func (c *cluster) selected(p *mcfgv1.MachineConfigPool) ([]*mcfgv1.MachineConfig, error) {
	sel := p.Spec.MachineConfigSelector
	if sel == nil || len(sel.MatchLabels) == 0 && len(sel.MatchExpressions) == 0 {
		return nil, fmt.Errorf("MachineConfigPool %s: spec.machineConfigSelector: it is empty, so the pool is not rendered; select by %s", p.Name, labelRole)
	}
	match, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil {
		return nil, fmt.Errorf("MachineConfigPool %s: spec.machineConfigSelector: %w", p.Name, err)
	}
	var out []*mcfgv1.MachineConfig
	for _, name := range sortedKeys(c.configs) {
		if mc := c.configs[name]; match.Matches(labels.Set(mc.Labels)) {
			out = append(out, mc)
		}
	}
	return out, nil
}

// assign returns each pool's nodes, those whose primary pool it is, in rollout
// order, and what is wrong with others' membership.
func (c *cluster) assign() (byPool map[string][]*corev1.Node, notes []string) {
	selectors := map[string]*metav1.LabelSelector{}
	for name, p := range c.pools {
		selectors[name] = p.Spec.NodeSelector
	}
	members := target.NewMembers(selectors)
	byPool = map[string][]*corev1.Node{}
	for _, name := range sortedKeys(c.nodes) {
		n := c.nodes[name]
		pool, err := members.Primary(n.Labels)
		if err != nil {
			notes = append(notes, fmt.Sprintf("node %s: %v; its config stays as it is", name, err))
		} else if pool != "" {
			byPool[pool] = append(byPool[pool], n)
		}
	}
	pods := c.movable()
	for pool, nodes := range byPool {
		byPool[pool] = inOrder(nodes, pods)
	}
	return byPool, notes
}

// movable counts the pods of each node that a drain would move.
func (c *cluster) movable() map[string]int {
	out := map[string]int{}
	for i, p := range observe.Drainees(c.pods) {
		if !p.Mirror && !p.DaemonSet && !p.Finished {
			out[c.pods[i].Spec.NodeName]++
		}
	}
	return out
}

// inOrder returns nodes in the order in which their controller would start
// them; those that are out of service come first, since they cost nothing.
func inOrder(nodes []*corev1.Node, pods map[string]int) []*corev1.Node {
	byName := make(map[string]*corev1.Node, len(nodes))
	facts := make([]rollout.Node, 0, len(nodes))
	for _, n := range nodes {
		byName[n.Name] = n
		f := standing(n)
		f.Pods = pods[n.Name]
		facts = append(facts, f)
	}
	rollout.Order(facts)
	out := make([]*corev1.Node, 0, len(nodes))
	for i := range facts {
		out = append(out, byName[facts[i].Name])
	}
	return out
}

// standing reduces a node to what its place in a rollout depends on. One that
// no agent has described yet is taken for idle.
func standing(n *corev1.Node) rollout.Node {
	a := n.Annotations
	f := rollout.Node{Name: n.Name, Zone: n.Labels[labelZone], Created: n.CreationTimestamp.Time, Labels: n.Labels,
		Down: rollout.NotReady(n), Cordoned: n.Spec.Unschedulable, Current: a[annoCurrent], Desired: a[annoDesired], State: a[annoState]}
	if f.Current == "" || f.Desired == "" {
		f.Current, f.Desired = "unknown", "unknown"
	}
	if f.State == "" {
		f.State = rollout.StateDone
	}
	return f
}

// unavailable says why a node is out of service now; empty: it is in service.
func unavailable(n *corev1.Node) string {
	if n.Spec.Unschedulable {
		return "cordoned"
	}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			if c.Status != corev1.ConditionTrue {
				return "not ready"
			}
		case corev1.NodeDiskPressure, corev1.NodeNetworkUnavailable:
			if c.Status != corev1.ConditionFalse {
				return "reports " + string(c.Type)
			}
		}
	}
	return ""
}
