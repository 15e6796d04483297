package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/journal"
)

// apply plans a change and hands it to the journal.
func (a *Agent) apply(ctx context.Context, s *situation, c node.Change) (time.Duration, error) {
	a.stopGuard()
	planned, err := a.plan(ctx, s, c)
	if err != nil {
		return 0, err
	}
	if len(planned.Refused) > 0 {
		if err := a.taken(ctx, s); err != nil {
			return 0, err
		}
		return time.Minute, a.fail(ctx, s, refusals(planned.Refused))
	}
	if planned.Reboot && !c.Drain {
		// The disk lacks something that only a reboot makes true.
		s.in.NeedsReboot = true
		d := node.Decide(s.in)
		if d.Action != node.Apply {
			return d.Wake, a.annotate(ctx, s, d.Set)
		}
	}
	if s.in.Force {
		if err := a.Host.Files().Remove(forcePath); err != nil {
			return 0, fmt.Errorf("remove %s: %w", forcePath, err)
		}
	}
	if c.From.Name == c.To.Name && planned.Reboot {
		if err := a.Host.Files().Replace(reappliedPath, []byte(c.To.Name+"\n"), host.Attr{Mode: 0o600}); err != nil {
			return 0, fmt.Errorf("write %s: %w", reappliedPath, err)
		}
	}
	if err := a.taken(ctx, s); err != nil {
		return 0, err
	}
	a.started(ctx, s, planned)
	out, err := a.journal.Run(ctx, changeOf(c), planned)
	if err != nil {
		return 0, err
	}
	return a.ended(ctx, s, planned, out)
}

// foresee plans a change for which the node is still to be emptied, and tells whether
// this host refuses it.
func (a *Agent) foresee(ctx context.Context, s *situation, c node.Change) (bool, error) {
	planned, err := a.plan(ctx, s, c)
	if err != nil || len(planned.Refused) == 0 {
		return false, err
	}
	if err := a.taken(ctx, s); err != nil {
		return true, err
	}
	return true, a.fail(ctx, s, refusals(planned.Refused))
}

// changeOf names a change for the journal.
func changeOf(c node.Change) journal.Change {
	return journal.Change{From: c.From.Name, To: c.To.Name}
}

func (a *Agent) plan(ctx context.Context, s *situation, c node.Change) (transition.Planned, error) {
	records, err := a.records(ctx, c.To.Name)
	if err != nil {
		return transition.Planned{}, err
	}
	in := transition.Input{
		Current: c.From.Spec, Desired: c.To.Spec, Actions: c.Actions, Records: records, Facts: s.facts, Force: c.Force,
	}
	refs, err := transition.Touches(in)
	if err != nil {
		return transition.Planned{}, fmt.Errorf("plan the change to %s: %w", c.To.Name, err)
	}
	if in.Live, in.Blobs, err = a.Host.Observe(ctx, refs); err != nil {
		return transition.Planned{}, fmt.Errorf("plan the change to %s: %w", c.To.Name, err)
	}
	planned, err := transition.Plan(in)
	if err != nil {
		return planned, fmt.Errorf("plan the change to %s: %w", c.To.Name, err)
	}
	for i := range planned.Steps {
		if planned.Steps[i].Kind == transition.KindReboot {
			planned.Steps[i].Cause = rebootReason(c.To.Name)
		}
	}
	return planned, nil
}

// refusals says all that this host cannot have.
func refusals(list []transition.Refusal) string {
	texts := make([]string, 0, len(list))
	for _, r := range list {
		texts = append(texts, r.Reason)
	}
	return strings.Join(texts, "; ")
}

// started tells what of the system is about to change.
func (a *Agent) started(ctx context.Context, s *situation, p transition.Planned) {
	var words []string
	for _, w := range []struct {
		kind transition.Kind
		text string
	}{
		{transition.KindImage, "Upgrading OS"}, {transition.KindExtensions, "Installing extensions"},
		{transition.KindKernelType, "Changing kernel type"}, {transition.KindKernelArguments, "Changing kernel arguments"},
	} {
		for _, step := range p.Steps {
			if step.Kind == w.kind {
				words = append(words, w.text)
				break
			}
		}
	}
	if len(words) > 0 {
		a.Cluster.Event(ctx, s.node, eventNormal, "OSUpdateStarted", strings.Join(words, "; "))
	}
}

