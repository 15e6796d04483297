package cli

import (
	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/engine/lint"
)

// Plan is what plan answers.
type Plan struct {
	Source  string     `json:"source"` // what the files were compared with
	Changes bool       `json:"changes"`
	Pools   []PoolPlan `json:"pools"`
	// Generated are the MachineConfigs that controllers make, change or remove
	// because of the files.
	Generated   []GeneratedChange `json:"generated,omitempty"`
	MachineSets []SetPlan         `json:"machineSets,omitempty"`
	Findings    []lint.Finding    `json:"findings,omitempty"`
	Notes       []string          `json:"notes,omitempty"`
}

// PoolPlan is what happens to one pool.
type PoolPlan struct {
	Pool     string `json:"pool"`
	Old      string `json:"old"` // target now; empty: none
	New      string `json:"new,omitempty"`
	Changed  bool   `json:"changed"`
	Paused   bool   `json:"paused,omitempty"`
	Error    string `json:"error,omitempty"` // the pool cannot be rendered
	Action   string `json:"action,omitempty"`
	ForcedBy string `json:"forcedBy,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Drains   bool   `json:"drains"`
	// Refused are changes that a running node cannot take.
	Refused        []string     `json:"refused,omitempty"`
	Items          []ItemChange `json:"items,omitempty"`
	MaxUnavailable int          `json:"maxUnavailable,omitempty"`
	Waves          int          `json:"waves,omitempty"`
	Seconds        int          `json:"estimatedSeconds,omitempty"`
	Nodes          []NodePlan   `json:"nodes,omitempty"`
	Notes          []string     `json:"notes,omitempty"`
}

// ItemChange is one difference between two configs and what it asks for.
type ItemChange struct {
	Item   string `json:"item"`
	Change string `json:"change"` // added, changed or removed
	Action string `json:"action"`
	Rule   string `json:"rule,omitempty"`
	SetBy  string `json:"setBy,omitempty"` // the MachineConfig that sets it now
}

// NodePlan is what happens to one node.
type NodePlan struct {
	Node     string    `json:"node"`
	Zone     string    `json:"zone,omitempty"`
	From     string    `json:"from,omitempty"` // config on the node now
	Action   string    `json:"action"`         // empty: nothing to do
	ForcedBy string    `json:"forcedBy,omitempty"`
	Drains   bool      `json:"drains"`
	Wave     int       `json:"wave,omitempty"`
	Seconds  int       `json:"estimatedSeconds,omitempty"`
	State    string    `json:"state,omitempty"` // out of service now, and why
	Blockers []Blocker `json:"drainBlockers,omitempty"`
}

// Blocker is something that would hold up a drain now.
type Blocker struct {
	Budget string   `json:"budget,omitempty"`
	Pods   []string `json:"pods"`
	Why    string   `json:"why"`
}

// SetPlan is what happens to one MachineSet.
type SetPlan struct {
	Set      string   `json:"set"`
	New      bool     `json:"new,omitempty"`
	Deleted  []string `json:"deleted,omitempty"`  // Machines, to have fewer
	Created  int      `json:"created,omitempty"`  // Machines, to have more
	InPlace  []string `json:"inPlace,omitempty"`  // changes that take effect without a machine
	ForNew   []string `json:"forNew,omitempty"`   // changes that only new Machines get
	Outdated []string `json:"outdated,omitempty"` // Machines that keep the old spec
	Problems []string `json:"problems,omitempty"`
	// Refused tells that the API server would not take the change.
	Refused bool `json:"refused,omitempty"`
}

// SetsInput is what a preview of MachineSets looks at.
type SetsInput struct {
	Changes  []SetChange
	Machines []*machinev1beta1.Machine
	Nodes    []*corev1.Node
	Infra    *configv1.Infrastructure // nil: unknown
}

// SetChange is one set as it is and as the files want it.
type SetChange struct {
	Current *machinev1beta1.MachineSet // nil: it is new
	Desired *machinev1beta1.MachineSet
}
