package machineset

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/fleet"
	"millwright.io/millwright/internal/engine/plan"
)

// picture is what was seen: the planner's input and the Machines behind it.
// The Machines are shared with the cache; nobody changes them.
type picture struct {
	in       fleet.Input
	machines map[string]*machinev1beta1.Machine
}

// observe reads a set's Machines, by owner and without one, and their nodes.
func (c *controller) observe(ctx context.Context, r client.Reader, set *machinev1beta1.MachineSet) (picture, error) {
	desired, selector := setOf(set)
	p := picture{in: fleet.Input{Set: desired, Now: c.Clock.Now()}, machines: map[string]*machinev1beta1.Machine{}}
	var cached []client.Object
	for _, owner := range []string{string(set.UID), noController} {
		var list machinev1beta1.MachineList
		if err := r.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingFields{FieldController: owner}, client.UnsafeDisableDeepCopy); err != nil {
			return p, fmt.Errorf("list machines: %w", err)
		}
		for i := range list.Items {
			cached = append(cached, &list.Items[i])
		}
	}
	var failure error
	ready := func(node string) time.Time {
		at, err := c.readySince(ctx, r, node)
		if err != nil && failure == nil {
			failure = err
		}
		return at
	}
	for _, obj := range c.overlay.Apply(set.UID, cached) {
		m, ok := obj.(*machinev1beta1.Machine)
		if !ok {
			return p, fmt.Errorf("list machines: got a %T", obj)
		}
		p.machines[m.Name] = m
		p.in.Members = append(p.in.Members, memberOf(set, selector, m, ready))
	}
	return p, failure
}

// readySince returns since when a node is ready; zero when it is not or there
// is none.
func (c *controller) readySince(ctx context.Context, r client.Reader, node string) (time.Time, error) {
	var n corev1.Node
	err := r.Get(ctx, client.ObjectKey{Name: node}, &n, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("get node %s: %w", node, err)
	}
	return readySince(&n), nil
}

// decide runs the planner, until none of the names it wants to create belongs
// to a Machine that the set has nothing to do with, and adds this dialect's
// words.
func (c *controller) decide(ctx context.Context, r client.Reader, set *machinev1beta1.MachineSet, p picture) (plan.Decision[fleet.Status], error) {
	for {
		d := fleet.Decide(p.in)
		taken, err := c.taken(ctx, r, set.Namespace, p, d)
		if err != nil {
			return d, err
		}
		if len(taken) == 0 {
			d.Notes = notes(client.ObjectKeyFromObject(set).String(), p.in, d)
			d.Events = troubles(p.in, d)
			return d, nil
		}
		p.in.Taken = append(p.in.Taken, taken...)
	}
}

// taken returns those names of a decision that strangers bear.
func (c *controller) taken(ctx context.Context, r client.Reader, namespace string, p picture, d plan.Decision[fleet.Status]) ([]string, error) {
	var out []string
	for _, a := range d.Actions {
		create, ok := a.(plan.CreateMachine)
		if !ok || slices.Contains(p.in.Taken, create.Name) {
			continue
		}
		var m machinev1beta1.Machine
		err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: create.Name}, &m, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get machine %s: %w", create.Name, err)
		}
		out = append(out, create.Name)
	}
	return out, nil
}
