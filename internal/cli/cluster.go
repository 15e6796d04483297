package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/lint"
	"millwright.io/millwright/internal/memapi"
)

// cluster is what a preview knows: a copy in memory, to which the user's files
// are applied. It never writes anywhere.
type cluster struct {
	pools      map[string]*mcfgv1.MachineConfigPool
	configs    map[string]*mcfgv1.MachineConfig
	controller *mcfgv1.ControllerConfig
	policy     *operatorv1.MachineConfiguration
	streams    *mcfgv1.OSImageStream
	settings   map[string]client.Object  // by kind/name
	units      map[string]lint.UnitNames // by digest
	nodes      map[string]*corev1.Node
	pods       []corev1.Pod
	budgets    []policyv1.PodDisruptionBudget
	sets       map[string]*machinev1beta1.MachineSet // by namespace/name
	machines   map[string]*machinev1beta1.Machine
	infra      *configv1.Infrastructure
	podsKnown  bool
	notes      []string // what could not be read or considered
	touched    map[string]bool
}

func newCluster() *cluster {
	return &cluster{
		pools: map[string]*mcfgv1.MachineConfigPool{}, configs: map[string]*mcfgv1.MachineConfig{},
		nodes: map[string]*corev1.Node{}, sets: map[string]*machinev1beta1.MachineSet{},
		machines: map[string]*machinev1beta1.Machine{}, settings: map[string]client.Object{}, units: map[string]lint.UnitNames{}, touched: map[string]bool{},
	}
}

// readScheme knows every kind a preview reads.
func readScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mcfgv1.Install, operatorv1.Install, operatorv1alpha1.Install, machinev1beta1.Install, machinev1.Install, configv1.Install,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}

// callTimeout bounds one request for one page.
const callTimeout = time.Minute

// liveReader reads the cluster of a kubeconfig context; empty: the current one.
func liveReader(kubeconfig, kubecontext string) (client.Reader, string, error) {
	scheme, err := readScheme()
	if err != nil {
		return nil, "", err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubecontext})
	cfg, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", errors.New("there is no kubeconfig: point KUBECONFIG to a cluster, or use --from with a directory or a must-gather")
	}
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	// A preview lists a dozen kinds once; client-side limits only slow it down.
	cfg.QPS, cfg.UserAgent, cfg.Timeout = -1, "millwright-plan", callTimeout
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("connect to %s: %w", cfg.Host, err)
	}
	return c, cfg.Host, nil
}

// fileReader reads manifests or a must-gather. What is no object there is no
// error: trees hold logs and more.
func fileReader(path string, stdin io.Reader) (client.Reader, []string, error) {
	scheme, err := readScheme()
	if err != nil {
		return nil, nil, err
	}
	tree, err := memapi.Path(path, stdin)
	if err != nil {
		return nil, nil, err
	}
	s, err := memapi.Reader(scheme, tree)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Problems(), nil
}

// load copies what r shows. Kinds the cluster does not serve are absent; kinds
// the user may not list are named in notes.
func (c *cluster) load(ctx context.Context, r client.Reader, p *progress) error {
	lists := []client.ObjectList{
		&mcfgv1.MachineConfigPoolList{}, &mcfgv1.MachineConfigList{}, &mcfgv1.ControllerConfigList{}, &operatorv1.MachineConfigurationList{},
		&corev1.NodeList{}, &machinev1beta1.MachineSetList{}, &machinev1beta1.MachineList{}, &configv1.InfrastructureList{},
		&policyv1.PodDisruptionBudgetList{}, &corev1.PodList{}, &mcfgv1.OSImageStreamList{},
	}
	for _, s := range settings {
		lists = append(lists, s.list())
	}
	p.start("reading", "kinds", len(lists)+1)
	defer p.stop()
	if err := c.loadKind(ctx, r, &corev1.ConfigMapList{}, client.InNamespace(namespaceMCO), client.HasLabels{lint.UnitNamesKey}); err != nil {
		return err
	}
	p.step()
	for _, list := range lists {
		if err := c.loadKind(ctx, r, list); err != nil {
			return err
		}
		p.step()
	}
	return nil
}

