package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// What the document about MachineSets says without giving a command for it.
// The lines are the document's.

// workload applies a Deployment that only pretends to run. spec is its pods'
// spec beside the container, as JSON members with a comma behind each.
func workload(t testing.TB, w *world, name string, replicas int, spec string) {
	t.Helper()
	w.sh(t, `oc create -f - <<<"$MANIFEST"`, "MANIFEST="+fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": %[1]q}, "spec": {
		"replicas": %[2]d, "selector": {"matchLabels": {"app": %[1]q}}, "template": {"metadata": {"labels": {"app": %[1]q}}, "spec": {%[3]s
			"containers": [{"name": "web", "image": "nginxinc/nginx-unprivileged:1.27-alpine"}]}}}}`, name, replicas, spec))
	t.Cleanup(func() { w.shell(context.Background(), "oc delete deployment --ignore-not-found "+name) })
}

// podsOf lists the running pods of a workload with their Nodes.
func podsOf(name string) string {
	return "oc get pods -l app=" + name + ` --field-selector=status.phase=Running -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort`
}

// Line 106: a topologySpreadConstraint over the label that the cloud controller
// manager sets brings as many pods into each zone.
func TestTopologySpreadOverThreeZones(t *testing.T) {
	w := sharedWorld(t)
	workload(t, w, "spread", 6, `"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
		"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "spread"}}}],`)
	w.sh(t, "oc rollout status deployment spread --timeout=90s")
	w.untilIs(t, podsOf("spread")+` | while read -r node; do oc get node "$node" -o jsonpath='{.metadata.labels.topology\.kubernetes\.io/zone}{"\n"}'; done | sort | uniq -c | awk '{print $1, $2}'`,
		"2 francecentral-1\n2 francecentral-2\n2 francecentral-3")
}

// Line 106: the labels come from the set, so pods go to the Node that follows
// one whose Machine was deleted.
func TestDeploymentFollowsAReplacedMachine(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	makeSet(t, w, "follow", `.spec.template.spec.metadata.labels["training/trainee"] = "follow"`)
	scale(t, w, "follow", 1)
	workload(t, w, "follow", 2, `"nodeSelector": {"training/trainee": "follow"},`)
	w.sh(t, "oc rollout status deployment follow --timeout=90s")
	old := w.sh(t, "oc get machines "+members("follow")+" -o jsonpath='{.items[0].metadata.name}'")
	w.untilIs(t, podsOf("follow"), old+"\n"+old)

	w.sh(t, "oc delete machine -n $MAPI --wait=false "+old)
	next := w.until(t, "oc get machines "+members("follow")+" -o jsonpath='{.items[*].metadata.name}'", changeLimit, func(out string) error {
		if out == "" || strings.Contains(out, " ") || out == old {
			return fmt.Errorf("want one other Machine than %s", old)
		}
		return nil
	})
	w.untilIs(t, podsOf("follow"), next+"\n"+next)
	w.untilIs(t, "oc get node --ignore-not-found "+old, "")
	if got := cloudResources(t, w, old); len(got) != 0 {
		t.Errorf("the cloud still holds %v of %s", got, old)
	}
}

// Line 108: a set with taints and the infra role takes only what tolerates it.
func TestInfrastructureSet(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	makeSet(t, w, "infra", `.spec.template.metadata.labels["machine.openshift.io/cluster-api-machine-role"] = "infra"
		| .spec.template.metadata.labels["machine.openshift.io/cluster-api-machine-type"] = "infra"
		| .spec.template.spec.metadata.labels["node-role.kubernetes.io/infra"] = ""
		| .spec.template.spec.taints = [{"key": "node-role.kubernetes.io/infra", "value": "reserved", "effect": "NoSchedule"}]`)
	scale(t, w, "infra", 1)
	untilRunning(t, w, "infra", 1)
	node := w.sh(t, "oc get machines "+members("infra")+" -o jsonpath='{.items[0].status.nodeRef.name}'")
	w.untilIs(t, "oc get node "+node+" --no-headers | awk '{print $2, $3}'", "Ready infra,worker")
	w.untilIs(t, "oc get node "+node+` -o jsonpath='{range .spec.taints[*]}{.key}={.value}:{.effect}{"\n"}{end}'`,
		"node-role.kubernetes.io/infra=reserved:NoSchedule")

	const selects = `"nodeSelector": {"node-role.kubernetes.io/infra": ""},`
	workload(t, w, "app", 1, selects)
	workload(t, w, "router", 2, selects+`"tolerations": [{"key": "node-role.kubernetes.io/infra", "operator": "Equal", "value": "reserved", "effect": "NoSchedule"}],`)
	w.untilIs(t, podsOf("router"), node+"\n"+node)
	w.until(t, `oc get pods -l app=app -o jsonpath='{.items[0].status.conditions[?(@.type=="PodScheduled")].message}'`, changeLimit,
		has("untolerated taint"))
	w.untilIs(t, podsOf("app"), "")
}

// copied is the document's copy of a set with the set's label changed in the
// places given, and no other set's.
func copied(w *world, name string, replicas int, places ...string) string {
	filter := fmt.Sprintf(".metadata = {name: %q, namespace: .metadata.namespace} | del(.status) | .spec.replicas = %d", name, replicas)
	for _, place := range places {
		filter += fmt.Sprintf(` | %s["machine.openshift.io/cluster-api-machineset"] = %q`, place, name)
	}
	return "oc get machineset/" + source(w) + " -n $MAPI -o json | jq '" + filter + "'"
}

func source(w *world) string { return w.status.InfraID + "-worker-francecentral1" }

