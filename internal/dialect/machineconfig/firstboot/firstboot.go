// Package firstboot keeps what new machines need to reach the config server: its
// authority and certificate, each pool's token, and the user data that carry both.
// What goes into user data is decided in engine/firstboot; this package reads and
// writes the Secrets. It never changes a token that exists, and never touches user
// data that are no stub.
package firstboot

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"millwright.io/millwright/internal/dialect/machineconfig/wire"
	engine "millwright.io/millwright/internal/engine/firstboot"
	"millwright.io/millwright/internal/engine/plan"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/pki"
)

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,verbs=get;list;watch
//+kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures,verbs=get;list;watch
//+kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=secrets;configmaps,verbs=get;list;watch;create;update;patch
//+kubebuilder:rbac:groups=coordination.k8s.io,namespace=openshift-machine-config-operator,resources=leases,verbs=get;create;update;patch
//+kubebuilder:rbac:groups="",namespace=openshift-machine-api,resources=secrets,verbs=get;list;watch;create;update;patch

// Names of what the config server reads.
const (
	NameCA  = "machine-config-server-ca"  // Secret: the signer; ConfigMap: the bundle
	NameTLS = "machine-config-server-tls" // Secret: the serving certificate
	// KeyBundle is the bundle's key in its ConfigMap.
	KeyBundle = "ca-bundle.crt"
)

// Lives of the authority and of the certificate it signs, and the ages at which
// they are renewed: the original's.
const (
	life    = 10 * 365 * 24 * time.Hour
	renewAt = 8 * 365 * 24 * time.Hour
)

const (
	namespaceMachines = "openshift-machine-api"
	managedSuffix     = "-user-data-managed"
	keyUserData       = "userData"
	fieldOwner        = "machine-config-operator"
)

// Deps are what the controller needs. All are required.
type Deps struct {
	Client client.Client
	Clock  clock.PassiveClock
	Log    logr.Logger
}

type controller struct{ Deps }

// New returns the controller. Its one key is the ControllerConfig's name.
func New(d Deps) kube.Controller {
	d.Client = client.WithFieldOwner(d.Client, fieldOwner)
	c := &controller{d}
	return kube.Controller{
		Name: "machineconfigoperator-firstboot", For: &configv1.Infrastructure{}, Workers: 1,
		Watches: []kube.Watch{
			{Object: &mcfgv1.MachineConfigPool{}, Map: one, Changed: func(a, b client.Object) bool { return a.GetUID() != b.GetUID() }},
			{Object: &corev1.Secret{}, Map: one},
			{Object: &corev1.ConfigMap{}, Map: one},
		},
		Decide: func(context.Context, client.Reader, types.NamespacedName) (plan.Erased, error) {
			return plan.Erased{}, nil // certificates and tokens are made of chance: nothing to foretell
		},
		Reconcile: c.reconcile,
	}
}

func one(context.Context, client.Reader, client.Object) []types.NamespacedName {
	return []types.NamespacedName{{Name: wire.Cluster}}
}

func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	if key.Name != wire.Cluster {
		return reconcile.Result{}, nil
	}
	var infra configv1.Infrastructure
	if err := c.Client.Get(ctx, key, &infra); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	host, err := serverHost(&infra)
	if err != nil {
		return reconcile.Result{}, err
	}
	ca, err := c.authority(ctx)
	if err != nil {
		return kube.Result(0, err)
	}
	bundle, err := c.bundle(ctx, ca)
	if err != nil {
		return kube.Result(0, err)
	}
	if err := c.certificate(ctx, ca, host); err != nil {
		return kube.Result(0, err)
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := c.Client.List(ctx, &pools); err != nil {
		return kube.Result(0, fmt.Errorf("list pools: %w", err))
	}
	var errs []error
	for i := range pools.Items {
		errs = append(errs, c.pool(ctx, &pools.Items[i], host, bundle))
	}
	return kube.Result(24*time.Hour, errors.Join(errs...))
}

