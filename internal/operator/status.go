package operator

import (
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Face is one ClusterOperator: the workloads it answers for and its words.
type Face struct {
	Name        string // of the ClusterOperator
	Namespace   string // of its workloads
	Deployments []string
	DaemonSets  []string
	// Available is the message when all is well; %s is the version.
	Available string
	// Pools tells that it answers for MachineConfigPools too.
	Pools bool
	// Towards and Resync head the messages of progress and failure.
	Towards, Resync string
	Related         []configv1.ObjectReference
}

// Reasons of ClusterOperator conditions.
const (
	reasonAsExpected   = "AsExpected"
	reasonInitializing = "Initializing"
	reasonSyncing      = "SyncingResources"
	reasonFailed       = "SyncingFailed"
)

// settle is how long a workload may be short of what it should be before the
// operator counts as degraded: a pod that is replaced is no failure.
const settle = 3 * time.Minute

// observed is what a decision about one ClusterOperator needs.
type observed struct {
	version     string
	now         time.Time
	current     configv1.ClusterOperatorStatus
	deployments []appsv1.Deployment
	daemonSets  []appsv1.DaemonSet
	pools       []mcfgv1.MachineConfigPool // of faces that answer for them
}

// shortfall says what a workload lacks and since when it is known to.
type shortfall struct {
	text  string
	since time.Time
}

// decide returns the whole status of the ClusterOperator, and when to look
// again if nothing changes.
func (f Face) decide(in observed) (configv1.ClusterOperatorStatus, time.Duration) {
	out := *in.current.DeepCopy()
	out.RelatedObjects = f.Related
	short := f.shortfalls(in)
	seen := reported(in.current)
	var wake time.Duration
	set := func(t configv1.ClusterStatusConditionType, s configv1.ConditionStatus, reason, message string) {
		out.Conditions = setCondition(out.Conditions, configv1.ClusterOperatorStatusCondition{Type: t, Status: s, Reason: reason, Message: message}, in.now)
	}
	switch {
	case len(short) == 0:
		set(configv1.OperatorAvailable, configv1.ConditionTrue, reasonAsExpected, fmt.Sprintf(f.Available, in.version))
		set(configv1.OperatorProgressing, configv1.ConditionFalse, reasonAsExpected, "")
		set(configv1.OperatorDegraded, configv1.ConditionFalse, reasonAsExpected, "")
		out.Versions = []configv1.OperandVersion{{Name: "operator", Version: in.version}}
	case seen == "":
		set(configv1.OperatorAvailable, configv1.ConditionFalse, reasonInitializing, "Operator is initializing")
		set(configv1.OperatorProgressing, configv1.ConditionTrue, reasonInitializing, "Operator is initializing")
		set(configv1.OperatorDegraded, configv1.ConditionFalse, reasonAsExpected, "")
	default:
		wake = f.troubled(in, seen, short, set)
	}
	set(configv1.OperatorUpgradeable, configv1.ConditionTrue, reasonAsExpected, "")
	if f.Pools {
		judgePools(&out, in, set)
	}
	return out, wake
}

// troubled sets the conditions of an operator that was well before. What is
// short is progress at first, and a failure once it lasts.
func (f Face) troubled(in observed, seen string, short []shortfall, set func(configv1.ClusterStatusConditionType, configv1.ConditionStatus, string, string)) time.Duration {
	oldest := in.now
	texts := make([]string, 0, len(short))
	for _, s := range short {
		texts = append(texts, s.text)
		if s.since.Before(oldest) {
			oldest = s.since
		}
	}
	cause := strings.Join(texts, ", ")
	left := settle - in.now.Sub(oldest)
	if left > 0 {
		set(configv1.OperatorProgressing, configv1.ConditionTrue, reasonSyncing, fmt.Sprintf("%s: %s; waiting for %s", f.Towards, in.version, cause))
		return left
	}
	head := f.Resync
	if seen != in.version {
		head = "Failed when " + strings.ToLower(f.Towards[:1]) + f.Towards[1:]
	}
	set(configv1.OperatorProgressing, configv1.ConditionFalse, reasonAsExpected, "")
	set(configv1.OperatorDegraded, configv1.ConditionTrue, reasonFailed, fmt.Sprintf("%s: %s because %s", head, in.version, cause))
	return 0
}

// shortfalls lists what the workloads lack, in the order of the table. A
// workload that an administrator scaled to zero lacks nothing.
func (f Face) shortfalls(in observed) []shortfall {
	var out []shortfall
	for _, name := range f.Deployments {
		d := find(in.deployments, name, func(d *appsv1.Deployment) string { return d.Name })
		if d == nil {
			out = append(out, shortfall{"deployment " + name + " does not exist", in.now})
			continue
		}
		if s, ok := deploymentShort(d); ok {
			out = append(out, s)
		}
	}
	for _, name := range f.DaemonSets {
		d := find(in.daemonSets, name, func(d *appsv1.DaemonSet) string { return d.Name })
		if d == nil {
			out = append(out, shortfall{"daemonset " + name + " does not exist", in.now})
			continue
		}
		if st := d.Status; st.ObservedGeneration < d.Generation || st.UpdatedNumberScheduled < st.DesiredNumberScheduled || st.NumberUnavailable > 0 {
			out = append(out, shortfall{fmt.Sprintf("daemonset %s has %d of %d pods available", name, st.NumberAvailable, st.DesiredNumberScheduled), progressSince(in)})
		}
	}
	return out
}

// progressSince is when the running progress began, now if none runs: a
// DaemonSet itself does not tell since when it is short.
func progressSince(in observed) time.Time {
	for _, c := range in.current.Conditions {
		if c.Type == configv1.OperatorProgressing && c.Status == configv1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return in.now
}

func deploymentShort(d *appsv1.Deployment) (shortfall, bool) {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	st := d.Status
	if st.ObservedGeneration >= d.Generation && st.UpdatedReplicas >= want && st.AvailableReplicas >= want {
		return shortfall{}, false
	}
	since := d.CreationTimestamp.Time
	for _, c := range st.Conditions {
		if c.Type == appsv1.DeploymentAvailable && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return shortfall{fmt.Sprintf("deployment %s has %d of %d replicas available", d.Name, st.AvailableReplicas, want), since}, true
}

// reported is the version the operator was last well at.
func reported(s configv1.ClusterOperatorStatus) string {
	for _, v := range s.Versions {
		if v.Name == "operator" {
			return v.Version
		}
	}
	return ""
}

func find[T any](items []T, name string, nameOf func(*T) string) *T {
	for i := range items {
		if nameOf(&items[i]) == name {
			return &items[i]
		}
	}
	return nil
}

// setCondition replaces or appends; the transition time moves with the status
// only.
func setCondition(cs []configv1.ClusterOperatorStatusCondition, c configv1.ClusterOperatorStatusCondition, now time.Time) []configv1.ClusterOperatorStatusCondition {
	c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	for i := range cs {
		if cs[i].Type != c.Type {
			continue
		}
		if cs[i].Status == c.Status {
			c.LastTransitionTime = cs[i].LastTransitionTime
		}
		cs[i] = c
		return cs
	}
	return append(cs, c)
}
