package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cli"
	"millwright.io/millwright/internal/cloud"
	machinectl "millwright.io/millwright/internal/dialect/machineapi/machine"
	"millwright.io/millwright/internal/dialect/machineapi/wire"
	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/engine/drain"
	engine "millwright.io/millwright/internal/engine/machine"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/observe"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
)

// unseen is how long a controller may take to look at a new Machine.
const unseen = time.Minute

// nobody is the cloud of explanations: it is not asked.
type nobody struct{}

var errNotAsked = errors.New("the cloud is not asked")

// Open implements cloud.Opener.
func (nobody) Open(context.Context, cloud.Account) (cloud.Cloud, error) { return nil, errNotAsked }

func explainMachine(ctx context.Context, in cli.ExplainInput) (cli.Explanation, error) {
	s, err := newScene(ctx, in, in.Key.Namespace)
	if err != nil {
		return cli.Explanation{}, err
	}
	var m machinev1beta1.Machine
	if err := in.Reader.Get(ctx, in.Key, &m); err != nil {
		return cli.Explanation{}, err
	}
	e, err := s.machine(ctx, &m)
	if err != nil {
		return e, err
	}
	seen := conditionsOf(m.Status.Conditions)
	if n := s.node(ctx, &m); n != nil {
		seen = append(seen, readiness(n)...)
	}
	told, err := in.Events(ctx, "Machine", &m)
	e.Evidence = append(append(seen, e.Evidence...), told...)
	return e, err
}

// machine says why one Machine is not further.
func (s *scene) machine(ctx context.Context, m *machinev1beta1.Machine) (cli.Explanation, error) {
	phase := ptr.Deref(m.Status.Phase, "")
	switch {
	case m.DeletionTimestamp != nil:
		return s.leaving(ctx, m)
	case phase == wire.PhaseFailed:
		return failedMachine(m), nil
	case phase == "":
		if s.age(m.CreationTimestamp.Time) > unseen {
			return stuck("NotSeen", "Nothing has looked at the Machine yet: its controller does not run, or leaves it to another API.",
				step("See whether the controller runs, and what it says:", "oc -n %s logs deployment/machine-api-controllers -c machine-controller --tail=50", wire.Namespace)), nil
		}
		return progressing("The Machine is new; its controller has not looked at it yet."), nil
	}
	if kind, text, since := faultOf(m); kind != "" {
		e := faulted(m, kind, text)
		if since.IsZero() { // else a condition says it
			e.Evidence = append(e.Evidence, cli.Evidence{What: "errorMessage", Text: text})
		}
		return e, nil
	}
	if m.Status.NodeRef == nil {
		return s.joining(ctx, m, phase)
	}
	return s.joined(ctx, m), nil
}

// conditionsOf are the conditions that are not True.
func conditionsOf(conditions []machinev1beta1.Condition) []cli.Evidence {
	var out []cli.Evidence
	for _, c := range conditions {
		if c.Status != corev1.ConditionTrue {
			out = append(out, cli.ConditionEvidence(string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time))
		}
	}
	return out
}

func (s *scene) node(ctx context.Context, m *machinev1beta1.Machine) *corev1.Node {
	if m.Status.NodeRef == nil {
		return nil
	}
	var n corev1.Node
	if err := s.api.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, &n); err != nil {
		return nil
	}
	return &n
}

func readyOf(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
}

func readiness(n *corev1.Node) []cli.Evidence {
	c := readyOf(n)
	if c.Status == corev1.ConditionTrue {
		return nil
	}
	e := cli.ConditionEvidence(string(c.Type), string(c.Status), c.Reason, c.Message, c.LastTransitionTime.Time)
	e.What = "node " + n.Name + " " + e.What
	return []cli.Evidence{e}
}

// faultOf is the cloud's last refusal: its kind, its text and since when. The
// condition is ours; a cluster under the original has the text alone.
func faultOf(m *machinev1beta1.Machine) (cloud.Kind, string, time.Time) {
	for _, c := range m.Status.Conditions {
		if string(c.Type) == engine.InstanceReconciled && c.Status == corev1.ConditionFalse {
			return cloud.Kind(c.Reason), c.Message, c.LastTransitionTime.Time
		}
	}
	text := ptr.Deref(m.Status.ErrorMessage, "")
	if text == "" {
		return "", "", time.Time{}
	}
	return faultKind(text), text, time.Time{}
}

