package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/instance"
	engine "millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/observe"
)

// cloudTimeout ends one question to the cloud.
const cloudTimeout = 30 * time.Second

// observe reads everything a decision about one Machine needs. It returns nil
// when there is no such Machine.
func (c *controller) observe(ctx context.Context, r client.Reader, key types.NamespacedName) (*world, error) {
	var cached machinev1.Machine
	if err := r.Get(ctx, key, &cached); err != nil {
		if apierrors.IsNotFound(err) {
			c.memory.forget(key)
			return nil, nil
		}
		return nil, fmt.Errorf("read machine %s: %w", key, err)
	}
	if c.memory.buried(key, cached.UID) {
		return nil, nil
	}
	m, last, known := c.memory.newest(key, &cached)
	if !known {
		last = lastOf(m)
	}
	now := c.d.Clock.Now()
	w := &world{machine: m, in: facts(m, now), own: owned(m, now)}
	w.own.Last = last
	if w.invalid = invalid(m); w.invalid != "" && !w.in.Deleting {
		return w, nil
	}
	w.invalid = ""
	if err := c.observeNode(ctx, r, w); err != nil {
		return nil, err
	}
	if !engine.Asks(w.in) {
		return w, nil
	}
	return w, c.observeInstance(ctx, r, w)
}

// observeNode reads the Node and, while it is being drained, its pods.
func (c *controller) observeNode(ctx context.Context, r client.Reader, w *world) error {
	if w.in.NodeRef == nil {
		return nil
	}
	var node corev1.Node
	if err := r.Get(ctx, types.NamespacedName{Name: w.in.NodeRef.Name}, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read node %s: %w", w.in.NodeRef.Name, err)
	}
	w.in.Node = nodeFacts(&node)
	if !w.in.NeedsPods() {
		return nil
	}
	if w.in.Node.ControlPlane && !w.in.Node.Unschedulable {
		var nodes corev1.NodeList
		if err := r.List(ctx, &nodes); err != nil {
			return fmt.Errorf("list control plane nodes: %w", err)
		}
		for i := range nodes.Items {
			n := &nodes.Items[i]
			w.in.OtherControlPlaneCordon = w.in.OtherControlPlaneCordon || n.Name != node.Name && controlPlane(n) && n.Spec.Unschedulable
		}
	}
	pods, err := observe.PodsOnNode(ctx, c.d.Live, node.Name)
	if err != nil {
		return err
	}
	w.in.Pods = observe.Drainees(pods)
	w.in.Budgets, err = observe.Budgets(ctx, c.d.Live, w.in.Pods)
	return err
}

// observeInstance decodes the spec, opens the cloud and asks it. What goes
// wrong is part of the observation.
func (c *controller) observeInstance(ctx context.Context, r client.Reader, w *world) error {
	m := w.machine
	infra, err := readInfrastructure(ctx, r)
	if err != nil {
		return err
	}
	sc := specContext(m, infra)
	spec, digest, err := c.specs.decode(m.Spec.ProviderSpec.Value, sc)
	w.own.Digest = digest
	if err != nil {
		w.own.Undecodable = true
		w.own.Blocked = &cloud.Fault{Kind: cloud.Invalid, Op: "decode provider spec", Message: wire.TextReconcileFailed(m.Name, err.Error())}
		return nil
	}
	w.own.Key.Scope = spec.Scope()
	userData, credentials := c.d.Codec.References(spec)
	if w.cloud, w.own.Seen.Fault = c.open(ctx, m, credentials); w.cloud == nil {
		return nil
	}
	hold := w.in.Deleting && w.in.Goal() == instance.Hold
	if hold && !w.in.NeedsProof() {
		return nil // the drain is on; what the cloud has does not matter yet
	}
	askCtx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	inst, err := w.cloud.Observe(askCtx, w.own.Key)
	if hold {
		w.in.Node.Off = off(inst, err)
		return nil
	}
	switch {
	case err != nil:
		w.own.Seen.Fault = faultFrom(err, "observe "+m.Name)
	default:
		w.own.Seen.Instance = &inst
	}
	if w.in.Goal() != instance.Keep || w.own.Seen.Instance != nil && inst.State != cloud.StateLeftover {
		return nil
	}
	w.intent = cloud.Intent{
		Key: w.own.Key, Owner: cloud.Owner(sc.InfraID), Group: groupOf(m), Spec: spec, Tags: sc.UserTags,
	}
	w.own.Blocked = c.block(ctx, w, spec, sc, userData)
	return nil
}

