package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/cloud"
)

// Paths at which the API server calls, as in the original's configurations.
const (
	PathMutateMachine      = "/mutate-machine-openshift-io-v1beta1-machine"
	PathMutateMachineSet   = "/mutate-machine-openshift-io-v1beta1-machineset"
	PathValidateMachine    = "/validate-machine-openshift-io-v1beta1-machine"
	PathValidateMachineSet = "/validate-machine-openshift-io-v1beta1-machineset"
)

// Rules of this package; those of a cloud's spec come from its codec.
const (
	RuleSpecRequired      = "provider-spec-required"
	RuleSpecDecode        = "provider-spec-decode"
	RuleCredentials       = "provider-credentials-secret"
	RuleCatalog           = "cloud-catalog"
	RuleHooks             = "machine-hooks-immutable"
	RuleSelectorImmutable = "machineset-selector-immutable"
	RuleSelectorSyntax    = "machineset-selector-syntax"
	RuleSelectorMismatch  = "machineset-selector-mismatch"
	RuleSelectorEmpty     = "machineset-selector-empty"
	RuleNameLength        = "machineset-name-length"
	RuleOverlap           = "machineset-overlap"
)

// Rules lists every rule of admission with this codec, sorted by ID. A nil
// codec, or one that does not list its rules, adds none.
func Rules(codec cloud.SpecCodec) []cloud.Rule {
	out := []cloud.Rule{
		{ID: RuleCatalog, Ours: true},
		{ID: RuleHooks},
		{ID: RuleNameLength, Ours: true},
		{ID: RuleOverlap, Ours: true},
		{ID: RuleSelectorEmpty, Ours: true},
		{ID: RuleSelectorImmutable},
		{ID: RuleSelectorMismatch},
		{ID: RuleSelectorSyntax},
		{ID: RuleCredentials},
		{ID: RuleSpecDecode},
		{ID: RuleSpecRequired},
	}
	out = append(out, controlPlaneRules()...)
	if l, ok := codec.(cloud.RuleLister); ok {
		out = append(out, l.Rules()...)
	}
	slices.SortFunc(out, func(a, b cloud.Rule) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Verdict is what a review found.
type Verdict struct {
	// Annotations are those of the object under review: they may accept risks.
	Annotations map[string]string
	// Problems in the order in which they are told.
	Problems []cloud.Problem
	// Patched is the whole object as it should be stored; nil: as it came.
	Patched []byte
}

// Review judges one request. An error means that the request itself cannot be
// understood.
type Review func(ctx context.Context, req *admissionv1.AdmissionRequest) (Verdict, error)

// Deps are the collaborators of a Reviewer.
type Deps struct {
	Client client.Reader      // from the cache: MachineSets, Infrastructure, DNS
	Live   client.Reader      // Secrets; MachineSets, before a refusal for what the cache shows
	Codec  cloud.SpecCodec    // of the cluster's platform; nil: providerSpecs are not judged
	Opener cloud.Opener       // for the catalogue; nil: not asked
	Clock  clock.PassiveClock // ages what is remembered
	Log    logr.Logger
}

// Reviewer reviews Machines and MachineSets. It is safe for concurrent use.
type Reviewer struct {
	Deps
	ours    map[string]bool
	secrets *secrets
	shelves *shelves
}

// New returns a Reviewer.
func New(d Deps) *Reviewer {
	ours := map[string]bool{}
	for _, rule := range Rules(d.Codec) {
		ours[rule.ID] = rule.Ours
	}
	return &Reviewer{Deps: d, ours: ours, secrets: newSecrets(d.Live, d.Clock), shelves: newShelves(d.Clock)}
}

// Reviews returns the reviews by the path at which they are served.
func (r *Reviewer) Reviews() map[string]Review {
	return map[string]Review{
		PathMutateMachine:      r.mutateMachine,
		PathMutateMachineSet:   r.mutateMachineSet,
		PathValidateMachine:    r.validateMachine,
		PathValidateMachineSet: r.validateMachineSet,

		PathValidateControlPlane: r.validateControlPlane,
	}
}

// specContext gathers what a codec may know about the cluster. What cannot be
// read is left out: admission goes on with less.
func (r *Reviewer) specContext(ctx context.Context) cloud.SpecContext {
	sc := cloud.SpecContext{Arch: runtime.GOARCH}
	var infra configv1.Infrastructure
	if err := r.Client.Get(ctx, client.ObjectKey{Name: "cluster"}, &infra); err != nil {
		r.unreadable(err, "infrastructure")
	}
	sc.InfraID = infra.Status.InfrastructureName
	if p := infra.Status.PlatformStatus; p != nil && p.Azure != nil {
		sc.ResourceGroup, sc.CloudName = p.Azure.ResourceGroupName, string(p.Azure.CloudName)
		for _, t := range p.Azure.ResourceTags {
			if sc.UserTags == nil {
				sc.UserTags = map[string]string{}
			}
			sc.UserTags[t.Key] = t.Value
		}
	}
	var dns configv1.DNS
	err := r.Client.Get(ctx, client.ObjectKey{Name: "cluster"}, &dns)
	if err != nil {
		r.unreadable(err, "dns")
	}
	sc.Private = err == nil && dns.Spec.PublicZone == nil
	return sc
}

func (r *Reviewer) unreadable(err error, what string) {
	if !apierrors.IsNotFound(err) {
		r.Log.Error(err, "Judging without what could not be read", "kind", what)
	}
}

// decode reads the object under review and, of an update, the one it replaces.
func decode(req *admissionv1.AdmissionRequest, now, old any) error {
	if err := json.Unmarshal(req.Object.Raw, now); err != nil {
		return fmt.Errorf("decode %s: %w", req.Kind.Kind, err)
	}
	if req.Operation != admissionv1.Update {
		return nil
	}
	if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
		return fmt.Errorf("decode %s as it was: %w", req.Kind.Kind, err)
	}
	return nil
}
