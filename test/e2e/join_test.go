package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// signing is a signing request as kubectl shows it.
type signing struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Signer   string `json:"signerName"`
		Username string `json:"username"`
		Request  []byte `json:"request"`
		Seconds  int    `json:"expirationSeconds"`
	} `json:"spec"`
	Status struct {
		Certificate []byte `json:"certificate"`
		Conditions  []struct {
			Type string `json:"type"`
		} `json:"conditions"`
	} `json:"status"`
}

func (w *world) signings(t testing.TB) []signing {
	t.Helper()
	var list struct {
		Items []signing `json:"items"`
	}
	if err := json.Unmarshal([]byte(w.sh(t, "oc get csr -o json")), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// TestMachineBecomesNode follows one Machine from its set to its Node and
// compares what the three of them say about each other.
func TestMachineBecomesNode(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	makeSet(t, w, "joining", `.spec.template.spec.providerSpec.value.zone = "2"
		| .spec.template.spec.metadata.labels["training/trainee"] = "joining"`)
	from := w.auditEnd(t)
	scale(t, w, "joining", 1)
	untilRunning(t, w, "joining", 1)
	machine := w.sh(t, "oc get machines "+members("joining")+" -o jsonpath='{.items[0].metadata.name}'")
	get := func(what, path string) string {
		return w.sh(t, fmt.Sprintf("oc get %s -n $MAPI -o jsonpath='{%s}'", what, path))
	}
	node := get("machine/"+machine, ".status.nodeRef.name")
	if node != machine {
		t.Errorf("the Node is called %q, want the Machine's name %q", node, machine)
	}
	for _, row := range []struct{ what, path, want string }{
		{"node/" + node, `.metadata.annotations.machine\.openshift\.io/machine`, namespace + "/" + machine},
		{"node/" + node, ".spec.providerID", get("machine/"+machine, ".spec.providerID")},
		{"node/" + node, ".metadata.uid", get("machine/"+machine, ".status.nodeRef.uid")},
		{"node/" + node, `.metadata.labels.training/trainee`, "joining"},
		{"node/" + node, `.metadata.labels.topology\.kubernetes\.io/zone`, "francecentral-2"},
		{"node/" + node, `.metadata.labels.node\.kubernetes\.io/instance-type`, "Standard_D4s_v3"},
		{"node/" + node, `.spec.taints`, ""},
		{"machine/" + machine, `.status.errorMessage`, ""},
	} {
		w.untilIs(t, fmt.Sprintf("oc get %s -n $MAPI -o jsonpath='{%s}'", row.what, row.path), row.want)
	}
	if err := has(" worker ")(w.sh(t, "oc get node "+node+" --no-headers")); err != nil {
		t.Error(err)
	}
	checkSignings(t, w, node, from)
}

// checkSignings waits for the Node's four requests and compares their order
// and contents.
func checkSignings(t *testing.T, w *world, node string, from int64) {
	t.Helper()
	user := "system:node:" + node
	mine := map[string]signing{}
	err := poll(t.Context(), changeLimit, func() error {
		clear(mine)
		for _, s := range w.signings(t) {
			if s.Spec.Username == user || s.subject(t, w) == user {
				mine[s.Metadata.Name] = s
			}
		}
		if len(mine) != 4 {
			return fmt.Errorf("%d signing requests of %s, want 4", len(mine), node)
		}
		for _, s := range mine {
			if len(s.Status.Conditions) != 1 || s.Status.Conditions[0].Type != "Approved" || len(s.Status.Certificate) == 0 {
				return fmt.Errorf("%s (%s) is not approved and issued", s.Metadata.Name, s.Spec.Signer)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logs())
	}
	// The log has creations without the names that the server made up; the
	// answers to "who asked for which signer" stand in the order of approvals.
	var order []string
	for _, r := range w.audit(t, from) {
		if s, ok := mine[r.Object.Name]; ok && r.Object.Subresource == "approval" && r.Response.Code == 200 {
			order = append(order, strings.TrimPrefix(s.Spec.Signer, "kubernetes.io/")+" by "+s.Spec.Username)
		}
	}
	want := []string{
		"kube-apiserver-client-kubelet by system:serviceaccount:openshift-machine-config-operator:node-bootstrapper",
		"kubelet-serving by " + user,
		"kube-apiserver-client by " + user,
		"kube-apiserver-client by " + user,
	}
	if !slices.Equal(order, want) {
		t.Errorf("approved in the order\n%s\nwant\n%s", strings.Join(order, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range mine {
		if s.Spec.Signer == "kubernetes.io/kube-apiserver-client" && s.Spec.Seconds != 24*3600 {
			t.Errorf("%s asks for %d s, want 24 h", s.Metadata.Name, s.Spec.Seconds)
		}
	}
}

// subject is the common name inside a bootstrapper's request, which alone
// tells for whom it is.
func (s signing) subject(t testing.TB, w *world) string {
	t.Helper()
	if s.Spec.Signer != "kubernetes.io/kube-apiserver-client-kubelet" {
		return ""
	}
	out := w.sh(t, `printf '%s' "$REQUEST" | openssl req -noout -subject -nameopt sep_comma_plus,sname`, "REQUEST="+string(s.Spec.Request))
	for _, part := range strings.Split(strings.TrimPrefix(out, "subject="), ",") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(part), "CN="); ok {
			return name
		}
	}
	return ""
}

// TestQuota leaves room for one VM where two are wanted.
func TestQuota(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	before := w.sh(t, `millwright sim quota -o json | jq -r '.[] | select(.scope == "standardDSv3Family") | "\(.limit) \(.used)"'`)
	var limit, used int
	if _, err := fmt.Sscan(before, &limit, &used); err != nil {
		t.Fatalf("read quota %q: %v", before, err)
	}
	restore := fmt.Sprintf("millwright sim quota standardDSv3Family=%d", limit)
	t.Cleanup(func() { w.shell(context.Background(), restore) })
	makeSet(t, w, "quota", "")
	w.sh(t, fmt.Sprintf("millwright sim quota standardDSv3Family=%d", used+4))
	scale(t, w, "quota", 2)

	const phases = "oc get machines -n $MAPI -l machine.openshift.io/cluster-api-machineset=quota -o json | jq -r '.items[] | [.metadata.name, .status.phase, .status.errorReason // \"-\", .status.errorMessage // \"-\"] | @tsv'"
	out := w.until(t, phases, changeLimit, func(out string) error {
		if strings.Count(out, "\tRunning\t") != 1 || strings.Count(out, "\tProvisioning\t") != 1 {
			return fmt.Errorf("want one Machine Running and one Provisioning")
		}
		return has("OperationNotAllowed", "RESPONSE 409", "standardDSv3Family Cores quota", fmt.Sprintf("Current Limit: %d", used+4))(out)
	})
	var waiting string
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Split(line, "\t"); len(f) == 4 && f[1] == "Provisioning" {
			if waiting = f[0]; f[2] != "-" {
				t.Errorf("the waiting Machine has the errorReason %q, want none: it is not terminal", f[2])
			}
		}
	}
	w.until(t, "oc logs -n $MAPI deployment/machine-api-controllers -c machine-controller | grep "+waiting, changeLimit, has("OperationNotAllowed"))
	if got := cloudResources(t, w, "quota-"); got["virtualMachines"] != 1 || got["networkInterfaces"] > 2 || got["disks"] != 1 {
		t.Errorf("the cloud holds %v for one VM", got)
	}

	w.sh(t, restore)
	untilRunning(t, w, "quota", 2)
	w.untilIs(t, "oc get machines "+members("quota")+" -o jsonpath='{.items[*].status.errorMessage}'", "")
	scale(t, w, "quota", 0)
	w.untilIs(t, "oc get machines "+members("quota")+" -o name", "")
	if got := cloudResources(t, w, "quota-"); len(got) != 0 {
		t.Errorf("the cloud still holds %v", got)
	}
}

// TestBadInput gives what can never work, as a set with one replica, and
// expects it to be refused or to fail with a message that names field, value
// and what would be right. In no case is anything made in the cloud.
func TestBadInput(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	long := "bad-" + strings.Repeat("x", 66)
	tests := []struct {
		name, set, filter string
		want              []string
	}{
		{"selector", "bad-selector", `.spec.selector.matchLabels["machine.openshift.io/cluster-api-machineset"] = "other"`,
			[]string{"selector", "template", "labels"}},
		{"kind", "bad-kind", `.spec.template.spec.providerSpec.value.kind = "AzureMachineSpec"`,
			[]string{"kind", "AzureMachineSpec", "AzureMachineProviderSpec"}},
		{"location", "bad-location", `.spec.template.spec.providerSpec.value.location = "francecentrall"`,
			[]string{"location", "francecentrall", "francecentral"}},
		{"name", long, ".", []string{"name", long}},
		{"size", "bad-size", `.spec.template.spec.providerSpec.value.vmSize = "Standard_D4s_v33"`,
			[]string{"vmSize", "Standard_D4s_v33", "Standard_D4s_v3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := w.shell(t.Context(), `oc get machineset/`+w.status.InfraID+`-worker-francecentral1 -n $MAPI -o json | jq --arg n "$NAME" '
				.metadata = {name: $n, namespace: .metadata.namespace} | del(.status) | .spec.replicas = 1
				| .spec.selector.matchLabels["machine.openshift.io/cluster-api-machineset"] = $n
				| .spec.template.metadata.labels["machine.openshift.io/cluster-api-machineset"] = $n
				| '"$FILTER" | oc create -f -`, "NAME="+tt.set, "FILTER="+tt.filter)
			if r.code != 0 {
				if err := has(tt.want...)(r.stderr); err != nil {
					t.Errorf("%v, refused with:\n%s", err, r.stderr)
				}
			} else {
				t.Cleanup(func() { removeSet(t, w, tt.set) })
				w.until(t, badReports(tt.set), changeLimit, has(tt.want...))
			}
			for kind, n := range cloudResources(t, w, tt.set) {
				t.Errorf("%d %s made", n, kind)
			}
		})
	}
}

// badReports prints everything a user would look at.
func badReports(set string) string {
	return `oc get machines ` + members(set) + ` -o jsonpath='{.items[*].status.errorMessage}'
		oc get events -n $MAPI -o jsonpath='{range .items[?(@.involvedObject.name=="` + set + `")]}{.message}{"\n"}{end}'`
}
