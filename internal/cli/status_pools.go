package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/engine/target"
)

// Annotations that a rollout's state is read from.
const (
	annoRolloutState = "millwright.io/rollout-state"
	annoSelfHeal     = "millwright.io/self-heal"
	annoDrainStarted = "millwright.io/drain-started"
	annoDrainBlocked = "millwright.io/drain-blocked"
	annoCordonedBy   = "millwright.io/cordoned-by"
)

// PoolReport is one MachineConfigPool.
type PoolReport struct {
	Name string `json:"name"`
	// Target is the config that its nodes shall have; Goal differs from it while
	// a stopped rollout goes back.
	Target string `json:"target"`
	Goal   string `json:"goal,omitempty"`
	// Phase is Updated, Updating, Degraded, Paused, Stopped or Waiting.
	Phase       string `json:"phase"`
	Machines    int32  `json:"machines"`
	Updated     int32  `json:"updated"`
	Ready       int32  `json:"ready"`
	Unavailable int32  `json:"unavailable"`
	Degraded    int32  `json:"degraded"`
	// Wave counts from 1; 0: the pool has no waves, or all have begun.
	Wave  int      `json:"wave,omitempty"`
	First []string `json:"firstWave,omitempty"` // its nodes
	// Stopped is why no further node starts.
	Stopped string `json:"stopped,omitempty"`
	// WaitsFor is what keeps the rollout from going on; Blocked forecasts what
	// later drains will wait for; Problem is why the pool is Degraded.
	WaitsFor string       `json:"waitsFor,omitempty"`
	Blocked  string       `json:"blocked,omitempty"`
	Problem  string       `json:"problem,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"` // in this phase
	// Ends is when the last node will be done at the pace so far; absent while
	// that cannot be told.
	Ends  *metav1.Time     `json:"ends,omitempty"`
	Nodes []PoolNodeReport `json:"nodes"`
}

// PoolNodeReport is one node of a pool.
type PoolNodeReport struct {
	Name    string `json:"name"`
	State   string `json:"state"` // as its agent says: Done, Working, …
	Current string `json:"current,omitempty"`
	Desired string `json:"desired,omitempty"`
	// Step is one of the Step… constants.
	Step     string       `json:"step"`
	WaitsFor string       `json:"waitsFor,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"`
}

// Steps of a node.
const (
	StepDone       = "done"
	StepQueued     = "queued"
	StepPreparing  = "preparing"
	StepDraining   = "draining"
	StepApplying   = "applying"
	StepRebooting  = "rebooting"
	StepUncordon   = "uncordoning"
	StepBroken     = "broken"
	StepOutOfOrder = "out of service" // done, and not ready or cordoned by somebody else
	StepNoAgent    = "no agent"
)

// fleet is what is known about pools: they, their Nodes, and the Nodes' records.
type fleet struct {
	pools   []mcfgv1.MachineConfigPool
	byPool  map[string][]*corev1.Node
	strays  []string // what is wrong with a Node's membership
	records map[string]*mcfgv1.MachineConfigNode
}

// readFleet reads the pools. A cluster without the API has none.
func readFleet(ctx context.Context, r client.Reader) (fleet, error) {
	f := fleet{byPool: map[string][]*corev1.Node{}, records: map[string]*mcfgv1.MachineConfigNode{}}
	var pools mcfgv1.MachineConfigPoolList
	err := r.List(ctx, &pools)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("list machine config pools: %w", err)
	}
	f.pools = pools.Items
	slices.SortFunc(f.pools, func(a, b mcfgv1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	var records mcfgv1.MachineConfigNodeList
	if err := r.List(ctx, &records); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return f, fmt.Errorf("list machine config nodes: %w", err)
	}
	for i := range records.Items {
		f.records[records.Items[i].Name] = &records.Items[i]
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return f, fmt.Errorf("list nodes: %w", err)
	}
	selectors := map[string]*metav1.LabelSelector{}
	for i := range f.pools {
		selectors[f.pools[i].Name] = f.pools[i].Spec.NodeSelector
	}
	members := target.NewMembers(selectors)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		pool, err := members.Primary(n.Labels)
		switch {
		case err != nil:
			f.strays = append(f.strays, fmt.Sprintf("node %s: %v", n.Name, err))
		case pool != "":
			f.byPool[pool] = append(f.byPool[pool], n)
		}
	}
	for _, list := range f.byPool {
		slices.SortFunc(list, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	}
	slices.Sort(f.strays)
	return f, nil
}

