package node

import (
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/disruption"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/transition"
)

// prefix of the annotations that agent and controller share.
const prefix = "machineconfiguration.openshift.io/"

// Annotations of a Node.
const (
	CurrentConfig    = prefix + "currentConfig"
	DesiredConfig    = prefix + "desiredConfig"
	State            = prefix + "state"
	Reason           = prefix + "reason"
	DesiredDrain     = prefix + "desiredDrain"
	LastAppliedDrain = prefix + "lastAppliedDrain"
	PostConfigAction = prefix + "post-config-action"
	Topology         = prefix + "controlPlaneTopology"
)

// Values of the annotation State.
const (
	Done           = "Done"
	Working        = "Working"
	Degraded       = "Degraded"
	Unreconcilable = "Unreconcilable"
)

// Rebooting is the value of PostConfigAction while a reboot is under way.
const Rebooting = "Rebooting"

// singleReplica is the topology whose only node is never drained.
const singleReplica = "SingleReplica"

// maxReason is how many characters of a reason an annotation holds.
const maxReason = 2000

// Times after which a node looks again by itself. The last one is the longest that
// something which a person repaired stays unnoticed.
const (
	drainWake  = time.Minute
	brokenWake = time.Minute
	youngWake  = 2 * time.Second
)

// maxTries is how often one and the same change is tried before it needs a person.
const maxTries = 2

// Config is a rendered config by its name.
type Config struct {
	Name string
	Spec mcfgv1.MachineConfigSpec
}

// Input is what the agent knows.
type Input struct {
	Node        string
	Annotations map[string]string
	// Bootstrap are the annotations that the first boot left on the disk; nil: none.
	Bootstrap map[string]string
	// Disk is the config that the disk says it has; nil: it says nothing. DiskError
	// is why it could not be read.
	Disk      *Config
	DiskError string
	// Known are configs of the cluster by name, as far as they were asked for; a nil
	// one does not exist.
	Known map[string]*Config
	// Booting is true until the node was settled once since the agent started.
	Booting bool
	// Force says that somebody left the file that skips every check.
	Force bool
	// SelfHeal is off when the pool has the original's behaviour.
	SelfHeal bool
	// Repair says that files which drifted are written again.
	Repair bool
	// Checked is how the disk differs from configs, by name, as far as was looked at.
	Checked map[string][]transition.Difference
	// Failed is why the change that was tried last was taken back, "" if it was not,
	// and Failures how often the change from Disk to the desired config was.
	Failed   string
	Failures int
	// Reapplied tells that what the disk lacks was put there before by the same
	// config, and a reboot took it away again.
	Reapplied bool
	// NeedsReboot says that planning the change found something only a reboot makes
	// true.
	NeedsReboot bool
	Policy      disruption.Policy
	Overrides   diff.Overrides
	Facts       transition.Facts
}

// Action is the one thing to do now.
type Action string

// Actions.
const (
	Nothing Action = ""
	// Adopt renames the first boot's annotations file and writes Apply.To as the
	// config that the disk has.
	Adopt Action = "adopt"
	// Apply takes a config; see Decision.Apply.
	Apply Action = "apply"
)

// Change is a config to take.
type Change struct {
	From, To Config
	// Force looks at every item, not only at those that differ between the configs.
	Force bool
	// Actions are done at the end; Drain says that the node has to be empty before.
	Actions []disruption.Action
	Drain   bool
	// Drained says that it is, or that it needs not be.
	Drained bool
}

// Decision is what to do now.
type Decision struct {
	// Fetch names a config of the cluster that has to be known first, Check one that
	// the disk has to be compared with first. Nothing else counts then.
	Fetch, Check string
	// Set are annotations to write; a nil value removes one.
	Set    map[string]*string
	Action Action
	// Change is given with Apply and Adopt, and with Nothing while the node still has
	// to be emptied for it.
	Change Change
	// Settled tells that the start is over; Watch names the config to guard.
	Settled bool
	Watch   string
	// Differences are those that made the node Degraded.
	Differences []transition.Difference
	Events      []plan.Event
	Notes       []plan.Note
	// Wake is when to look again if nothing happens.
	Wake time.Duration
}
