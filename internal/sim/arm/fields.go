package arm

import (
	"fmt"
	"strings"
)

// fieldRule is one row of the generated table.
type fieldRule struct {
	required, readOnly bool
	ref                string // rules of the value, its elements or its map values
	many, mapped       bool
}

// checkFields removes the read-only fields of a PUT body, as the service
// ignores them, and refuses a body that lacks a required one. It returns the
// paths of what it removed.
func checkFields(typ string, doc object) (ignored []string, err *Error) {
	err = walkFields(typ, doc, "", &ignored)
	return ignored, err
}

func walkFields(typ string, doc object, at string, ignored *[]string) *Error {
	rules := fieldTable[typ]
	for name, r := range rules {
		v, has := doc[name]
		if r.readOnly {
			if has {
				delete(doc, name)
				*ignored = append(*ignored, at+name)
			}
			continue
		}
		if !has || v == nil {
			if r.required {
				return missingField(at + name)
			}
			continue
		}
		if r.ref == "" {
			continue
		}
		if err := walkValue(r, v, at+name, ignored); err != nil {
			return err
		}
	}
	return nil
}

func walkValue(r fieldRule, v any, at string, ignored *[]string) *Error {
	switch {
	case r.many:
		l, ok := v.([]any)
		if !ok {
			return malformed(at, "an array")
		}
		for i, e := range l {
			o, ok := e.(object)
			if !ok {
				return malformed(fmt.Sprintf("%s[%d]", at, i), "an object")
			}
			if err := walkFields(r.ref, o, fmt.Sprintf("%s[%d].", at, i), ignored); err != nil {
				return err
			}
		}
	case r.mapped:
		m, ok := v.(object)
		if !ok {
			return malformed(at, "an object")
		}
		for k, e := range m {
			if o, ok := e.(object); ok {
				if err := walkFields(r.ref, o, at+"."+k+".", ignored); err != nil {
					return err
				}
			}
		}
	default:
		o, ok := v.(object)
		if !ok {
			return malformed(at, "an object")
		}
		return walkFields(r.ref, o, at+".", ignored)
	}
	return nil
}

// missingField names the field as the service does: without the envelope.
func missingField(path string) *Error {
	path = strings.TrimPrefix(path, "properties.")
	return invalidParameter(path, fmt.Sprintf("Required parameter '%s' is missing (null).", path))
}

func malformed(path, want string) *Error {
	return fail(400, "InvalidRequestContent", fmt.Sprintf("The request content was invalid and could not be deserialized: '%s must be %s.'", path, want))
}