// words by which a text without a kind is understood. The first that occurs
// decides.
var words = []struct {
	word string
	kind cloud.Kind
}{
	{"quota", cloud.Quota}, {"too many requests", cloud.Throttled}, {"throttl", cloud.Throttled},
	{"skunotavailable", cloud.NoCapacity}, {"allocationfailed", cloud.NoCapacity},
	{"credentials", cloud.Credentials}, {"invalid_client", cloud.Credentials}, {"invalidauthenticationtoken", cloud.Credentials},
	{"authorizationfailed", cloud.Denied}, {"disallowedbypolicy", cloud.Denied}, {"invalid", cloud.Invalid},
}

func faultKind(text string) cloud.Kind {
	for _, w := range words {
		if strings.Contains(strings.ToLower(text), w.word) {
			return w.kind
		}
	}
	return cloud.Transient
}

// faulted words a refusal of the cloud and what ends it.
func faulted(m *machinev1beta1.Machine, kind cloud.Kind, text string) cli.Explanation {
	head := "The cloud makes no instance for this Machine: "
	if m.Spec.ProviderID != nil {
		head = "The cloud refuses to answer about this Machine's instance: "
	}
	edit := "oc -n " + m.Namespace + " edit machineset " + setOf(m)
	if setOf(m) == "" {
		edit = "oc -n " + m.Namespace + " edit machine " + m.Name
	}
	cause := string(kind)
	switch kind {
	case cloud.Quota:
		return stuck(cause, head+"a quota of the account is used up. It is tried again by itself, and the Machine goes on as soon as the quota allows it.",
			step("Ask for more quota, take a size of another family, or make room:", edit))
	case cloud.Throttled:
		return stuck(cause, head+"it answers that there were too many requests. It is asked again after the time that it names; nothing has to be done.",
			step("See what else asks so much of this subscription. Watch the Machine go on:", "oc -n %s get machine %s -w", m.Namespace, m.Name))
	case cloud.NoCapacity:
		return stuck(cause, head+"there is no capacity for this size here at the moment. It is tried again by itself.",
			step("If it lasts, take another size or zone:", edit))
	case cloud.Credentials:
		return stuck(cause, head+"the credentials are missing, wrong or expired. It is tried again by itself once the Secret is right.",
			step("Look at the Secret that the providerSpec names, and renew it:", "oc -n %s get secret %s -o yaml", m.Namespace, secretOf(m)))
	case cloud.Denied:
		return stuck(cause, head+"the identity is known, but may not do this (a role or a policy is missing). It is tried again by itself.",
			step("Grant what the cloud's text names. Watch the Machine go on:", "oc -n %s get machine %s -w", m.Namespace, m.Name))
	case cloud.Invalid:
		return stuck(cause, head+"what the providerSpec asks for can never be had as it is written.", step("Correct it, then delete this Machine so that a new one is made:", edit))
	case cloud.NotFound:
		return stuck(cause, head+"something that the providerSpec names does not exist.", step("Create it, or correct the name:", edit))
	case cloud.Conflict, cloud.Transient:
	}
	return stuck(cause, head+"it fails for now, and it is tried again by itself.",
		step("If it lasts, see what the controller tries:", "oc -n %s logs deployment/machine-api-controllers -c machine-controller --tail=50", wire.Namespace))
}

