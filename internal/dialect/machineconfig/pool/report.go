package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/rollout"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/telemetry"
)

// annotate puts the account and the state of the waves onto a pool.
func annotate(pool *machineconfigv1.MachineConfigPool, s rollout.Status) {
	set := func(key, value string) {
		if value == "" {
			delete(pool.Annotations, key)
			return
		}
		if pool.Annotations == nil {
			pool.Annotations = map[string]string{}
		}
		pool.Annotations[key] = value
	}
	set(telemetry.AnnotationClaims, budget.Encode(s.Claims))
	set(wire.AnnotationRolloutState, s.Record.Encode())
}

// binding says how a rollout's actions look on Nodes.
func (p *picture) binding(m *memory) act.Binding {
	return act.Binding{
		Target: func(a plan.ObjectAction) client.Object {
			if s, ok := a.(plan.SetDesiredConfig); ok && p.nodes[s.Node] != nil {
				return p.nodes[s.Node]
			}
			return nil
		},
		Apply: func(obj client.Object, a plan.ObjectAction) error {
			s, ok := a.(plan.SetDesiredConfig)
			if !ok {
				return fmt.Errorf("a rollout changes nothing for %s", a)
			}
			n, ok := obj.(*corev1.Node)
			if !ok {
				return errNoNode
			}
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[wire.AnnotationDesiredConfig] = s.Config
			delete(n.Annotations, wire.AnnotationDesiredImage)
			n.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool {
				return t.Key == wire.TaintUpdateInProgress // the original's, which nobody else takes away
			})
			m.note(n, s.Config)
			return nil
		},
	}
}

// note remembers that a Node was sent a target, until the cache shows it.
func (m *memory) note(n *corev1.Node, config string) {
	m.sending.Lock()
	defer m.sending.Unlock()
	m.sent[n.Name] = sent{config, n}
}

// tell records what users see happen.
func (c *controller) tell(p *picture, m *memory, d plan.Decision[rollout.Status]) {
	var evs []plan.Event
	for _, e := range d.Events {
		switch e.Reason {
		case rollout.ReasonSelectingAll:
			if !m.once(e.Reason, true) {
				continue
			}
		case rollout.ReasonCompleted:
			continue // when the status says so
		}
		evs = append(evs, e)
	}
	m.once(rollout.ReasonSelectingAll, p.in.Pool.SelectsAll)
	for _, cond := range d.Conditions {
		if cond.Type == rollout.ConditionDrainBlocked && m.once(cond.Type+cond.Message, cond.Status == corev1.ConditionTrue) {
			evs = append(evs, plan.Event{Type: plan.Warning, Reason: wire.ReasonDrainForecast, Message: "Drains will wait: " + cond.Message})
		}
	}
	if p.pool.Name == wire.PoolMaster {
		evs = append(evs, m.changes(p)...)
	}
	kube.RecordEvents(c.Recorder, fragment.Involved(p.pool), evs)
}

// changes are the events about annotations of control plane Nodes.
func (m *memory) changes(p *picture) []plan.Event {
	keys := []string{wire.AnnotationCurrentConfig, wire.AnnotationDesiredConfig, wire.AnnotationCurrentImage, wire.AnnotationDesiredImage, wire.AnnotationState, wire.AnnotationReason}
	var evs []plan.Event
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		now := map[string]string{}
		for _, k := range keys {
			if v, ok := p.nodes[name].Annotations[k]; ok {
				now[k] = v
			}
		}
		old, known := m.seen[name]
		m.seen[name] = now
		if !known {
			continue
		}
		for _, k := range keys {
			v, there := now[k]
			if was, had := old[k]; was != v || had != there {
				evs = append(evs, plan.Event{Type: plan.Normal, Reason: wire.ReasonAnnotationChange, Message: wire.TextAnnotation(name, k, v, there)})
			}
		}
	}
	return evs
}

// report writes what the pool is told, unless it says all of this already. The
// result is when to look again.
func (c *controller) report(ctx context.Context, pool *machineconfigv1.MachineConfigPool, p *picture, m *memory, d plan.Decision[rollout.Status]) (time.Duration, error) {
	s, after := d.Status, c.status(pool, p, d)
	measure(p, s)
	before := pool
	if pool.Status.ObservedGeneration == 0 {
		before = unset(pool) // so that zeros are written, too, and columns show them
	}
	err := kube.PatchStatus(ctx, c.Client, before, after, kube.OptimisticLock())
	switch {
	case apierrors.IsConflict(err):
		return fragment.CacheLag, nil // somebody else was first
	case err != nil:
		return 0, fmt.Errorf("write status: %w", err)
	}
	if after.ResourceVersion != pool.ResourceVersion {
		c.recent.Wrote(after)
		m.wrote = c.Clock.Now()
	}
	if s.Settled && pool.Status.Configuration.Name != after.Status.Configuration.Name {
		kube.LogNotes(c.Log, d.Notes)
		for _, e := range d.Events {
			if e.Reason == rollout.ReasonCompleted {
				kube.RecordEvents(c.Recorder, fragment.Involved(pool), []plan.Event{e})
			}
		}
	}
	return 0, nil
}

// status returns the pool as it should be.
func (c *controller) status(pool *machineconfigv1.MachineConfigPool, p *picture, d plan.Decision[rollout.Status]) *machineconfigv1.MachineConfigPool {
	after := pool.DeepCopy()
	s, st := d.Status, &after.Status
	st.ObservedGeneration = pool.Generation
	st.MachineCount, st.ReadyMachineCount, st.UpdatedMachineCount = count(s.Machines), count(s.Ready), count(s.Updated)
	st.UnavailableMachineCount, st.DegradedMachineCount = count(s.Unavailable), count(s.Degraded)
	if len(p.expires) > 0 || len(st.CertExpirys) > 0 {
		st.CertExpirys = p.expires
	}
	if s.Settled {
		st.Configuration = machineconfigv1.MachineConfigPoolStatusConfiguration(*pool.Spec.Configuration.DeepCopy())
	}
	for _, o := range d.Conditions {
		if ours(o.Type) && o.Status == corev1.ConditionFalse && fragment.PoolCondition(pool, machineconfigv1.MachineConfigPoolConditionType(o.Type)) == nil {
			continue // ours are told when there is something to tell
		}
		st.Conditions = fragment.WithPoolCondition(st.Conditions, o, c.Clock.Now())
	}
	return after
}

// unset returns a pool whose counters differ from any that can be.
func unset(pool *machineconfigv1.MachineConfigPool) *machineconfigv1.MachineConfigPool {
	out := pool.DeepCopy()
	s := &out.Status
	s.MachineCount, s.ReadyMachineCount, s.UpdatedMachineCount, s.UnavailableMachineCount, s.DegradedMachineCount = -1, -1, -1, -1, -1
	return out
}

// ours are conditions that the original does not have.
func ours(kind string) bool {
	return kind == rollout.ConditionWaiting || kind == rollout.ConditionNodesUnassigned || kind == rollout.ConditionDrainBlocked
}

func count(n int) int32 { return int32(min(n, 1<<30)) }
