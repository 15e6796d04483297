package template

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	machineconfigv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	"millwright.io/millwright/internal/kube"
)

// report writes how far the base configs are. Renderers wait until the object
// says Completed for its present generation.
func (c *controller) report(ctx context.Context, cc *machineconfigv1.ControllerConfig, fail error) error {
	after := cc.DeepCopy()
	now := metav1.NewTime(c.Clock.Now().UTC().Truncate(time.Second))
	set := func(kind machineconfigv1.ControllerConfigStatusConditionType, on bool, message string) {
		status := corev1.ConditionFalse
		if on {
			status = corev1.ConditionTrue
		}
		after.Status.Conditions = withCondition(after.Status.Conditions, machineconfigv1.ControllerConfigStatusCondition{
			Type: kind, Status: status, Message: message, LastTransitionTime: now,
		})
	}
	failing := ""
	if fail != nil {
		failing = wire.TextTemplateFailing(cc.Generation, fail)
		set(machineconfigv1.TemplateControllerCompleted, false, "")
	} else {
		set(machineconfigv1.TemplateControllerCompleted, true, wire.TextTemplateCompleted(cc.Generation))
	}
	set(machineconfigv1.TemplateControllerRunning, false, "")
	set(machineconfigv1.TemplateControllerFailing, fail != nil, failing)
	after.Status.ObservedGeneration = cc.Generation
	after.Status.ControllerCertificates = certificates(cc)
	return kube.PatchStatus(ctx, c.Client, cc, after)
}

// withCondition replaces the condition of its type, or appends; the transition
// time moves with the status only.
func withCondition(cs []machineconfigv1.ControllerConfigStatusCondition, c machineconfigv1.ControllerConfigStatusCondition) []machineconfigv1.ControllerConfigStatusCondition {
	for i := range cs {
		if cs[i].Type != c.Type {
			continue
		}
		if cs[i].Status == c.Status {
			c.LastTransitionTime = cs[i].LastTransitionTime
		}
		cs[i] = c
		return cs
	}
	return append(cs, c)
}

// certificates lists what is in the bundles of a ControllerConfig. What is not
// a certificate is passed by.
func certificates(cc *machineconfigv1.ControllerConfig) []machineconfigv1.ControllerCertificate {
	out := []machineconfigv1.ControllerCertificate{}
	add := func(bundle string, data []byte) {
		for {
			var block *pem.Block
			if block, data = pem.Decode(data); block == nil {
				return
			}
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			out = append(out, machineconfigv1.ControllerCertificate{
				Subject: cert.Subject.String(), Signer: cert.Issuer.String(), BundleFile: bundle,
				NotBefore: ptr.To(metav1.NewTime(cert.NotBefore)), NotAfter: ptr.To(metav1.NewTime(cert.NotAfter)),
			})
		}
	}
	add("KubeAPIServerServingCAData", cc.Spec.KubeAPIServerServingCAData)
	add("CloudProviderCAData", cc.Spec.CloudProviderCAData)
	add("RootCAData", cc.Spec.RootCAData)
	add("AdditionalTrustBundle", cc.Spec.AdditionalTrustBundle)
	for _, b := range cc.Spec.ImageRegistryBundleData {
		add(b.File, b.Data)
	}
	for _, b := range cc.Spec.ImageRegistryBundleUserData {
		add(b.File, b.Data)
	}
	return out
}
