package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/memapi"
)

// explainers ask the controllers of the Machine API why objects are stuck.
func explainers() []cli.Explainer {
	return []cli.Explainer{
		{Kind: "Machine", Group: wire.Group, Names: []string{"machine", "machines"}, Namespace: wire.Namespace, Explain: explainMachine},
		{Kind: "MachineSet", Group: wire.Group, Names: []string{"machineset", "machinesets"}, Namespace: wire.Namespace, Explain: explainMachineSet},
		{Kind: "MachineHealthCheck", Group: wire.Group, Names: []string{"machinehealthcheck", "machinehealthchecks", "mhc", "mhcs"}, Namespace: wire.Namespace, Explain: explainHealthCheck},
		{Kind: "ControlPlaneMachineSet", Group: wire.Group, Names: []string{"controlplanemachineset", "controlplanemachinesets", "cpms"}, Namespace: wire.Namespace, Explain: explainControlPlane},
		{Kind: "CertificateSigningRequest", Group: certificatesv1.GroupName, Names: []string{"certificatesigningrequest", "certificatesigningrequests", "csr"}, Explain: explainRequest},
	}
}

// scene is the part of a cluster that an explanation needs, as a copy in
// memory: controllers find objects there by fields that a server does not
// know, and nothing they do reaches the cluster.
type scene struct {
	cli.ExplainInput
	api *memapi.API
	clk *clocktesting.FakePassiveClock
}

// newScene copies what hangs together with Machines of a namespace.
func newScene(ctx context.Context, in cli.ExplainInput, namespace string) (*scene, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		machinev1.Install, machinev1beta1.Install, configv1.Install, corev1.AddToScheme, certificatesv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	var objs []client.Object
	for _, list := range []client.ObjectList{
		&machinev1beta1.MachineList{}, &machinev1beta1.MachineSetList{}, &machinev1beta1.MachineHealthCheckList{}, &machinev1.ControlPlaneMachineSetList{},
	} {
		if err := copyInto(ctx, in, list, &objs, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &certificatesv1.CertificateSigningRequestList{}, &configv1.InfrastructureList{}} {
		if err := copyInto(ctx, in, list, &objs); err != nil {
			return nil, err
		}
	}
	identify(objs)
	clk := clocktesting.NewFakePassiveClock(in.Now)
	return &scene{ExplainInput: in, api: memapi.New(scheme, clk, objs...), clk: clk}, nil
}

// copyInto adds what list shows. An object that is gone but for its removal is
// left out.
func copyInto(ctx context.Context, in cli.ExplainInput, list client.ObjectList, to *[]client.Object, which ...client.ListOption) error {
	if err := in.List(ctx, list, which...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(o runtime.Object) error {
		obj, ok := o.DeepCopyObject().(client.Object)
		if ok && (obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0) {
			*to = append(*to, obj)
		}
		return nil
	})
}

// identify gives objects of files, which may carry no UIDs, one each, and ties
// them to their owners by it.
func identify(objs []client.Object) {
	uid := func(kind, name string) types.UID { return types.UID(strings.ToLower(kind) + "-" + name) }
	given := map[types.UID]types.UID{}
	for _, o := range objs {
		kind := fmt.Sprintf("%T", o)
		kind = kind[strings.LastIndex(kind, ".")+1:]
		if o.GetUID() == "" {
			o.SetUID(uid(kind, o.GetName()))
		}
		given[uid(kind, o.GetName())] = o.GetUID()
	}
	for _, o := range objs {
		refs := slices.Clone(o.GetOwnerReferences())
		for i, r := range refs {
			if r.UID == "" {
				refs[i].UID = given[uid(r.Kind, r.Name)]
			}
		}
		o.SetOwnerReferences(refs)
	}
}

// decide asks a controller what it would do now.
func (s *scene) decide(ctx context.Context, c kube.Controller, key client.ObjectKey) (plan.Erased, error) {
	if err := kube.AddIndexes(ctx, s.api, c.Indexes...); err != nil {
		return plan.Erased{}, fmt.Errorf("index: %w", err)
	}
	return c.Decide(ctx, s.api, key)
}

// recorder takes events nobody reads: a preview tells none.
func recorder() events.EventRecorder { return events.NewFakeRecorder(1) }

func quietLog() logr.Logger { return logr.Discard() }

// age is how long ago something was.
func (s *scene) age(t time.Time) time.Duration { return s.Now.Sub(t) }

func stuck(cause, why string, next ...cli.NextStep) cli.Explanation {
	return cli.Explanation{State: cli.StateStuck, Cause: cause, Why: why, Next: next}
}

func progressing(why string, next ...cli.NextStep) cli.Explanation {
	return cli.Explanation{State: cli.StateProgressing, Why: why, Next: next}
}

func fine(why string) cli.Explanation { return cli.Explanation{State: cli.StateFine, Why: why} }

func step(text, command string, args ...any) cli.NextStep {
	if len(args) > 0 {
		command = fmt.Sprintf(command, args...)
	}
	return cli.NextStep{Text: text, Command: command}
}

// planned are the conditions of a decision that say what is not as it should
// be.
func planned(conditions []plan.Condition) []cli.Evidence {
	var out []cli.Evidence
	for _, c := range conditions {
		if c.Status != corev1.ConditionTrue {
			out = append(out, cli.ConditionEvidence(c.Type, string(c.Status), c.Reason, c.Message, time.Time{}))
		}
	}
	return out
}

func conditionOf(conditions []plan.Condition, kind string) plan.Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return plan.Condition{}
}
