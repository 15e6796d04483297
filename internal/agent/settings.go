package agent

import (
	"context"
	"encoding/json"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/engine/node"
	"millwright.io/millwright/internal/engine/target"
	"millwright.io/millwright/internal/engine/transition"
	"millwright.io/millwright/internal/host/journal"
)

// Annotations of ours on pools and Nodes.
const (
	annotationSelfHeal = "millwright.io/self-heal"    // on a pool: Disabled
	annotationRepair   = "millwright.io/drift-repair" // on a pool: Enabled
	annotationVerify   = "millwright.io/verify"       // on a Node: the name of a config
	annotationVerified = "millwright.io/verified"     // on a Node: the answer
	namespace          = "openshift-machine-config-operator"
)

// poolSettings are what a node's pool says about its agents.
type poolSettings struct {
	name     string
	selfHeal bool
	repair   bool
}

// settings completes the input with what only matters when there is something to do:
// a settled node asks nothing.
func (a *Agent) settings(ctx context.Context, s *situation) error {
	if a.quiet(s) {
		return nil
	}
	pools, err := a.Cluster.Pools(ctx)
	if err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	s.pool = poolOf(pools, s.node.Labels)
	s.in.SelfHeal, s.in.Repair = s.pool.selfHeal, s.pool.repair
	settings, err := a.Cluster.Settings(ctx)
	if err != nil {
		return fmt.Errorf("read MachineConfiguration: %w", err)
	}
	s.in.Policy, s.in.Overrides = policyOf(settings)
	s.in.Reapplied = s.in.Disk != nil && s.disk.reapplied == s.in.Disk.Name
	if s.in.Disk != nil {
		c := journal.Change{From: s.in.Disk.Name, To: s.in.Annotations[node.DesiredConfig]}
		failures, cause := a.journal.Failures(c)
		s.in.Failures = failures
		if s.in.Failed == "" {
			s.in.Failed = cause
		}
	}
	return nil
}

// quiet tells that nothing is to be done and nothing was asked.
func (a *Agent) quiet(s *situation) bool {
	an := s.in.Annotations
	return !a.booting && !s.in.Force && !node.Asked(an) && !a.hasDrifted() && s.in.Disk != nil && s.in.Disk.Name == an[node.DesiredConfig] &&
		an[node.CurrentConfig] == an[node.DesiredConfig] && an[node.State] == node.Done
}

// poolOf finds the settings of the pool that a node belongs to.
func poolOf(pools []mcfgv1.MachineConfigPool, labels map[string]string) poolSettings {
	out := poolSettings{selfHeal: true}
	selectors := map[string]*metav1.LabelSelector{}
	for i := range pools {
		selectors[pools[i].Name] = pools[i].Spec.NodeSelector
	}
	name, err := target.NewMembers(selectors).Primary(labels)
	if err != nil || name == "" {
		return out
	}
	for i := range pools {
		if pools[i].Name == name {
			out.name = name
			out.selfHeal = pools[i].Annotations[annotationSelfHeal] != "Disabled"
			out.repair = pools[i].Annotations[annotationRepair] == "Enabled"
		}
	}
	return out
}

// policyOf reads what the operator merged; without it, the defaults.
func policyOf(m *operatorv1.MachineConfiguration) (disruption.Policy, diff.Overrides) {
	var o diff.Overrides
	if m == nil {
		return disruption.Defaults(), o
	}
	for _, s := range m.Spec.IrreconcilableValidationOverrides.Storage {
		switch s {
		case operatorv1.IrreconcilableValidationOverridesStorageDisks:
			o.Disks = true
		case operatorv1.IrreconcilableValidationOverridesStorageFileSystems:
			o.Filesystems = true
		case operatorv1.IrreconcilableValidationOverridesStorageRaid:
			o.Raid = true
		}
	}
	status := m.Status.NodeDisruptionPolicyStatus.ClusterPolicies
	if len(status.Files)+len(status.Units) == 0 {
		policy, _ := disruption.Merge(m.Spec.NodeDisruptionPolicy)
		return policy, o
	}
	return disruption.FromStatus(status), o
}

// verdict answers the question whether a disk agrees with a config.
type verdict struct {
	Config      string                  `json:"config"`
	Differences []transition.Difference `json:"differences"`
	Error       string                  `json:"error,omitempty"`
}

// maxVerdict bounds the differences that an annotation lists.
const maxVerdict = 50

// answer compares the disk with the config that somebody asks about.
func (a *Agent) answer(ctx context.Context, s *situation) error {
	name, asked := s.node.Annotations[annotationVerify]
	if !asked {
		return nil
	}
	v := verdict{Config: name, Differences: []transition.Difference{}}
	mc, err := a.Cluster.Config(ctx, name)
	switch {
	case err != nil:
		return fmt.Errorf("read MachineConfig %s: %w", name, err)
	case mc == nil:
		v.Error = fmt.Sprintf("machineconfig.machineconfiguration.openshift.io %q not found", name)
	default:
		s.in.Known[name] = configOf(mc)
		if v.Differences, err = a.compare(ctx, s, name, transition.Everything); err != nil {
			v.Error = err.Error()
		}
	}
	if len(v.Differences) > maxVerdict {
		v.Differences = v.Differences[:maxVerdict]
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer about %s: %w", name, err)
	}
	text := string(raw)
	if s.node.Annotations[annotationVerified] == text {
		return nil
	}
	return a.annotate(ctx, s, map[string]*string{annotationVerified: &text})
}

// publishUnits tells which units the host has, once for each different list.
func (a *Agent) publishUnits(ctx context.Context, s *situation) error {
	names := lint.NewUnitNames(s.facts.UnitFiles)
	digest := names.Digest()
	if s.node.Annotations[lint.UnitNamesKey] == digest {
		return nil
	}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lint.UnitNamesObject(digest), Labels: map[string]string{lint.UnitNamesKey: digest}},
		Data:       map[string]string{lint.UnitNamesData: names.Text()},
	}
	if err := a.Cluster.Publish(ctx, cm); err != nil {
		return fmt.Errorf("publish unit names: %w", err)
	}
	s.note(map[string]*string{lint.UnitNamesKey: &digest})
	return nil
}