// poolOfNode finds the pool of a Node; nil: none.
func (f *fleet) poolOfNode(name string) *mcfgv1.MachineConfigPool {
	for _, pool := range slices.Sorted(maps.Keys(f.byPool)) {
		if !slices.ContainsFunc(f.byPool[pool], func(n *corev1.Node) bool { return n.Name == name }) {
			continue
		}
		for i := range f.pools {
			if f.pools[i].Name == pool {
				return &f.pools[i]
			}
		}
	}
	return nil
}

// reports describes every pool as it is at a time.
func (f *fleet) reports(now time.Time) []PoolReport {
	out := make([]PoolReport, 0, len(f.pools))
	for i := range f.pools {
		out = append(out, f.report(&f.pools[i], now))
	}
	return out
}

func (f *fleet) report(p *mcfgv1.MachineConfigPool, now time.Time) PoolReport {
	st := &p.Status
	r := PoolReport{
		Name: p.Name, Target: p.Spec.Configuration.Name, Nodes: []PoolNodeReport{},
		Machines: st.MachineCount, Updated: st.UpdatedMachineCount, Ready: st.ReadyMachineCount,
		Unavailable: st.UnavailableMachineCount, Degraded: st.DegradedMachineCount,
	}
	// Whoever wrote something else there, the counters are right without it.
	record, err := rollout.DecodeRecord(p.Annotations[annoRolloutState])
	if err != nil || record.Target != r.Target {
		record = rollout.Record{}
	}
	goal := goalOf(p, record)
	if goal != r.Target {
		r.Goal = goal
	}
	r.Stopped, r.Wave = record.Stopped, record.Present()
	if r.Wave == 1 {
		r.First = record.Nodes
	}
	message := func(kind string) string {
		if c := poolCondition(p, kind); c != nil && c.Status == corev1.ConditionTrue {
			return c.Message
		}
		return ""
	}
	r.WaitsFor, r.Blocked, r.Problem = message(rollout.ConditionWaiting), message(rollout.ConditionDrainBlocked), message(rollout.ConditionDegraded)
	r.phase(p)
	for _, n := range f.byPool[p.Name] {
		r.Nodes = append(r.Nodes, nodeReport(n, f.records[n.Name], goal))
	}
	r.estimate(p, f, now)
	return r
}

// goalOf is the config that a pool's nodes shall have: its target, or the last good
// one while a stopped rollout goes back.
func goalOf(p *mcfgv1.MachineConfigPool, record rollout.Record) string {
	settings, err := rollout.ParseSettings(p.Annotations[annoRollout])
	if err != nil {
		return p.Spec.Configuration.Name
	}
	return record.Goal(p.Spec.Configuration.Name, settings)
}

