package rollout

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"millwright.io/millwright/internal/engine/budget"
)

// Settings ask for waves. They are the value of the annotation
// millwright.io/rollout of a pool, JSON or YAML:
//
//	{"canary": {"nodes": 1}, "soak": "15m", "growth": 3, "workloads": ["shop/Deployment/web"], "onFailure": "Rollback"}
type Settings struct {
	// Canary are the nodes of the first wave.
	Canary Canary `json:"canary,omitzero"`
	// Soak is how long a wave has to be healthy before the next one starts.
	Soak metav1.Duration `json:"soak,omitzero"`
	// Growth is by how much each wave after the first is larger than the one
	// before it, 1 to 100; 0: all other nodes are one wave.
	Growth int `json:"growth,omitempty"`
	// Workloads are namespace/Kind/name of what has to be healthy before the
	// next wave: Deployments, StatefulSets and DaemonSets.
	Workloads []string `json:"workloads,omitempty"`
	// FailureThreshold is how many nodes that fail on the target stop the
	// rollout, a number or a percentage of the pool rounded down, ≥ 1.
	// Default 1.
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// Deadline is how long a node may take, and how long a workload may be
	// unhealthy, before that counts as a failure; 0: for ever.
	Deadline metav1.Duration `json:"deadline,omitzero"`
	// OnFailure is Stop, the default, or Rollback: back to the config that
	// all nodes had before.
	OnFailure string `json:"onFailure,omitempty"`

	canary labels.Selector
}

// Canary chooses the nodes of the first wave: so many of them, or those with
// these labels, or so many of those.
type Canary struct {
	Nodes    *intstr.IntOrString `json:"nodes,omitempty"`
	Selector string              `json:"selector,omitempty"`
}

// What a stopped rollout does.
const (
	OnFailureStop     = "Stop"
	OnFailureRollback = "Rollback"
)

const maxWorkloads = 20

// ParseSettings reads the annotation's value; empty means none. Errors name
// the field, the value and what would be right.
func ParseSettings(value string) (*Settings, error) {
	if strings.TrimSpace(value) == "" {
		return nil, nil
	}
	const limit = 16 << 10
	if len(value) > limit {
		return nil, fmt.Errorf("%d bytes, at most %d", len(value), limit)
	}
	var s Settings
	if err := yaml.UnmarshalStrict([]byte(value), &s); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return &s, nil
}

func (s *Settings) check() error {
	var errs []error
	add := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(s.Soak.Duration >= 0, "soak: %s: not below 0", s.Soak.Duration)
	add(s.Deadline.Duration >= 0, "deadline: %s: not below 0", s.Deadline.Duration)
	add(s.Growth >= 0 && s.Growth <= 100, "growth: %d: 0 to 100", s.Growth)
	add(len(s.Workloads) <= maxWorkloads, "workloads: %d of them, at most %d", len(s.Workloads), maxWorkloads)
	for _, w := range s.Workloads {
		_, _, _, err := SplitWorkload(w)
		add(err == nil, "workloads: %v", err)
	}
	switch s.OnFailure {
	case "", OnFailureStop, OnFailureRollback:
	default:
		add(false, "onFailure: %q: %s or %s", s.OnFailure, OnFailureStop, OnFailureRollback)
	}
	count := func(field string, n *intstr.IntOrString) {
		if n != nil {
			v, err := budget.Floor(*n, 100)
			add(err == nil && v >= 1, "%s: %q: a number of nodes or a percentage, at least 1", field, n.String())
		}
	}
	count("canary.nodes", s.Canary.Nodes)
	count("failureThreshold", s.FailureThreshold)
	var err error
	s.canary = labels.Everything()
	if s.Canary.Selector != "" {
		s.canary, err = labels.Parse(s.Canary.Selector)
		add(err == nil, "canary.selector: %q: a label selector such as canary=true: %v", s.Canary.Selector, err)
	}
	return errors.Join(errs...)
}

// SplitWorkload takes namespace/Kind/name apart.
func SplitWorkload(w string) (namespace, kind, name string, err error) {
	parts := strings.Split(w, "/")
	if len(parts) == 3 && parts[0] != "" && parts[2] != "" {
		switch parts[1] {
		case "Deployment", "StatefulSet", "DaemonSet":
			return parts[0], parts[1], parts[2], nil
		}
	}
	return "", "", "", fmt.Errorf("%q: namespace/Kind/name, Kind one of Deployment, StatefulSet, DaemonSet", w)
}

// hasCanary: the first wave is smaller than the pool.
func (s *Settings) hasCanary() bool { return s.Canary.Nodes != nil || s.Canary.Selector != "" }

// threshold is how many failures stop the rollout of n nodes, ≥ 1.
func (s *Settings) threshold(n int) int {
	if s.FailureThreshold == nil {
		return 1
	}
	v, err := budget.Floor(*s.FailureThreshold, n)
	if err != nil {
		return 1
	}
	return max(1, v)
}

// canarySize is how many of n nodes the first wave has, ≥ 1; those that the
// selector selects when no number is set.
func (s *Settings) canarySize(n int) int {
	if s.Canary.Nodes == nil {
		return n
	}
	v, err := budget.Floor(*s.Canary.Nodes, n)
	if err != nil {
		return 1
	}
	return max(1, v)
}

// size is how many nodes the wave has, ≥ 1: 0 is the canary of first nodes.
func (s *Settings) size(wave, first, total int) int {
	if s.Growth == 0 {
		return total
	}
	n := max(1, first)
	for range wave {
		if n >= total {
			return total
		}
		n *= s.Growth
	}
	return min(n, total)
}
