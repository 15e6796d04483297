package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

const controllersOf = "-n $MAPI -l k8s-app=controller"

func TestThreeReadyControlPlaneNodes(t *testing.T) {
	w := sharedWorld(t)
	w.until(t, "kubectl get nodes -l node-role.kubernetes.io/control-plane --no-headers", changeLimit, func(out string) error {
		if n := strings.Count(out, " Ready "); n != 3 || strings.Count(out, "\n") != 2 {
			return fmt.Errorf("%d Ready control plane Nodes, want 3", n)
		}
		return nil
	})
}

func TestUnqualifiedNamesMeanTheMachineAPI(t *testing.T) {
	w := sharedWorld(t)
	w.sh(t, "oc get crd machinesets.cluster.x-k8s.io machines.cluster.x-k8s.io")
	if err := has("machineset.machine.openshift.io/")(w.sh(t, "oc get machinesets -n openshift-machine-api -o name")); err != nil {
		t.Error(err)
	}
	if err := has("machine.machine.openshift.io/")(w.sh(t, "oc get machines -n openshift-machine-api -o name")); err != nil {
		t.Error(err)
	}
}

func TestLogsAreTheProcessesOwn(t *testing.T) {
	w := sharedWorld(t)
	p, err := w.controller("machineset-controller")
	if err != nil {
		t.Fatal(err)
	}
	// Each line of the log carries the number of the process that wrote it.
	out := w.sh(t, "kubectl logs deployment/machine-api-controllers -n openshift-machine-api -c machineset-controller --tail=20")
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); len(f) < 3 || f[2] != strconv.Itoa(p.pid) {
			t.Errorf("line %q is not of process %d", line, p.pid)
		}
	}
}

func TestExecDebugAndCordon(t *testing.T) {
	w := sharedWorld(t)
	node := w.status.InfraID + "-master-1"
	if out := w.sh(t, "kubectl exec -n $MAPI deployment/machine-api-controllers -c machineset-controller -- sh -c 'echo $((6*7))'"); out != "42" {
		t.Errorf("exec printed %q, want 42", out)
	}
	if err := has("hostname", "os-release")(w.sh(t, "oc debug node/"+node+" -- chroot /host ls /etc")); err != nil {
		t.Error(err)
	}
	if out := w.sh(t, "oc debug node/"+node+" -- chroot /host cat /etc/hostname"); out != node {
		t.Errorf("the hostname is %q, want %q", out, node)
	}
	w.untilIs(t, "oc get pods -A --no-headers | grep -c -- -debug-", "0")
	if err := has("cordoned")(w.sh(t, "oc adm cordon "+node)); err != nil {
		t.Error(err)
	}
	w.untilIs(t, "oc get node "+node+" -o jsonpath='{.spec.unschedulable}'", "true")
	w.sh(t, "oc adm uncordon "+node)
	w.untilIs(t, "oc get node "+node+" -o jsonpath='{.spec.unschedulable}'", "")
}

// untilControllers waits until the pod of the controllers runs as a whole.
func untilControllers(t testing.TB, w *world) {
	t.Helper()
	w.until(t, "oc get pods "+controllersOf+" --no-headers", changeLimit, func(out string) error {
		if strings.Count(out, "\n") != 0 {
			return fmt.Errorf("more than one pod")
		}
		return has("7/7", "Running")(out)
	})
}

func TestScalingEndsAndStartsTheProcess(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	before, err := w.controller("machine-controller")
	if err != nil {
		t.Fatal(err)
	}
	w.sh(t, "kubectl scale deployment machine-api-controllers -n $MAPI --replicas=0")
	t.Cleanup(func() { untilControllersAgain(t, w) })
	err = poll(t.Context(), changeLimit, func() error {
		if before.alive() {
			return fmt.Errorf("process %d still runs", before.pid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.untilIs(t, "oc get pods "+controllersOf+" -o name", "")
	w.sh(t, "kubectl scale deployment machine-api-controllers -n $MAPI --replicas=1")
	untilControllers(t, w)
	if after, err := w.controller("machine-controller"); err != nil || after == before {
		t.Errorf("process %v, %v; want another one than %v", after, err, before)
	}
}

// untilControllersAgain repairs what a failed test left.
func untilControllersAgain(t *testing.T, w *world) {
	if t.Failed() {
		w.shell(t.Context(), "kubectl scale deployment machine-api-controllers -n $MAPI --replicas=1")
	}
}

func TestDeletingThePodReplacesIt(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	const uid = "oc get pods " + controllersOf + " -o jsonpath='{.items[*].metadata.uid}'"
	before := w.sh(t, uid)
	process, err := w.controller("nodelink-controller")
	if err != nil {
		t.Fatal(err)
	}
	w.sh(t, "oc delete pods "+controllersOf+" --wait=false")
	w.until(t, uid, changeLimit, func(out string) error {
		if out == before || out == "" || strings.Contains(out, " ") {
			return fmt.Errorf("want one pod with another UID than %s", before)
		}
		return nil
	})
	untilControllers(t, w)
	if process.alive() {
		t.Errorf("process %d of the deleted pod still runs", process.pid)
	}
}

func TestKillingTheProcessCountsARestart(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	const restarts = `oc get pods ` + controllersOf + ` -o jsonpath='{.items[0].status.containerStatuses[?(@.name=="nodelink-controller")].restartCount}'`
	before, err := strconv.Atoi(w.sh(t, restarts))
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.controller("nodelink-controller")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	w.untilIs(t, restarts, strconv.Itoa(before+1))
	untilControllers(t, w)
	// RESTARTS of the table is the sum over the containers.
	if err := has(" " + strconv.Itoa(before+1) + " (")(w.sh(t, "oc get pods "+controllersOf+" --no-headers")); err != nil {
		t.Error(err)
	}
}
