package cli

import (
	"fmt"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/render"
)

// actionUnknown stands where the config of a node is not among the objects.
const actionUnknown = "unknown"

// comparison is what leads from one config to a pool's new one.
type comparison struct {
	items    []ItemChange
	refused  []string
	action   string
	forcedBy string
	rule     string
	drains   bool
}

// comparer compares many configs with one new one, each of them once.
type comparer struct {
	next   rendered
	policy disruption.Policy
	allows diff.Overrides
	known  map[string]*comparison
	setBy  map[itemID]string // in the new config
	wasBy  map[itemID]string // in the old one
}

type itemID struct{ kind, key string }

func newComparer(next rendered, was []render.Origin, policy disruption.Policy, allows diff.Overrides) *comparer {
	return &comparer{next: next, policy: policy, allows: allows, known: map[string]*comparison{}, setBy: authors(next.Origins), wasBy: authors(was)}
}

// disruptionPolicy is what the agents of the cluster obey: what
// MachineConfiguration/cluster reports, unless the files change what is asked
// for there.
func (c *cluster) disruptionPolicy() (disruption.Policy, []string) {
	if c.policy == nil {
		return disruption.Defaults(), nil
	}
	reported := c.policy.Status.NodeDisruptionPolicyStatus.ClusterPolicies
	stale := c.policy.Status.ObservedGeneration < c.policy.Generation
	if len(reported.Files) > 0 && !stale && !c.touched["MachineConfiguration /cluster"] {
		return disruption.FromStatus(reported), nil
	}
	p, problems := disruption.Merge(c.policy.Spec.NodeDisruptionPolicy)
	for i := range problems {
		problems[i] = "MachineConfiguration cluster: " + problems[i]
	}
	return p, problems
}

// authors answers who set an item. Kernel arguments are looked up by text.
func authors(origins []render.Origin) map[itemID]string {
	out := map[itemID]string{}
	for _, o := range origins {
		key := o.Key
		switch o.Kind {
		case render.KindKernelArgument:
			_, arg, _ := strings.Cut(key, ": ")
			for _, a := range diff.Arguments([]string{arg}) {
				out[itemID{o.Kind, a}] = o.SetBy
			}
			continue
		case render.KindUser:
			out[itemID{diff.KindPasswordHash, key}] = o.SetBy
		case render.KindOSImage, render.KindExtensionsImage, render.KindKernelType, render.KindFIPS:
			key = ""
		}
		out[itemID{o.Kind, key}] = o.SetBy
	}
	return out
}

// idOf is the item of a change as its author is recorded: ssh keys by comment.
func idOf(c disruption.Cause) itemID {
	id := itemID{c.Kind, c.Key}
	if c.Kind == render.KindSSHKey {
		user, key, _ := strings.Cut(c.Key, "/")
		if fields := strings.Fields(key); len(fields) > 2 {
			id.key = user + "/" + strings.Join(fields[2:], " ")
		}
	}
	return id
}

// from compares a config with the new one.
func (c *comparer) from(name string, mc *mcfgv1.MachineConfig) *comparison {
	if have := c.known[name]; have != nil {
		return have
	}
	out := &comparison{}
	c.known[name] = out
	d, err := diff.Compute(mc.Spec, c.next.Spec)
	if err != nil {
		out.action, out.refused = actionUnknown, []string{err.Error()}
		return out
	}
	for _, u := range c.allows.Refused(d.Unreconcilable) {
		out.refused = append(out.refused, diff.Label(u.Kind, u.Key)+": "+u.Reason)
	}
	decided := disruption.Decide(d.Changes, c.policy)
	out.action, out.drains = actionsText(decided.Actions), decided.Drain
	if len(decided.ForcedBy) > 0 && decided.Strongest != disruption.None {
		first := decided.ForcedBy[0]
		out.forcedBy, out.rule = diff.Label(first.Kind, first.Key), first.Rule
		if more := len(decided.ForcedBy) - 1; more > 0 {
			out.forcedBy += fmt.Sprintf(" and %d more", more)
		}
	}
	causes := slices.Clone(decided.Causes)
	slices.SortStableFunc(causes, func(a, b disruption.Cause) int { return int(b.Strongest()) - int(a.Strongest()) })
	for _, cause := range causes {
		by := c.setBy
		if cause.Op == diff.Removed {
			by = c.wasBy
		}
		out.items = append(out.items, ItemChange{
			Item: diff.Label(cause.Kind, cause.Key), Change: string(cause.Op),
			Action: actionsText(cause.Actions), Rule: cause.Rule, SetBy: by[idOf(cause)],
		})
	}
	return out
}

func actionsText(actions []disruption.Action) string {
	words := make([]string, len(actions))
	for i, a := range actions {
		words[i] = a.String()
	}
	return strings.Join(words, ", ")
}