// failedMachine explains a Machine that goes on no more.
func failedMachine(m *machinev1beta1.Machine) cli.Explanation {
	text := ptr.Deref(m.Status.ErrorMessage, "")
	reason := string(ptr.Deref(m.Status.ErrorReason, ""))
	remove := step("Delete the Machine; its set makes a new one:", "oc -n %s delete machine %s", m.Namespace, m.Name)
	if setOf(m) == "" {
		remove.Text = "Delete the Machine, and create a new one (no set owns it):"
	}
	var e cli.Explanation
	switch {
	case reason == engine.ReasonInvalidConfiguration:
		e = stuck(string(cloud.Invalid), "The Machine failed: what its providerSpec asks for can never be had as it is written, so it is not tried again until the spec changes.")
		if set := setOf(m); set != "" {
			e.Next = append(e.Next, step("Correct the template, so that the next Machine is right:", "oc -n %s edit machineset %s", m.Namespace, set))
		}
	case text == engine.TextLost:
		e = stuck("InstanceLost", "The Machine failed for good: its instance was there and is gone; somebody deleted it in the cloud. A Machine never gets a second instance.")
	case reason == engine.ReasonCreateError:
		e = stuck("InstanceBroken", "The Machine failed for good: the cloud brought its instance up broken.")
	default:
		e = stuck("Failed", "The Machine failed for good ("+reason+"): nothing is tried any more.")
	}
	e.Next = append(e.Next, remove)
	if text != "" {
		e.Evidence = append(e.Evidence, cli.Evidence{What: "errorMessage", Text: text})
	}
	return e
}

// setOf is the MachineSet that owns a Machine; empty: none.
func setOf(m *machinev1beta1.Machine) string {
	if o := metav1.GetControllerOf(m); o != nil && o.Kind == "MachineSet" {
		return o.Name
	}
	return ""
}

// secretOf is the credentials Secret that a Machine names.
func secretOf(m *machinev1beta1.Machine) string {
	const usual = "azure-cloud-credentials"
	if m.Spec.ProviderSpec.Value == nil {
		return usual
	}
	codec := azurespec.Codec{}
	spec, _, err := codec.Decode(m.Spec.ProviderSpec.Value.Raw)
	if err != nil {
		return usual
	}
	if _, ref := codec.References(spec); ref.Name != "" {
		return ref.Name
	}
	return usual
}

// joining explains a Machine that has no Node yet.
func (s *scene) joining(ctx context.Context, m *machinev1beta1.Machine, phase string) (cli.Explanation, error) {
	if n := s.unlinked(ctx, m); n != nil {
		return stuck("NotLinked", fmt.Sprintf("Node %s is there and is not linked to the Machine: their provider IDs differ (%q and %q).", n.Name, n.Spec.ProviderID, ptr.Deref(m.Spec.ProviderID, "")),
			step("See what the nodelink controller says:", "oc -n %s logs deployment/machine-api-controllers -c nodelink-controller --tail=50", wire.Namespace)), nil
	}
	requests, err := s.requestsOf(ctx, m)
	if err != nil {
		return cli.Explanation{}, err
	}
	for i := range requests {
		e, d, err := s.request(ctx, &requests[i])
		if err != nil {
			return e, err
		}
		if v, ok := d.Status.(csr.Verdict); !ok || v.Outcome == csr.Ignore {
			continue
		}
		e.Cause, e.Why = "WaitingForCSR", fmt.Sprintf("The instance boots and asks for its certificate with signing request %s, which is not approved. %s", requests[i].Name, e.Why)
		return e, nil
	}
	since := m.CreationTimestamp.Time
	if u := m.Status.LastUpdated; u != nil {
		since = u.Time
	}
	if phase == wire.PhaseProvisioning {
		return progressing("The cloud makes the instance."), nil
	}
	if s.age(since) < wire.DefaultNodeStartupTimeout {
		return progressing("The instance is there and boots; its Node has not come yet, nor has it asked for a certificate."), nil
	}
	e := stuck("WaitingForNode", "The instance is there, and yet no Node has come and no certificate was asked for. Either it does not boot, does not reach the config server or the API server, or has the wrong user data.",
		step("Look at the instance's console in the cloud; in a simulated world:", "millwright sim vm console %s", m.Name),
		step("If it cannot be saved, have it replaced:", "oc -n %s delete machine %s", m.Namespace, m.Name))
	e.Evidence = append(e.Evidence, cli.Evidence{What: "no Node and no signing request", Text: "instance state: " + m.Annotations[wire.AnnotationInstanceState], Since: cli.Since(since)})
	return e, nil
}

