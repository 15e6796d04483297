package healthcheck

import (
	"context"
	"fmt"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/engine/health"
)

// picture is what was seen. The Machines are shared with the cache; nobody
// changes them.
type picture struct {
	mhc      *machinev1.MachineHealthCheck
	in       health.Input
	machines map[string]*machinev1.Machine
	template *unstructured.Unstructured // of the repair objects; nil: none
}

// observe reads the selected Machines and their Nodes from r. live is asked
// where r may lag behind and the difference costs a Machine.
func (c *controller) observe(ctx context.Context, r, live client.Reader, mhc *machinev1.MachineHealthCheck) (picture, error) {
	p := picture{mhc: mhc, in: health.Input{Check: checkOf(mhc), Now: c.Clock.Now()}, machines: map[string]*machinev1.Machine{}}
	selector, err := metav1.LabelSelectorAsSelector(&mhc.Spec.Selector)
	if err != nil {
		return p, fmt.Errorf("read selector: %w", err)
	}
	var list machinev1.MachineList
	if err := r.List(ctx, &list, client.InNamespace(mhc.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return p, fmt.Errorf("list machines: %w", err)
	}
	requested, err := c.observeRepairs(ctx, &p)
	if err != nil {
		return p, err
	}
	cached := make([]client.Object, 0, len(list.Items))
	for i := range list.Items {
		cached = append(cached, &list.Items[i])
	}
	for _, obj := range c.overlay.Apply(mhc.UID, cached) {
		m, ok := obj.(*machinev1.Machine)
		if !ok {
			return p, fmt.Errorf("list machines: got a %T", obj)
		}
		t := targetOf(m)
		t.Requested = requested[m.Name]
		for _, from := range []client.Reader{r, live} {
			if t.Node, err = nodeOf(ctx, from, t.NodeName); err != nil {
				return p, err
			}
			if t.Node != nil || t.NodeName == "" || t.Deleting {
				break
			}
		}
		p.machines[m.Name] = m
		p.in.Targets = append(p.in.Targets, t)
	}
	return p, nil
}

// nodeOf returns what a check looks at of a Node; nil when there is none.
func nodeOf(ctx context.Context, r client.Reader, name string) (*health.Node, error) {
	if name == "" {
		return nil, nil
	}
	var n corev1.Node
	if err := r.Get(ctx, client.ObjectKey{Name: name}, &n, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get node %s: %w", name, err)
	}
	return &health.Node{Zone: n.Labels[corev1.LabelTopologyZone], Conditions: n.Status.Conditions}, nil
}

// observeRepairs reads the template of a check that has one, and the names of
// the repair objects there are. A template that cannot be read is part of the
// observation.
func (c *controller) observeRepairs(ctx context.Context, p *picture) (map[string]bool, error) {
	ref := p.mhc.Spec.RemediationTemplate
	if ref == nil {
		return nil, nil
	}
	t := &unstructured.Unstructured{}
	t.SetGroupVersionKind(ref.GroupVersionKind())
	if err := c.Live.Get(ctx, client.ObjectKey{Namespace: p.mhc.Namespace, Name: ref.Name}, t); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("get remediation template %s: %w", ref.Name, err)
		}
		p.in.Check.Problem = err.Error()
		return nil, nil
	}
	p.template = t
	repairs := &unstructured.UnstructuredList{}
	gvk := ref.GroupVersionKind()
	gvk.Kind = repairKind(ref.Kind) + "List"
	repairs.SetGroupVersionKind(gvk)
	if err := c.Live.List(ctx, repairs, client.InNamespace(p.mhc.Namespace)); err != nil {
		return nil, fmt.Errorf("list %s: %w", repairKind(ref.Kind), err)
	}
	names := map[string]bool{}
	for i := range repairs.Items {
		names[repairs.Items[i].GetName()] = true
	}
	return names, nil
}

// repairKind returns the kind that a template makes.
func repairKind(template string) string { return strings.TrimSuffix(template, "Template") }
