package admission

import (
	"context"

	machinev1 "github.com/openshift/api/machine/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
)

// Overlaps returns the sets in s's namespace that would own Machines of s, or
// whose Machines s would own, one problem each, with what to change. It is the
// rule machineset-overlap, for those who look at what is there already.
func Overlaps(ctx context.Context, r client.Reader, s *machinev1.MachineSet) ([]cloud.Problem, error) {
	return rivals(ctx, r, s)
}
