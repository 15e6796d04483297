package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

const machineSetsDigest = "b7f15872ac6d51862d7b646501beb0dd27c24e986e652929a5c814f63646f5fd"

func TestWalkMachineSets(t *testing.T) {
	steps := readWalk(t, "machinesets")
	if got := digest(steps); got != machineSetsDigest {
		t.Fatalf("the commands have the digest %s, want %s: they are the document's, word for word", got, machineSetsDigest)
	}
	w := newWalker(t, sharedWorld(t), "machinesets")
	infra := w.status.InfraID
	t.Cleanup(func() {
		removeSet(t, w.world, "trainee7-extra")
		w.shell(context.Background(), "oc delete deployment web --ignore-not-found")
	})

	walk(t, w, steps, map[string]seen{
		"3":  rows(3, infra+"-worker-francecentral", " 1 "),
		"4":  rows(6, "Running", "Standard_D4s_v3", "francecentral", "azure:///"),
		"5":  rows(6, " Ready ", "francecentral-", "Standard_D4s_v3"),
		"11": once("machineset/" + infra + "-worker-francecentral1"),
		"12": once("AzureMachineProviderSpec", `"location": "francecentral"`, `"zone": "1"`, "Standard_D4s_v3",
			"/resourceGroups/"+infra+"-rg/providers/Microsoft.Compute/galleries/", infra+"-worker-subnet"),
		"30":      shows("machine-api", "4.20.0", "True"),
		"31":      shows("deployment.apps/machine-api-controllers", "7/7"),
		"32-33":   once("machineset-controller\nmachine-controller\nnodelink-controller\n"),
		"36":      shows("controller.go:"),
		"37":      shows("controller.go:", "reconciling Machine"),
		"38":      shows("controller.go:"),
		"41":      rows(6, infra+"-"),
		"42":      rows(6, namespace+"/"+infra+"-"),
		"49":      shows("cloud-controller-manager", "4.20.0", "True"),
		"50":      shows("cluster-cloud-controller-manager-operator-", "2/2", "Running"),
		"51":      shows("deployment.apps/azure-cloud-controller-manager", "2/2", "daemonset.apps/azure-cloud-node-manager", "pod/azure-cloud-node-manager-"),
		"54":      rows(6, "azure:///subscriptions/", "francecentral-"),
		"60-67":   once("machineset.machine.openshift.io/trainee7-extra created"),
		"68":      rows(1, "trainee7-extra", " 0 "),
		"72":      rows(1, "trainee7-extra"),
		"75":      once("scaled"),
		"76":      seesPhases,
		"80":      once(),
		"83":      seesRequests,
		"87":      seesSubject,
		"93":      once(),
		"94-96":   seesNoError,
		"100":     once("deployment.apps/web created"),
		"101":     once("deployment.apps/web patched"),
		"102":     once("successfully rolled out"),
		"103":     seesPods,
		"104":     rows(1, " Ready ", "francecentral-2"),
		"110-114": once("machine.machine.openshift.io/trainee7-extra-copy created"),
		"115":     rows(1, "trainee7-extra", "Running"),
		"116":     shows("Too many replicas for machine.openshift.io/v1beta1, Kind=MachineSet openshift-machine-api/trainee7-extra, need 1, deleting 1"),
	})
}

func seesPhases(t *testing.T, w *walker, s step) {
	if err := inOrder(w.follow(t, s, "Running"), "Provisioning", "Provisioned", "Running"); err != nil {
		t.Error(err)
	}
}

func seesRequests(t *testing.T, w *walker, s step) {
	w.until(t, w.script(t, s), changeLimit, func(out string) error {
		requests, nodes, _ := strings.Cut(out, "\n\n")
		for _, line := range strings.Split(requests, "\n")[1:] {
			if !strings.HasSuffix(line, "Approved,Issued") {
				return fmt.Errorf("%q is not approved and issued", line)
			}
		}
		if err := inOrder(requests, "kubernetes.io/kubelet-serving", "system:node:trainee7-extra-", "kubernetes.io/kube-apiserver-client ", "system:node:trainee7-extra-"); err != nil {
			return err
		}
		if err := has("kubernetes.io/kube-apiserver-client-kubelet", "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper")(requests); err != nil {
			return err
		}
		return has("trainee7-extra-", " Ready ", "francecentral-2")(nodes)
	})
}

// seesSubject asks every bootstrapper's request for its subject: one of them
// holds the new Node's name, which the requestor cannot tell.
func seesSubject(t *testing.T, w *walker, s step) {
	node := w.sh(t, "oc get nodes -l training/trainee=trainee7 -o name")
	names := w.sh(t, "oc get csr --sort-by=.metadata.creationTimestamp -o name | cut -d/ -f2")
	var all []string
	for _, csr := range strings.Fields(names) {
		all = append(all, w.sh(t, w.script(t, s), "CSR="+csr))
	}
	want := "system:node:" + strings.TrimPrefix(node, "node/")
	if err := has(want)(strings.Join(all, "\n")); err != nil {
		t.Errorf("%v, got %q", err, all)
	}
}

func seesNoError(t *testing.T, w *walker, s step) {
	w.until(t, w.script(t, s), changeLimit, func(out string) error {
		message, log, _ := strings.Cut(out+"\n", "\n")
		if strings.Contains(message, "rror") {
			return fmt.Errorf("the Machine says %q, want nothing", message)
		}
		return has("trainee7-extra-")(message + log)
	})
}

func seesPods(t *testing.T, w *walker, s step) {
	node := strings.TrimPrefix(w.sh(t, "oc get nodes -l training/trainee=trainee7 -o name"), "node/")
	w.until(t, w.script(t, s), changeLimit, func(out string) error {
		if n := strings.Count(out, "Running") + strings.Count(out, node); n != 4 {
			return fmt.Errorf("want two running pods on %s", node)
		}
		return nil
	})
}
