package spec

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"millwright.io/millwright/internal/cloud"
)

// Rules of Decode.
const (
	RuleNearMiss = "unknown-field-near-miss"
	RuleUnknown  = "unknown-field"
)

var rootType = reflect.TypeFor[machinev1.AzureMachineProviderSpec]()

// unknownFields says of each field that an AzureMachineProviderSpec does not
// have what becomes of it, sorted by path.
func unknownFields(tree any) []cloud.Problem {
	var out []cloud.Problem
	for _, u := range cloud.UnknownFields(rootType, tree, rootType.PkgPath(), reflect.TypeFor[corev1.SecretReference]().PkgPath()) {
		p := cloud.Problem{Rule: RuleUnknown, Type: cloud.ProblemUnsupported, Field: "providerSpec.value",
			Value: strconv.Quote(u.Path()), Detail: "Unknown field (" + u.Path() + ") will be ignored", Warning: true}
		if u.Near != "" {
			p = cloud.Problem{Rule: RuleNearMiss, Type: cloud.ProblemUnsupported,
				Field: strings.TrimSuffix("providerSpec.value."+u.Parent, "."), Value: strconv.Quote(u.Name),
				Detail: fmt.Sprintf("unknown field, did you mean %q?", u.Near)}
		}
		out = append(out, p)
	}
	return out
}
