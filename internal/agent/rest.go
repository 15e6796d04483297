package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// callTimeout bounds one request.
const callTimeout = 30 * time.Second

// keptConfigs bounds the configs that stay in memory: current and desired.
const keptConfigs = 2

// REST is a Cluster over an API server, without a generated clientset: an agent needs
// a handful of requests.
type REST struct {
	name  string
	clock clock.PassiveClock
	log   Log

	kubelet rest.Interface // core, as the kubelet
	core    rest.Interface // core, as the agent's ServiceAccount
	config  rest.Interface // machineconfiguration.openshift.io
	oper    rest.Interface // operator.openshift.io
	nodes   cache.SharedIndexInformer
	ccs     cache.SharedIndexInformer

	kept    int // how many configs stay in memory
	mu      sync.Mutex
	configs []*mcfgv1.MachineConfig // the one read last is last
}

// of is the same for another node: clients and caches are shared.
func (r *REST) of(name string) *REST {
	return &REST{
		name: name, clock: r.clock, log: r.log, kubelet: r.kubelet, core: r.core, config: r.config, oper: r.oper,
		nodes: r.nodes, ccs: r.ccs, kept: r.kept,
	}
}

// NewREST returns a Cluster that reads and writes its Node as the kubelet, and the
// rest as own.
func NewREST(name string, kubelet, own *rest.Config, clk clock.PassiveClock, log Log) (*REST, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.Install, operatorv1.Install} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	codecs := serializer.NewCodecFactory(scheme)
	r := &REST{name: name, clock: clk, log: log, kept: keptConfigs}
	for _, c := range []struct {
		into *rest.Interface
		cfg  *rest.Config
		gv   schema.GroupVersion
		path string
	}{
		{&r.kubelet, kubelet, corev1.SchemeGroupVersion, "/api"}, {&r.core, own, corev1.SchemeGroupVersion, "/api"},
		{&r.config, own, mcfgv1.GroupVersion, "/apis"}, {&r.oper, own, operatorv1.GroupVersion, "/apis"},
	} {
		cfg := rest.CopyConfig(c.cfg)
		cfg.GroupVersion, cfg.APIPath, cfg.NegotiatedSerializer = &c.gv, c.path, codecs.WithoutConversion()
		cfg.QPS = -1
		cfg.UserAgent = "machine-config-daemon"
		client, err := rest.RESTClientFor(cfg)
		if err != nil {
			return nil, fmt.Errorf("make client: %w", err)
		}
		*c.into = client
	}
	one := func(c rest.Interface, resource, name string, kind runtime.Object) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(cache.NewListWatchFromClient(c, resource, "", fields.OneTermEqualSelector("metadata.name", name)), kind, 0, nil)
	}
	r.nodes = one(r.kubelet, "nodes", name, &corev1.Node{})
	r.ccs = one(r.config, "controllerconfigs", controllerConfigName, &mcfgv1.ControllerConfig{})
	return r, nil
}

// Names of the one object of its kind.
const (
	controllerConfigName = "machine-config-controller"
	settingsName         = "cluster" // of MachineConfiguration
)

// Start watches the Node and the ControllerConfig until ctx ends, calls changed for
// every change, and returns once both were seen.
func (r *REST) Start(ctx context.Context, changed func()) error {
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(old, fresh any) { r.compare(old, fresh, changed) },
		DeleteFunc: func(any) { changed() },
	}
	for _, i := range []cache.SharedIndexInformer{r.nodes, r.ccs} {
		if err := i.SetTransform(slim); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if _, err := i.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		go i.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), r.nodes.HasSynced, r.ccs.HasSynced) {
		return fmt.Errorf("watch node %s: %w", r.name, ctx.Err())
	}
	return nil
}

// slim drops what an agent never reads.
func slim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		o.ManagedFields, o.Status.Images = nil, nil
	case *mcfgv1.ControllerConfig:
		o.ManagedFields = nil
	}
	return obj, nil
}

// compare wakes the agent for what it reads: a kubelet's heartbeats are not it.
func (r *REST) compare(old, fresh any, changed func()) {
	a, okA := old.(*corev1.Node)
	b, okB := fresh.(*corev1.Node)
	if okA && okB && sameStrings(a.Annotations, b.Annotations) && sameStrings(a.Labels, b.Labels) && a.Spec.Unschedulable == b.Spec.Unschedulable {
		return
	}
	changed()
}

