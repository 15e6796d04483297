package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"millwright.io/millwright/config"
)

// columns are what people see in a list, by definition: header, path, type, and
// a trailing "wide" for columns of the wide list only. People and scripts parse
// these tables, so they are part of the wire format.
var columns = map[string]string{
	"machines.machine.openshift.io": `
		Phase .status.phase string
		Type .metadata.labels['machine\.openshift\.io/instance-type'] string
		Region .metadata.labels['machine\.openshift\.io/region'] string
		Zone .metadata.labels['machine\.openshift\.io/zone'] string
		Age .metadata.creationTimestamp date
		Node .status.nodeRef.name string wide
		ProviderID .spec.providerID string wide
		State .metadata.annotations['machine\.openshift\.io/instance-state'] string wide`,
	"machinesets.machine.openshift.io": `
		Desired .spec.replicas integer
		Current .status.replicas integer
		Ready .status.readyReplicas integer
		Available .status.availableReplicas string
		Age .metadata.creationTimestamp date`,
	"machinehealthchecks.machine.openshift.io": `
		MaxUnhealthy .spec.maxUnhealthy string
		ExpectedMachines .status.expectedMachines integer
		CurrentHealthy .status.currentHealthy integer`,
	"controlplanemachinesets.machine.openshift.io": `
		Desired .spec.replicas integer
		Current .status.replicas integer
		Ready .status.readyReplicas integer
		Updated .status.updatedReplicas integer
		Unavailable .status.unavailableReplicas integer
		State .spec.state string
		Age .metadata.creationTimestamp date`,
	"clusteroperators.config.openshift.io": `
		Version .status.versions[?(@.name=="operator")].version string
		Available .status.conditions[?(@.type=="Available")].status string
		Progressing .status.conditions[?(@.type=="Progressing")].status string
		Degraded .status.conditions[?(@.type=="Degraded")].status string
		Since .status.conditions[?(@.type=="Available")].lastTransitionTime date`,
}