// pageSize bounds one answer of the API server.
const pageSize = 500

func (c *cluster) loadKind(ctx context.Context, r client.Reader, list client.ObjectList, which ...client.ListOption) error {
	kind := strings.TrimSuffix(fmt.Sprintf("%T", list), "List")
	kind = kind[strings.LastIndex(kind, ".")+1:]
	opts := &client.ListOptions{Limit: pageSize}
	opts.ApplyOptions(which)
	for {
		err := r.List(ctx, list, opts)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err):
			c.notes = append(c.notes, fmt.Sprintf("%s objects may not be listed with these credentials and are not considered", kind))
			return nil
		case err != nil:
			return fmt.Errorf("list %s objects: %w", kind, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error { c.put(o); return nil }); err != nil {
			return fmt.Errorf("list %s objects: %w", kind, err)
		}
		if kind == "Pod" {
			c.podsKnown = c.podsKnown || len(c.pods) > 0
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

func (c *cluster) put(o runtime.Object) {
	if obj, ok := o.(client.Object); ok {
		if kind, ok := settingKind(obj); ok {
			c.settings[kind+"/"+obj.GetName()] = obj.DeepCopyObject().(client.Object)
			return
		}
	}
	if !c.putConfig(o) {
		c.putOther(o)
	}
}

// putConfig takes what concerns the configs of machines.
func (c *cluster) putConfig(o runtime.Object) bool {
	switch o := o.(type) {
	case *mcfgv1.MachineConfigPool:
		c.pools[o.Name] = o.DeepCopy()
	case *mcfgv1.MachineConfig:
		c.configs[o.Name] = o.DeepCopy()
	case *mcfgv1.ControllerConfig:
		c.controller = o.DeepCopy()
	case *operatorv1.MachineConfiguration:
		if o.Name == "cluster" {
			c.policy = o.DeepCopy()
		}
	case *mcfgv1.OSImageStream:
		if o.Name == "cluster" {
			c.streams = o.DeepCopy()
		}
	case *corev1.ConfigMap:
		digest := o.Labels[lint.UnitNamesKey]
		if names, err := lint.ParseUnitNames(o.Data[lint.UnitNamesData], digest); err == nil && digest != "" {
			c.units[digest] = names
		}
	default:
		return false
	}
	return true
}

// putOther takes the rest.
func (c *cluster) putOther(o runtime.Object) {
	switch o := o.(type) {
	case *corev1.Node:
		n := o.DeepCopy()
		n.ManagedFields, n.Status.Images = nil, nil
		c.nodes[o.Name] = n
	case *corev1.Pod:
		c.pods = append(c.pods, slimPod(o))
	case *policyv1.PodDisruptionBudget:
		c.budgets = append(c.budgets, *o.DeepCopy())
	case *machinev1beta1.MachineSet:
		c.sets[o.Namespace+"/"+o.Name] = o.DeepCopy()
	case *machinev1beta1.Machine:
		c.machines[o.Namespace+"/"+o.Name] = o.DeepCopy()
	case *configv1.Infrastructure:
		if o.Name == "cluster" {
			c.infra = o.DeepCopy()
		}
	}
}

// slimPod keeps what a drain looks at: clusters have many pods.
func slimPod(p *corev1.Pod) corev1.Pod {
	out := corev1.Pod{ObjectMeta: *p.ObjectMeta.DeepCopy()}
	out.ManagedFields = nil
	out.Spec.NodeName = p.Spec.NodeName
	out.Spec.TerminationGracePeriodSeconds = p.Spec.TerminationGracePeriodSeconds
	out.Status.Phase, out.Status.Conditions = p.Status.Phase, p.Status.Conditions
	return out
}

// apply puts the user's objects over the cluster's, as kubectl apply would.
func (c *cluster) apply(ms []manifest) error {
	ignored := map[string]int{}
	seen := map[string]source{}
	for _, m := range ms {
		key := m.Kind.GroupKind().String() + " " + m.Namespace + "/" + m.Name
		if at, twice := seen[key]; twice {
			c.notes = append(c.notes, fmt.Sprintf("%s stands in %s and in %s; the later one counts", m.object(), at, m.Source))
		}
		seen[key] = m.Source
		obj := c.blank(m)
		if obj == nil {
			ignored[m.Kind.Kind]++
			continue
		}
		if err := m.decode(obj); err != nil {
			return err
		}
		if pool, ok := obj.(*mcfgv1.MachineConfigPool); ok {
			keepTarget(pool, c.pools[pool.Name])
		}
		if s, ok := settingOf(m.Kind.GroupKind()); ok {
			current := c.settings[s.kind.Kind+"/"+m.Name]
			keepMeta(obj, current)
			if gates, ok := obj.(*configv1.FeatureGate); ok {
				was, _ := current.(*configv1.FeatureGate)
				c.expectGates(gates, was)
			}
		}
		if set, ok := obj.(*machinev1beta1.MachineSet); ok {
			keepIdentity(set, c.sets[set.Namespace+"/"+set.Name])
		}
		c.put(obj)
		c.touched[m.Kind.Kind+" "+m.Namespace+"/"+m.Name] = true
		if m.Kind.Kind == "Pod" {
			c.podsKnown = true
		}
	}
	for _, kind := range sortedKeys(ignored) {
		c.notes = append(c.notes, fmt.Sprintf("%d %s objects of the files are not considered: this command knows nothing about their effect on machines", ignored[kind], kind))
	}
	return nil
}

// blank returns an empty object of a kind that matters, nil for others.
func (c *cluster) blank(m manifest) client.Object {
	if s, ok := settingOf(m.Kind.GroupKind()); ok {
		return s.make()
	}
	switch m.Kind.Group + "/" + m.Kind.Kind {
	case groupMachineConfig + "/MachineConfigPool":
		return &mcfgv1.MachineConfigPool{}
	case groupMachineConfig + "/MachineConfig":
		return &mcfgv1.MachineConfig{}
	case groupMachineConfig + "/ControllerConfig":
		return &mcfgv1.ControllerConfig{}
	case groupMachineConfig + "/OSImageStream":
		return &mcfgv1.OSImageStream{}
	case groupOperator + "/MachineConfiguration":
		return &operatorv1.MachineConfiguration{}
	case groupMachine + "/MachineSet":
		return &machinev1beta1.MachineSet{}
	case groupMachine + "/Machine":
		return &machinev1beta1.Machine{}
	case "config.openshift.io/Infrastructure":
		return &configv1.Infrastructure{}
	case "/Node":
		return &corev1.Node{}
	case "/Pod":
		return &corev1.Pod{}
	case "/ConfigMap":
		return &corev1.ConfigMap{}
	case "policy/PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	}
	return nil
}

// keepTarget: the target of a pool is written by controllers, so files leave
// it out.
func keepTarget(pool, current *mcfgv1.MachineConfigPool) {
	if current == nil {
		return
	}
	pool.UID = current.UID
	if pool.Spec.Configuration.Name == "" {
		pool.Spec.Configuration = current.Spec.Configuration
		pool.Status = current.Status
	}
}

func keepIdentity(set, current *machinev1beta1.MachineSet) {
	if current == nil {
		return
	}
	set.UID, set.Generation, set.CreationTimestamp, set.Status = current.UID, current.Generation, current.CreationTimestamp, current.Status
	if set.Spec.Replicas == nil {
		set.Spec.Replicas = current.Spec.Replicas
	}
}

// copy returns a cluster that can be changed without changing c: objects are
// replaced, never edited.
func (c *cluster) copy() *cluster {
	out := *c
	out.pools, out.configs, out.nodes = cloneMap(c.pools), cloneMap(c.configs), cloneMap(c.nodes)
	out.settings, out.units = cloneMap(c.settings), cloneMap(c.units)
	out.sets, out.machines, out.touched = cloneMap(c.sets), cloneMap(c.machines), cloneMap(c.touched)
	out.pods, out.budgets, out.notes = slices.Clone(c.pods), slices.Clone(c.budgets), slices.Clone(c.notes)
	return &out
}

func cloneMap[V any](m map[string]V) map[string]V {
	out := make(map[string]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
