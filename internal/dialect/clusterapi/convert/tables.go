package convert

const (
	groupCore      = "cluster.x-k8s.io"
	groupBootstrap = "bootstrap.cluster.x-k8s.io"
)

// tables say per kind which field is which. Fields of the same name and shape
// are not named; fields of one version only are cut by the schema and kept in
// the annotation.
var tables = map[string][]step{
	groupCore + "/Cluster": {in("spec", clusterSpec...), in("status", clusterStatus...)},
	groupCore + "/Machine": {in("spec", machineSpec...), in("status", machineStatus...)},
	groupCore + "/MachineSet": {
		in("spec",
			moved("deletePolicy", "deletion.order"),
			moved("machineNamingStrategy", "machineNaming"),
			moved("minReadySeconds", "template.spec.minReadySeconds"),
			in("template.spec", machineSpec...)),
		in("status", status(failures, counters("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
			newCounters)...),
	},
	groupCore + "/MachineDeployment": {
		in("spec",
			moved("rolloutAfter", "rollout.after"),
			moved("strategy.rollingUpdate.deletePolicy", "deletion.order"),
			moved("strategy.remediation", "remediation"),
			moved("strategy", "rollout.strategy"),
			moved("machineNamingStrategy", "machineNaming"),
			moved("minReadySeconds", "template.spec.minReadySeconds"),
			in("template.spec", machineSpec...)),
		in("status", status(counters("updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"),
			newCounters)...),
	},
	groupCore + "/MachinePool": {
		in("spec",
			moved("minReadySeconds", "template.spec.minReadySeconds"),
			in("template.spec", machineSpec...)),
		in("status", status(failures, counters("readyReplicas", "availableReplicas", "unavailableReplicas"),
			newCounters, provisioned)...),
	},
	groupCore + "/MachineHealthCheck": {
		in("spec", healthChecks()...),
		in("status", status()...),
	},
	groupCore + "/MachineDrainRule": {},
	groupBootstrap + "/KubeadmConfig": {
		in("spec", kubeadmSpec...),
		in("status", status(failures, []step{moved("ready", "initialization.dataSecretCreated")})...),
	},
	groupBootstrap + "/KubeadmConfigTemplate": {in("spec.template.spec", kubeadmSpec...)},
}

const deprecated = "deprecated.v1beta1."

var (
	failures    = counters("failureReason", "failureMessage")
	newCounters = []step{
		moved("v1beta2.readyReplicas", "readyReplicas"),
		moved("v1beta2.availableReplicas", "availableReplicas"),
		moved("v1beta2.upToDateReplicas", "upToDateReplicas"),
	}
	provisioned = []step{
		moved("infrastructureReady", "initialization.infrastructureProvisioned"),
		moved("bootstrapReady", "initialization.bootstrapDataSecretCreated"),
	}
)

// counters are status fields that v1beta2 keeps among the deprecated ones.
func counters(names ...string) []step {
	var out []step
	for _, name := range names {
		out = append(out, moved(name, deprecated+name))
	}
	return out
}

// status is what the statuses of all kinds share, and more: the old conditions
// make room before the new ones take their name.
func status(more ...[]step) []step {
	out := counters("conditions")
	for _, m := range more {
		out = append(out, m...)
	}
	return append(out, moved("v1beta2.conditions", "conditions"))
}

func timeouts() []step {
	return []step{
		seconds("nodeDrainTimeout", "deletion.nodeDrainTimeoutSeconds"),
		seconds("nodeVolumeDetachTimeout", "deletion.nodeVolumeDetachTimeoutSeconds"),
		seconds("nodeDeletionTimeout", "deletion.nodeDeletionTimeoutSeconds"),
	}
}

var machineSpec = append(timeouts(), reference("bootstrap.configRef"), reference("infrastructureRef"))

var machineStatus = status(failures, provisioned, []step{
	changed("nodeRef", "nodeRef",
		func(v any, _ env) (any, bool) {
			m, ok := v.(map[string]any)
			return picked(m, "name"), ok
		},
		func(v any, _ env) (any, bool) {
			m, ok := v.(map[string]any)
			out := picked(m, "name")
			out["apiVersion"], out["kind"] = "v1", "Node"
			return out, ok
		}),
	// v1beta1 knows no phase of updating in place.
	changed("phase", "phase", nil, func(v any, _ env) (any, bool) {
		if v == "Updating" {
			return "Running", true
		}
		return v, true
	}),
})

// healthChecks are the fields of a MachineHealthCheck's spec.
func healthChecks() []step {
	return []step{
		moved("maxUnhealthy", "remediation.triggerIf.unhealthyLessThanOrEqualTo"),
		moved("unhealthyRange", "remediation.triggerIf.unhealthyInRange"),
		templateRef("remediationTemplate", "remediation.templateRef"),
		seconds("nodeStartupTimeout", "checks.nodeStartupTimeoutSeconds"),
		moved("unhealthyConditions", "checks.unhealthyNodeConditions"),
		moved("unhealthyMachineConditions", "checks.unhealthyMachineConditions"),
		in("checks.unhealthyNodeConditions[]", seconds("timeout", "timeoutSeconds")),
		in("checks.unhealthyMachineConditions[]", seconds("timeout", "timeoutSeconds")),
	}
}

var topologyHealth = []step{
	moved("machineHealthCheck.enable", "machineHealthCheck.enabled"),
	in("machineHealthCheck", healthChecks()...),
	moved("machineHealthCheck", "healthCheck"),
}

var clusterSpec = []step{
	reference("controlPlaneRef"),
	reference("infrastructureRef"),
	in("topology",
		moved("class", "classRef.name"),
		moved("classNamespace", "classRef.namespace"),
		in("controlPlane", append(timeouts(), topologyHealth...)...),
		in("workers.machineDeployments[]", append(append(timeouts(), topologyHealth...),
			moved("strategy.rollingUpdate.deletePolicy", "deletion.order"),
			moved("strategy.remediation.maxInFlight", "healthCheck.remediation.maxInFlight"),
			moved("strategy", "rollout.strategy"))...),
		in("workers.machinePools[]", timeouts()...)),
}

var clusterStatus = status(failures, []step{
	moved("infrastructureReady", "initialization.infrastructureProvisioned"),
	moved("controlPlaneReady", "initialization.controlPlaneInitialized"),
	failureDomains("failureDomains"),
	moved("v1beta2.controlPlane", "controlPlane"),
	moved("v1beta2.workers", "workers"),
})

var kubeadmSpec = []step{
	seconds("clusterConfiguration.apiServer.timeoutForControlPlane", "initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds"),
	seconds("joinConfiguration.discovery.timeout", "joinConfiguration.timeouts.tlsBootstrapSeconds"),
	in("initConfiguration.bootstrapTokens[]", seconds("ttl", "ttlSeconds")),
	arguments("clusterConfiguration.apiServer.extraArgs"),
	arguments("clusterConfiguration.controllerManager.extraArgs"),
	arguments("clusterConfiguration.scheduler.extraArgs"),
	arguments("clusterConfiguration.etcd.local.extraArgs"),
	arguments("initConfiguration.nodeRegistration.kubeletExtraArgs"),
	arguments("joinConfiguration.nodeRegistration.kubeletExtraArgs"),
}
