package machineset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

//+kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets,verbs=get;list;watch;patch,namespace=openshift-machine-api

// CapacityDeps are what the capacity controller needs. All are required.
type CapacityDeps struct {
	Client   client.Client // writes; reads come from its cache
	Live     client.Reader // Secrets
	Opener   cloud.Opener
	Codec    cloud.SpecCodec
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	Log      logr.Logger
}

// What the capacity controller says, and how long it believes a catalogue.
const (
	nameCapacity        = "machineset-capacity"
	reasonFailedUpdate  = "FailedUpdate"
	textUnknownCapacity = "Failed to set autoscaling from zero annotations, instance type unknown or unavailable"
	keyArch             = "kubernetes.io/arch"
	catalogueTTL        = time.Hour
	catalogueLimit      = 30 * time.Second
)

type capacity struct {
	CapacityDeps
	mu      sync.Mutex
	shelves map[shelf]stock
}

// shelf is one account's part of a catalogue.
type shelf struct{ account, region string }

type stock struct {
	sizes []cloud.Size
	at    time.Time
}

// NewCapacity returns the controller that tells an autoscaler, by annotations
// on a MachineSet, what a Machine of it would offer, so that the set can grow
// from zero. It writes these annotations and nothing else.
func NewCapacity(d CapacityDeps) kube.Controller {
	c := &capacity{CapacityDeps: d, shelves: map[shelf]stock{}}
	return kube.Controller{
		Name: nameCapacity, For: &machinev1beta1.MachineSet{}, Workers: 2,
		Changed: func(old, new client.Object) bool {
			return old.GetGeneration() != new.GetGeneration() || !maps.Equal(old.GetAnnotations(), new.GetAnnotations())
		},
		Decide: func(context.Context, client.Reader, types.NamespacedName) (plan.Erased, error) {
			return plan.Erased{}, nil // a preview does not ask the cloud
		},
		Reconcile: c.reconcile,
	}
}

func (c *capacity) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	set, err := get(ctx, c.Client, key)
	if set == nil || err != nil || set.Spec.Template.Spec.ProviderSpec.Value == nil {
		return reconcile.Result{}, err
	}
	spec, _, err := c.Codec.Decode(set.Spec.Template.Spec.ProviderSpec.Value.Raw)
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // admission and the Machines say so; a new spec comes as an event
	}
	spec = c.Codec.Default(spec, cloud.SpecContext{InfraID: set.Labels[wire.LabelCluster]})
	region, _, name := c.Codec.Place(spec)
	if region == "" || name == "" {
		return reconcile.Result{}, nil
	}
	sizes, err := c.sizes(ctx, set.Namespace, spec, region)
	if err != nil {
		return kube.Result(0, fmt.Errorf("read catalogue of %s: %w", region, err))
	}
	i := slices.IndexFunc(sizes, func(s cloud.Size) bool { return strings.EqualFold(s.Name, name) })
	if i < 0 {
		kube.RecordEvents(c.Recorder, set, []plan.Event{{Type: plan.Warning, Reason: reasonFailedUpdate, Message: textUnknownCapacity}})
		return reconcile.Result{}, nil
	}
	after := set.DeepCopy()
	after.Annotations = hints(set.Annotations, sizes[i])
	return kube.Result(0, kube.Patch(ctx, c.Client, set, after))
}

// sizes returns what is sold in a region, from memory if that is young enough.
func (c *capacity) sizes(ctx context.Context, namespace string, spec cloud.Spec, region string) ([]cloud.Size, error) {
	_, ref := c.Codec.References(spec)
	if ref.Namespace == "" {
		ref.Namespace = namespace
	}
	at := shelf{account: ref.Namespace + "/" + ref.Name, region: region}
	c.mu.Lock()
	have, ok := c.shelves[at]
	c.mu.Unlock()
	if ok && c.Clock.Now().Sub(have.at) < catalogueTTL {
		return have.sizes, nil
	}
	ctx, cancel := context.WithTimeout(ctx, catalogueLimit)
	defer cancel()
	var secret corev1.Secret
	if err := c.Live.Get(ctx, client.ObjectKey(ref), &secret); err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	account := cloud.Account{Source: at.account, Data: map[string]cloud.Secret{}}
	for k, v := range secret.Data {
		account.Data[k] = v
	}
	opened, err := c.Opener.Open(ctx, account)
	if err != nil {
		return nil, fmt.Errorf("open cloud: %w", err)
	}
	catalog, ok := opened.(cloud.Catalog)
	if !ok {
		return nil, nil
	}
	sizes, err := catalog.Sizes(ctx, region)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shelves[at] = stock{sizes: sizes, at: c.Clock.Now()}
	return sizes, nil
}

// hints returns annotations that tell a size, beside those that were there.
func hints(have map[string]string, s cloud.Size) map[string]string {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	out[wire.AnnotationVCPU] = strconv.Itoa(s.VCPUs)
	out[wire.AnnotationMemoryMb] = strconv.FormatInt(s.MemoryMiB, 10)
	out[wire.AnnotationGPU] = strconv.Itoa(s.GPUs)
	arch := s.Arch
	if arch == "" {
		arch = "amd64"
	}
	var pairs []string
	told := false
	for pair := range strings.SplitSeq(out[wire.AnnotationLabels], ",") {
		if key, _, _ := strings.Cut(pair, "="); key == keyArch {
			pair, told = keyArch+"="+arch, true
		}
		if pair != "" {
			pairs = append(pairs, pair)
		}
	}
	if !told {
		pairs = append(pairs, keyArch+"="+arch)
	}
	out[wire.AnnotationLabels] = strings.Join(pairs, ",")
	return out
}
