package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/engine/transition"
)

// planner is one decision in the making.
type planner struct {
	in Input
	d  Decision
	// current is what the disk has; unknown says that only its name is known, or
	// not even that.
	current Config
	unknown bool
	// recovering says that a person asked for another try.
	recovering bool
}

// Decide returns what the agent does now. Decisions with Fetch or Check are
// questions: they come again, with the answer in the input, until none is left.
func Decide(in Input) Decision {
	p := &planner{in: in}
	p.asked()
	p.decide()
	if p.d.Fetch != "" || p.d.Check != "" {
		return Decision{Fetch: p.d.Fetch, Check: p.d.Check}
	}
	return p.d
}

func (p *planner) decide() {
	if p.in.Bootstrap != nil && p.in.Disk == nil {
		p.bootstrap()
		return
	}
	if p.adopt() || !p.findCurrent() {
		return
	}
	name := p.in.Annotations[DesiredConfig]
	if name == "" {
		p.wait(drainWake) // the controller names one as soon as it sees the node
		return
	}
	p.greet(name)
	desired, ok := p.config(name)
	if !ok {
		return
	}
	switch {
	case p.in.Force:
		p.note("Skipping on-disk validation; /run/machine-config-daemon-force present")
		p.apply(desired, true)
	case p.current.Name == name && !p.unknown:
		p.stay(desired)
	default:
		p.move(desired)
	}
}

// greet says at the start what the original's log says.
func (p *planner) greet(desired string) {
	if !p.in.Booting {
		return
	}
	current := p.in.Annotations[CurrentConfig]
	state := p.in.Annotations[State]
	if state == "" {
		state = Done
	}
	p.line("Current config: %s", current)
	p.line("Desired config: %s", desired)
	p.line("state: %s", state)
	if current != "" && p.in.Disk != nil && p.in.Disk.Name != current {
		p.note(fmt.Sprintf("Disk currentConfig %q overrides node's currentConfig annotation %q", p.in.Disk.Name, current))
	}
	if p.in.Annotations[PostConfigAction] == Rebooting {
		p.set(PostConfigAction, "")
	}
	p.line("Validating against current config %s", p.current.Name)
}

// findCurrent decides which config the disk has, and asks for it where only its name
// is known. false: the decision is made.
func (p *planner) findCurrent() bool {
	anno := p.in.Annotations[CurrentConfig]
	if p.in.DiskError != "" {
		if !p.in.SelfHeal {
			p.degrade(p.in.DiskError, "")
			return false
		}
		p.note(fmt.Sprintf("Cannot read the disk's currentConfig: %s; going by what the disk holds", p.in.DiskError))
	}
	if p.in.Disk != nil {
		p.current = *p.in.Disk
		if anno == "" {
			p.set(CurrentConfig, p.current.Name)
		}
		return true
	}
	if anno == "" {
		if !p.in.SelfHeal {
			p.degrade(fmt.Sprintf("%s annotation not found on node '%s'", CurrentConfig, p.in.Node), "")
			return false
		}
		p.unknown = true
		return true
	}
	c, ok := p.in.Known[anno]
	switch {
	case !ok:
		p.d.Fetch = anno
		return false
	case c != nil:
		p.current = *c
	case !p.in.SelfHeal:
		p.degrade(notFound(anno), "")
		return false
	default:
		p.current.Name, p.unknown = anno, true
	}
	return true
}

func notFound(name string) string {
	return fmt.Sprintf("machineconfig.machineconfiguration.openshift.io %q not found", name)
}

// config returns a config of the cluster; false: it is asked for, or missing.
func (p *planner) config(name string) (Config, bool) {
	if name == p.current.Name && !p.unknown {
		return p.current, true
	}
	c, ok := p.in.Known[name]
	if !ok {
		p.d.Fetch = name
		return Config{}, false
	}
	if c == nil {
		p.degrade(notFound(name), "")
		return Config{}, false
	}
	return *c, true
}

// differences is how the disk differs from a config; false: it is asked for.
func (p *planner) differences(name string) ([]transition.Difference, bool) {
	list, ok := p.in.Checked[name]
	if !ok {
		p.d.Check = name
	}
	return list, ok
}

// bootstrap takes over what a first boot left: the disk has the config that the
// annotations file names, as soon as the cluster has it too.
func (p *planner) bootstrap() {
	name := p.in.Bootstrap[CurrentConfig]
	for _, key := range []string{CurrentConfig, DesiredConfig, State, prefix + "firstPivotConfig"} {
		if _, ok := p.in.Annotations[key]; !ok && p.in.Bootstrap[key] != "" {
			p.set(key, p.in.Bootstrap[key])
		}
	}
	c, ok := p.in.Known[name]
	if !ok {
		p.d.Fetch = name
		return
	}
	if c == nil {
		p.firstConfigGone(name)
		return
	}
	list, ok := p.differences(name)
	if !ok {
		return
	}
	p.current = *c
	if len(list) > 0 && !p.in.SelfHeal {
		p.broken(list, name)
		return
	}
	// What differs is written when the config is known to be the disk's.
	p.d.Action, p.d.Change = Adopt, Change{To: *c}
}