func sameStrings(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// Node implements Cluster.
func (r *REST) Node(context.Context) (*corev1.Node, error) {
	obj, ok, err := r.nodes.GetStore().GetByKey(r.name)
	if err != nil || !ok {
		return nil, err
	}
	return obj.(*corev1.Node), nil
}

// Annotate implements Cluster.
func (r *REST) Annotate(ctx context.Context, set map[string]*string) (*corev1.Node, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": set}})
	if err != nil {
		return nil, fmt.Errorf("encode annotations: %w", err)
	}
	var n corev1.Node
	err = r.kubelet.Patch(types.MergePatchType).Resource("nodes").Name(r.name).Timeout(callTimeout).Body(patch).Do(ctx).Into(&n)
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// get reads an object; false: there is none.
func get(ctx context.Context, c rest.Interface, resource, name string, into runtime.Object) (bool, error) {
	err := c.Get().Resource(resource).Name(name).Timeout(callTimeout).Do(ctx).Into(into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Config implements Cluster. A rendered config never changes under its name; the
// agent's own copy serves while it exists.
func (r *REST) Config(ctx context.Context, name string) (*mcfgv1.MachineConfig, error) {
	r.mu.Lock()
	for _, mc := range r.configs {
		if mc.Name == name {
			r.mu.Unlock()
			return mc, nil
		}
	}
	r.mu.Unlock()
	var mc mcfgv1.MachineConfig
	if ok, err := get(ctx, r.config, "machineconfigs", name, &mc); !ok {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configs = append(r.configs, &mc)
	if len(r.configs) > r.kept {
		r.configs = r.configs[1:]
	}
	return &mc, nil
}

// Pools implements Cluster.
func (r *REST) Pools(ctx context.Context) ([]mcfgv1.MachineConfigPool, error) {
	var list mcfgv1.MachineConfigPoolList
	err := r.config.Get().Resource("machineconfigpools").Timeout(callTimeout).Do(ctx).Into(&list)
	return list.Items, err
}

// Settings implements Cluster.
func (r *REST) Settings(ctx context.Context) (*operatorv1.MachineConfiguration, error) {
	var m operatorv1.MachineConfiguration
	if ok, err := get(ctx, r.oper, "machineconfigurations", settingsName, &m); !ok {
		return nil, err
	}
	return &m, nil
}

// ControllerConfig implements Cluster.
func (r *REST) ControllerConfig(context.Context) (*mcfgv1.ControllerConfig, error) {
	obj, ok, err := r.ccs.GetStore().GetByKey(controllerConfigName)
	if err != nil || !ok {
		return nil, err
	}
	return obj.(*mcfgv1.ControllerConfig), nil
}

// Record implements Cluster.
func (r *REST) Record(ctx context.Context) (*mcfgv1.MachineConfigNode, error) {
	var m mcfgv1.MachineConfigNode
	if ok, err := get(ctx, r.config, "machineconfignodes", r.name, &m); !ok {
		return nil, err
	}
	return &m, nil
}

// SetConditions implements Cluster. Somebody else's write in between is a conflict:
// the conditions are news, and come again.
func (r *REST) SetConditions(ctx context.Context, record *mcfgv1.MachineConfigNode, conditions []metav1.Condition) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": record.ResourceVersion},
		"status":   map[string]any{"conditions": conditions, "observedGeneration": record.Generation},
	})
	if err != nil {
		return fmt.Errorf("encode conditions: %w", err)
	}
	err = r.config.Patch(types.MergePatchType).Resource("machineconfignodes").Name(record.Name).SubResource("status").
		Timeout(callTimeout).Body(patch).Do(ctx).Error()
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Publish implements Cluster.
func (r *REST) Publish(ctx context.Context, cm *corev1.ConfigMap) error {
	err := r.core.Post().Namespace(cm.Namespace).Resource("configmaps").Timeout(callTimeout).Body(cm).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// maxEvent is how many bytes the message of an event may have.
const maxEvent = 1024

// eventComponent is who says what happens to a Node.
const eventComponent = "machineconfigdaemon"

// Event implements Cluster. A Node has no namespace; the event names the agents' own,
// or the server would put it into default. An event that cannot be written is logged.
func (r *REST) Event(ctx context.Context, n *corev1.Node, kind, reason, message string) {
	now := metav1.NewTime(r.clock.Now())
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: n.Name + "." + strconv.FormatInt(now.UnixNano(), 16)},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Namespace: namespace, Name: n.Name, UID: n.UID},
		Type:           kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: eventComponent, Host: n.Name}, ReportingController: eventComponent, ReportingInstance: n.Name,
	}
	if len(e.Message) > maxEvent {
		e.Message = strings.ToValidUTF8(e.Message[:maxEvent], "")
	}
	err := r.kubelet.Post().Namespace(namespace).Resource("events").Timeout(callTimeout).Body(e).Do(ctx).Error()
	if err != nil {
		r.log.Errorf("Writing event %s: %v", reason, err)
	}
}
