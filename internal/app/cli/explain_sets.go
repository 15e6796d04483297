package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/dialect/machineapi/admission"
	"millwright.io/millwright/internal/dialect/machineapi/controlplane"
	"millwright.io/millwright/internal/dialect/machineapi/healthcheck"
	"millwright.io/millwright/internal/dialect/machineapi/machineset"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	enginecp "millwright.io/millwright/internal/engine/controlplane"
	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/engine/health"
	"millwright.io/millwright/internal/engine/plan"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
)

func explainMachineSet(ctx context.Context, in cli.ExplainInput) (cli.Explanation, error) {
	var set machinev1beta1.MachineSet
	if err := in.Reader.Get(ctx, in.Key, &set); err != nil {
		return cli.Explanation{}, err
	}
	s, err := newScene(ctx, in, in.Key.Namespace)
	if err != nil {
		return cli.Explanation{}, err
	}
	e, err := s.set(ctx, &set)
	if err != nil {
		return e, err
	}
	told, err := in.Events(ctx, "MachineSet", &set)
	e.Evidence = append(e.Evidence, told...)
	return e, err
}

func (s *scene) set(ctx context.Context, set *machinev1beta1.MachineSet) (cli.Explanation, error) {
	edit := step("Change it:", "oc -n %s edit machineset %s", set.Namespace, set.Name)
	rivals, err := admission.Overlaps(ctx, s.api, set)
	if err != nil {
		return cli.Explanation{}, err
	}
	if len(rivals) > 0 {
		e := stuck("OverlappingSets", "Two sets own one population: each counts Machines of the other as its own, so they never agree on a number.")
		for _, p := range rivals {
			what, remedy, _ := strings.Cut(p.Detail, ": ")
			e.Evidence = append(e.Evidence, cli.Evidence{What: p.Field, Text: what})
			e.Next = append(e.Next, step(strings.ToUpper(remedy[:min(1, len(remedy))])+remedy[min(1, len(remedy)):]+" (a selector cannot be changed: make a new set and delete the old one):", edit.Command))
		}
		return e, nil
	}
	c := machineset.New(machineset.Deps{Client: s.api, Live: s.api, Clock: s.clk, Recorder: recorder(), Log: quietLog()})
	d, err := s.decide(ctx, c, client.ObjectKeyFromObject(set))
	if err != nil {
		return cli.Explanation{}, fmt.Errorf("ask the machineset controller: %w", err)
	}
	if trouble := planned(d.Conditions); len(trouble) > 0 {
		e := stuck("InvalidSet", "The set cannot be acted upon as it is written, so nothing of it changes.", edit)
		if c := conditionOf(d.Conditions, fleet.MembersMatch); c.Status == corev1.ConditionFalse {
			e.Cause, e.Why = c.Reason, "Machines that the set owns are outside its selector: somebody changed their labels. They count as its own, but are no replicas."
		}
		e.Evidence = trouble
		return e, nil
	}
	st, _ := d.Status.(fleet.Status)
	return s.members(ctx, set, st)
}

// members explains a set by those of its Machines that are not running.
func (s *scene) members(ctx context.Context, set *machinev1beta1.MachineSet, st fleet.Status) (cli.Explanation, error) {
	var list machinev1beta1.MachineList
	if err := s.api.List(ctx, &list, client.InNamespace(set.Namespace)); err != nil {
		return cli.Explanation{}, fmt.Errorf("list machines: %w", err)
	}
	found := map[string]*tally{}
	var order []string
	on := 0
	for i := range list.Items {
		m := &list.Items[i]
		if setOf(m) != set.Name {
			continue
		}
		e, err := s.machine(ctx, m)
		if err != nil {
			return e, err
		}
		e.Evidence = append(conditionsOf(m.Status.Conditions), e.Evidence...)
		switch e.State {
		case cli.StateProgressing:
			on++
		case cli.StateStuck:
			if found[e.Cause] == nil {
				found[e.Cause] = &tally{first: m.Name, e: e}
				order = append(order, e.Cause)
			}
			found[e.Cause].n++
		case cli.StateFine:
		}
	}
	numbers := fmt.Sprintf("%d of %d Machines are ready", st.Ready, st.Want)
	switch {
	case len(order) > 0:
		return explainTallies(found, order, numbers), nil
	case st.Creating+st.Deleting > 0 && set.Status.ObservedGeneration < set.Generation:
		return stuck("NotSeen", numbers+", and nothing has looked at the set since it was changed: its controller does not run.",
			step("See whether the controller runs, and what it says:", "oc -n %s logs deployment/machine-api-controllers -c machineset-controller --tail=50", wire.Namespace)), nil
	case on > 0 || st.Creating+st.Deleting > 0:
		return progressing(numbers + "; the others are on their way."), nil
	case st.Ready < st.Want:
		return progressing(numbers + "."), nil
	}
	return fine(numbers + "."), nil
}

