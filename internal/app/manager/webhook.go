package manager

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"millwright.io/millwright/internal/cloud"
	"millwright.io/millwright/internal/dialect/machineapi/admission"
	mcadmission "millwright.io/millwright/internal/dialect/machineconfig/admission"
	"millwright.io/millwright/internal/operator"
	azurespec "millwright.io/millwright/internal/provider/azure/spec"
	"millwright.io/millwright/internal/webhook"
)

// codecs are the clouds whose specs admission judges, by the platform's name
// in lower case.
func codecs() map[string]cloud.SpecCodec {
	return map[string]cloud.SpecCodec{"azure": azurespec.Codec{}}
}

// AdmissionRules lists the rules that --admission may set.
func AdmissionRules() []cloud.Rule {
	return append(admission.Rules(azurespec.Codec{}), mcadmission.Rules()...)
}

// setupWebhook serves admission and keeps the trust that it needs.
func setupWebhook(e env) error {
	if e.opts.WebhookAddr == "" {
		return &UsageError{"--controllers=webhook needs --webhook-addr=HOST:PORT"}
	}
	modes, err := webhook.ParseModes(e.opts.Admission, AdmissionRules())
	if err != nil {
		return &UsageError{"--admission: " + err.Error()}
	}
	codec, err := platformCodec(e)
	if err != nil {
		return err
	}
	namespace := e.opts.Namespace
	if namespace == "" {
		namespace = namespaceMachineAPI
	}
	authority := webhook.NewAuthority(webhook.AuthorityDeps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Namespace: namespace,
		Service: client.ObjectKey{Namespace: namespace, Name: operator.WebhookService}, Clock: e.clk, Log: e.log, Definitions: true,
	})
	if err := watchAdmission(e, authority); err != nil {
		return err
	}
	reviewer := admission.New(admission.Deps{
		Client: e.mgr.GetClient(), Live: e.mgr.GetAPIReader(), Codec: codec, Opener: e.cloud.opener(), Clock: e.clk, Log: e.log,
	})
	routes := map[string]http.Handler{}
	for path, review := range reviewer.Reviews() {
		routes[path] = webhook.Handler(answer(modes, review))
	}
	routes[mcadmission.PathValidate] = webhook.Handler(answerMachineConfig(modes, e.mgr.GetAPIReader()))
	if routes[pathConvert], err = conversion(e, authority); err != nil {
		return err
	}
	server := webhook.New(e.opts.WebhookAddr, authority.GetCertificate, routes)
	if err := e.mgr.Add(authority); err != nil {
		return fmt.Errorf("add authority: %w", err)
	}
	if err := e.mgr.Add(server); err != nil {
		return fmt.Errorf("add server: %w", err)
	}
	if e.opts.HealthAddr == "" {
		return nil
	}
	return e.mgr.AddReadyzCheck("webhook", server.Ready)
}

// answer applies modes to what a review finds.
func answer(modes webhook.Modes, review admission.Review) func(context.Context, ctrladmission.Request) ctrladmission.Response {
	return func(ctx context.Context, req ctrladmission.Request) ctrladmission.Response {
		v, err := review(ctx, &req.AdmissionRequest)
		if err != nil {
			return webhook.Malformed(err)
		}
		return modes.Respond(req, webhook.Finding{Annotations: v.Annotations, Problems: v.Problems, Patched: v.Patched})
	}
}

// answerMachineConfig is answer for MachineConfigs.
func answerMachineConfig(modes webhook.Modes, live client.Reader) func(context.Context, ctrladmission.Request) ctrladmission.Response {
	return func(ctx context.Context, req ctrladmission.Request) ctrladmission.Response {
		v, err := mcadmission.ValidateWith(ctx, live, &req.AdmissionRequest)
		if err != nil {
			return webhook.Malformed(err)
		}
		return modes.Respond(req, webhook.Finding{Annotations: v.Annotations, Problems: v.Problems})
	}
}

// platformCodec picks the codec by the cluster's platform, once; specs of
// other platforms are not judged.
func platformCodec(e env) (cloud.SpecCodec, error) {
	var infra configv1.Infrastructure
	if err := e.mgr.GetAPIReader().Get(e.ctx, client.ObjectKey{Name: "cluster"}, &infra); err != nil {
		return nil, fmt.Errorf("read infrastructure: %w", err)
	}
	platform := ""
	if p := infra.Status.PlatformStatus; p != nil {
		platform = string(p.Type)
	}
	codec, ok := codecs()[strings.ToLower(platform)]
	if !ok {
		e.log.Info("Provider specs are not judged on this platform", "platform", platform)
		return nil, nil //nolint:nilnil // no codec is a valid choice, and not an error
	}
	return codec, nil
}

// watchAdmission starts the caches that reviews read, so that the first one
// does not wait for them, and wakes the authority when a webhook configuration
// changes.
func watchAdmission(e env, authority *webhook.Authority) error {
	for _, obj := range []client.Object{&machinev1beta1.MachineSet{}, &configv1.Infrastructure{}, &configv1.DNS{}} {
		if _, err := e.mgr.GetCache().GetInformer(e.ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	look := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { authority.Look() },
		UpdateFunc: func(any, any) { authority.Look() },
	}
	for _, obj := range webhook.Configurations() {
		informer, err := e.mgr.GetCache().GetInformer(e.ctx, obj, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
		if _, err := informer.AddEventHandler(look); err != nil {
			return fmt.Errorf("watch %T: %w", obj, err)
		}
	}
	return nil
}
