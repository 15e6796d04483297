package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/agent"
	"millwright.io/millwright/internal/host"
	"millwright.io/millwright/internal/host/detect"
)

// Pauses and limits of the kubelet's health.
const (
	healthEvery   = 30 * time.Second
	healthTimeout = 30 * time.Second
)

//+kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
//+kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=configmaps,verbs=get;create
//+kubebuilder:rbac:groups="",namespace=openshift-machine-config-operator,resources=events,verbs=create;patch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs;machineconfigpools;controllerconfigs,verbs=get;list;watch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfignodes,verbs=get;list;watch
//+kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfignodes/status,verbs=patch;update
//+kubebuilder:rbac:groups=operator.openshift.io,resources=machineconfigurations,verbs=get;list;watch

// Run works until ctx ends.
func Run(ctx context.Context, o Options) error {
	clk := clock.RealClock{}
	log := &klogText{out: os.Stderr, pid: os.Getpid(), clock: clk}
	root := mounted(o.Root, os.Getenv(mountsEnv))
	sys, err := detect.System(root, log.Infof)
	if err != nil {
		return err
	}
	h, err := host.New(root, host.Options{System: sys})
	if err != nil {
		return fmt.Errorf("look at the host below %s: %w", o.Root, err)
	}
	own, err := ownConfig(o, h.Files())
	if err != nil {
		return err
	}
	kubelet, err := kubeletConfig(o.NodeKubeconfig, h.Files(), clk)
	if err != nil {
		return err
	}
	if kubelet == nil {
		log.Infof("No %s on the host: the Node is written with the agent's own account", o.NodeKubeconfig)
		kubelet = own
	}
	cluster, err := agent.NewREST(o.Node, kubelet, own, clk, log)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	metrics := agent.NewMetrics(registry)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := serveMetrics(ctx, cancel, o.MetricsAddr, registry); err != nil {
		return err
	}
	if o.Healthz != "" {
		go watchKubelet(ctx, clk, o.Healthz, registry, log)
	}
	log.Infof("Starting millwright-agent of node %s, root %s", o.Node, o.Root)
	a := agent.New(agent.Config{Node: o.Node, Host: h, Cluster: cluster, Clock: clk, Log: log, Metrics: metrics})
	if err := a.Run(ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// mountsEnv tells a process that runs without a mount namespace, as in a simulated
// world, where its mounts are: path=folder, separated by semicolons.
const mountsEnv = "MILLWRIGHT_MOUNTS"

// mounted is the folder behind a mount path.
func mounted(path, mounts string) string {
	for m := range strings.SplitSeq(mounts, ";") {
		if at, folder, ok := strings.Cut(m, "="); ok && at == path {
			return folder
		}
	}
	return path
}

// ownConfig is how the agent's account reaches the API server: directly, where the
// host knows how, since the service network is one of the things that a config may
// break.
func ownConfig(o Options, f host.Files) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w; set --kubeconfig or KUBECONFIG, or run in a pod", err)
	}
	if o.Kubeconfig != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return cfg, nil
	}
	raw, err := f.ReadFile("/etc/kubernetes/kubeconfig")
	if err != nil {
		return cfg, nil // plain hosts have none
	}
	file, err := clientcmd.Load(raw)
	if err != nil {
		return cfg, nil
	}
	if c, ok := file.Contexts[file.CurrentContext]; ok && file.Clusters[c.Cluster] != nil {
		cfg.Host = file.Clusters[c.Cluster].Server
	}
	return cfg, nil
}

// serveMetrics serves /metrics until ctx ends; an empty address is not served.
func serveMetrics(ctx context.Context, cancel context.CancelCauseFunc, address string, g prometheus.Gatherer) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve metrics: %w", err))
		}
	}()
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	return nil
}

// watchKubelet counts, until ctx ends, how often in a row the kubelet did not answer.
func watchKubelet(ctx context.Context, clk clock.WithTicker, url string, r prometheus.Registerer, log *klogText) {
	failures := prometheus.NewGauge(prometheus.GaugeOpts{Name: "mcd_kubelet_state", Help: "Failures in a row to ask the kubelet for its health."})
	r.MustRegister(failures)
	client := &http.Client{Timeout: healthTimeout}
	tick := clk.NewTicker(healthEvery)
	defer tick.Stop()
	count := 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		if err := askKubelet(ctx, client, url); err != nil {
			count++
			log.Errorf("Failed kubelet health check: %v", err)
		} else {
			count = 0
		}
		failures.Set(count)
	}
}

// askKubelet fails only when there is no answer, as the original does.
func askKubelet(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	return err
}