func poolCondition(p *mcfgv1.MachineConfigPool, kind string) *mcfgv1.MachineConfigPoolCondition {
	for i := range p.Status.Conditions {
		if string(p.Status.Conditions[i].Type) == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// phase folds the pool's conditions into one word.
func (r *PoolReport) phase(p *mcfgv1.MachineConfigPool) {
	since := func(kind string) {
		if c := poolCondition(p, kind); c != nil && !c.LastTransitionTime.IsZero() {
			r.Since = c.LastTransitionTime.DeepCopy()
		}
	}
	on := func(kind string) bool {
		c := poolCondition(p, kind)
		return c != nil && c.Status == corev1.ConditionTrue
	}
	switch {
	case on(rollout.ConditionDegraded):
		r.Phase = "Degraded"
		since(rollout.ConditionDegraded)
	case on(rollout.ConditionUpdated):
		r.Phase = "Updated"
		since(rollout.ConditionUpdated)
	case r.Stopped != "":
		r.Phase = "Stopped"
	case p.Spec.Paused:
		r.Phase = "Paused"
		since(rollout.ConditionUpdating)
	case on(rollout.ConditionUpdating):
		r.Phase = "Updating"
		since(rollout.ConditionUpdating)
	default:
		r.Phase = "Waiting"
	}
}

// estimate extends the pace of the nodes that finished since the rollout began. It
// tells nothing while something holds the pool up that only a person ends.
func (r *PoolReport) estimate(p *mcfgv1.MachineConfigPool, f *fleet, now time.Time) {
	c := poolCondition(p, rollout.ConditionUpdating)
	if c == nil || c.Status != corev1.ConditionTrue || p.Spec.Paused || r.Stopped != "" || r.Degraded > 0 {
		return
	}
	began, finished, left := c.LastTransitionTime.Time, 0, 0
	for i := range r.Nodes {
		switch r.Nodes[i].Step {
		case StepDone:
		case StepOutOfOrder:
			continue
		default:
			left++
			continue
		}
		if at := changedAt(f.records[r.Nodes[i].Name], mcfgv1.MachineConfigNodeUpdated); at != nil && !at.Time.Before(began) {
			finished++
		}
	}
	took := now.Sub(began)
	if finished == 0 || left == 0 || took <= 0 {
		return
	}
	ends := metav1.NewTime(now.Add(took / time.Duration(finished) * time.Duration(left)).Truncate(time.Second))
	r.Ends = &ends
}

// changedAt is since when a condition of a Node's record is as it is; nil: unknown.
func changedAt(record *mcfgv1.MachineConfigNode, kind mcfgv1.StateProgress) *metav1.Time {
	if c := recordCondition(record, kind); c != nil && !c.LastTransitionTime.IsZero() && c.Reason != "NotYetOccurred" {
		return c.LastTransitionTime.DeepCopy()
	}
	return nil
}

func recordCondition(record *mcfgv1.MachineConfigNode, kind mcfgv1.StateProgress) *metav1.Condition {
	if record == nil {
		return nil
	}
	return meta.FindStatusCondition(record.Status.Conditions, string(kind))
}

// nodeReport says where a node is on its way to the pool's goal.
func nodeReport(n *corev1.Node, record *mcfgv1.MachineConfigNode, goal string) PoolNodeReport {
	a := n.Annotations
	r := PoolNodeReport{Name: n.Name, State: a[node.State], Current: a[node.CurrentConfig], Desired: a[node.DesiredConfig]}
	asked := strings.HasPrefix(a[node.DesiredDrain], rollout.VerbDrain+"-") && a[node.DesiredDrain] != a[node.LastAppliedDrain]
	switch {
	case r.State == "" && r.Current == "":
		r.Step, r.WaitsFor = StepNoAgent, "its agent, which has not said anything yet"
	case a[node.PostConfigAction] == node.Rebooting:
		r.Step, r.WaitsFor, r.Since = StepRebooting, "its reboot", changedAt(record, mcfgv1.MachineConfigNodeUpdateRebooted)
	case asked && (r.State != node.Degraded || a[annoDrainStarted] != ""):
		r.draining(n)
	case r.State == node.Degraded || r.State == node.Unreconcilable:
		r.Step, r.WaitsFor, r.Since = StepBroken, a[node.Reason], changedAt(record, mcfgv1.MachineConfigNodeNodeDegraded)
	case r.State == node.Done && r.Current == r.Desired:
		r.resting(n, goal)
	default:
		r.working(a, record)
	}
	return r
}

// resting is a node that has what it was asked for.
func (r *PoolNodeReport) resting(n *corev1.Node, goal string) {
	r.Step = StepDone
	why := unavailable(n)
	switch {
	case r.Desired != goal:
		r.Step, r.WaitsFor = StepQueued, "its turn"
	case n.Spec.Unschedulable:
		r.Step, r.WaitsFor = StepOutOfOrder, "whoever cordoned it"
	case why != "":
		r.Step, r.WaitsFor = StepOutOfOrder, "its kubelet: "+why
	}
}

// working is a node whose agent is at work, beyond drain and reboot.
func (r *PoolNodeReport) working(a map[string]string, record *mcfgv1.MachineConfigNode) {
	wrote := changedAt(record, mcfgv1.MachineConfigNodeUpdateFilesAndOS)
	switch drain, answered := a[node.DesiredDrain], a[node.LastAppliedDrain]; {
	case drain != answered:
		r.Step, r.WaitsFor, r.Since = StepUncordon, "the controller's uncordon", wrote
	case strings.HasPrefix(drain, rollout.VerbDrain+"-"):
		r.Step, r.WaitsFor, r.Since = StepApplying, "its agent", wrote
	default:
		r.Step, r.WaitsFor, r.Since = StepPreparing, "its agent", changedAt(record, mcfgv1.MachineConfigNodeUpdated)
	}
}

func (r *PoolNodeReport) draining(n *corev1.Node) {
	r.Step, r.WaitsFor = StepDraining, "its pods to leave"
	if b := n.Annotations[annoDrainBlocked]; b != "" {
		r.WaitsFor = b
	}
	if at, err := time.Parse(time.RFC3339, n.Annotations[annoDrainStarted]); err == nil {
		t := metav1.NewTime(at)
		r.Since = &t
	}
}
