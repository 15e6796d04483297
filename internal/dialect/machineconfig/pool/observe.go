package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/engine/target"
	"millwright.io/millwright/internal/telemetry"
)

// picture is what was seen: the planner's input and the objects behind it. The
// objects are shared with the cache; nobody changes them.
type picture struct {
	in      rollout.Input
	pool    *machineconfigv1.MachineConfigPool
	nodes   map[string]*corev1.Node
	alerts  map[string]bool // Nodes of a custom pool that are masters, too
	expires []machineconfigv1.CertExpiry
	recheck time.Duration // look again for what nobody tells; 0: never
}

// observe reads a pool and what concerns it. It returns nil when there is no
// such pool.
func (c *controller) observe(ctx context.Context, r, live client.Reader, key types.NamespacedName, m *memory) (*picture, error) {
	var pool machineconfigv1.MachineConfigPool
	if err := r.Get(ctx, key, &pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	p := &picture{pool: &pool, nodes: map[string]*corev1.Node{}, alerts: map[string]bool{}}
	p.in = rollout.Input{Now: c.Clock.Now(), Pool: settingsOf(&pool)}
	var err error
	if p.in.Claims, err = budget.Decode(pool.Annotations[telemetry.AnnotationClaims]); err != nil {
		p.in.Claims = nil // it is counted anew from the Nodes
	}
	if p.in.Record, err = rollout.DecodeRecord(pool.Annotations[wire.AnnotationRolloutState]); err != nil {
		p.in.Record = rollout.Record{}
	}
	if err := c.observeCluster(ctx, r, p); err != nil {
		return nil, err
	}
	if err := c.observeNodes(ctx, r, p, m); err != nil {
		return nil, err
	}
	if p.in.Pool.Limit, err = budget.PoolMaxUnavailable(pool.Spec.MaxUnavailable, len(p.in.Nodes)); err != nil {
		p.in.Pool.LimitError = fmt.Sprintf("MachineConfigPool %s: spec.maxUnavailable: %v; a number or a percentage such as 10%%", pool.Name, err)
	}
	return p, c.observeLive(ctx, live, p, m)
}

// settingsOf reads what a pool itself says.
func settingsOf(pool *machineconfigv1.MachineConfigPool) rollout.Pool {
	a := pool.Annotations
	p := rollout.Pool{
		Name: pool.Name, Target: pool.Spec.Configuration.Name, Settled: pool.Status.Configuration.Name,
		Paused: pool.Spec.Paused, Deleting: pool.DeletionTimestamp != nil,
		SelectsAll:   pool.Spec.NodeSelector != nil && len(pool.Spec.NodeSelector.MatchLabels) == 0 && len(pool.Spec.NodeSelector.MatchExpressions) == 0,
		Original:     strings.EqualFold(a[wire.AnnotationSelfHeal], wire.SelfHealDisabled),
		ControlPlane: pool.Name == wire.PoolMaster || pool.Name == wire.PoolArbiter,
	}
	var errs []error
	var err error
	if p.Settings, err = rollout.ParseSettings(a[wire.AnnotationRollout]); err != nil {
		errs = append(errs, fmt.Errorf("MachineConfigPool %s: annotation %s: %w", pool.Name, wire.AnnotationRollout, err))
	}
	if p.Windows, err = rollout.ParseWindows(a[wire.AnnotationWindows]); err != nil {
		errs = append(errs, fmt.Errorf("MachineConfigPool %s: annotation %s: %w", pool.Name, wire.AnnotationWindows, err))
	}
	if err := errors.Join(errs...); err != nil {
		p.SettingsError = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if d := fragment.PoolCondition(pool, machineconfigv1.MachineConfigPoolRenderDegraded); d != nil && d.Status == corev1.ConditionTrue {
		p.RenderDegraded, p.RenderError = true, d.Message
	}
	return p
}

// observeCluster reads what the ControllerConfig says.
func (c *controller) observeCluster(ctx context.Context, r client.Reader, p *picture) error {
	cc, err := fragment.ControllerConfig(ctx, r)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if cc.Spec.Infra != nil {
		p.in.Pool.Topology = string(cc.Spec.Infra.Status.ControlPlaneTopology)
	}
	for _, cert := range cc.Status.ControllerCertificates {
		if cert.BundleFile != wire.BundleKubeAPIServer {
			continue
		}
		e := machineconfigv1.CertExpiry{Bundle: cert.BundleFile, Subject: cert.Subject}
		if cert.NotAfter != nil {
			e.Expiry = cert.NotAfter
			if t := cert.NotAfter.Time; p.in.Pool.Expires.IsZero() || t.Before(p.in.Pool.Expires) {
				p.in.Pool.Expires = t
			}
		}
		p.expires = append(p.expires, e)
	}
	return nil
}

// observeNodes finds the pool's Nodes, those that are nobody's, and the other
// members of the control plane.
func (c *controller) observeNodes(ctx context.Context, r client.Reader, p *picture, m *memory) error {
	var pools machineconfigv1.MachineConfigPoolList
	if err := r.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	members, matcher := membership(pools.Items)
	records, err := failures(ctx, r)
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	p.in.Content = map[string]string{}
	p.content(p.in.Pool.Target)
	p.content(p.in.Record.Good)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		primary, err := members.Primary(n.Labels)
		switch {
		case err != nil:
			if custom := matcher.custom(n.Labels); slices.Contains(custom, p.pool.Name) {
				p.in.Strays = append(p.in.Strays, rollout.Stray{Node: n.Name, Pools: custom})
			}
			continue
		case primary != p.pool.Name:
			p.peer(n, primary, pools.Items)
			continue
		}
		p.nodes[n.Name] = n
		f := facts(n, m)
		f.Detail = records[n.Name]
		f.Join = matcher.join(n)
		if f.Topology == "" && p.in.Pool.Topology == string(configv1.HighlyAvailableTopologyMode) {
			f.Topology = p.in.Pool.Topology // what agents assume need not be written
		}
		p.content(f.Current)
		p.in.Nodes = append(p.in.Nodes, f)
		if primary == wire.PoolMaster {
			p.alerts[n.Name] = len(matcher.custom(n.Labels)) > 0
		}
	}
	slices.Sort(p.in.Pool.Peers)
	return nil
}

// content notes what a rendered config holds: the end of its name is a hash of
// that and of nothing else.
func (p *picture) content(name string) {
	const digits = 32
	if i := strings.LastIndexByte(name, '-'); strings.HasPrefix(name, "rendered-") && len(name)-i-1 == digits {
		p.in.Content[name] = name[i+1:]
	}
}

// peer notes a member of the control plane's other pool that has to come first
// or is out of service. Masters come before arbiters, unless they are paused.
func (p *picture) peer(n *corev1.Node, primary string, pools []machineconfigv1.MachineConfigPool) {
	if !p.in.Pool.ControlPlane || primary != wire.PoolMaster && primary != wire.PoolArbiter {
		return
	}
	switch {
	case n.Spec.Unschedulable || rollout.NotReady(n) != "":
		p.in.Pool.Peers = append(p.in.Pool.Peers, n.Name+" (out of service)")
	case n.Annotations[wire.AnnotationCurrentConfig] != n.Annotations[wire.AnnotationDesiredConfig]:
		p.in.Pool.Peers = append(p.in.Pool.Peers, n.Name+" (updating)")
	case primary == wire.PoolMaster:
		for i := range pools {
			o := &pools[i]
			if o.Name == primary && !o.Spec.Paused && o.Spec.Configuration.Name != n.Annotations[wire.AnnotationDesiredConfig] {
				p.in.Pool.Peers = append(p.in.Pool.Peers, n.Name+" (comes first)")
			}
		}
	}
}

// facts reduces a Node to what its rollout depends on.
func facts(n *corev1.Node, m *memory) rollout.Node {
	a := n.Annotations
	return rollout.Node{
		Name: n.Name, Zone: n.Labels[corev1.LabelTopologyZone], Created: n.CreationTimestamp.Time, Labels: n.Labels,
		Down: rollout.NotReady(n), Cordoned: n.Spec.Unschedulable,
		Ours:    n.Spec.Unschedulable && rollout.OwnCordon(a[telemetry.AnnotationCordonedBy], a[wire.AnnotationLastAppliedDrain]),
		Current: a[wire.AnnotationCurrentConfig], Desired: m.desired(n, a[wire.AnnotationDesiredConfig]),
		CurrentImage: a[wire.AnnotationCurrentImage], DesiredImage: a[wire.AnnotationDesiredImage],
		State: a[wire.AnnotationState], Reason: a[wire.AnnotationReason], Topology: a[wire.AnnotationTopology],
	}
}

// failures are what the records of nodes say about theirs, by node.
func failures(ctx context.Context, r client.Reader) (map[string]string, error) {
	var list machineconfigv1.MachineConfigNodeList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list machine config nodes: %w", err)
	}
	out := map[string]string{}
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			if c.Type == string(machineconfigv1.MachineConfigNodeNodeDegraded) && c.Status == metav1.ConditionTrue {
				out[list.Items[i].Name] = c.Message
			}
		}
	}
	return out, nil
}

