package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/dialect/machineconfig/fragment"
	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/engine/diff"
	"millwright.io/millwright/internal/engine/hostconf"
	"millwright.io/millwright/internal/engine/render"
	"millwright.io/millwright/internal/engine/target"
)

// picture is what was seen: the planner's input and the objects behind it. The
// objects are shared with the cache; nobody changes them.
type picture struct {
	in         target.Input
	pool       *machineconfigv1.MachineConfigPool
	configs    map[string]*machineconfigv1.MachineConfig // rendered ones of the pool
	digest     string                                    // of the inputs
	release    string
	osImageURL string
	imagesOf   render.Base
	baseErr    error // of imagesOf
	overrides  diff.Overrides
	pinned     []string // PinnedImageSets that select the pool
}

// observe reads a pool and what concerns it. It returns nil when there is no
// such pool, or it goes: the garbage collector takes its configs then.
func (c *controller) observe(ctx context.Context, r, live client.Reader, key types.NamespacedName, m *memory) (*picture, error) {
	pool := &machineconfigv1.MachineConfigPool{}
	if err := r.Get(ctx, key, pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if pool.DeletionTimestamp != nil {
		return nil, nil
	}
	p := &picture{pool: pool, configs: map[string]*machineconfigv1.MachineConfig{}}
	p.in.Now, p.in.Keep, p.in.Needed = c.Clock.Now(), c.Keep, map[string]bool{}
	p.in.Pool = target.Pool{Name: pool.Name, Selector: pool.Spec.MachineConfigSelector, Target: pool.Spec.Configuration.Name}
	for _, s := range pool.Spec.Configuration.Source {
		p.in.Pool.Sources = append(p.in.Pool.Sources, s.Name)
	}
	if c := fragment.PoolCondition(pool, machineconfigv1.MachineConfigPoolRenderDegraded); c != nil {
		p.in.Pool.Degraded = c.Status == corev1.ConditionTrue
	}
	if err := p.gates(ctx, r); err != nil {
		return nil, err
	}
	if err := p.inputs(ctx, r, live, m); err != nil {
		return nil, err
	}
	if err := p.references(ctx, r); err != nil {
		return nil, err
	}
	return p, c.compare(ctx, live, p, m)
}

// gates reads the ControllerConfig and says what is not complete yet.
func (p *picture) gates(ctx context.Context, r client.Reader) error {
	var cc machineconfigv1.ControllerConfig
	err := r.Get(ctx, client.ObjectKey{Name: wire.ControllerConfig}, &cc)
	if apierrors.IsNotFound(err) {
		p.in.Waits = append(p.in.Waits, "ControllerConfig "+wire.ControllerConfig)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read controller config: %w", err)
	}
	p.release, p.osImageURL = cc.Annotations[wire.AnnotationRelease], cc.Spec.OSImageURL
	p.digest = fmt.Sprintf("%s/%d/%s", cc.UID, cc.Generation, p.release)
	p.imagesOf = render.Base{OSImageURL: cc.Spec.BaseOSContainerImage, BaseOSExtensionsContainerImage: cc.Spec.BaseOSExtensionsContainerImage}
	if wait := incomplete(&cc); wait != "" {
		p.in.Waits = append(p.in.Waits, wait)
	}
	if err := p.stream(ctx, r); err != nil {
		return err
	}
	var allowed operatorv1.MachineConfiguration
	err = r.Get(ctx, client.ObjectKey{Name: wire.MachineConfiguration}, &allowed)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read machine configuration: %w", err)
	}
	p.overrides = diff.OverridesOf(allowed.Spec.IrreconcilableValidationOverrides)
	var kubelets machineconfigv1.KubeletConfigList
	var runtimes machineconfigv1.ContainerRuntimeConfigList
	for _, l := range []client.ObjectList{&kubelets, &runtimes} {
		if err := r.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %T: %w", l, err)
		}
	}
	for i := range kubelets.Items {
		k := &kubelets.Items[i]
		p.pending(k, "KubeletConfig", k.Spec.MachineConfigPoolSelector, k.Status.ObservedGeneration)
	}
	for i := range runtimes.Items {
		k := &runtimes.Items[i]
		p.pending(k, "ContainerRuntimeConfig", k.Spec.MachineConfigPoolSelector, k.Status.ObservedGeneration)
	}
	slices.Sort(p.in.Waits)
	return nil
}

