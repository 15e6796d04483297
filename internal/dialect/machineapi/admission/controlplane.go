package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	mapiv1 "github.com/openshift/api/machine/v1"
	machinev1 "github.com/openshift/api/machine/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
)

// PathValidateControlPlane is where ControlPlaneMachineSets are judged.
const PathValidateControlPlane = "/validate-machine-openshift-io-v1-controlplanemachineset"

// Rules about ControlPlaneMachineSets.
const (
	RuleControlPlaneName     = "controlplane-name"
	RuleControlPlaneReplicas = "controlplane-replicas"
	RuleControlPlaneDomains  = "controlplane-failure-domains"
	RuleControlPlaneSelector = "controlplane-selector-mismatch"
)

const (
	nameControlPlane = "cluster"
	pathTemplate     = "spec.template.machines_v1beta1_machine_openshift_io"
)

func controlPlaneRules() []cloud.Rule {
	return []cloud.Rule{{ID: RuleControlPlaneName}, {ID: RuleControlPlaneReplicas}, {ID: RuleControlPlaneDomains}, {ID: RuleControlPlaneSelector}}
}

func (r *Reviewer) validateControlPlane(ctx context.Context, req *admissionv1.AdmissionRequest) (Verdict, error) {
	var now, old mapiv1.ControlPlaneMachineSet
	if err := decode(req, &now, &old); err != nil {
		return Verdict{}, err
	}
	v := Verdict{Annotations: now.Annotations}
	update := req.Operation == admissionv1.Update
	if update && (now.DeletionTimestamp != nil || equality.Semantic.DeepEqual(now.Spec, old.Spec) && maps.Equal(now.Annotations, old.Annotations)) {
		return v, nil
	}
	if !update && now.Name != nameControlPlane {
		v.Problems = append(v.Problems, cloud.Problem{Rule: RuleControlPlaneName, Type: cloud.ProblemInvalid, Field: "metadata.name",
			Value: strconv.Quote(now.Name), Detail: "control plane machine set name must be cluster"})
	}
	t := now.Spec.Template.OpenShiftMachineV1Beta1Machine
	if t == nil {
		return v, nil // the schema says so
	}
	selector, err := metav1.LabelSelectorAsSelector(&now.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(t.ObjectMeta.Labels)) {
		v.Problems = append(v.Problems, cloud.Problem{Rule: RuleControlPlaneSelector, Type: cloud.ProblemInvalid, Field: pathTemplate + ".metadata.labels",
			Value: shown(t.ObjectMeta.Labels), Detail: "selector does not match template labels"})
	}
	s := subject{namespace: req.Namespace, value: t.Spec.ProviderSpec.Value, update: update}
	if before := old.Spec.Template.OpenShiftMachineV1Beta1Machine; update && before != nil {
		s.old = before.Spec.ProviderSpec.Value
	}
	v.Problems = append(v.Problems, r.judge(ctx, s)...)
	v.Problems = append(v.Problems, r.ofControlPlane(s)...)
	if !update && err == nil {
		v.Problems = append(v.Problems, r.againstMachines(ctx, &now, selector)...)
	}
	return v, nil
}

// ofControlPlane finds what only a control plane Machine must have.
func (r *Reviewer) ofControlPlane(s subject) []cloud.Problem {
	codec, ok := r.Codec.(cloud.ControlPlaneCodec)
	if !ok || absent(s.value) {
		return nil
	}
	spec, _, err := r.Codec.Decode(s.value.Raw)
	if err != nil {
		return nil // told already
	}
	found := codec.ValidateControlPlane(spec)
	if !s.update || absent(s.old) {
		return found
	}
	was, _, err := r.Codec.Decode(s.old.Raw)
	if err != nil {
		return found
	}
	return had(found, codec.ValidateControlPlane(was))
}

// againstMachines compares a new set with the control plane that is there.
// Machines that cannot be read are not compared.
func (r *Reviewer) againstMachines(ctx context.Context, set *mapiv1.ControlPlaneMachineSet, selector labels.Selector) []cloud.Problem {
	var list machinev1.MachineList
	if err := r.Live.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		r.unreadable(err, "machines")
		return nil
	}
	var out []cloud.Problem
	if want, have := ptr.Deref(set.Spec.Replicas, 0), len(list.Items); int(want) != have {
		out = append(out, cloud.Problem{Rule: RuleControlPlaneReplicas, Type: cloud.ProblemForbidden, Field: "spec.replicas",
			Detail: fmt.Sprintf("control plane machine set replicas (%d) does not match the current number of control plane machines (%d)", want, have)})
	}
	if unlisted := r.unlisted(set, list.Items); len(unlisted) > 0 {
		out = append(out, cloud.Problem{Rule: RuleControlPlaneDomains, Type: cloud.ProblemForbidden, Field: pathTemplate + ".failureDomains",
			Detail: fmt.Sprintf("control plane machines are using unspecified failure domain(s) [%s]", strings.Join(unlisted, "; "))})
	}
	return out
}

// unlisted returns the places of Machines that the set does not name, sorted.
func (r *Reviewer) unlisted(set *mapiv1.ControlPlaneMachineSet, machines []machinev1.Machine) []string {
	t := set.Spec.Template.OpenShiftMachineV1Beta1Machine
	codec, ok := r.Codec.(cloud.ControlPlaneCodec)
	if !ok || t.FailureDomains == nil || t.FailureDomains.Azure == nil || absent(t.Spec.ProviderSpec.Value) {
		return nil
	}
	template, _, err := r.Codec.Decode(t.Spec.ProviderSpec.Value.Raw)
	if err != nil {
		return nil
	}
	listed := map[string]bool{}
	for _, d := range *t.FailureDomains.Azure {
		listed[codec.Domain(codec.InDomain(template, cloud.Domain{Zone: d.Zone, Subnet: d.Subnet})).String()] = true
	}
	var out []string
	for i := range machines {
		value := machines[i].Spec.ProviderSpec.Value
		if absent(value) {
			continue
		}
		spec, _, err := r.Codec.Decode(value.Raw)
		if err != nil {
			continue
		}
		if at := codec.Domain(spec).String(); !listed[at] && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return out
}