// serverHost is the host name that stubs reach the config server at.
func serverHost(infra *configv1.Infrastructure) (string, error) {
	u, err := url.Parse(infra.Status.APIServerInternalURL)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("infrastructure %s: status.apiServerInternalURI %q names no host", infra.Name, infra.Status.APIServerInternalURL)
	}
	return u.Hostname(), nil
}

// authority returns the signer, made anew when it is missing or old.
func (c *controller) authority(ctx context.Context) (*pki.CA, error) {
	var secret corev1.Secret
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: wire.Namespace, Name: NameCA}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	if err == nil && !c.old(secret.Data[corev1.TLSCertKey]) {
		ca, err := pki.LoadCA(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err == nil {
			return ca, nil
		}
		c.Log.Error(err, "Replacing an unreadable authority", "Secret", NameCA)
	}
	ca, err := pki.NewCA("machine-config-server", life, c.Clock)
	if err != nil {
		return nil, err
	}
	return ca, c.put(ctx, &secret, NameCA, map[string][]byte{corev1.TLSCertKey: ca.CertPEM, corev1.TLSPrivateKeyKey: ca.KeyPEM})
}

// put creates or updates a TLS Secret of the namespace.
func (c *controller) put(ctx context.Context, have *corev1.Secret, name string, data map[string][]byte) error {
	if have.UID == "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data}
		if err := c.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("create Secret %s: %w", name, err)
		}
		return nil
	}
	after := have.DeepCopy()
	after.Data = data
	return kube.Patch(ctx, c.Client, have, after, kube.OptimisticLock())
}

// old tells that a certificate is missing, unreadable or due for renewal.
func (c *controller) old(certPEM []byte) bool {
	cert, err := pki.ParseCert(certPEM)
	return err != nil || c.Clock.Since(cert.NotBefore) > renewAt
}

// bundle publishes the authority. An older one stays in the bundle, so that
// machines which still know only that one can boot.
func (c *controller) bundle(ctx context.Context, ca *pki.CA) ([]byte, error) {
	var have corev1.ConfigMap
	key := client.ObjectKey{Namespace: wire.Namespace, Name: NameCA}
	err := c.Client.Get(ctx, key, &have)
	if apierrors.IsNotFound(err) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string]string{KeyBundle: string(ca.CertPEM)}}
		if err := c.Client.Create(ctx, cm); err != nil {
			return nil, fmt.Errorf("create ConfigMap %s: %w", NameCA, err)
		}
		return ca.CertPEM, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", NameCA, err)
	}
	bundle := engine.Bundle([]byte(have.Data[KeyBundle]), ca.CertPEM)
	after := have.DeepCopy()
	if after.Data == nil {
		after.Data = map[string]string{}
	}
	after.Data[KeyBundle] = string(bundle)
	return bundle, kube.Patch(ctx, c.Client, &have, after)
}

func (c *controller) certificate(ctx context.Context, ca *pki.CA, host string) error {
	var secret corev1.Secret
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: wire.Namespace, Name: NameTLS}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	if err == nil && !c.old(secret.Data[corev1.TLSCertKey]) && signedFor(secret.Data[corev1.TLSCertKey], ca, host) {
		return nil
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: host, DNSNames: []string{host, "localhost"}, Server: true, TTL: life})
	if err != nil {
		return fmt.Errorf("issue certificate: %w", err)
	}
	return c.put(ctx, &secret, NameTLS, map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key})
}

func signedFor(certPEM []byte, ca *pki.CA, host string) bool {
	cert, err := pki.ParseCert(certPEM)
	if err != nil {
		return false
	}
	signer, err := pki.ParseCert(ca.CertPEM)
	return err == nil && cert.CheckSignatureFrom(signer) == nil && cert.VerifyHostname(host) == nil
}