// off says whether the cloud vouches that an instance does not run. Not
// knowing is no proof.
func off(inst cloud.Instance, err error) bool {
	if err != nil {
		return cloud.KindOf(err) == cloud.NotFound
	}
	switch inst.State {
	case cloud.StateStopped, cloud.StateDeallocated, cloud.StateLeftover:
		return true
	default:
		return false
	}
}

// block returns what stands against a create, and puts the first-boot data
// into the intent.
func (c *controller) block(ctx context.Context, w *world, spec cloud.Spec, sc cloud.SpecContext, ref cloud.SecretRef) *cloud.Fault {
	var wrong []string
	for _, p := range c.d.Codec.Validate(spec, sc) {
		if !p.Warning {
			wrong = append(wrong, p.String())
		}
	}
	if len(wrong) > 0 {
		return &cloud.Fault{Kind: cloud.Invalid, Op: "validate provider spec", Message: wire.TextReconcileFailed(w.machine.Name, strings.Join(wrong, "; "))}
	}
	if ref.Name == "" {
		return nil
	}
	ns := w.machine.Namespace // whatever the reference says
	data, err := c.secrets.get(ctx, types.NamespacedName{Namespace: ns, Name: ref.Name})
	text := ""
	switch {
	case err != nil:
		text = wire.TextUserDataSecret(ref.Name, ns, err)
	case len(data[wire.UserDataKey]) == 0:
		text = wire.TextNoUserData(ns, ref.Name)
	default:
		w.intent.UserData = data[wire.UserDataKey]
		return nil
	}
	return &cloud.Fault{Kind: cloud.Transient, Op: "read user data", Message: wire.TextReconcileRetried(w.machine.Name, text), Cause: err}
}

func (c *controller) open(ctx context.Context, m *machinev1.Machine, ref cloud.SecretRef) (cloud.Cloud, *cloud.Fault) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if key.Namespace == "" {
		key.Namespace = m.Namespace
	}
	var account cloud.Account
	if ref.Name != "" {
		data, err := c.secrets.get(ctx, key)
		if err != nil {
			return nil, &cloud.Fault{Kind: cloud.Credentials, Op: "read credentials", Message: wire.TextScope(wire.TextCredentials(key.String(), err)), Cause: err}
		}
		account = cloud.Account{Source: key.String(), Data: data}
	}
	cl, err := c.d.Opener.Open(ctx, account)
	if err != nil {
		c.secrets.drop(key)
		f := *faultFrom(err, "open cloud")
		f.Message = wire.TextScope(f.Error())
		return nil, &f
	}
	return cl, nil
}

func faultFrom(err error, op string) *cloud.Fault {
	if f := cloud.FaultOf(err); f != nil {
		return f
	}
	return &cloud.Fault{Kind: cloud.Transient, Op: op, Cause: err}
}

// readInfrastructure returns the cluster's Infrastructure; an empty one when
// there is none.
func readInfrastructure(ctx context.Context, r client.Reader) (*configv1.Infrastructure, error) {
	var infra configv1.Infrastructure
	if err := r.Get(ctx, types.NamespacedName{Name: "cluster"}, &infra); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read infrastructure cluster: %w", err)
	}
	return &infra, nil
}

func specContext(m *machinev1.Machine, infra *configv1.Infrastructure) cloud.SpecContext {
	sc := cloud.SpecContext{InfraID: infra.Status.InfrastructureName, MachineName: m.Name}
	if sc.InfraID == "" {
		sc.InfraID = m.Labels[wire.LabelCluster]
	}
	if p := infra.Status.PlatformStatus; p != nil && p.Azure != nil {
		sc.ResourceGroup, sc.CloudName = p.Azure.ResourceGroupName, string(p.Azure.CloudName)
		for _, t := range p.Azure.ResourceTags {
			if sc.UserTags == nil {
				sc.UserTags = map[string]string{}
			}
			sc.UserTags[t.Key] = t.Value
		}
	}
	return sc
}