func TestCRDsShowTheColumnsUsersKnow(t *testing.T) {
	crds := load(t, "machine", "openshift")
	for name, want := range columns {
		t.Run(name, func(t *testing.T) {
			crd := crds[name]
			if crd == nil {
				t.Fatalf("no definition of %s", name)
			}
			var got []string
			for _, c := range stored(t, crd).AdditionalPrinterColumns {
				line := c.Name + " " + c.JSONPath + " " + c.Type
				if c.Priority > 0 {
					line += " wide"
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(lines(want), got); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCRDsOfSetsCanBeScaled(t *testing.T) {
	crds := load(t, "machine")
	selector := ".status.labelSelector"
	for name, want := range map[string]*apiextensionsv1.CustomResourceSubresourceScale{
		"machinesets.machine.openshift.io": {
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector,
		},
		"controlplanemachinesets.machine.openshift.io": {
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector,
		},
		"machines.machine.openshift.io": nil,
	} {
		sub := stored(t, crds[name]).Subresources
		if sub == nil || sub.Status == nil {
			t.Errorf("%s: no status subresource", name)
			continue
		}
		if diff := cmp.Diff(want, sub.Scale); diff != "" {
			t.Errorf("%s: scale (-want +got):\n%s", name, diff)
		}
	}
}

func TestCRDsKeepShortNamesDefaultsAndRules(t *testing.T) {
	crds := load(t)
	if diff := cmp.Diff([]string{"mhc", "mhcs"}, crds["machinehealthchecks.machine.openshift.io"].Spec.Names.ShortNames); diff != "" {
		t.Errorf("short names of MachineHealthCheck (-want +got):\n%s", diff)
	}
	if got := crds["machines.machine.openshift.io"].Spec.Names; got.ShortNames != nil || got.Categories != nil {
		t.Errorf("Machine has short names %v and categories %v, want none", got.ShortNames, got.Categories)
	}
	spec := stored(t, crds["machinesets.machine.openshift.io"]).Schema.OpenAPIV3Schema.Properties["spec"]
	if got := spec.Properties["replicas"].Default; got == nil || string(got.Raw) != "1" {
		t.Errorf("default of MachineSet spec.replicas is %v, want 1", got)
	}
	cpms := stored(t, crds["controlplanemachinesets.machine.openshift.io"]).Schema.OpenAPIV3Schema.Properties["spec"]
	var messages []string
	for _, rule := range cpms.Properties["replicas"].XValidations {
		messages = append(messages, rule.Message)
	}
	if diff := cmp.Diff([]string{"replicas is immutable"}, messages); diff != "" {
		t.Errorf("rules of ControlPlaneMachineSet spec.replicas (-want +got):\n%s", diff)
	}
}

// TestCRDsServeOnlyWhatIsConverted guards users of older versions: with no
// conversion in place an API server would relabel their objects and drop fields.
func TestCRDsServeOnlyWhatIsConverted(t *testing.T) {
	converted := 0
	for name, crd := range load(t) {
		c := crd.Spec.Conversion
		if c != nil && (c.Webhook == nil || crd.Labels["millwright.io/inject-ca"] != "true") {
			t.Errorf("%s: conversion %v without a webhook or without the label that gives it a CA bundle", name, c)
		}
		if c != nil {
			converted++
		}
		for _, v := range crd.Spec.Versions {
			if v.Served && !v.Storage && c == nil {
				t.Errorf("%s: serves %s, which is not the stored version", name, v.Name)
			}
			if c != nil && !v.Served && v.Name == "v1beta1" {
				t.Errorf("%s: v1beta1 is converted and not served", name)
			}
		}
	}
	if converted != 9 {
		t.Errorf("%d definitions have a conversion, want the 9 that dialect/clusterapi/convert has tables of", converted)
	}
}

func TestCRDsCarryNoTexts(t *testing.T) {
	for name, crd := range load(t) {
		for _, v := range crd.Spec.Versions {
			walk(v.Schema.OpenAPIV3Schema, func(s *apiextensionsv1.JSONSchemaProps) {
				if s.Description != "" {
					t.Errorf("%s: description %q left", name, s.Description)
				}
			})
		}
	}
}

func TestCRDsCarryContractLabelsOfClusterAPIProviders(t *testing.T) {
	crd := load(t, "clusterapi")["kubeadmconfigs.bootstrap.cluster.x-k8s.io"]
	if got := crd.Labels["cluster.x-k8s.io/v1beta2"]; got != "v1beta2" {
		t.Errorf("contract label cluster.x-k8s.io/v1beta2 is %q, want v1beta2", got)
	}
}

func TestCRDsRefusesAnUnknownFamily(t *testing.T) {
	_, err := config.CRDs("machines")
	if err == nil || !strings.Contains(err.Error(), "machine, machineconfig, clusterapi, openshift") {
		t.Errorf("got %v, want an error that lists the families", err)
	}
}

func BenchmarkCRDs(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := config.CRDs(); err != nil {
			b.Fatal(err)
		}
	}
}

func load(t *testing.T, families ...string) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds, err := config.CRDs(families...)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range crds {
		if out[crd.Name] != nil {
			t.Fatalf("%s is defined twice", crd.Name)
		}
		out[crd.Name] = crd
	}
	return out
}

func stored(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) apiextensionsv1.CustomResourceDefinitionVersion {
	t.Helper()
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v
		}
	}
	t.Fatalf("%s has no stored version", crd.Name)
	return apiextensionsv1.CustomResourceDefinitionVersion{}
}

func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func walk(s *apiextensionsv1.JSONSchemaProps, visit func(*apiextensionsv1.JSONSchemaProps)) {
	if s == nil {
		return
	}
	visit(s)
	for _, p := range s.Properties {
		walk(&p, visit)
	}
	if s.Items != nil {
		walk(s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil {
		walk(s.AdditionalProperties.Schema, visit)
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			walk(&list[i], visit)
		}
	}
}