const (
	inSelector = ".spec.selector.matchLabels"
	inTemplate = ".spec.template.metadata.labels"
)

// Line 70: the label has to be changed in both places, or the set never comes
// to be.
func TestCopyWithTheLabelChangedInOnePlace(t *testing.T) {
	w := sharedWorld(t)
	for _, row := range []struct {
		name   string
		places []string
		want   []string
	}{
		{"the selector alone", []string{inSelector},
			[]string{"spec.template.metadata.labels", "`selector` does not match template `labels`", `"halfway"`}},
		{"the template alone", []string{inTemplate},
			[]string{"spec.template.metadata.labels", "`selector` does not match template `labels`", `"halfway"`}},
		{"neither", nil,
			[]string{`"halfway"`, `"` + source(w) + `"`, "machine.openshift.io/cluster-api-machineset", "spec.selector.matchLabels", "spec.template.metadata.labels",
				"millwright.io/accept-risk: machineset-overlap"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := w.shell(t.Context(), copied(w, "halfway", 0, row.places...)+" | oc apply -f -")
			if r.code == 0 {
				t.Errorf("accepted, want it refused: %s", r.stdout)
			}
			if err := has(row.want...)(r.stderr); err != nil {
				t.Errorf("%v, refused with:\n%s", err, r.stderr)
			}
			w.untilIs(t, "oc get machineset halfway -n $MAPI --ignore-not-found", "")
		})
	}
}

// Line 70: who accepts the risk gets the fight. The copy's Machines carry the
// source's label, so they show up as the source's and not as the copy's; and a
// Machine without owner is taken by either set, which then has one too many.
func TestCopyWithTheLabelChangedNowhereFights(t *testing.T) {
	w := sharedWorld(t)
	untilControllers(t, w)
	r := w.shell(t.Context(), copied(w, "fighter", 0)+` | jq '.metadata.annotations["millwright.io/accept-risk"] = "machineset-overlap"' | oc create -f -`)
	t.Cleanup(func() { removeFighter(t, w) })
	if err := has("machineset-overlap")(r.stderr); r.code != 0 || err != nil {
		t.Fatalf("exit code %d, %v; want it accepted with a warning:\n%s", r.code, err, r.stderr)
	}
	fight(t, w)
}

// The same with the rule off for the whole cluster, where nobody is warned.
func TestFightWithTheRuleOff(t *testing.T) {
	if !full() {
		t.Log("short form: accept-risk alone opens the same door")
		return
	}
	w := ownWorld(t, append([]string{"--workers", "1", "--admission", "machineset-overlap=off"}, quick...)...)
	untilControllers(t, w)
	r := w.shell(t.Context(), copied(w, "fighter", 0)+" | oc create -f -")
	if r.code != 0 || strings.Contains(r.stderr, "machineset-overlap") {
		t.Fatalf("exit code %d, want it accepted in silence:\n%s", r.code, r.stderr)
	}
	fight(t, w)
}

func fight(t *testing.T, w *world) {
	t.Helper()
	scale(t, w, "fighter", 1)
	from := members(source(w))
	w.until(t, "oc get machines "+from+" --no-headers", changeLimit, func(out string) error {
		if n := strings.Count(out, " Running "); n != 2 {
			return fmt.Errorf("%d Machines run under the source's label, want its own and the copy's", n)
		}
		return has("fighter-")(out)
	})
	w.untilIs(t, "oc get machines "+members("fighter")+" -o name", "")
	// Neither takes what the other owns.
	const counters = ` -n $MAPI -o jsonpath='{.status.replicas} {.status.readyReplicas}'`
	for _, set := range []string{source(w), "fighter"} {
		w.untilIs(t, "oc get machineset "+set+counters, "1 1")
	}

	w.sh(t, `oc get machine -n $MAPI "$(oc get machines `+from+` -o jsonpath='{.items[?(@.metadata.ownerReferences[0].name=="`+source(w)+`")].metadata.name}')" -o json | jq '
		del(.metadata.uid, .metadata.resourceVersion, .metadata.creationTimestamp, .metadata.generation, .metadata.managedFields,
			.metadata.generateName, .metadata.ownerReferences, .spec.providerID, .status) | .metadata.name = "orphan"' | oc create -f -`)
	w.until(t, "oc logs -n $MAPI deployment/machine-api-controllers -c machineset-controller --tail=-1 | grep 'Too many replicas'", changeLimit, func(out string) error {
		for _, set := range []string{source(w), "fighter"} {
			if strings.Contains(out, namespace+"/"+set+", need 1, deleting 1") {
				return nil
			}
		}
		return fmt.Errorf("no set deletes one too many")
	})
	w.until(t, "oc get machines "+from+" --no-headers", changeLimit, func(out string) error {
		if n := strings.Count(out, " Running "); n != 2 || strings.Count(out, "\n") != 1 {
			return fmt.Errorf("want two Machines again, one of each set")
		}
		return nil
	})
	for _, set := range []string{source(w), "fighter"} {
		w.untilIs(t, "oc get machineset "+set+counters, "1 1")
	}
}

// removeFighter removes the copy with what it owns, which no label tells.
func removeFighter(t *testing.T, w *world) {
	t.Helper()
	w.shell(context.Background(), "oc delete machineset fighter -n $MAPI --ignore-not-found")
	err := poll(context.Background(), changeLimit, func() error {
		out := w.shell(context.Background(), "oc get machines -n $MAPI -o json | jq -r '.items[] | select(.metadata.ownerReferences[0].name == \"fighter\") | .metadata.name'")
		if out.code != 0 || out.stdout != "" {
			return fmt.Errorf("remove the copy: exit code %d, left: %s%s", out.code, out.stdout, out.stderr)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
