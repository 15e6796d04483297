package lint

import "slices"

// Rule is one entry of the table. What says what is looked for, Why what
// happens otherwise.
type Rule struct {
	ID       string   `json:"id"`
	What     string   `json:"what"`
	Why      string   `json:"why"`
	Fix      string   `json:"fix"`
	Severity Severity `json:"severity"` // of its findings unless one says less
	Mode     Mode     `json:"mode"`     // the default
}

// Rule ids.
const (
	RuleVolatilePath = "volatile-path"
	RuleReadOnlyPath = "read-only-path"
	RuleFileMode     = "file-mode"
	RuleModeTypo     = "mode-octal-typo"
	RuleYAMLOctal    = "yaml-octal-ambiguous"
	RuleNoZero       = "octal-without-zero"
	RuleNoSource     = "file-without-source"
	RuleRemoteSource = "remote-source"
	RuleBrokenSource = "broken-contents"
	RuleForceFile    = "force-file"
	RuleAppend       = "file-append"
	RuleUnitUnknown  = "unit-unknown"
	RuleUnitEmpty    = "unit-empty"
	RuleUnitMasked   = "unit-masked-enabled"
	RuleKargQuotes   = "kernel-argument-quotes"
	RuleKargEmpty    = "kernel-argument-empty"
	RuleUsers        = "user-not-applied"
	RuleFirstBoot    = "first-boot-only"
	RuleFIPS         = "fips-change"
	RuleConfig       = "ignition-config"
	RuleKernelType   = "kernel-type"
	RuleExtension    = "extension-unknown"
	RuleUnknownField = "unknown-field"
	RuleCopied       = "copied-generated"
	RuleNoPool       = "no-pool"
	RulePoolSelector = "pool-selector"
	RulePoolNodes    = "pool-node-selector"
	RulePoolEmpty    = "pool-selects-nothing"
	RulePoolOrder    = "pool-order"
	RuleNodeTwoPools = "node-in-two-pools"
	RuleRender       = "render"

	RuleKubeletConfig = "kubelet-config"
	RuleRuntimeConfig = "container-runtime-config"
)