// pool keeps one pool's token and user data.
func (c *controller) pool(ctx context.Context, pool *mcfgv1.MachineConfigPool, host string, bundle []byte) error {
	token, err := c.token(ctx, pool)
	if err != nil {
		return err
	}
	in := engine.StubInput{Host: host, Pool: pool.Name, CA: bundle, Token: token}
	return errors.Join(c.managed(ctx, pool, in), c.renew(ctx, in))
}

func (c *controller) token(ctx context.Context, pool *mcfgv1.MachineConfigPool) (string, error) {
	key := client.ObjectKey{Namespace: wire.Namespace, Name: engine.TokenSecret(pool.Name)}
	var secret corev1.Secret
	err := c.Client.Get(ctx, key, &secret)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read token of pool %s: %w", pool.Name, err)
	}
	if err == nil && len(secret.Data[engine.TokenKey]) > 0 {
		return string(secret.Data[engine.TokenKey]), nil
	}
	token, err := NewToken()
	if err != nil {
		return "", err
	}
	made := TokenSecret(pool.Name, token)
	made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, mcfgv1.GroupVersion.WithKind("MachineConfigPool"))}
	if secret.UID != "" {
		after := secret.DeepCopy()
		after.Data = made.Data
		return token, kube.Patch(ctx, c.Client, &secret, after, kube.OptimisticLock())
	}
	if err := c.Client.Create(ctx, made); err != nil {
		return "", fmt.Errorf("create token of pool %s: %w", pool.Name, err)
	}
	return token, nil
}

// NewToken returns 32 random bytes as text.
func NewToken() (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// TokenSecret is the Secret that holds a pool's token.
func TokenSecret(pool, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.Namespace, Name: engine.TokenSecret(pool)},
		Data:       map[string][]byte{engine.TokenKey: []byte(token)},
	}
}

// managed keeps <pool>-user-data-managed, which is the operator's own.
func (c *controller) managed(ctx context.Context, pool *mcfgv1.MachineConfigPool, in engine.StubInput) error {
	stub, err := engine.Stub(in)
	if err != nil {
		return err
	}
	name := pool.Name + managedSuffix
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceMachines, Name: name, Labels: map[string]string{wire.LabelManagedCABundle: ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool", Name: pool.Name, UID: pool.UID}},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"disableTemplating": []byte("true\n"), keyUserData: stub},
	}
	var have corev1.Secret
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(want), &have)
	if apierrors.IsNotFound(err) {
		if err := c.Client.Create(ctx, want); err != nil {
			return fmt.Errorf("create user data %s: %w", name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read user data %s: %w", name, err)
	}
	after := have.DeepCopy()
	after.Data, after.Labels, after.OwnerReferences = want.Data, want.Labels, want.OwnerReferences
	return kube.Patch(ctx, c.Client, &have, after)
}

// renew brings authority and token into the installer's user data of a pool.
func (c *controller) renew(ctx context.Context, in engine.StubInput) error {
	var secrets corev1.SecretList
	if err := c.Client.List(ctx, &secrets, client.InNamespace(namespaceMachines)); err != nil {
		return fmt.Errorf("list user data: %w", err)
	}
	var errs []error
	for i := range secrets.Items {
		s := &secrets.Items[i]
		if _, managed := s.Labels[wire.LabelManagedCABundle]; managed || !engine.FetchesPool(s.Data[keyUserData], in.Pool) {
			continue
		}
		body, err := engine.Renew(s.Data[keyUserData], in)
		if err != nil {
			errs = append(errs, fmt.Errorf("renew Secret %s/%s: %w", s.Namespace, s.Name, err))
			continue
		}
		if body == nil {
			continue
		}
		after := s.DeepCopy()
		after.Data[keyUserData] = body
		errs = append(errs, kube.Patch(ctx, c.Client, s, after, kube.OptimisticLock()))
	}
	return errors.Join(errs...)
}