// unlinked is the Node that bears the Machine's name or provider ID.
func (s *scene) unlinked(ctx context.Context, m *machinev1beta1.Machine) *corev1.Node {
	var nodes corev1.NodeList
	if err := s.api.List(ctx, &nodes); err != nil {
		return nil
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if slices.Contains(internalNames(m), csr.Fold(n.Name)) || n.Spec.ProviderID != "" && n.Spec.ProviderID == ptr.Deref(m.Spec.ProviderID, "") {
			return n
		}
	}
	return nil
}

func internalNames(m *machinev1beta1.Machine) []string {
	out := []string{csr.Fold(m.Name)}
	for _, a := range m.Status.Addresses {
		if a.Type == corev1.NodeInternalDNS {
			out = append(out, csr.Fold(a.Address))
		}
	}
	return out
}

// requestsOf are the signing requests without an answer in the Machine's name.
func (s *scene) requestsOf(ctx context.Context, m *machinev1beta1.Machine) ([]certificatesv1.CertificateSigningRequest, error) {
	var list certificatesv1.CertificateSigningRequestList
	if err := s.api.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list signing requests: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(o certificatesv1.CertificateSigningRequest) bool {
		r, err := csr.Parse(&o)
		return err != nil || r.Decided || !slices.Contains(internalNames(m), csr.Fold(r.NodeName()))
	}), nil
}

// joined explains a Machine that has, or had, a Node.
func (s *scene) joined(ctx context.Context, m *machinev1beta1.Machine) cli.Explanation {
	name := m.Status.NodeRef.Name
	n := s.node(ctx, m)
	if n == nil {
		return stuck("NodeGone", "The Machine's Node "+name+" is gone. A health check replaces such a Machine; without one, nobody does.",
			step("Have it replaced:", "oc -n %s delete machine %s", m.Namespace, m.Name))
	}
	if c := readyOf(n); c.Status != corev1.ConditionTrue {
		return stuck("NodeNotReady", fmt.Sprintf("The Machine runs, but its Node %s is not ready (%s).", name, c.Status), step("Go on with the Node:", "millwright explain node/%s", name))
	}
	return fine("The Machine runs, and its Node " + name + " is ready.")
}

// leaving explains a Machine that is being deleted, with the words of its
// controller.
func (s *scene) leaving(ctx context.Context, m *machinev1beta1.Machine) (cli.Explanation, error) {
	if !slices.Contains(m.Finalizers, wire.MachineFinalizer) {
		return stuck("Finalizers", "The Machine's instance is gone; the object is held by finalizers of others: "+strings.Join(m.Finalizers, ", ")+".",
			step("Find who owns them. The object goes once they are off:", "oc -n %s get machine %s -o jsonpath={.metadata.finalizers}", m.Namespace, m.Name)), nil
	}
	c := machinectl.New(machinectl.Deps{Client: s.api, Live: s.Reader, Clock: s.clk, Opener: nobody{}, Codec: azurespec.Codec{}, Log: quietLog()})
	d, err := s.decide(ctx, c, client.ObjectKeyFromObject(m))
	if err != nil {
		return cli.Explanation{}, fmt.Errorf("ask the machine controller: %w", err)
	}
	edit := step("The hook's owner takes it off when it is done. If nobody does:", "oc -n %s edit machine %s", m.Namespace, m.Name)
	if c := conditionOf(d.Conditions, engine.Drainable); c.Status == corev1.ConditionFalse {
		return hooked(m, "Its Node is not drained before the preDrain hooks are gone. ", m.Spec.LifecycleHooks.PreDrain, edit), nil
	}
	if c := conditionOf(d.Conditions, engine.Drained); c.Status == corev1.ConditionFalse {
		return s.blocked(ctx, m, c.Message)
	} else if c.Status != corev1.ConditionTrue {
		return draining(m, d), nil
	}
	if c := conditionOf(d.Conditions, engine.Terminable); c.Status == corev1.ConditionFalse {
		return hooked(m, "Its Node is drained; the instance is not removed before the preTerminate hooks are gone. ", m.Spec.LifecycleHooks.PreTerminate, edit), nil
	}
	if kind, text, since := faultOf(m); kind != "" {
		e := stuck(string(kind), "The Machine's Node is drained, and the cloud does not remove the instance. It is tried again by itself.",
			step("See what the controller tries:", "oc -n %s logs deployment/machine-api-controllers -c machine-controller --tail=50", wire.Namespace))
		if since.IsZero() {
			e.Evidence = []cli.Evidence{{What: "errorMessage", Text: text}}
		}
		return e, nil
	}
	e := progressing("The Machine's Node is drained; the cloud removes the instance. Then the Node and the Machine go.")
	e.Evidence = []cli.Evidence{{What: "deleted", Since: cli.Since(m.DeletionTimestamp.Time)}}
	return e, nil
}

