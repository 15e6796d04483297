package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// definition is one trimmed CustomResourceDefinition.
type definition struct {
	name string
	body []byte // YAML, keys sorted
}

// trim parses one upstream file and leaves out the texts and whatever only the
// upstream installation can serve.
func trim(raw []byte, labels map[string]string) (definition, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		return definition{}, fmt.Errorf("parse definition: %w", err)
	}
	meta, _ := crd["metadata"].(map[string]any)
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if meta == nil || len(versions) == 0 {
		return definition{}, errors.New("parse definition: no metadata or no versions")
	}
	delete(crd, "status")
	delete(meta, "creationTimestamp")
	if len(labels) > 0 {
		all := map[string]any{}
		for k, v := range labels {
			all[k] = v
		}
		meta["labels"] = all
	}
	// With no conversion the API server would relabel objects and lose fields,
	// so of kinds that nothing of ours converts only the stored version is served.
	delete(spec, "conversion")
	name, _ := meta["name"].(string)
	converted := slices.Contains(convertible, name)
	if converted {
		spec["conversion"] = conversion()
		label(meta, labelInject, "true")
	}
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if stored, _ := version["storage"].(bool); !stored && !(converted && version["name"] == "v1beta1") {
			version["served"] = false
		}
		columns, _ := version["additionalPrinterColumns"].([]any)
		for _, c := range columns {
			if column, ok := c.(map[string]any); ok {
				delete(column, "description")
			}
		}
		if schema, ok := version["schema"].(map[string]any); ok {
			trimSchema(schema["openAPIV3Schema"])
		}
	}
	body, err := yaml.Marshal(crd)
	if err != nil {
		return definition{}, fmt.Errorf("write definition: %w", err)
	}
	return definition{name: name, body: body}, nil
}

// trimSchema removes the texts from one schema node and all below it. It follows
// only the keys that hold schemas, so a field called "description" and the
// contents of defaults and enums stay.
func trimSchema(node any) {
	s, ok := node.(map[string]any)
	if !ok {
		return
	}
	for _, key := range []string{"description", "title", "externalDocs", "example"} {
		delete(s, key)
	}
	for _, key := range []string{"properties", "patternProperties", "definitions", "dependencies"} {
		if fields, ok := s[key].(map[string]any); ok {
			for _, field := range fields {
				trimSchema(field)
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties", "additionalItems", "not"} {
		trimSchema(s[key])
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf", "items"} {
		if list, ok := s[key].([]any); ok {
			for _, item := range list {
				trimSchema(item)
			}
		}
	}
}

// admissible runs the API server's own checks of a new definition: structural
// schema, cost of the rules, approval of protected groups.
func admissible(ctx context.Context, body []byte) error {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(body, &crd); err != nil {
		return fmt.Errorf("decode definition: %w", err)
	}
	scheme.Default(&crd)
	var internal apiextensions.CustomResourceDefinition
	if err := scheme.Convert(&crd, &internal, nil); err != nil {
		return fmt.Errorf("convert definition: %w", err)
	}
	if errs := validation.ValidateCustomResourceDefinition(ctx, &internal); len(errs) > 0 {
		return fmt.Errorf("an API server would refuse it: %w", errs.ToAggregate())
	}
	return nil
}
