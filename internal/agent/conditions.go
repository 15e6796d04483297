package agent

import (
	"context"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/node"
)

// Types of events.
const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
)

// notYet is what a condition says before its phase.
const notYet = "NotYetOccurred"

// conditionTypes are all that a MachineConfigNode has, in the order of its columns.
var conditionTypes = []mcfgv1.StateProgress{
	mcfgv1.MachineConfigNodeUpdatePrepared, mcfgv1.MachineConfigNodeUpdateExecuted, mcfgv1.MachineConfigNodeUpdatePostActionComplete,
	mcfgv1.MachineConfigNodeUpdateComplete, mcfgv1.MachineConfigNodeUpdated, mcfgv1.MachineConfigNodeResumed,
	mcfgv1.MachineConfigNodeUpdateDrained, mcfgv1.MachineConfigNodeUpdateFilesAndOS, mcfgv1.MachineConfigNodeUpdateCordoned,
	mcfgv1.MachineConfigNodeUpdateUncordoned, mcfgv1.MachineConfigNodeUpdateRebooted, mcfgv1.MachineConfigNodeNodeDegraded,
}

// told is one condition to set.
type toldCondition struct {
	kind    mcfgv1.StateProgress
	status  metav1.ConditionStatus
	reason  string
	message string
}

// conditions writes how far the node is. They are news, not truth: a failure to
// write them stops nothing.
func (a *Agent) conditions(ctx context.Context, s *situation, d node.Decision) {
	name := s.node.Annotations[node.DesiredConfig]
	var list []toldCondition
	switch state := s.node.Annotations[node.State]; {
	case d.Settled:
		list = []toldCondition{
			{mcfgv1.MachineConfigNodeUpdated, metav1.ConditionTrue, "Updated", fmt.Sprintf("Node %s Updated", a.Config.Node)},
			{mcfgv1.MachineConfigNodeResumed, metav1.ConditionTrue, "Resumed", fmt.Sprintf("In desired config %s. Resumed normal operations. Applying proper annotations.", name)},
			{mcfgv1.MachineConfigNodeNodeDegraded, metav1.ConditionFalse, notYet, fmt.Sprintf("Node %s upgrade succeeded", a.Config.Node)},
		}
		if a.rebooted {
			a.rebooted = false
			list = append(list, toldCondition{mcfgv1.MachineConfigNodeUpdateRebooted, metav1.ConditionTrue, "RebootedNode", "Node has rebooted"})
		}
	case state == node.Degraded || state == node.Unreconcilable:
		a.degradedCondition(ctx, s, s.node.Annotations[node.Reason])
		return
	case d.Action == node.Apply:
		list = []toldCondition{
			{mcfgv1.MachineConfigNodeUpdated, metav1.ConditionFalse, "Updated", fmt.Sprintf("Node %s needs an update", a.Config.Node)},
			{mcfgv1.MachineConfigNodeUpdatePrepared, metav1.ConditionTrue, "UpdatePrepared", fmt.Sprintf("Update Compatible. Post Cfg Actions: [] Drain Required: %t", d.Change.Drain)},
			{mcfgv1.MachineConfigNodeUpdateExecuted, metav1.ConditionUnknown, "AppliedFilesAndOS", "Applying files and new OS config to node"},
			{mcfgv1.MachineConfigNodeUpdateFilesAndOS, metav1.ConditionUnknown, "UpdateExecutedAppliedFilesAndOS", "Applying files and new OS config to node"},
		}
		if !d.Change.Drain {
			list = append(list, toldCondition{mcfgv1.MachineConfigNodeUpdateDrained, metav1.ConditionFalse, "UpdateExecutedDrained", "Node Drain Not required for this update."})
		}
	default:
		return
	}
	a.setConditions(ctx, list)
}

// written tells that all is in place; after is what a reboot or an action still does.
func (a *Agent) written(ctx context.Context, after toldCondition) {
	a.setConditions(ctx, []toldCondition{
		{mcfgv1.MachineConfigNodeUpdateExecuted, metav1.ConditionTrue, "AppliedFilesAndOS", "Applied files and new OS config to node"},
		{mcfgv1.MachineConfigNodeUpdateFilesAndOS, metav1.ConditionTrue, "UpdateExecutedAppliedFilesAndOS", "Applied files and new OS config to node"},
		after,
	})
}

func (a *Agent) degradedCondition(ctx context.Context, s *situation, reason string) {
	a.setConditions(ctx, []toldCondition{{mcfgv1.MachineConfigNodeNodeDegraded, metav1.ConditionTrue, "NodeDegraded", fmt.Sprintf("Node %s upgrade failure. %s", s.node.Name, reason)}})
}

func (a *Agent) setConditions(ctx context.Context, told []toldCondition) {
	record, err := a.Cluster.Record(ctx)
	if err != nil || record == nil {
		if err != nil {
			a.Log.Errorf("Reading MachineConfigNode: %v", err)
		}
		return
	}
	list := slices.Clone(record.Status.Conditions)
	now := metav1.NewTime(a.Clock.Now())
	changed := false
	put := func(t toldCondition, keep bool) {
		i := slices.IndexFunc(list, func(c metav1.Condition) bool { return c.Type == string(t.kind) })
		switch {
		case i < 0:
			list = append(list, metav1.Condition{Type: string(t.kind)})
			i = len(list) - 1
		case keep, list[i].Status == t.status && list[i].Message == t.message && list[i].Reason == t.reason:
			return
		}
		changed = true
		if list[i].Status != t.status {
			list[i].LastTransitionTime = now
		}
		list[i].Status, list[i].Reason, list[i].Message, list[i].ObservedGeneration = t.status, t.reason, t.message, record.Generation
	}
	for _, kind := range conditionTypes {
		put(toldCondition{kind, metav1.ConditionFalse, notYet, fmt.Sprintf("This node has not yet entered the %s phase", kind)}, true)
	}
	for _, t := range told {
		put(t, false)
	}
	if !changed {
		return
	}
	if err := a.Cluster.SetConditions(ctx, record, list); err != nil {
		a.Log.Errorf("Writing MachineConfigNode: %v", err)
	}
}
