package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/machineset"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
)

// codecs understand the clouds' parts of machines, by kind.
var codecs = map[string]cloud.SpecCodec{azurespec.Kind: azurespec.Codec{}}

// planSets asks the MachineSet controller itself what it would do, on a copy
// in memory.
func planSets(ctx context.Context, in cli.SetsInput) ([]cli.SetPlan, error) {
	var out []cli.SetPlan
	for _, c := range in.Changes {
		p, err := planSet(ctx, in, c)
		if err != nil {
			return nil, fmt.Errorf("MachineSet %s/%s: %w", c.Desired.Namespace, c.Desired.Name, err)
		}
		if p.New || p.Created > 0 || len(p.Deleted)+len(p.InPlace)+len(p.ForNew)+len(p.Problems) > 0 {
			out = append(out, p)
		}
	}
	return out, nil
}

func planSet(ctx context.Context, in cli.SetsInput, c cli.SetChange) (cli.SetPlan, error) {
	p := cli.SetPlan{Set: c.Desired.Namespace + "/" + c.Desired.Name, New: c.Current == nil}
	after, err := specOf(in, c.Desired.Spec.Template.Spec)
	if err != nil {
		return p, fmt.Errorf("spec.template.spec.providerSpec.value: %w", err)
	}
	p.Problems = after.problems
	if c.Current != nil {
		before, err := specOf(in, c.Current.Spec.Template.Spec)
		if err != nil {
			return p, fmt.Errorf("spec.template.spec.providerSpec.value of the cluster's object: %w", err)
		}
		p.ForNew = append(differences("providerSpec", before.tree, after.tree),
			differences("template", templateRest(c.Current), templateRest(c.Desired))...)
		p.InPlace = inPlace(c.Current, c.Desired)
		if s := differences("spec.selector", tree(c.Current.Spec.Selector), tree(c.Desired.Spec.Selector)); len(s) > 0 {
			p.Refused = true
			for _, d := range s {
				p.Problems = append(p.Problems, d+"; a selector cannot be changed: make another set")
			}
		}
	}
	if len(p.ForNew) > 0 {
		p.Outdated = outdated(in, c.Desired, after.digest)
	}
	actions, err := decideSet(ctx, in, c.Desired)
	if err != nil {
		return p, err
	}
	for _, a := range actions {
		switch a := a.(type) {
		case plan.CreateMachine:
			p.Created++
		case plan.DeleteMachine:
			p.Deleted = append(p.Deleted, a.Name)
		}
	}
	return p, nil
}

type decoded struct {
	tree     map[string]any
	digest   string
	problems []string
}

// specOf decodes and defaults the cloud's part, so that what only looks
// different does not count.
func specOf(in cli.SetsInput, spec machinev1beta1.MachineSpec) (decoded, error) {
	if spec.ProviderSpec.Value == nil {
		return decoded{}, nil
	}
	raw := spec.ProviderSpec.Value.Raw
	var head struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return decoded{}, err
	}
	codec := codecs[head.Kind]
	if codec == nil {
		var t map[string]any
		err := json.Unmarshal(raw, &t)
		return decoded{tree: t, digest: string(raw)}, err
	}
	s, problems, err := codec.Decode(raw)
	if err != nil {
		return decoded{}, err
	}
	var d decoded
	for _, p := range problems {
		d.problems = append(d.problems, p.String())
	}
	known := cloud.SpecContext{}
	if in.Infra != nil {
		known.InfraID = in.Infra.Status.InfrastructureName
		if ps := in.Infra.Status.PlatformStatus; ps != nil && ps.Azure != nil {
			known.ResourceGroup = ps.Azure.ResourceGroupName
		}
	}
	s = codec.Default(s, known)
	d.digest = codec.Digest(s)
	encoded, err := codec.Encode(s)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(encoded, &d.tree)
}

// templateRest is what a template says beside the cloud's part.
func templateRest(s *machinev1beta1.MachineSet) any {
	t := s.Spec.Template.DeepCopy()
	t.Spec.ProviderSpec.Value = nil
	return tree(t)
}

// inPlace are the changes of the set itself: no Machine feels them, except
// through the number of replicas.
func inPlace(before, after *machinev1beta1.MachineSet) []string {
	rest := func(s *machinev1beta1.MachineSet) any {
		c := s.Spec.DeepCopy()
		c.Template, c.Selector = machinev1beta1.MachineTemplateSpec{}, metav1.LabelSelector{}
		if c.Replicas == nil {
			one := int32(1)
			c.Replicas = &one
		}
		return tree(c)
	}
	return differences("spec", rest(before), rest(after))
}

// outdated are the set's Machines that keep another spec.
func outdated(in cli.SetsInput, set *machinev1beta1.MachineSet, digest string) []string {
	var out []string
	for _, m := range in.Machines {
		if m.Namespace != set.Namespace || !owns(set, m) {
			continue
		}
		if d, err := specOf(in, m.Spec); err != nil || d.digest != digest {
			out = append(out, m.Name)
		}
	}
	return out
}

func owns(set *machinev1beta1.MachineSet, m *machinev1beta1.Machine) bool {
	for _, o := range m.OwnerReferences {
		if o.Kind == "MachineSet" && o.Name == set.Name && (set.UID == "" || o.UID == set.UID) {
			return true
		}
	}
	return false
}

// decideSet runs the controller's own decision on a copy of the world.
func decideSet(ctx context.Context, in cli.SetsInput, desired *machinev1beta1.MachineSet) ([]plan.Action, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machinev1beta1.Install, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	set := desired.DeepCopy()
	if set.UID == "" {
		set.UID = types.UID("preview-" + set.Name)
	}
	objs := []client.Object{set}
	for _, m := range in.Machines {
		if m.Namespace == set.Namespace && (m.DeletionTimestamp == nil || len(m.Finalizers) > 0) {
			objs = append(objs, ownedBy(set, m))
		}
	}
	for _, n := range in.Nodes {
		if n.DeletionTimestamp == nil || len(n.Finalizers) > 0 {
			objs = append(objs, n)
		}
	}
	api := memapi.New(scheme, clock.RealClock{}, objs...)
	c := machineset.New(machineset.Deps{Client: api, Live: api, Clock: clock.RealClock{}, Recorder: events.NewFakeRecorder(1), Log: logr.Discard()})
	if err := kube.AddIndexes(ctx, api, c.Indexes...); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	d, err := c.Decide(ctx, api, client.ObjectKeyFromObject(set))
	return d.Actions, err
}

// ownedBy ties Machines of files, which carry no UIDs, to their set.
func ownedBy(set *machinev1beta1.MachineSet, m *machinev1beta1.Machine) *machinev1beta1.Machine {
	out := m.DeepCopy()
	for i, o := range out.OwnerReferences {
		if o.Kind == "MachineSet" && o.Name == set.Name && o.UID == "" {
			out.OwnerReferences[i].UID = set.UID
		}
	}
	return out
}

func tree(v any) any {
	var out any
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return err.Error()
	}
	return out
}

// differences lists the leaves that differ, one line each, by path.
func differences(path string, before, after any) []string {
	a, aMap := before.(map[string]any)
	b, bMap := after.(map[string]any)
	if aMap && bMap {
		var out []string
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			out = append(out, differences(path+"."+k, a[k], b[k])...)
		}
		return out
	}
	if x, y := leaf(before), leaf(after); x != y {
		return []string{fmt.Sprintf("%s: %s → %s", path, x, y)}
	}
	return nil
}

func leaf(v any) string {
	switch v := v.(type) {
	case nil:
		return "(none)"
	case string:
		return v
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}
