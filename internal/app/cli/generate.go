package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/dialect/machineconfig/generator"
	"millwright.io/millwright/internal/dialect/machineconfig/poolconfig"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

// mostRounds bounds how long the controllers are stepped. Each object is done
// after two rounds; the rest is for objects that wait for one another.
const mostRounds = 12

// generate lets the controllers that make MachineConfigs of settings work on a
// copy in memory until nothing changes any more.
func generate(ctx context.Context, in cli.GenerateInput) (cli.Generated, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{machineconfigv1.Install, configv1.Install, operatorv1alpha1.Install} {
		if err := add(scheme); err != nil {
			return cli.Generated{}, fmt.Errorf("register kinds: %w", err)
		}
	}
	clk := clock.RealClock{}
	objs := copies(in, metav1.NewTime(clk.Now()))
	api := memapi.New(scheme, clk, objs...)
	said := &refusals{}
	steps := map[string][]client.ObjectKey{}
	controllers := append(generator.All(generator.Deps{Client: api, Live: api, Clock: clk, Log: logr.Discard()}),
		poolconfig.New(poolconfig.Deps{Client: api, Live: api, Clock: clk, Recorder: said, Log: logr.Discard()}))
	for _, c := range controllers {
		for _, o := range objs {
			if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", c.For) {
				steps[c.Name] = append(steps[c.Name], client.ObjectKeyFromObject(o))
			}
		}
	}
	out := cli.Generated{Configs: map[string]*machineconfigv1.MachineConfig{}}
	for round := 0; ; round++ {
		before := api.Writes()
		said.list = nil
		for _, c := range controllers {
			for _, key := range steps[c.Name] {
				if err := ctx.Err(); err != nil {
					return out, err
				}
				if _, err := c.Step(ctx, key); err != nil {
					said.add(kindOf(c)+"/"+key.Name, err.Error())
				}
			}
		}
		if api.Writes() == before {
			break
		}
		if round == mostRounds {
			return out, fmt.Errorf("the settings do not come to rest: after %d rounds their controllers still write", mostRounds)
		}
	}
	return out, collect(ctx, api, said, &out)
}

// collect reads what there is when all is done.
func collect(ctx context.Context, api client.Reader, said *refusals, out *cli.Generated) error {
	var configs machineconfigv1.MachineConfigList
	var kubelets machineconfigv1.KubeletConfigList
	var runtimes machineconfigv1.ContainerRuntimeConfigList
	for _, l := range []client.ObjectList{&configs, &kubelets, &runtimes} {
		if err := api.List(ctx, l); err != nil {
			return fmt.Errorf("list %T: %w", l, err)
		}
	}
	for i := range configs.Items {
		out.Configs[configs.Items[i].Name] = &configs.Items[i]
	}
	for _, k := range kubelets.Items {
		if cs := k.Status.Conditions; len(cs) > 0 && cs[len(cs)-1].Type == machineconfigv1.KubeletConfigFailure {
			said.add("KubeletConfig/"+k.Name, cs[len(cs)-1].Message)
		}
	}
	for _, k := range runtimes.Items {
		if cs := k.Status.Conditions; len(cs) > 0 && cs[len(cs)-1].Type == machineconfigv1.ContainerRuntimeConfigFailure {
			said.add("ContainerRuntimeConfig/"+k.Name, cs[len(cs)-1].Message)
		}
	}
	out.Refused = said.list
	return nil
}

func kindOf(c kube.Controller) string {
	switch c.For.(type) {
	case *machineconfigv1.KubeletConfig:
		return "KubeletConfig"
	case *machineconfigv1.ContainerRuntimeConfig:
		return "ContainerRuntimeConfig"
	}
	return "MachineConfigPool"
}

// copies returns copies of the objects. Those of files have no UID and no age: they
// get ones, and the configs that were made of them keep their owners.
func copies(in cli.GenerateInput, now metav1.Time) []client.Object {
	var objs []client.Object
	if in.Controller != nil {
		objs = append(objs, in.Controller.DeepCopy())
	}
	for _, p := range in.Pools {
		objs = append(objs, p.DeepCopy())
	}
	for _, s := range in.Settings {
		objs = append(objs, s.DeepCopyObject().(client.Object))
	}
	uids := map[string]types.UID{}
	for _, o := range objs {
		kind := kindName(fmt.Sprintf("%T", o))
		if o.GetUID() == "" {
			o.SetUID(types.UID("preview-" + kind + "-" + o.GetName()))
		}
		uids[kind+"/"+o.GetName()] = o.GetUID()
		if o.GetCreationTimestamp().Time.IsZero() {
			o.SetCreationTimestamp(now)
		}
	}
	for _, mc := range in.Configs {
		c := mc.DeepCopy()
		if orphaned(mc, uids) {
			continue
		}
		for i, ref := range c.OwnerReferences {
			if uid := uids[ref.Kind+"/"+ref.Name]; uid != "" {
				c.OwnerReferences[i].UID = uid
			}
		}
		objs = append(objs, c)
	}
	// What was asked to go is not shown again; an API would not take it.
	return slices.DeleteFunc(objs, func(o client.Object) bool {
		return o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0
	})
}

// orphaned says that the object which a config was made of is gone: its
// controller removes the config before it lets the object go.
func orphaned(mc *machineconfigv1.MachineConfig, uids map[string]types.UID) bool {
	o := metav1.GetControllerOfNoCopy(mc)
	return o != nil && (o.Kind == "KubeletConfig" || o.Kind == "ContainerRuntimeConfig") && uids[o.Kind+"/"+o.Name] == ""
}

// kindName is the last part of a Go type's name.
func kindName(goType string) string {
	for i := len(goType) - 1; i >= 0; i-- {
		if goType[i] == '.' {
			return goType[i+1:]
		}
	}
	return goType
}

// refusals gathers what controllers complain about; it is their recorder of
// events.
type refusals struct{ list []cli.Refusal }

func (r *refusals) add(object, why string) {
	n := cli.Refusal{Object: object, Why: why}
	if !slices.Contains(r.list, n) {
		r.list = append(r.list, n)
	}
}

// Eventf implements events.EventRecorder.
func (r *refusals) Eventf(obj, _ runtime.Object, kind, _, _, note string, args ...any) {
	o, ok := obj.(client.Object)
	if !ok || kind != "Warning" {
		return
	}
	r.add(kindName(fmt.Sprintf("%T", obj))+"/"+o.GetName(), fmt.Sprintf(note, args...))
}