// firstConfigGone is a node that booted into a config which the cluster does not
// have: it takes the one it should have. While nobody names another, the cluster may
// only be younger than the node.
func (p *planner) firstConfigGone(name string) {
	desired := p.in.Annotations[DesiredConfig]
	if desired == "" || desired == name {
		p.line("Waiting for MachineConfig %s, which this node booted into", name)
		p.wait(youngWake)
		return
	}
	if !p.in.SelfHeal {
		p.degrade(fmt.Sprintf("bootstrap generated MC %s does not match in-cluster MC generated by the controller", name), "")
		return
	}
	c, ok := p.config(desired)
	if !ok {
		return
	}
	p.current, p.unknown = Config{Name: name}, true
	p.move(c)
}

// stay is a node whose disk says that it has the desired config.
func (p *planner) stay(desired Config) {
	state := p.in.Annotations[State]
	settled := state == Done && p.in.Annotations[CurrentConfig] == desired.Name
	if settled && !p.in.Booting && !p.in.Drift() && !p.recovering {
		p.d.Settled, p.d.Watch = true, desired.Name
		return
	}
	list, ok := p.differences(desired.Name)
	if !ok {
		return
	}
	if len(list) == 0 {
		if p.recovering && p.in.Disk == nil {
			p.d.Action, p.d.Change = Adopt, Change{To: desired} // the disk's record is mended
			return
		}
		if p.in.Booting {
			p.note("Validated on-disk state")
		}
		p.settle(desired.Name)
		return
	}
	p.d.Watch = desired.Name
	if !p.heal(desired, list) {
		p.broken(list, desired.Name)
	}
}

// Drift tells that the disk was compared though nothing else asked for it.
func (in Input) Drift() bool {
	list, ok := in.Checked[in.Annotations[DesiredConfig]]
	return ok && len(list) > 0
}

// heal mends a disk that lacks what its config says, where that can help.
func (p *planner) heal(desired Config, list []transition.Difference) bool {
	if p.in.SelfHeal && !p.in.Reapplied && all(list, render.KindOSImage, render.KindKernelArgument) {
		// What a boot should have made true: it is staged once more.
		p.apply(desired, true)
		return true
	}
	if p.in.Repair && all(list, render.KindFile, render.KindUnit, render.KindDropin) && p.in.Failures == 0 {
		p.d.Action = Apply
		p.d.Change = Change{From: desired, To: desired, Force: true, Actions: []disruption.Action{{Kind: disruption.None}}, Drained: true}
		return true
	}
	if p.recovering {
		p.apply(desired, true)
		return true
	}
	return false
}

func all(list []transition.Difference, kinds ...string) bool {
	return !slices.ContainsFunc(list, func(d transition.Difference) bool { return !slices.Contains(kinds, d.Kind) })
}

// broken says how the disk differs: all items, the original's one first.
func (p *planner) broken(list []transition.Difference, name string) {
	p.d.Differences = list
	texts := make([]string, 0, len(list))
	for _, d := range list {
		texts = append(texts, d.Reason)
	}
	text := strings.Join(texts, "; ")
	switch {
	case p.in.Booting:
		p.degrade(validating(name, text), "OnDiskStateValidationFailed")
	case p.in.Annotations[State] == Done:
		p.degrade(text, "ConfigDriftDetected")
	default:
		p.degrade(validating(name, text), "PreflightConfigDriftCheckFailed")
	}
}

func validating(name, text string) string {
	return fmt.Sprintf("unexpected on-disk state validating against %s: %s", name, text)
}

// move is a node that has to take another config.
func (p *planner) move(desired Config) {
	if p.in.Booting {
		p.event(plan.Normal, "BootResync", fmt.Sprintf("Booting node %s, currentConfig %s, desiredConfig %s", p.in.Node, p.current.Name, desired.Name))
	}
	if p.unknown {
		p.moveUnknown(desired)
		return
	}
	list, ok := p.differences(p.current.Name)
	if !ok {
		return
	}
	if len(list) > 0 && !p.in.SelfHeal {
		p.broken(list, p.current.Name)
		return
	}
	p.apply(desired, len(list) > 0)
}

// moveUnknown is a disk that nobody knows the config of: if it already is as it
// should be, it is taken as it is.
func (p *planner) moveUnknown(desired Config) {
	list, ok := p.differences(desired.Name)
	if !ok {
		return
	}
	if len(list) == 0 {
		p.d.Action, p.d.Change = Adopt, Change{To: desired}
		return
	}
	p.apply(desired, true)
}

// apply leads to taking a config: possible at all, not in vain, the node emptied.
func (p *planner) apply(to Config, force bool) {
	from := p.current
	if reason := p.refused(from, to); reason != "" {
		p.unreconcilable(from.Name, to.Name, reason)
		return
	}
	if p.in.Failures >= maxTries && !p.in.Force {
		p.degrade(p.in.Failed, "")
		return
	}
	c, err := p.change(from, to, force)
	if err != nil {
		p.degrade(err.Error(), "")
		return
	}
	p.d.Change = c
	p.work()
	if c.Drain && !c.Drained {
		p.drain(to.Name)
		return
	}
	p.d.Action = Apply
}

