package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// objects lists the identity of what must outlive a restart.
const objects = `oc get nodes,machines,machinesets,deployments,namespaces,secrets,infrastructures.config.openshift.io,clusterversions.config.openshift.io -A \
	-o jsonpath='{range .items[*]}{.kind}{" "}{.metadata.namespace}{"/"}{.metadata.name}{" "}{.metadata.uid}{"\n"}{end}' | sort`

// TestLifeOfAWorld runs a second world beside the shared one: down, up again
// with the same objects, and a supervisor that is killed.
func TestLifeOfAWorld(t *testing.T) {
	first := sharedWorld(t)
	w := ownWorld(t, append([]string{"--workers", "1"}, quick...)...)
	if first.status.World == w.status.World || first.status.PID == w.status.PID {
		t.Fatalf("two worlds are number %d and %d with pid %d and %d, want them apart", first.status.World, w.status.World, first.status.PID, w.status.PID)
	}
	if got := first.sh(t, "oc get nodes -o name"); !strings.Contains(got, first.status.InfraID) {
		t.Errorf("the first world answers %q beside the second", got)
	}
	before := w.sh(t, objects)
	if n := len(w.parts.processes); n < 8 {
		t.Fatalf("the world has %d processes, want its control plane and controllers: %v", n, w.parts.processes)
	}

	if err := w.down(false); err != nil {
		t.Fatalf("down: %v", err)
	}
	if err := w.up(quick...); err != nil {
		t.Fatalf("up again: %v", err)
	}
	if diff := cmp.Diff(before, w.sh(t, objects)); diff != "" {
		t.Errorf("other objects after down and up (-before +after):\n%s", diff)
	}
	untilControllers(t, w)

	w.parts = w.parts.and(look(w.status.PID))
	if err := w.parts.processes[0].kill(); err != nil {
		t.Fatal(err)
	}
	// The kernel ends the children with their parent; nobody has to help.
	if err := w.nothingLeft(downLimit); err != nil {
		t.Fatalf("after SIGKILL to the supervisor: %v", err)
	}
	if r := w.exec(t.Context(), "millwright", "status"); r.code != 1 || !strings.Contains(r.stderr, "millwright up") {
		t.Errorf("status of a dead world ended with %d and said %q, want 1 and how to start it", r.code, r.stderr)
	}
}
