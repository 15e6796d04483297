package convert

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// schema is what a version can hold: nil holds anything.
type schema struct {
	fields   map[string]*schema
	rest     *schema // of a map's values
	items    *schema
	required []string
	open     bool // a map, or unknown fields are kept
	filled   bool // an empty value is refused
}

func compileRoot(p *apiextensionsv1.JSONSchemaProps) *schema {
	root := &schema{fields: map[string]*schema{}}
	for _, part := range bodyParts {
		if f, ok := p.Properties[part]; ok {
			root.fields[part] = compile(&f)
		}
	}
	return root
}

func compile(p *apiextensionsv1.JSONSchemaProps) *schema {
	s := &schema{required: p.Required, filled: atLeastOne(p.MinItems) || atLeastOne(p.MinProperties) || atLeastOne(p.MinLength)}
	s.open = p.XPreserveUnknownFields != nil && *p.XPreserveUnknownFields
	if p.AdditionalProperties != nil {
		s.open = true
		if p.AdditionalProperties.Schema != nil {
			s.rest = compile(p.AdditionalProperties.Schema)
		}
	}
	if p.Items != nil && p.Items.Schema != nil {
		s.items = compile(p.Items.Schema)
	}
	if len(p.Properties) > 0 {
		s.fields = make(map[string]*schema, len(p.Properties))
		for name, f := range p.Properties {
			s.fields[name] = compile(&f)
		}
	}
	if p.Type != "object" {
		s.open = true
	}
	return s
}

func atLeastOne(n *int64) bool { return n != nil && *n > 0 }

// prune drops from v the fields that the schema lacks, as the API server
// would, and optional fields whose empty value the schema refuses.
func (s *schema) prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			f, known := s.fields[name]
			switch {
			case !known && !s.open:
				delete(v, name)
				continue
			case !known:
				f = s.rest
			}
			if f == nil {
				continue
			}
			f.prune(value)
			if known && f.filled && empty(value) && !slices.Contains(s.required, name) {
				delete(v, name)
			}
		}
	case []any:
		if s.items != nil {
			for _, item := range v {
				s.items.prune(item)
			}
		}
	}
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}