// refused is why this host can never take the config, in the original's words.
func (p *planner) refused(from, to Config) string {
	if p.in.Facts.FIPS != nil && *p.in.Facts.FIPS != to.Spec.FIPS {
		return "detected change to FIPS flag; refusing to modify FIPS on a running cluster"
	}
	if p.unknown {
		return ""
	}
	err := diff.Reconcile(diff.Named{Name: from.Name, Spec: from.Spec}, diff.Named{Name: to.Name, Spec: to.Spec}, p.in.Overrides)
	if err != nil {
		return fmt.Sprintf("configs %s, %s are not reconcilable: %v", from.Name, to.Name, err)
	}
	return ""
}

func (p *planner) change(from, to Config, force bool) (Change, error) {
	c := Change{From: from, To: to, Force: force}
	d, err := diff.Compute(from.Spec, to.Spec)
	if err != nil {
		return c, fmt.Errorf("compare configs %s and %s: %w", from.Name, to.Name, err)
	}
	decision := disruption.Decide(d.Changes, p.in.Policy)
	c.Actions, c.Drain = decision.Actions, decision.Drain
	if p.in.Force || p.in.NeedsReboot || p.unknown || from.Name == to.Name && force {
		c.Actions, c.Drain = []disruption.Action{{Kind: disruption.Reboot}}, true
	}
	token := "drain-" + to.Name
	c.Drained = !c.Drain || p.in.Annotations[LastAppliedDrain] == token || p.in.Annotations[Topology] == singleReplica
	return c, nil
}

// drain asks the controller to empty the node.
func (p *planner) drain(to string) {
	token := "drain-" + to
	if p.in.Annotations[DesiredDrain] != token {
		p.event(plan.Normal, "Cordon", "Cordoned node to apply update")
		p.event(plan.Normal, "Drain", "Draining node to update config.")
		p.set(DesiredDrain, token)
	}
	p.wait(drainWake)
}

// settle hands the node back: the controller uncordons it, then it is done.
func (p *planner) settle(name string) {
	token := "uncordon-" + name
	if p.in.Annotations[DesiredDrain] != token || p.in.Annotations[LastAppliedDrain] != token {
		p.set(DesiredDrain, token)
		p.wait(drainWake)
		return
	}
	if p.in.Annotations[State] != Done || p.in.Annotations[CurrentConfig] != name {
		p.event(plan.Normal, "Uncordon", fmt.Sprintf("Update completed for config %s and node has been uncordoned", name))
		p.event(plan.Normal, "NodeDone", fmt.Sprintf("Setting node %s, currentConfig %s to Done", p.in.Node, name))
	}
	p.set(CurrentConfig, name)
	p.set(State, Done)
	p.set(Reason, "")
	p.answered()
	p.d.Settled, p.d.Watch = true, name
}

// work shows that an update is under way. A broken node keeps saying why until it is
// done, as users know it.
func (p *planner) work() {
	if s := p.in.Annotations[State]; s != Degraded && s != Unreconcilable {
		p.set(State, Working)
	}
}

func (p *planner) unreconcilable(from, to, reason string) {
	text := fmt.Sprintf("can't reconcile config %s with %s: %s", from, to, reason)
	if p.in.Annotations[State] != Unreconcilable || p.in.Annotations[Reason] != Cut(text) {
		p.event(plan.Warning, "FailedToReconcile", text)
	}
	p.answered()
	p.set(State, Unreconcilable)
	p.set(Reason, Cut(text))
	p.wait(brokenWake)
}

func (p *planner) degrade(reason, event string) {
	if event != "" && p.in.Annotations[Reason] != Cut(reason) {
		p.event(plan.Warning, event, reason)
	}
	p.answered()
	p.set(State, Degraded)
	p.set(Reason, Cut(reason))
	p.wait(brokenWake)
}

// Cut shortens a reason to what the annotation holds, at a character, not at a byte.
func Cut(reason string) string {
	r := []rune(reason)
	if len(r) <= maxReason {
		return reason
	}
	return string(r[:maxReason])
}

func (p *planner) wait(d time.Duration) { p.d.Wake = d }

// set writes an annotation if it differs.
func (p *planner) set(key, value string) {
	if have, ok := p.in.Annotations[key]; ok && have == value {
		return
	}
	if p.d.Set == nil {
		p.d.Set = map[string]*string{}
	}
	p.d.Set[key] = &value
}

func (p *planner) event(t plan.EventType, reason, message string) {
	p.d.Events = append(p.d.Events, plan.Event{Type: t, Reason: reason, Message: message})
}

// line adds a log line word for word, note one that the original prints quoted.
func (p *planner) line(format string, args ...any) {
	p.d.Notes = append(p.d.Notes, plan.Note{Message: fmt.Sprintf(format, args...)})
}

func (p *planner) note(text string) {
	p.d.Notes = append(p.d.Notes, plan.Note{Message: fmt.Sprintf("%q", text)})
}