func hooked(m *machinev1beta1.Machine, why string, hooks []machinev1beta1.LifecycleHook, next cli.NextStep) cli.Explanation {
	e := stuck("HookWaiting", "The Machine is being deleted and waits for lifecycle hooks. "+why+"They belong to somebody else, who removes them when it is time.", next)
	for _, h := range hooks {
		e.Evidence = append(e.Evidence, cli.Evidence{What: "hook " + h.Name, Text: "owner " + h.Owner, Since: cli.Since(m.DeletionTimestamp.Time)})
	}
	return e
}

func draining(m *machinev1beta1.Machine, d plan.Erased) cli.Explanation {
	e := progressing("The Machine is being deleted, and its Node is being drained.")
	for _, n := range d.Notes {
		if strings.Contains(n.Message, "drain not permitted") {
			e = stuck("OtherDrain", "The Machine is being deleted; its Node is not drained while another control plane Node is cordoned.",
				step("See which one, and uncordon it when it is well:", "oc get nodes -l node-role.kubernetes.io/master"))
		}
	}
	e.Evidence = []cli.Evidence{{What: "deleted", Since: cli.Since(m.DeletionTimestamp.Time)}}
	for _, a := range d.Actions {
		e.Evidence = append(e.Evidence, cli.Evidence{What: "next", Text: a.String()})
	}
	return e
}

// blocked explains a drain that cannot go on, with the engine's own verdicts.
func (s *scene) blocked(ctx context.Context, m *machinev1beta1.Machine, text string) (cli.Explanation, error) {
	e := stuck("DrainBlocked", "The Machine is being deleted, and its Node cannot be drained: pods have to go that may not. It goes on by itself as soon as they may.")
	e.Evidence = []cli.Evidence{{What: "drain", Text: text, Since: cli.Since(m.DeletionTimestamp.Time)}}
	pods, err := observe.PodsOnNode(ctx, s.Reader, m.Status.NodeRef.Name)
	if err != nil {
		return e, err
	}
	drainees := observe.Drainees(pods)
	budgets, err := observe.Budgets(ctx, s.Reader, drainees)
	if err != nil {
		return e, err
	}
	node := drain.Node{Name: m.Status.NodeRef.Name}
	if n := s.node(ctx, m); n != nil {
		node.Unreachable = readyOf(n).Status == corev1.ConditionUnknown
	}
	d := drain.Decide(drain.Input{Node: node, Pods: drainees, Budgets: budgets, Since: m.DeletionTimestamp.Time, Now: s.Now})
	for _, v := range d.Status.Blocked {
		what := "pod " + v.Pod.Namespace + "/" + v.Pod.Name
		if v.Pod.Owner != "" {
			what += " (" + v.Pod.Owner + ")"
		}
		held := string(v.Why)
		if len(v.Budgets) > 0 {
			held = "PodDisruptionBudget " + strings.Join(v.Budgets, ", ")
			next := step("Bring up another healthy pod of "+ownerOr(v.Pod)+", or change the budget:", "oc -n %s get pdb %s -o wide", v.Pod.Namespace, strings.Join(v.Budgets, " "))
			if !slices.Contains(e.Next, next) {
				e.Next = append(e.Next, next)
			}
		}
		e.Evidence = append(e.Evidence, cli.Evidence{What: what, Text: held + ": " + v.Detail})
	}
	if len(e.Next) == 0 {
		e.Next = append(e.Next, step("Look at the pods on the Node:", "oc get pods -A -o wide --field-selector spec.nodeName=%s", node.Name))
	}
	return e, nil
}

func ownerOr(p drain.Pod) string {
	if p.Owner != "" {
		return p.Owner
	}
	return p.Name
}