// ended reports how the journal's run came out.
func (a *Agent) ended(ctx context.Context, s *situation, p transition.Planned, out journal.Outcome) (time.Duration, error) {
	switch out.Kind {
	case journal.Completed:
		a.Metrics.pivoted(p.Steps)
		a.served(ctx, s, p)
		return again, nil
	case journal.RebootPending:
		a.Metrics.pivoted(p.Steps)
		a.rebooting = true
		a.Log.Infof("%q", "reboot successful")
		return 0, nil
	case journal.RolledBack:
		a.failed = out.Cause
		if out.Step.Kind == transition.KindReload || out.Step.Kind == transition.KindRestart {
			reason := map[transition.Kind]string{transition.KindReload: "FailedServiceReload", transition.KindRestart: "FailedServiceRestart"}[out.Step.Kind]
			a.Cluster.Event(ctx, s.node, eventWarning, reason, out.Cause)
		}
		if out.Step.Kind == transition.KindReboot {
			a.Metrics.rebootFailed()
		}
		if out.Step.Kind == transition.KindImage {
			a.Metrics.pivotFailed()
		}
		return time.Minute, a.fail(ctx, s, out.Cause)
	case journal.Stuck:
		a.journal = nil // resume before anything else
		return time.Minute, a.fail(ctx, s, out.Cause)
	case journal.Idle:
	}
	return again, nil
}

// served tells which actions made a reboot needless.
func (a *Agent) served(ctx context.Context, s *situation, p transition.Planned) {
	acted, after := false, toldCondition{mcfgv1.MachineConfigNodeUpdatePostActionComplete, metav1.ConditionTrue, "None", "Changes do not require a reboot"}
	for _, step := range p.Steps {
		switch step.Kind {
		case transition.KindReload:
			a.Cluster.Event(ctx, s.node, eventNormal, "ServiceReload", fmt.Sprintf("Config changes do not require reboot. Service %s was reloaded.", step.Key))
			acted, after.reason, after.message = true, "UpdatePostActionComplete", "Node has reloaded service "+step.Key
		case transition.KindRestart:
			a.Cluster.Event(ctx, s.node, eventNormal, "ServiceRestart", fmt.Sprintf("Config changes do not require reboot. Service %s was restarted.", step.Key))
			acted = true
		default: // neither stops nor starts anything that users see
		}
	}
	if !acted {
		a.Cluster.Event(ctx, s.node, eventNormal, "SkipReboot", "Config changes do not require reboot.")
	}
	a.written(ctx, after)
}

// fail shows why a change did not happen.
func (a *Agent) fail(ctx context.Context, s *situation, reason string) error {
	state := node.Degraded
	reason = node.Cut(reason)
	if s.node.Annotations[node.State] == state && s.node.Annotations[node.Reason] == reason {
		a.told(s)
		return nil
	}
	if err := a.annotate(ctx, s, map[string]*string{node.State: &state, node.Reason: &reason}); err != nil {
		return err
	}
	a.told(s)
	a.Metrics.state(s.node.Annotations, nil)
	a.degradedCondition(ctx, s, reason)
	return nil
}

// rebootReason is what event, log and the unit that reboots the host say.
func rebootReason(config string) string { return "Node will reboot into config " + config }

// beforeReboot tells the cluster why the node will be away.
func (a *Agent) beforeReboot(ctx context.Context, c journal.Change) error {
	why := rebootReason(c.To)
	value := node.Rebooting
	n, err := a.Cluster.Annotate(ctx, map[string]*string{node.PostConfigAction: &value})
	if err != nil {
		return fmt.Errorf("tell of the reboot: %w", err)
	}
	if n != nil {
		a.node = n
		a.Cluster.Event(ctx, n, eventNormal, "Reboot", why)
	}
	a.written(ctx, toldCondition{mcfgv1.MachineConfigNodeUpdateRebooted, metav1.ConditionUnknown, "RebootedNode", "Upgrade requires a reboot."})
	a.Log.Infof("%q", "initiating reboot: "+why)
	return nil
}