// stream puts in the images of the OS image stream that the pool follows.
func (p *picture) stream(ctx context.Context, r client.Reader) error {
	var worker machineconfigv1.MachineConfigPool
	if err := r.Get(ctx, client.ObjectKey{Name: hostconf.RoleWorker}, &worker); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read worker pool: %w", err)
	}
	name := render.StreamOf(p.pool, &worker)
	if name == "" {
		return nil
	}
	var streams machineconfigv1.OSImageStream
	err := r.Get(ctx, client.ObjectKey{Name: wire.Cluster}, &streams)
	if apierrors.IsNotFound(err) {
		p.in.Waits = append(p.in.Waits, "OSImageStream "+wire.Cluster)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read OS image streams: %w", err)
	}
	p.imagesOf, p.baseErr = p.imagesOf.WithStream(p.pool.Spec.OSImageStream.Name, name, streams.Status.AvailableStreams)
	p.digest += fmt.Sprintf("/%s/%s/%s/%v", p.imagesOf.Stream, p.imagesOf.OSImageURL, p.imagesOf.BaseOSExtensionsContainerImage, p.baseErr)
	return nil
}

// pending notes an object whose fragment is not made yet. One that was refused
// holds nothing up: its last good fragment counts, and it says itself what is
// wrong with it.
func (p *picture) pending(obj client.Object, kind string, s *metav1.LabelSelector, observed int64) {
	if s == nil || (len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0) {
		return // selects nothing
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || !selector.Matches(labels.Set(p.pool.Labels)) {
		return
	}
	if obj.GetDeletionTimestamp() != nil {
		p.in.Waits = append(p.in.Waits, kind+" "+obj.GetName()+" to be removed")
		return
	}
	if observed != obj.GetGeneration() {
		p.in.Waits = append(p.in.Waits, kind+" "+obj.GetName()+" to be processed")
	}
}

// incomplete says what keeps the base configs from being complete.
func incomplete(cc *machineconfigv1.ControllerConfig) string {
	if cc.Status.ObservedGeneration != cc.Generation {
		return fmt.Sprintf("status for ControllerConfig %s is being reported for %d, expecting it for %d", cc.Name, cc.Status.ObservedGeneration, cc.Generation)
	}
	is := map[machineconfigv1.ControllerConfigStatusConditionType]bool{}
	for _, c := range cc.Status.Conditions {
		is[c.Type] = c.Status == corev1.ConditionTrue
	}
	done, running, failing := is[machineconfigv1.TemplateControllerCompleted], is[machineconfigv1.TemplateControllerRunning], is[machineconfigv1.TemplateControllerFailing]
	if !done || running || failing {
		return fmt.Sprintf("ControllerConfig has not completed: completed(%v) running(%v) failing(%v)", done, running, failing)
	}
	return ""
}

// inputs reads the MachineConfigs: what the pool selects, and what was made of
// it before.
func (p *picture) inputs(ctx context.Context, r, live client.Reader, m *memory) error {
	var list machineconfigv1.MachineConfigList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list machine configs: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(p.pool.Spec.MachineConfigSelector)
	if err != nil {
		return fmt.Errorf("read selector of pool %s: %w", p.pool.Name, err)
	}
	var sources []render.Fragment
	sum := sha256.New()
	_, _ = io.WriteString(sum, p.digest)
	slices.SortFunc(list.Items, func(a, b machineconfigv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		mc := &list.Items[i]
		if ofPool(mc, p.pool) {
			p.configs[mc.Name] = mc
			continue
		}
		if !selector.Matches(labels.Set(mc.Labels)) || mc.DeletionTimestamp != nil {
			continue
		}
		if v := mc.Annotations[wire.AnnotationGeneratedBy]; v != "" && v != wire.Version() && generated(mc) {
			p.in.Waits = append(p.in.Waits, fmt.Sprintf("MC %s generated by older version %s (my version: %s)", mc.Name, v, wire.Version()))
		}
		fmt.Fprintf(sum, "\x00%s/%s/%s", mc.Name, mc.UID, mc.ResourceVersion)
		sources = append(sources, render.FromMachineConfig(mc))
	}
	p.digest = hex.EncodeToString(sum.Sum(nil))
	if m.digest != p.digest || m.digest == "" {
		m.digest, m.outcome, m.against = p.digest, target.Render(p.in.Pool, sources, p.imagesOf), ""
		if p.baseErr != nil {
			m.outcome = target.Outcome{Err: &target.Failure{Text: "could not generate rendered MachineConfig: " + p.baseErr.Error()}}
		}
	}
	return p.judge(ctx, live, m, sources)
}

// judge asks whether nodes of the present target can take what was rendered.
// The body of the target is read once for each that is compared.
func (p *picture) judge(ctx context.Context, live client.Reader, m *memory, sources []render.Fragment) error {
	now := p.in.Pool.Target
	if now == "" || m.outcome.Err != nil || m.outcome.Result.Name == now {
		p.in.Outcome = m.outcome
		return nil
	}
	if m.against != now || m.allowed != p.overrides {
		var mc machineconfigv1.MachineConfig
		err := live.Get(ctx, client.ObjectKey{Name: now}, &mc)
		switch {
		case apierrors.IsNotFound(err): // nobody can run what is gone
			m.judged = m.outcome
		case err != nil:
			return fmt.Errorf("read present target %s: %w", now, err)
		default:
			m.judged = target.Judge(diff.Named{Name: now, Spec: mc.Spec}, m.outcome, sources, p.overrides)
		}
		m.against, m.allowed = now, p.overrides
	}
	p.in.Outcome = m.judged
	return nil
}

// generated says whether a config is a controller's and not a person's copy of
// one, whose annotations mean nothing.
func generated(mc *machineconfigv1.MachineConfig) bool {
	return metav1.GetControllerOfNoCopy(mc) != nil || strings.Contains(mc.Name, "-generated-")
}

// ofPool says whether a config is one rendered for the pool.
func ofPool(mc *machineconfigv1.MachineConfig, pool *machineconfigv1.MachineConfigPool) bool {
	if metav1.IsControlledBy(mc, pool) {
		return true
	}
	// Restored by hand, its owner may be missing.
	return len(mc.Labels) == 0 && hostconf.IsRendered(mc.Name) && strings.HasPrefix(mc.Name, "rendered-"+pool.Name+"-") &&
		len(mc.Name) == len("rendered-"+pool.Name+"-")+32
}

// references gathers the configs that somebody needs.
func (p *picture) references(ctx context.Context, r client.Reader) error {
	var pools machineconfigv1.MachineConfigPoolList
	var nodes corev1.NodeList
	var records machineconfigv1.MachineConfigNodeList
	var pinned machineconfigv1.PinnedImageSetList
	for _, l := range []client.ObjectList{&pools, &nodes, &records, &pinned} {
		if err := r.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list %T: %w", l, err)
		}
	}
	for i := range pools.Items {
		o := &pools.Items[i]
		p.need(o.Spec.Configuration.Name, o.Status.Configuration.Name)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		a := n.Annotations
		p.need(a[wire.AnnotationCurrentConfig], a[wire.AnnotationDesiredConfig], a[wire.AnnotationFirstPivotConfig])
	}
	for i := range records.Items {
		n := &records.Items[i]
		p.need(n.Spec.ConfigVersion.Desired)
		if v := n.Status.ConfigVersion; v != nil {
			p.need(v.Desired, v.Current)
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(p.pool.Spec.MachineConfigSelector); err == nil {
		for i := range pinned.Items {
			if selector.Matches(labels.Set(pinned.Items[i].Labels)) {
				p.pinned = append(p.pinned, pinned.Items[i].Name)
			}
		}
	}
	slices.Sort(p.pinned)
	return nil
}

func (p *picture) need(names ...string) {
	for _, n := range names {
		if n != "" {
			p.in.Needed[n] = true
		}
	}
}

// compare says which of the rendered configs there are, own writes included,
// and whether the one that is wanted is as we would write it. Bodies of
// rendered configs are not in the cache; one that was changed since its
// creation is read once.
func (c *controller) compare(ctx context.Context, live client.Reader, p *picture, m *memory) error {
	var cached []client.Object
	for _, name := range slices.Sorted(maps.Keys(p.configs)) {
		cached = append(cached, p.configs[name])
	}
	want := p.in.Outcome.Result.Name
	for _, o := range c.overlay.Apply(p.pool.UID, cached) {
		mc, ok := o.(*machineconfigv1.MachineConfig)
		if !ok || mc.DeletionTimestamp != nil {
			continue
		}
		p.configs[mc.Name] = mc
		x := target.Rendered{Name: mc.Name, UID: string(mc.UID), Created: mc.CreationTimestamp.Time, Owned: metav1.IsControlledBy(mc, p.pool), Intact: true}
		if mc.Name == want {
			ok, err := intact(ctx, live, p, m, mc)
			if err != nil {
				return err
			}
			x.Intact = ok
		}
		p.in.Rendered = append(p.in.Rendered, x)
	}
	return nil
}

func intact(ctx context.Context, live client.Reader, p *picture, m *memory, mc *machineconfigv1.MachineConfig) (bool, error) {
	for k, v := range p.notes() {
		if mc.Annotations[k] != v {
			return false, nil
		}
	}
	if !metav1.IsControlledBy(mc, p.pool) {
		return false, nil
	}
	if mc.Generation <= 1 || m.intact[mc.Name] == mc.ResourceVersion {
		return true, nil
	}
	var now machineconfigv1.MachineConfig
	if err := live.Get(ctx, client.ObjectKeyFromObject(mc), &now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	p.configs[mc.Name] = &now
	if !sameSpec(now.Spec, p.in.Outcome.Result.Spec) {
		return false, nil
	}
	m.intact = map[string]string{mc.Name: now.ResourceVersion}
	return true, nil
}

// sameSpec compares by what the name is a hash of.
func sameSpec(a, b machineconfigv1.MachineConfigSpec) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	x, _, errX := render.Hash("x", a)
	y, _, errY := render.Hash("x", b)
	return errX == nil && errY == nil && x == y
}
