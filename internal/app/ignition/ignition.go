// Package ignition is the composition root of millwright-ignition, the config server
// of first boots: it wires the server to one API server. Wiring only; no rules.
package ignition

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"millwright.io/millwright/internal/ignserver"
	"millwright.io/millwright/internal/kube"
	"millwright.io/millwright/internal/version"
)

//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs;machineconfigpools;controllerconfigs,verbs=get;list;watch
//+kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=secrets;configmaps,verbs=get;list;watch

// component is the process: user agent and log name.
const component = "machine-config-server"

// certificateSecret holds the serving certificate.
const certificateSecret = "machine-config-server-tls"

// options are the process's settings.
type options struct {
	address, plainAddress, metricsAddress string
	apiServer, namespace, kubeconfig      string
	anonymous                             bool
}

// usageError is a mistake in the call: exit code 2.
type usageError struct{ error }

// Command returns the command line of millwright-ignition.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "millwright-ignition", Short: "Serves first-boot configs to new machines", Version: version.Version,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.apiServer == "" {
				return usageError{errors.New("--apiserver-url is empty: want the URL that new machines reach the API server at")}
			}
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = o.kubeconfig
			cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
			if err != nil {
				return fmt.Errorf("read kubeconfig: %w; set --kubeconfig or KUBECONFIG, or run in a pod", err)
			}
			return o.run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.address, "secure-addr", ":22623", "host:port of HTTPS")
	f.StringVar(&o.plainAddress, "insecure-addr", "", "host:port of the same without TLS; empty: not served")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "", "host:port of /metrics; empty: not served")
	f.StringVar(&o.apiServer, "apiserver-url", "", "URL that new machines reach the API server at")
	f.StringVar(&o.namespace, "namespace", "openshift-machine-config-operator", "namespace of tokens and certificate")
	f.BoolVar(&o.anonymous, "anonymous", false, "serve every pool to machines that show no token")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; default: KUBECONFIG, then the pod's account")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return cmd
}

// ExitCode maps the result of Command to the process's: 0 fine, 1 failure, 2 wrong
// usage. It prints the error.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "millwright-ignition: "+err.Error())
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

// run serves until ctx ends.
func (o options) run(ctx context.Context, cfg *rest.Config) error {
	log := kube.KlogText(component)
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(mcfgv1.Install(scheme))
	cfg = kube.ClientConfig(cfg, component)
	own := cache.ByObject{Namespaces: map[string]cache.Config{o.namespace: {}}}
	objects, err := cache.New(cfg, cache.Options{Scheme: scheme, ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: own, &corev1.ConfigMap{}: own}})
	if err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	live, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(objects.Start(ctx)) }()
	for _, kind := range []client.Object{&mcfgv1.MachineConfigPool{}, &mcfgv1.ControllerConfig{}, &corev1.Secret{}, &corev1.ConfigMap{}} {
		if _, err := objects.GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	registry := prometheus.NewRegistry()
	server := ignserver.New(ignserver.Config{
		Source: ignserver.NewCluster(objects, live, o.namespace, o.apiServer), Anonymous: o.anonymous, Log: log, Metrics: registry,
	})
	secure := server.HTTP()
	secure.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} // HTTP/1.1 only, as machines know it
	secure.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate(ctx, objects, o.namespace)}
	if err := listen(ctx, cancel, secure, o.address, true); err != nil {
		return err
	}
	if err := listen(ctx, cancel, server.HTTP(), o.plainAddress, false); err != nil {
		return err
	}
	metrics := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: 10 * time.Second}
	if err := listen(ctx, cancel, metrics, o.metricsAddress, false); err != nil {
		return err
	}
	log.Info("Serving first boots", "address", o.address)
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// listen serves one address until ctx ends; an empty one is not served.
func listen(ctx context.Context, cancel context.CancelCauseFunc, srv *http.Server, address string, secure bool) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if secure {
		l = tls.NewListener(l, srv.TLSConfig)
	}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve %s: %w", address, err))
		}
	}()
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	return nil
}

// certificate reads the serving certificate at each handshake, from the cache: a
// rotated one is shown at once.
func certificate(ctx context.Context, r client.Reader, namespace string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		var secret corev1.Secret
		if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: certificateSecret}, &secret); err != nil {
			return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, certificateSecret, err)
		}
		cert, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, certificateSecret, err)
		}
		return &cert, nil
	}
}