// tally is one cause of trouble among a set's Machines.
type tally struct {
	n     int
	first string
	e     cli.Explanation
}

func explainTallies(found map[string]*tally, order []string, numbers string) cli.Explanation {
	first := found[order[0]]
	e := stuck(order[0], numbers+". "+fmt.Sprintf("%d stuck for one cause (%s, e.g. %s): ", first.n, order[0], first.first)+first.e.Why, first.e.Next...)
	for _, cause := range order {
		t := found[cause]
		e.Evidence = append(e.Evidence, cli.Evidence{What: fmt.Sprintf("%d of the Machines: %s, e.g. %s", t.n, cause, t.first), Text: t.e.Why})
	}
	e.Evidence = append(e.Evidence, first.e.Evidence...)
	e.Next = append(e.Next, step("Look at one of the Machines:", "millwright explain machine/%s", first.first))
	return e
}

func explainHealthCheck(ctx context.Context, in cli.ExplainInput) (cli.Explanation, error) {
	var mhc machinev1beta1.MachineHealthCheck
	if err := in.Reader.Get(ctx, in.Key, &mhc); err != nil {
		return cli.Explanation{}, err
	}
	s, err := newScene(ctx, in, in.Key.Namespace)
	if err != nil {
		return cli.Explanation{}, err
	}
	var e cli.Explanation
	if _, paused := mhc.Annotations[wire.AnnotationPaused]; paused {
		e = stuck("Paused", "The check is paused by an annotation: nothing is repaired.",
			step("Let it go on:", "oc -n %s annotate mhc %s %s-", mhc.Namespace, mhc.Name, wire.AnnotationPaused))
	} else if e, err = s.check(ctx, &mhc); err != nil {
		return e, err
	}
	told, err := in.Events(ctx, "MachineHealthCheck", &mhc)
	e.Evidence = append(append(e.Evidence, conditionsOf(mhc.Status.Conditions)...), told...)
	return e, err
}

func (s *scene) check(ctx context.Context, mhc *machinev1beta1.MachineHealthCheck) (cli.Explanation, error) {
	c := healthcheck.New(healthcheck.Deps{Client: s.api, Live: s.Reader, Clock: s.clk, Log: quietLog()})
	d, err := s.decide(ctx, c, client.ObjectKeyFromObject(mhc))
	if err != nil {
		return cli.Explanation{}, fmt.Errorf("ask the health check controller: %w", err)
	}
	st, ok := d.Status.(health.Status)
	if !ok {
		return progressing("The check is being deleted."), nil
	}
	numbers := fmt.Sprintf("%d of %d Machines are healthy, and at most %d may be unhealthy", st.Healthy, st.Expected, st.Max)
	machines := step("Look at the unhealthy Machines, and mend or delete them by hand:", "oc -n %s get machines -l %q", mhc.Namespace, metav1.FormatLabelSelector(&mhc.Spec.Selector))
	var e cli.Explanation
	switch {
	case len(st.Frozen) > 0:
		e = stuck("Frozen", numbers+". Nodes fell silent together, so that the observer is more likely to be blind than all of them dead: repair is held back, and goes on by itself when half of them report again.",
			step("See whether the control plane reaches the nodes' network, then the nodes:", "oc get nodes"))
		for _, g := range st.Frozen {
			e.Evidence = append(e.Evidence, cli.Evidence{What: "freeze", Text: g.String(), Since: cli.Since(g.Since)})
		}
	case st.Short:
		e = stuck("ShortCircuit", numbers+": too many are unhealthy (or have not started) for any to be repaired. It goes on by itself when enough of them recover.", machines,
			step("Or allow more:", "oc -n %s edit mhc %s", mhc.Namespace, mhc.Name))
	case conditionOf(d.Conditions, health.TemplateAvailable).Status == corev1.ConditionFalse:
		e = stuck("NoTemplate", numbers+". Its remediation template cannot be read, so nothing is repaired.", step("See what the check refers to:", "oc -n %s get mhc %s -o jsonpath={.spec.remediationTemplate}", mhc.Namespace, mhc.Name))
	case len(st.Unhealthy) > 0 && len(d.Actions) == 0:
		e = stuck("NoOwner", numbers+". Unhealthy ones are not repaired: no set owns them and nothing would replace them, or their repair is asked for already.", machines)
	case len(st.Unhealthy) > 0:
		e = progressing(numbers + ". Unhealthy ones are being repaired.")
	case st.Healthy < st.Expected:
		e = progressing(numbers + ". The others are starting, or have not been unhealthy for long enough.")
	default:
		e = fine(numbers + ".")
	}
	for _, name := range st.Unhealthy {
		e.Evidence = append(e.Evidence, cli.Evidence{What: "unhealthy machine " + name})
	}
	for _, a := range d.Actions {
		e.Evidence = append(e.Evidence, cli.Evidence{What: "next", Text: a.String()})
	}
	return e, nil
}

