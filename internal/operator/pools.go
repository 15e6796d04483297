package operator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// labelRequired marks pools that an upgrade waits for.
const labelRequired = "operator.machineconfiguration.openshift.io/required-for-upgrade"

// Words of a ClusterOperator that answers for pools.
const (
	reasonDegradedPool  = "DegradedPool"
	reasonRequiredPools = "RequiredPoolsFailed"
	textDegradedPool    = "One or more machine config pools are degraded, please see `oc get mcp` for further details and resolve before upgrading"
)

// judgePools adds what the pools say: degraded ones hold up upgrades, degraded
// required ones degrade the operator, and the extension has a line for each.
func judgePools(out *configv1.ClusterOperatorStatus, in observed, set func(configv1.ClusterStatusConditionType, configv1.ConditionStatus, string, string)) {
	pools := slices.SortedFunc(slices.Values(in.pools), func(a, b mcfgv1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	lines := map[string]string{}
	for i := range pools {
		p := &pools[i]
		lines[p.Name] = poolLine(p)
		degraded := poolCondition(p, mcfgv1.MachineConfigPoolDegraded)
		if degraded == nil || degraded.Status != corev1.ConditionTrue {
			continue
		}
		set(configv1.OperatorUpgradeable, configv1.ConditionFalse, reasonDegradedPool, textDegradedPool)
		if _, required := p.Labels[labelRequired]; required {
			text := fmt.Sprintf("MachineConfigPool %s is not ready, retrying. Status: (pool degraded: true total: %d, ready %d, updated: %d, unavailable: %d, reason: %s)", p.Name,
				p.Status.MachineCount, p.Status.ReadyMachineCount, p.Status.UpdatedMachineCount, p.Status.UnavailableMachineCount, degraded.Message)
			set(configv1.OperatorDegraded, configv1.ConditionTrue, reasonRequiredPools, fmt.Sprintf("Failed to resync %s because: %s", in.version, text))
			lines["lastSyncError"] = text
		}
	}
	raw, err := json.Marshal(lines)
	if err == nil { // strings only: it cannot fail
		out.Extension = runtime.RawExtension{Raw: raw}
	}
}

// poolLine is what a pool is doing, in one line.
func poolLine(p *mcfgv1.MachineConfigPool) string {
	is := func(t mcfgv1.MachineConfigPoolConditionType) *mcfgv1.MachineConfigPoolCondition {
		if c := poolCondition(p, t); c != nil && c.Status == corev1.ConditionTrue {
			return c
		}
		return nil
	}
	if c := is(mcfgv1.MachineConfigPoolRenderDegraded); c != nil {
		return fmt.Sprintf("pool is degraded because rendering fails with %q: %q", c.Reason, c.Message)
	}
	if c := is(mcfgv1.MachineConfigPoolNodeDegraded); c != nil {
		return fmt.Sprintf("pool is degraded because nodes fail with %q: %q", c.Reason, c.Message)
	}
	if is(mcfgv1.MachineConfigPoolUpdated) != nil {
		return fmt.Sprintf("all %d nodes are at latest configuration %s", p.Status.MachineCount, p.Status.Configuration.Name)
	}
	if is(mcfgv1.MachineConfigPoolUpdating) != nil {
		return fmt.Sprintf("%d (ready %d) out of %d nodes are updating to latest configuration %s", p.Status.UpdatedMachineCount, p.Status.ReadyMachineCount, p.Status.MachineCount, p.Spec.Configuration.Name)
	}
	return "<unknown>"
}

func poolCondition(p *mcfgv1.MachineConfigPool, t mcfgv1.MachineConfigPoolConditionType) *mcfgv1.MachineConfigPoolCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
