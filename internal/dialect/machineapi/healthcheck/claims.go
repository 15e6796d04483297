package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/engine/budget"
	"millwright.io/millwright/internal/engine/health"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/engine/target"
	"millwright.io/millwright/internal/telemetry"
)

// wakeSpent is when a repair is tried again that the account refused; what
// frees the account need not be an event of this check.
const wakeSpent = 30 * time.Second

// wakeHeld is when claims are settled again that are held: a set that wants
// fewer Machines is no event of this check.
const wakeHeld = 30 * time.Second

// claimer is who claims: one check.
func claimer(key types.NamespacedName) string { return "machinehealthcheck/" + key.Name }

// books are the accounts on which the Nodes of a check's Machines draw: the
// Node's pool where there are pools, else what owns the Machine.
type books struct {
	accounts []*account
	byNode   map[string]*account
	// wanted is how many Machines each MachineSet wants whose Machines the check
	// selects, by name.
	wanted map[string]int32
}

type account struct {
	act.Account
	claims []budget.Claim
}

// openBooks reads the accounts from the server, each once. Pools are not served
// everywhere.
func (c *controller) openBooks(ctx context.Context, p picture) (*books, error) {
	var pools machineconfigv1.MachineConfigPoolList
	if err := c.Live.List(ctx, &pools); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !runtime.IsNotRegisteredError(err) {
		return nil, fmt.Errorf("list pools: %w", err)
	}
	b := &books{byNode: map[string]*account{}, wanted: map[string]int32{}}
	if err := c.poolAccounts(ctx, b, pools.Items); err != nil {
		return nil, err
	}
	owners, err := c.setAccounts(ctx, b, p)
	if err != nil {
		return nil, err
	}
	for _, t := range p.in.Targets {
		if t.NodeName == "" || b.byNode[t.NodeName] != nil {
			continue
		}
		ref := metav1.GetControllerOfNoCopy(p.machines[t.Name])
		if ref == nil {
			continue
		}
		if _, known := owners[ref.UID]; !known {
			a, err := c.ownerAccount(ctx, p.mhc.Namespace, ref)
			if err != nil {
				return nil, err
			}
			owners[ref.UID] = a
			if a != nil {
				b.accounts = append(b.accounts, a)
			}
		}
		if a := owners[ref.UID]; a != nil {
			a.Members = append(a.Members, budget.Member{Node: t.NodeName, Ready: healthy(t.Node)})
			b.byNode[t.NodeName] = a
		}
	}
	return b, nil
}

// setAccounts adds an account for each MachineSet whose Machines the check
// selects, and for each that carries a claim of the check: either may have no
// Machine at the moment. They are returned by UID.
func (c *controller) setAccounts(ctx context.Context, b *books, p picture) (map[types.UID]*account, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.mhc.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read spec.selector: %w", err)
	}
	var sets machinev1.MachineSetList
	if err := c.Live.List(ctx, &sets, client.InNamespace(p.mhc.Namespace)); err != nil {
		return nil, fmt.Errorf("list machine sets: %w", err)
	}
	owning := map[types.UID]bool{}
	for _, m := range p.machines {
		if ref := metav1.GetControllerOfNoCopy(m); ref != nil {
			owning[ref.UID] = true
		}
	}
	owners := map[types.UID]*account{}
	by := claimer(client.ObjectKeyFromObject(p.mhc))
	for i := range sets.Items {
		set := &sets.Items[i]
		a := accountOf(&machinev1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}, set.Annotations)
		selected := owning[set.UID] || selector.Matches(labels.Set(set.Spec.Template.Labels))
		if selected && set.DeletionTimestamp == nil {
			b.wanted[set.Name] = ptr.Deref(set.Spec.Replicas, 1)
		}
		if selected || slices.ContainsFunc(a.claims, func(cl budget.Claim) bool { return cl.By == by }) {
			owners[set.UID] = a
			b.accounts = append(b.accounts, a)
		}
	}
	return owners, nil
}

// poolAccounts adds an account for each pool that has Nodes.
func (c *controller) poolAccounts(ctx context.Context, b *books, pools []machineconfigv1.MachineConfigPool) error {
	if len(pools) == 0 {
		return nil
	}
	selectors := map[string]*metav1.LabelSelector{}
	byPool := map[string]*account{}
	for i := range pools {
		selectors[pools[i].Name] = pools[i].Spec.NodeSelector
		a := accountOf(&machineconfigv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pools[i].Name}}, pools[i].Annotations)
		byPool[pools[i].Name] = a
		b.accounts = append(b.accounts, a)
	}
	members := target.NewMembers(selectors)
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		name, err := members.Primary(n.Labels)
		if err != nil || byPool[name] == nil {
			continue // a node in several pools is in none that moves it
		}
		a := byPool[name]
		a.Members = append(a.Members, budget.Member{Node: n.Name, Ready: healthy(&health.Node{Conditions: n.Status.Conditions}), Cordoned: n.Spec.Unschedulable})
		b.byNode[n.Name] = a
	}
	for i := range pools {
		a := byPool[pools[i].Name]
		if limit, err := budget.PoolMaxUnavailable(pools[i].Spec.MaxUnavailable, len(a.Members)); err == nil {
			a.Limit = budget.Of(limit)
		}
	}
	return nil
}