var rules = []Rule{
	{RuleVolatilePath, "a file on a path that a reboot empties", "the file on a volatile path vanishes at the reboot that its own application needs, so the node would be Degraded for ever", "keep it on disk, e.g. below /etc or /var (/var/tmp survives), or let a unit or tmpfiles.d make it at boot", Error, Enforce},
	{RuleReadOnlyPath, "a file below a part of /usr that image-based hosts mount read-only", "hosts with a read-only /usr cannot write this file", "use /etc, /usr/local or /var", Warning, Enforce},
	{RuleFileMode, "mode bits beyond 0777", "mode bits above 0777 cannot be set", "give permission bits in decimal: 420 is 0644, 493 is 0755", Error, Enforce},
	{RuleModeTypo, "a decimal mode that reads like octal", "the number is decimal and means other permissions than its digits look like", "write the decimal value of the octal permissions", Warning, Enforce},
	{RuleYAMLOctal, "a YAML number with a leading zero", "YAML 1.1 reads the leading zero as octal, YAML 1.2 as decimal", "write the mode in decimal: 420 is 0644", Warning, Enforce},
	{RuleNoZero, "permissions text without a leading zero", "the text is octal for one bootstrap format and a decimal number for another", "write it with a leading zero", Warning, Enforce},
	{RuleNoSource, "a file with neither source nor overwrite: false", "merging sets overwrite to true, and a file that overwrites must have a source: rendering fails", `set overwrite: false, or give contents.source ("data:," is the empty file)`, Warning, Enforce},
	{RuleRemoteSource, "contents that would have to be fetched", "nodes only write contents that stand in the config; every node that applies this would be Degraded", "put the contents into a data: URL", Error, Enforce},
	{RuleBrokenSource, "contents that cannot be decoded", "nodes cannot decode the contents; every node that applies this would be Degraded", "encode the contents again", Error, Enforce},
	{RuleForceFile, "the agent's force file as content", "cannot create /run/machine-config-daemon-force via Ignition", "remove the file; make it by hand on the one node that needs it", Error, Enforce},
	{RuleAppend, "a file that is appended to", "running nodes cannot append to files", "give the whole contents, or use a drop-in directory", Error, Enforce},
	{RuleUnitUnknown, "a unit to enable that nobody ships", "there is nothing to enable", "give the unit's contents, correct its name, or install what ships it", Warning, Enforce},
	{RuleUnitEmpty, "a unit with empty contents", "a unit with empty contents is skipped: nothing is written and nothing enabled", "leave contents out if the system ships the unit, else give them", Warning, Enforce},
	{RuleUnitMasked, "a unit both masked and enabled", "a masked unit cannot be enabled; the update would fail on every node", "set one of mask and enabled to false", Error, Enforce},
	{RuleKargQuotes, "quotes in a kernel argument", "a quoted argument with blanks cannot be found again when the node is checked", "write the argument without blanks", Warning, Enforce},
	{RuleKargEmpty, "an empty kernel argument", "an empty entry says nothing", "remove it", Warning, Enforce},
	{RuleUsers, "users or fields of users that are not applied", "only user core and its ssh keys and password hash can change on a running node", "keep name, sshAuthorizedKeys and passwordHash of user core only", Error, Enforce},
	{RuleFirstBoot, "a section that only a machine's first boot applies", "running nodes cannot change this section: rendering is refused if the pool's current config says otherwise", "put it into the configs a cluster is installed with, or let a unit do it", Warning, Enforce},
	{RuleFIPS, "turning FIPS on", "FIPS cannot change on a running cluster: rendering is refused if the pool's current config says otherwise", "set it when the cluster is installed", Warning, Enforce},
	{RuleConfig, "an Ignition config that is not valid", "the config cannot be used", "", Error, Enforce},
	{RuleKernelType, "an unknown kernel type", "the kernel type is not known", "use default, realtime or 64k-pages", Error, Enforce},
	{RuleExtension, "an unknown extension", "the extension is not known", "", Error, Enforce},
	{RuleUnknownField, "a field that nobody reads", "the field is not known and is ignored", "remove it, or correct its name", Warning, Enforce},
	{RuleCopied, "a copy that claims to be generated", "rendering of its pools stops once the controller has another version than the one the copy names", "remove annotation machineconfiguration.openshift.io/generated-by-controller-version", Warning, Enforce},
	{RuleNoPool, "a MachineConfig that no pool takes", "no pool takes this config", "label it machineconfiguration.openshift.io/role: <pool>", Warning, Enforce},
	{RulePoolSelector, "a pool's selector that cannot work", "the pool cannot be rendered", "select machineconfiguration.openshift.io/role In [worker, <pool>]", Error, Enforce},
	{RulePoolNodes, "a pool without nodes", "a pool without a node selector has no nodes", "select a label, e.g. node-role.kubernetes.io/<pool>", Warning, Enforce},
	{RulePoolEmpty, "a pool whose selector matches nothing here", "the selector matches no MachineConfig that is known here", "", Warning, Enforce},
	{RulePoolOrder, "a winner that names alone would not tell", "a custom pool's own configs win over those it inherits from worker, whatever the names", "rename it if you meant the other one to win, or move that one to the pool's role", Warning, Enforce},
	{RuleNodeTwoPools, "a node of two custom pools", "no pool acts on a node that belongs to two custom pools", "take one of the roles off the node", Error, Enforce},
	{RuleRender, "a pool that does not render", "the pool's configs do not merge", "", Error, Enforce},
	{RuleKubeletConfig, "a KubeletConfig that cannot be used", "no MachineConfig is made of it: its last good version, if any, stays in force", "", Error, Enforce},
	{RuleRuntimeConfig, "a ContainerRuntimeConfig that cannot be used", "no MachineConfig is made of it: its last good version, if any, stays in force", "", Error, Enforce},
}

var rulesByID = func() map[string]Rule {
	out := make(map[string]Rule, len(rules))
	for _, r := range rules {
		out[r.ID] = r
	}
	return out
}()

// Rules returns the table.
func Rules() []Rule { return slices.Clone(rules) }