// selectors are the node selectors of custom pools, by name.
type selectors map[string]customPool

type customPool struct {
	match  labels.Selector
	labels map[string]string // what a node needs to be selected; nil: unclear
}

func membership(pools []machineconfigv1.MachineConfigPool) (target.Members, selectors) {
	all := map[string]*metav1.LabelSelector{}
	custom := selectors{}
	for i := range pools {
		p := &pools[i]
		all[p.Name] = p.Spec.NodeSelector
		if p.Name == wire.PoolMaster || p.Name == wire.PoolWorker {
			continue
		}
		if s, err := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector); err == nil && !s.Empty() {
			custom[p.Name] = customPool{match: s, labels: labelsFor(p.Spec.NodeSelector)}
		}
	}
	return target.NewMembers(all), custom
}

// custom names the custom pools that select these labels, sorted.
func (s selectors) custom(set map[string]string) []string {
	var out []string
	for name, p := range s {
		if p.match.Matches(labels.Set(set)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// join returns the labels of the custom pool as which a Node first booted, if
// it never got them.
func (s selectors) join(n *corev1.Node) map[string]string {
	first := n.Annotations[wire.AnnotationFirstPivotConfig]
	if _, done := n.Annotations[wire.AnnotationLabelsApplied]; first == "" || done {
		return nil
	}
	for name, p := range s {
		if rest, ok := strings.CutPrefix(first, "rendered-"+name+"-"); !ok || strings.Contains(rest, "-") {
			continue
		}
		out := map[string]string{}
		for k, v := range p.labels {
			if have, ok := n.Labels[k]; !ok || have != v {
				out[k] = v
			}
		}
		return out
	}
	return nil
}

// labelsFor returns labels that a selector selects, as far as it names some.
func labelsFor(s *metav1.LabelSelector) map[string]string {
	out := map[string]string{}
	for k, v := range s.MatchLabels {
		out[k] = v
	}
	for _, e := range s.MatchExpressions {
		switch {
		case e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1:
			out[e.Key] = e.Values[0]
		case e.Operator == metav1.LabelSelectorOpExists:
			out[e.Key] = ""
		}
	}
	return out
}
