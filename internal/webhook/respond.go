package webhook

import (
	"context"
	"errors"
	"net/http"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"millwright.io/millwright/internal/cloud"
)

// Finding is what a review found.
type Finding struct {
	Annotations map[string]string // of the object under review
	Problems    []cloud.Problem
	Patched     []byte // the object as it should be stored; nil: as it came
}

// Respond turns a finding into an answer. A single refusal is told bare,
// several in brackets; problems that do not refuse are warnings.
func (m Modes) Respond(req admission.Request, f Finding) admission.Response {
	refusals, warnings := m.sort(f.Problems, f.Annotations)
	var resp admission.Response
	switch {
	case len(refusals) > 0:
		errs := make([]error, 0, len(refusals))
		for _, r := range refusals {
			errs = append(errs, errors.New(r))
		}
		resp = admission.Denied(utilerrors.NewAggregate(errs).Error())
	case f.Patched != nil:
		resp = admission.PatchResponseFromRaw(req.Object.Raw, f.Patched)
	default:
		resp = admission.Allowed("")
	}
	resp.Warnings = warnings
	return resp
}

// Malformed answers a request that cannot be understood.
func Malformed(err error) admission.Response { return admission.Errored(http.StatusBadRequest, err) }

// Handler serves one admission function; a panic in it is an error answer.
func Handler(f func(context.Context, admission.Request) admission.Response) http.Handler {
	return &admission.Webhook{Handler: admission.HandlerFunc(f)}
}
