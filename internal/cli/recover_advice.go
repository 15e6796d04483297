package cli

import "strings"

// advice is what only a person can do about a failure, by what its reason says.
type advice struct {
	says string // part of the reason, in the agent's words
	do   string
	// never says that another try cannot help.
	never bool
}

// advices are tried in order; the first one that fits is given.
var advices = []advice{
	{"custom roles, cannot proceed", "remove all but one of the custom pools' labels from the node", true},
	{"refusing to modify FIPS", "FIPS is decided when a machine is made: set fips in the MachineConfigs as the machine has it, or replace the machine", true},
	{"are not reconcilable", "take the item it names out of the MachineConfig again; disks and file systems can be excepted in MachineConfiguration cluster, spec.irreconcilableValidationOverrides; else replace the machine", true},
	{"can't reconcile config", "take the item it names out of the MachineConfig again, or replace the machine", true},
	{"bootstrap generated MC", "compare the config the machine first booted into with the cluster's, remove the MachineConfig that makes them differ, or replace the machine", false},
	{"NodeDisruptionPolicyStatus was not ready", "let the operator run, so that it fills the status of MachineConfiguration cluster", false},
	{"invalid extensions found", "correct spec.extensions of the MachineConfig", true},
	{"64k-pages is only supported", "correct spec.kernelType of the MachineConfig", true},
	{"failed to drain node", "free what the drain waits for: a PodDisruptionBudget that allows none, or a pod that does not end", false},
	{"failed to uncordon node", "let machine-config-controller run: it answers the node's request to be uncordoned", false},
	{"could not apply update: restarting", "mend the service it names on the node, or give its file a node disruption policy that reboots", false},
	{"could not apply update: reloading", "mend the service it names on the node, or give its file a node disruption policy that reboots", false},
	{"error enabling units", "mend the [Install] section of the unit it names in the MachineConfig, or unmask it", false},
	{"failed to create directory", "the path it names goes through a file: remove the file from the node, or the path from the MachineConfig", false},
	{"not a directory", "the path it names goes through a file: remove the file from the node, or the path from the MachineConfig", false},
	{"read-only file system", "the path it names cannot be written on this host: choose another one in the MachineConfig", false},
	{"failed to retrieve file ownership", "the owner it names does not exist on the host: correct it in the MachineConfig", false},
	{"failed to look up the user", "give the folder it names an owner that exists on the host: chown", false},
	{"cannot stat /etc/kubernetes/kubeconfig", "put the kubelet's kubeconfig back", false},
	{"rpm -qf", "rebuild the rpm database of the host: rpm --rebuilddb", false},
	{"No enabled repositories", "give the host a repository, or an extensions image", false},
	{"failed to update OS", "make the image reachable from the node: pull secret, mirror, DNS, free space", false},
	{"extension package verification failed", "look at rpm-ostree status on the node: an extension is missing after the boot", false},
	{"possible root cause", "mend what the root cause names first, often too little space in /boot", false},
	{"reboot command failed", "on the node: systemctl stop machine-config-daemon-reboot, systemctl reset-failed machine-config-daemon-reboot", false},
	{"stuck half-way", "the change can neither be finished nor taken back: mend what the cause names, or replace the machine", false},
	{"could not stat file \"/tmp", volatileAdvice, false},
	{"could not stat file \"/run", volatileAdvice, false},
	{"could not stat file \"/var/run", volatileAdvice, false},
	{"could not stat file \"/dev/shm", volatileAdvice, false},
}

const volatileAdvice = "delete the MachineConfig that brings the file: it stands on a path that every boot empties, so it vanishes again at the next one"

// adviceFor finds what a person has to do about a reason; nil: nothing is known.
func adviceFor(reason string) *advice {
	for i := range advices {
		if strings.Contains(reason, advices[i].says) {
			return &advices[i]
		}
	}
	return nil
}
