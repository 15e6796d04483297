// Package drain decides how a Node is emptied: which pods are evicted now,
// which are left alone, which have to wait, and what they wait for. Disruption
// budgets are honoured before the server is asked, so a blocked pod is named
// with its budget at once and no eviction is sent that is known to fail.
//
// It is pure. It must never take away a pod whose budget is spent, unless the
// Node is proven to be off and the pod with it; nor call a Node drained while
// a pod that has to go is still there.
//
//	d := drain.Decide(drain.Input{Node: drain.Node{Name: "w-1"}, Pods: pods, Budgets: budgets, Now: now})
package drain

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"millwright.io/millwright/internal/engine/plan"
)

// Node is what is to be emptied.
type Node struct {
	Name string
	// Unreachable says that its kubelet does not answer: nobody confirms the
	// end of its pods.
	Unreachable bool
	// Off says that the cloud vouches for it: the instance does not run. Only
	// then are its pods certainly gone.
	Off bool
}

// Pod is one pod on the Node.
type Pod struct {
	Namespace, Name, UID string
	Labels               map[string]string
	Owner                string // kind/name of its controller; empty: none
	Priority             int32
	Mirror               bool // made by the kubelet itself from a file
	DaemonSet            bool // its controller puts it back at once
	LocalStorage         bool // an emptyDir, whose data go with it
	Finished             bool // Succeeded or Failed
	Pending              bool // not started; budgets do not count it
	Ready                bool
	Deleted              time.Time // when its grace ends; zero: not deleted
}

// Budget is one PodDisruptionBudget.
type Budget struct {
	Namespace, Name string
	Selector        labels.Selector
	Allowed         int32 // disruptions
	Healthy         int32 // now
	Desired         int32 // healthy pods at least
	AlwaysAllow     bool  // unhealthy pods may always go
	Stale           bool  // its status does not speak of its spec yet
}

// Policy is what a drain may take away. The zero Policy takes everything that
// can be replaced or is lost anyway.
type Policy struct {
	KeepUnmanaged bool // wait for pods without a controller
	KeepLocalData bool // wait for pods with an emptyDir
}

// Refusal is an eviction that the server refused just now.
type Refusal struct {
	Namespace, Name string
	Message         string
}

// Input is one Node and all that stands on it.
type Input struct {
	Node    Node
	Pods    []Pod
	Budgets []Budget
	Policy  Policy
	Refused []Refusal
	// Since is when the drain was first found blocked; zero: it was not.
	Since time.Time
	Now   time.Time
}

// Why is the reason for which a pod is left alone or has to wait.
type Why string

// Reasons.
const (
	WhyMirror    Why = "mirror pod"
	WhyDaemonSet Why = "managed by a DaemonSet"
	WhyFinished  Why = "finished"
	WhyLost      Why = "its kubelet does not answer"
	WhyBudget    Why = "disruption budget"
	WhyBudgets   Why = "several disruption budgets"
	WhyStale     Why = "disruption budget not observed yet"
	WhyUnmanaged Why = "no controller would replace it"
	WhyLocalData Why = "local data would be lost"
	WhyRefused   Why = "eviction refused"
	WhyOverdue   Why = "still terminating"
)

// Verdict is one pod and its reason.
type Verdict struct {
	Pod     Pod
	Why     Why
	Budgets []string // names of the budgets, for the reasons that have some
	Detail  string   // in the words of the eviction API where it has some
}

// Status is where the drain stands.
type Status struct {
	Done    bool
	Skipped []Verdict // need not go
	Blocked []Verdict // have to go and cannot
	Waiting []Pod     // all that have to go, blocked or not
}

// Waits between looks. Pods are not watched; that a budget has room again is
// seen at the next one.
const (
	wakeTerminating = 2 * time.Second
	wakeBlocked     = 5 * time.Second
	wakeBlockedMax  = 30 * time.Second
)

// LostGrace is the grace of pods whose kubelet does not answer, and how long
// after it their end is waited for.
const LostGrace = time.Second

// overdue is how long a kubelet may take beyond a pod's grace.
const overdue = 30 * time.Second

// Decide returns what to evict now. Cordoning is the caller's business.
func Decide(in Input) plan.Decision[Status] {
	pods := slices.Clone(in.Pods)
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	acc := newLedger(in.Budgets)
	refused := map[[2]string]string{}
	for _, r := range in.Refused {
		refused[[2]string{r.Namespace, r.Name}] = r.Message
	}
	var d plan.Decision[Status]
	s := &d.Status
	for _, p := range pods {
		if why := in.skip(p); why != "" {
			s.Skipped = append(s.Skipped, Verdict{Pod: p, Why: why})
			continue
		}
		s.Waiting = append(s.Waiting, p)
		if text, ok := refused[[2]string{p.Namespace, p.Name}]; ok {
			s.Blocked = append(s.Blocked, Verdict{Pod: p, Why: WhyRefused, Budgets: acc.names(p), Detail: text})
			continue
		}
		if !p.Deleted.IsZero() {
			if in.Now.Sub(p.Deleted) > overdue {
				s.Blocked = append(s.Blocked, Verdict{Pod: p, Why: WhyOverdue, Detail: textOverdue(p)})
			}
			continue
		}
		a, v := in.remove(p, acc)
		if a == nil {
			s.Blocked = append(s.Blocked, v)
			continue
		}
		d.Actions = append(d.Actions, a)
	}
	s.Done = len(s.Waiting) == 0
	d.Wake = in.wake(*s)
	return d
}

// skip says why a pod need not go; empty: it has to.
func (in Input) skip(p Pod) Why {
	switch {
	case p.Mirror:
		return WhyMirror
	case p.DaemonSet:
		return WhyDaemonSet
	case p.Finished:
		return WhyFinished
	case !p.Deleted.IsZero() && (in.Node.Off || in.Node.Unreachable && in.Now.Sub(p.Deleted) > LostGrace):
		return WhyLost
	}
	return ""
}

// remove returns the action that takes a pod away, or what keeps it.
func (in Input) remove(p Pod, acc *ledger) (plan.Action, Verdict) {
	switch {
	case in.Node.Off:
		// The pod does not run any more, whatever its budget says.
		return plan.DeletePod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Grace: 0}, Verdict{}
	case in.Policy.KeepUnmanaged && p.Owner == "":
		return nil, Verdict{Pod: p, Why: WhyUnmanaged, Detail: "it has no controller that would replace it"}
	case in.Policy.KeepLocalData && p.LocalStorage:
		return nil, Verdict{Pod: p, Why: WhyLocalData, Detail: "the data of its emptyDir would be lost"}
	}
	grace := time.Duration(-1)
	if in.Node.Unreachable {
		grace = LostGrace
	}
	v, direct := acc.charge(p)
	switch {
	case v.Why != "":
		return nil, v
	case direct:
		return plan.DeletePod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Grace: grace}, Verdict{}
	}
	return plan.EvictPod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Grace: grace}, Verdict{}
}

// wake grows with the time for which a drain has been blocked.
func (in Input) wake(s Status) time.Duration {
	switch {
	case s.Done:
		return 0
	case len(s.Blocked) == 0:
		return wakeTerminating
	case len(s.Blocked) < len(s.Waiting) || in.Since.IsZero():
		return wakeBlocked
	}
	return min(max(in.Now.Sub(in.Since)/8, wakeBlocked), wakeBlockedMax)
}
