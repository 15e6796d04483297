package approver

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/act"
	"millwright.io/millwright/internal/engine/csr"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
)

// Names of the controllers: log names, reporting controllers of events.
const (
	ControllerMachine    = "machine-approver-controller"
	ControllerNodeClient = "node-client-approver"
)

// Deps are what the controllers need. All but ClientDisabled and Dial are
// required.
type Deps struct {
	Client   client.Client // writes; reads come from its cache
	Live     client.Reader // asks the server itself
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	Log      logr.Logger
	// ClientDisabled switches off approval of first client certificates.
	ClientDisabled bool
	// Dial reaches kubelets, to ask one for the certificate that a serving
	// request may renew; nil: none is asked.
	Dial Dialer
}

type controller struct {
	Deps
	act    *act.Runner
	signer map[string]bool // whose requests are looked at
	decide func(csr.Input) plan.Decision[csr.Verdict]
}

// NewMachine returns the controller that answers kubelets.
func NewMachine(d Deps) kube.Controller {
	return build(d, ControllerMachine, csr.Decide, certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName)
}

// NewNodeClient returns the controller that answers the components on nodes.
func NewNodeClient(d Deps) kube.Controller {
	return build(d, ControllerNodeClient, csr.DecideNodeClient, certificatesv1.KubeAPIServerClientSignerName)
}

// workers is how many requests are judged at a time: each waits for the server
// twice, and a fleet that boots asks four times per machine.
const workers = 32

func build(d Deps, name string, decide func(csr.Input) plan.Decision[csr.Verdict], signers ...string) kube.Controller {
	c := &controller{Deps: d, act: act.New(d.Client, act.WithLiveReader(d.Live)), decide: decide, signer: map[string]bool{}}
	for _, s := range signers {
		c.signer[s] = true
	}
	return kube.Controller{
		Name:      name,
		For:       &certificatesv1.CertificateSigningRequest{},
		Changed:   func(_, new client.Object) bool { return c.pending(new) },
		Watches:   []kube.Watch{{Object: machineObject(), Map: c.requestsOfMachine, Changed: kube.Typed(machineMatters)}},
		Indexes:   Indexes(),
		Workers:   workers,
		Decide:    c.preview,
		Reconcile: c.reconcile,
	}
}

// preview observes and decides.
func (c *controller) preview(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Erased, error) {
	o, err := c.get(ctx, r, key)
	if o == nil || err != nil {
		return plan.Erased{}, err
	}
	in, err := c.observe(ctx, r, r, o)
	if err != nil {
		return plan.Erased{}, fmt.Errorf("observe signing request: %w", err)
	}
	return plan.Erase(c.judge(in)), nil
}

// reconcile answers one request, if it can be answered.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	o, err := c.get(ctx, c.Client, key)
	if o == nil || err != nil {
		return reconcile.Result{}, err
	}
	in, err := c.observe(ctx, c.Client, c.Live, o)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("observe signing request: %w", err)
	}
	d := c.judgeOrProbe(ctx, in)
	kube.LogNotes(c.Log, d.Notes)
	_, err = c.act.Run(ctx, o, act.Binding{}, nil, d.Actions)
	if err == nil {
		if len(d.Actions) > 0 {
			kube.LogNotes(c.Log, []plan.Note{{Message: textAnswered(key.Name, d.Status.Outcome)}})
		}
		kube.RecordEvents(c.Recorder, o, d.Events)
	}
	return kube.Result(d.Wake, err)
}

// judge decides, or leaves a request alone that nobody can read.
func (c *controller) judge(in input) plan.Decision[csr.Verdict] {
	if in.unreadable != nil {
		why := textUnreadable(in.Request.Name, in.unreadable)
		return plan.Decision[csr.Verdict]{
			Status: csr.Verdict{Outcome: csr.Leave, Rule: "parse", Why: why},
			Notes:  []plan.Note{{Message: why}},
		}
	}
	return c.decide(in.Input)
}

// get returns the request if it is ours to look at and has no answer.
func (c *controller) get(ctx context.Context, r client.Reader, key types.NamespacedName) (*certificatesv1.CertificateSigningRequest, error) {
	var o certificatesv1.CertificateSigningRequest
	if err := r.Get(ctx, types.NamespacedName{Name: key.Name}, &o); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if o.DeletionTimestamp != nil || !c.pending(&o) {
		return nil, nil
	}
	return &o, nil
}

// pending says whether a request is of our signers and unanswered.
func (c *controller) pending(obj client.Object) bool {
	o, ok := obj.(*certificatesv1.CertificateSigningRequest)
	return ok && c.signer[o.Spec.SignerName] && !answered(o)
}

func textAnswered(name string, o csr.Outcome) string {
	if o == csr.Deny {
		return fmt.Sprintf("CSR %s denied", name)
	}
	return fmt.Sprintf("CSR %s approved", name)
}

func textUnreadable(name string, err error) string {
	return fmt.Sprintf("%s: %v, cannot approve", name, err)
}
