package cloudnode

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
)

// Names under which the loops are known.
const (
	ControllerNode      = "cloud-node-controller"
	ControllerLifecycle = "cloud-node-lifecycle-controller"
)

const (
	// addressPeriod is how often addresses of initialised Nodes are looked
	// at again (the originals' default).
	addressPeriod = 5 * time.Minute
	// monitorPeriod is how often Nodes that are not ready are compared with
	// the cloud (the originals' default).
	monitorPeriod = 5 * time.Second
	workers       = 10
)

//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;update;patch;delete
//+kubebuilder:rbac:groups="",resources=nodes/status,verbs=update;patch
//+kubebuilder:rbac:groups="",resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch;update
//+kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures,verbs=get;list;watch
//+kubebuilder:rbac:groups="",resources=secrets,resourceNames=azure-cloud-credentials,verbs=get,namespace=openshift-cloud-controller-manager
//+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update,namespace=openshift-cloud-controller-manager

// nodeBackoff is how the library repeats an update of a Node that somebody else
// wrote meanwhile. It takes the Node from its cache, and its own pause of 50 ms is
// shorter than the cache's delay where hundreds of Nodes come at once: each would be
// refused several times. In all it tries for about half a minute.
var nodeBackoff = wait.Backoff{Steps: 12, Duration: 300 * time.Millisecond, Factor: 1.3, Jitter: 0.5}

// Run runs one of the loops until ctx ends.
func Run(ctx context.Context, name string, cfg *rest.Config, p *Provider) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, name))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	metrics := controllersmetrics.NewControllerManagerMetrics(name)
	switch name {
	case ControllerNode:
		node.UpdateNodeSpecBackoff = nodeBackoff
		c, err := node.NewCloudNodeController(nodes, client, p, addressPeriod, workers, workers)
		if err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		factory.Start(ctx.Done())
		c.Run(ctx.Done(), metrics)
	case ControllerLifecycle:
		c, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, client, p, monitorPeriod, workers)
		if err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
		factory.Start(ctx.Done())
		c.Run(ctx, metrics)
	default:
		return fmt.Errorf("unknown controller %q: known are %s and %s", name, ControllerNode, ControllerLifecycle)
	}
	return ctx.Err()
}