func explainControlPlane(ctx context.Context, in cli.ExplainInput) (cli.Explanation, error) {
	var set machinev1.ControlPlaneMachineSet
	if err := in.Reader.Get(ctx, in.Key, &set); err != nil {
		return cli.Explanation{}, err
	}
	s, err := newScene(ctx, in, in.Key.Namespace)
	if err != nil {
		return cli.Explanation{}, err
	}
	c := controlplane.New(controlplane.Deps{Client: s.api, Live: s.api, Codec: azurespec.Codec{}, Clock: s.clk, Log: quietLog()})[0]
	d, err := s.decide(ctx, c, in.Key)
	if err != nil {
		return cli.Explanation{}, fmt.Errorf("ask the control plane machine set controller: %w", err)
	}
	e := controlPlane(&set, d)
	for _, c := range set.Status.Conditions {
		good := metav1.ConditionFalse
		if c.Type == enginecp.Available {
			good = metav1.ConditionTrue
		}
		if c.Status != good {
			e.Evidence = append(e.Evidence, cli.ConditionEvidence(c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time))
		}
	}
	told, err := in.Events(ctx, "ControlPlaneMachineSet", &set)
	e.Evidence = append(e.Evidence, told...)
	return e, err
}

// controlPlane words what the controller of a ControlPlaneMachineSet decided.
func controlPlane(set *machinev1.ControlPlaneMachineSet, d plan.Erased) cli.Explanation {
	st, _ := d.Status.(enginecp.Status)
	numbers := fmt.Sprintf("%d of %d control plane Machines are ready, %d of them as the template wants them", st.Ready, ptr.Deref(set.Spec.Replicas, 0), st.Updated)
	show := step("Look at the control plane Machines:", "oc -n %s get machines -l %s=%s", set.Namespace, wire.LabelMachineRole, wire.RoleMaster)
	var e cli.Explanation
	bad := conditionOf(d.Conditions, enginecp.Degraded)
	old := conditionOf(d.Conditions, enginecp.Progressing)
	switch {
	case bad.Status == corev1.ConditionTrue:
		e = stuck(bad.Reason, numbers+". Nothing is replaced: "+bad.Message+".", show)
	case set.Spec.State != machinev1.ControlPlaneMachineSetStateActive:
		e = fine(numbers + ". The set is inactive: it only counts.")
		if len(st.Outdated) > 0 {
			e.Next = []cli.NextStep{step("To have outdated Machines replaced, one after the other:", "oc -n %s patch controlplanemachineset %s --type=merge -p '{\"spec\":{\"state\":\"Active\"}}'", set.Namespace, set.Name)}
		}
	case st.Waits != "" && set.Spec.Strategy.Type == machinev1.OnDelete && len(st.Outdated) > 0 && len(d.Actions) == 0:
		e = stuck("OnDelete", numbers+". With strategy OnDelete, outdated Machines stay until somebody deletes them: "+st.Waits+".", show)
	case old.Status == corev1.ConditionTrue:
		e = progressing(strings.TrimSuffix(numbers+". "+old.Message+". "+st.Waits, " "))
	case conditionOf(d.Conditions, enginecp.Available).Status == corev1.ConditionFalse:
		e = stuck(enginecp.ReasonUnavailableReplicas, numbers+".", show)
	default:
		e = fine(numbers + ".")
	}
	for _, name := range sortedNames(st.Outdated) {
		e.Evidence = append(e.Evidence, cli.Evidence{What: "outdated machine " + name, Text: st.Outdated[name]})
	}
	if bad.Status == corev1.ConditionTrue {
		e.Evidence = append(e.Evidence, cli.ConditionEvidence(bad.Type, string(bad.Status), bad.Reason, bad.Message, time.Time{}))
	}
	return e
}
