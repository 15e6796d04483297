package main

import (
	"context"
	"strings"
	"testing"
)

const sample = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.org
  creationTimestamp: null
spec:
  group: example.org
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  scope: Namespaced
  conversion: {strategy: Webhook}
  versions:
  - name: v1alpha1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object}}
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp, description: how old}
    schema:
      openAPIV3Schema:
        description: a thing
        type: object
        properties:
          description:
            description: the text of the thing
            type: string
            default: description
          size:
            type: integer
            x-kubernetes-validations:
            - rule: self > 0
              message: size must be positive
`

func TestTrimDropsTextsAndKeepsFieldsOfThatName(t *testing.T) {
	got, err := trim([]byte(sample), map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	text := string(got.body)
	for _, gone := range []string{"a thing", "the text of the thing", "how old", "conversion", "creationTimestamp: null"} {
		if strings.Contains(text, gone) {
			t.Errorf("%q is still there:\n%s", gone, text)
		}
	}
	for _, kept := range []string{"default: description", "size must be positive", "a: b", "served: false"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%q is gone:\n%s", kept, text)
		}
	}
	if err := admissible(context.Background(), got.body); err != nil {
		t.Errorf("trimmed definition is refused: %v", err)
	}
}

func TestAdmissibleRefusesWhatAnAPIServerWould(t *testing.T) {
	for _, row := range []struct{ name, old, new, want string }{
		{"rule does not compile", "rule: self > 0", "rule: self >", "compilation failed"},
		{"no type", "            type: string\n", "", "must not be empty for specified object fields"},
		{"unknown key", "scope: Namespaced", "scope: Namespaced\n  reach: far", "unknown field"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := trim([]byte(strings.Replace(sample, row.old, row.new, 1)), nil)
			if err != nil {
				t.Fatal(err)
			}
			err = admissible(context.Background(), got.body)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error with %q", err, row.want)
			}
		})
	}
}

func TestSplitFindsPluralAndVariant(t *testing.T) {
	for in, want := range map[string][2]string{
		"0000_80_machine-config_01_machineconfigpools-SelfManagedHA": {"machineconfigpools", "-SelfManagedHA"},
		"0000_80_machine-config_01_machineconfigs":                   {"machineconfigs", ""},
		"cluster.x-k8s.io_machines":                                  {"machines", ""},
	} {
		plural, variant := split(in)
		if plural != want[0] || variant != want[1] {
			t.Errorf("split(%q) = %q, %q, want %q, %q", in, plural, variant, want[0], want[1])
		}
	}
}
