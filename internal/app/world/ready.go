package world

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/operator"
	"millwright.io/millwright/internal/sim/vm"
	simworld "millwright.io/millwright/internal/sim/world"
)

const (
	// firstReady bounds the first start; nothing in it should take minutes.
	firstReady = 3 * time.Minute
	// againReady is how long a later start waits before it says what is not
	// well and goes on: a world may hold machines that somebody broke.
	againReady = 60 * time.Second
)

// waitReady returns once the world is what `up` promises: its Nodes Ready and
// its workloads available.
func (s *supervisor) waitReady(ctx context.Context) error {
	limit, first := againReady, !s.wasSeeded
	if first {
		limit = firstReady
	}
	var missing []string
	err := poll(ctx, 100*time.Millisecond, limit, func() (bool, error) {
		var err error
		if missing, err = s.missing(ctx, first); err != nil {
			return false, err
		}
		if len(missing) > 0 {
			s.progress(strings.Join(missing, ", "))
		}
		return len(missing) == 0, nil
	})
	if !errors.Is(err, errTimeout) {
		return err
	}
	if first {
		return fmt.Errorf("still waiting for %s after %s; logs are in %s", strings.Join(missing, ", "), limit, s.dir.join("logs"))
	}
	s.opts.Say("Not well after %s, going on all the same: %s", limit, strings.Join(missing, ", "))
	return nil
}

// missing lists what is not ready, in words.
func (s *supervisor) missing(ctx context.Context, first bool) ([]string, error) {
	var out []string
	var nodes corev1.NodeList
	if err := s.kube.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ready := 0
	for i := range nodes.Items {
		if nodeReady(&nodes.Items[i]) {
			ready++
		}
	}
	want := len(nodes.Items)
	if first {
		want = simworld.ControlPlaneNodes + s.opts.Workers
	}
	if ready < want || want == 0 {
		out = append(out, fmt.Sprintf("nodes (%d of %d ready)", ready, want))
	}
	// What Nodes and Deployments say may be from before a restart.
	for _, r := range s.hyper.List() {
		if r.Powered && r.Stage != vm.StageUp {
			out = append(out, "machine "+r.Name)
		}
	}
	for _, ns := range operator.Namespaces() {
		var ds appsv1.DeploymentList
		if err := s.kube.List(ctx, &ds, client.InNamespace(ns)); err != nil {
			return nil, fmt.Errorf("list deployments in %s: %w", ns, err)
		}
		for _, d := range ds.Items {
			if d.Spec.Replicas != nil && d.Status.AvailableReplicas < *d.Spec.Replicas {
				out = append(out, "deployment "+d.Name)
			}
		}
	}
	return out, nil
}

// nodeReady is true for a Node that is Ready and initialised by its cloud.
func nodeReady(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == "node.cloudprovider.kubernetes.io/uninitialized" {
			return false
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
