package agent

import (
	"context"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is what an agent may ask of the API server. Objects that it returns are not
// changed. What does not exist is nil, without an error.
type Cluster interface {
	// Node returns the agent's own Node, perhaps from a cache.
	Node(ctx context.Context) (*corev1.Node, error)
	// Annotate merges annotations into the Node; nil removes one. It writes with the
	// kubelet's identity and returns what the API server then has.
	Annotate(ctx context.Context, set map[string]*string) (*corev1.Node, error)
	// Config returns a MachineConfig by its name.
	Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error)
	// Pools returns all pools.
	Pools(ctx context.Context) ([]mcfgv1.MachineConfigPool, error)
	// Settings returns MachineConfiguration cluster.
	Settings(ctx context.Context) (*operatorv1.MachineConfiguration, error)
	// ControllerConfig returns the one of the cluster, perhaps from a cache.
	ControllerConfig(ctx context.Context) (*mcfgv1.ControllerConfig, error)
	// Record returns the Node's MachineConfigNode, and SetConditions writes its
	// conditions.
	Record(ctx context.Context) (*mcfgv1.MachineConfigNode, error)
	SetConditions(ctx context.Context, record *mcfgv1.MachineConfigNode, conditions []metav1.Condition) error
	// Publish creates a ConfigMap of the agents' namespace, unless it exists.
	Publish(ctx context.Context, cm *corev1.ConfigMap) error
	// Event tells what happened to the Node.
	Event(ctx context.Context, node *corev1.Node, kind, reason, message string)
}