// ownerAccount is the account that a Machine's owner keeps: without a limit,
// since the check has its own. Nil when there is no such owner.
func (c *controller) ownerAccount(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*account, error) {
	owner := &metav1.PartialObjectMetadata{}
	owner.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	if err := c.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, owner); err != nil {
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get %s %s: %w", ref.Kind, ref.Name, err)
	}
	bare := &unstructured.Unstructured{}
	bare.SetGroupVersionKind(owner.GroupVersionKind())
	bare.SetNamespace(namespace)
	bare.SetName(ref.Name)
	return accountOf(bare, owner.Annotations), nil
}

func accountOf(o client.Object, annotations map[string]string) *account {
	claims, _ := budget.Decode(annotations[telemetry.AnnotationClaims])
	return &account{Account: act.Account{Object: o}, claims: claims}
}

func healthy(n *health.Node) bool {
	return n != nil && slices.ContainsFunc(n.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// claim takes the Nodes of the Machines that are to be deleted out of the
// accounts they draw on, and returns the actions that may go on. A Node that is
// out of service already never costs more.
func (c *controller) claim(ctx context.Context, p picture, d *plan.Decision[health.Status]) ([]plan.Action, error) {
	key := client.ObjectKeyFromObject(p.mhc)
	deletes := slices.ContainsFunc(d.Actions, func(a plan.Action) bool { _, ok := a.(plan.DeleteMachine); return ok })
	if !deletes && !c.claims.may(key) {
		return d.Actions, nil
	}
	b, err := c.openBooks(ctx, p)
	if err != nil {
		return nil, err
	}
	held, err := c.settle(ctx, p, d.Status, b)
	if err != nil {
		return nil, err
	}
	var out []plan.Action
	for _, a := range d.Actions {
		t := targetNamed(p.in, a)
		acc := b.byNode[t.NodeName]
		if t.NodeName == "" || acc == nil {
			out = append(out, a) // no Node of it is in service
			continue
		}
		err := c.act.Claim(ctx, acc.Account, t.NodeName, claimer(key), p.in.Now)
		switch spent, full := act.IsSpent(err); {
		case full:
			if e, _ := health.Told(p.in, a, spent.Error()); e != nil {
				d.Events = append(d.Events, *e)
			}
			wakeBy(d, wakeSpent)
			continue
		case err != nil && !apierrors.IsNotFound(err):
			return out, err
		}
		held = true
		out = append(out, a)
	}
	c.claims.note(key, held)
	if held {
		wakeBy(d, wakeHeld)
	}
	return out, nil
}

// wakeBy makes the check look again after at most wait.
func wakeBy(d *plan.Decision[health.Status], wait time.Duration) {
	if d.Wake == 0 || d.Wake > wait {
		d.Wake = wait
	}
}

// settle drops this check's claims on Nodes that are back, or whose successor
// is, and says whether any is left. Those that are left count, though their
// Node is gone.
func (c *controller) settle(ctx context.Context, p picture, s health.Status, b *books) (bool, error) {
	by := claimer(client.ObjectKeyFromObject(p.mhc))
	whole, held := whole(p, b.wanted), false
	for _, a := range b.accounts {
		for _, cl := range a.claims {
			if cl.By != by {
				continue
			}
			if over(p.in, s, cl.Node, whole) {
				if err := c.act.Release(ctx, a.Account, cl.Node, by); err != nil {
					return held, err
				}
				continue
			}
			held = true
			if !slices.ContainsFunc(a.Members, func(m budget.Member) bool { return m.Node == cl.Node }) {
				a.Members = append(a.Members, budget.Member{Node: cl.Node})
			}
		}
	}
	return held, nil
}

// over says whether the repair of a Node is done: its Machine stays after all,
// or it is gone and nothing is on its way any more.
func over(in health.Input, s health.Status, node string, whole bool) bool {
	for _, t := range in.Targets {
		if t.NodeName == node {
			return !t.Deleting && healthy(t.Node) && !slices.Contains(s.Unhealthy, t.Name)
		}
	}
	return whole
}

// whole says whether every MachineSet has the Machines it wants, each with a
// ready Node.
func whole(p picture, wanted map[string]int32) bool {
	have := map[string]int32{}
	for _, t := range p.in.Targets {
		if t.Deleting || !healthy(t.Node) {
			return false
		}
		if ref := metav1.GetControllerOfNoCopy(p.machines[t.Name]); ref != nil && ref.Kind == "MachineSet" {
			have[ref.Name]++
		}
	}
	for name, n := range wanted {
		if have[name] < n {
			return false
		}
	}
	return true
}

// targetNamed is the Machine that an action deletes.
func targetNamed(in health.Input, a plan.Action) health.Target {
	d, ok := a.(plan.DeleteMachine)
	if !ok {
		return health.Target{}
	}
	for _, t := range in.Targets {
		if t.Name == d.Name {
			return t
		}
	}
	return health.Target{}
}

// claimed remembers which checks have no claims, so that a check at rest asks
// the server for nothing. What it does not know may have some.
type claimed struct {
	mu   sync.Mutex
	none map[types.NamespacedName]bool
}

func newClaimed() *claimed { return &claimed{none: map[types.NamespacedName]bool{}} }

func (c *claimed) may(key types.NamespacedName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.none[key]
}

func (c *claimed) note(key types.NamespacedName, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held {
		delete(c.none, key)
	} else {
		c.none[key] = true
	}
}
