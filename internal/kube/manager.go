package kube

import (
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"millwright.io/millwright/internal/version"
)

// Leader election as every component does it.
const (
	LeaseDuration = 15 * time.Second
	RenewDeadline = 10 * time.Second
	RetryPeriod   = 2 * time.Second
)

// ManagerOptions says what a process needs of its manager.
type ManagerOptions struct {
	// Component names the process in user agents, e.g. machineset-controller.
	Component string
	Scheme    *runtime.Scheme
	// LeaderElectionID is the name of the Lease; empty: no election.
	LeaderElectionID        string
	LeaderElectionNamespace string
	// MetricsAddr and HealthAddr are host:port; empty: not served.
	MetricsAddr string
	HealthAddr  string
	// Namespaces restricts the cache of namespaced objects; empty: all.
	Namespaces []string
	// ByObject restricts or transforms the cache of single kinds.
	ByObject map[client.Object]cache.ByObject
	// KeepManagedFields lists kinds whose managedFields stay in the cache.
	KeepManagedFields []client.Object
	// Live lists kinds that are read from the server each time, beside Pods,
	// which never are cached.
	Live []client.Object
	Log  logr.Logger
}

// NewManager makes a manager: election 15/10/2 s and released on exit, no
// client-side rate limit, one cache without managedFields and Node images.
func NewManager(cfg *rest.Config, o ManagerOptions) (manager.Manager, error) {
	opts := o.options()
	opts.LeaderElectionConfig = ownConnection(ClientConfig(cfg, o.Component))
	mgr, err := manager.New(ClientConfig(cfg, o.Component), opts)
	if err != nil {
		return nil, fmt.Errorf("make manager of %s: %w", o.Component, err)
	}
	if o.HealthAddr == "" {
		return mgr, nil
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add readiness check: %w", err)
	}
	return mgr, nil
}

// ownConnection gives a config a connection that it shares with no other. An
// API server takes a hundred requests at a time on one: a Lease must not wait
// behind the workers' requests, or a busy process loses its election.
func ownConnection(cfg *rest.Config) *rest.Config {
	cfg.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	return cfg
}

// ClientConfig returns a copy of cfg for a component: its user agent, and no
// client-side limit, since the API server has its own fairness.
func ClientConfig(cfg *rest.Config, component string) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.QPS = -1
	// Warnings are for people at a shell; here they would be a line per write.
	c.WarningHandlerWithContext = rest.NoWarnings{}
	if component != "" {
		c.UserAgent = version.UserAgent(component)
	}
	return c
}

func (o ManagerOptions) options() manager.Options {
	off := func(addr string) string {
		if addr == "" {
			return "0"
		}
		return addr
	}
	return manager.Options{
		Scheme:                        o.Scheme,
		Logger:                        o.Log,
		LeaderElection:                o.LeaderElectionID != "",
		LeaderElectionID:              o.LeaderElectionID,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(LeaseDuration),
		RenewDeadline:                 ptr.To(RenewDeadline),
		RetryPeriod:                   ptr.To(RetryPeriod),
		Metrics:                       metricsserver.Options{BindAddress: off(o.MetricsAddr)},
		HealthProbeBindAddress:        off(o.HealthAddr),
		Cache:                         o.cacheOptions(),
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: append([]client.Object{&corev1.Pod{}}, o.Live...),
		}},
	}
}

func (o ManagerOptions) cacheOptions() cache.Options {
	c := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{},
	}
	for _, ns := range o.Namespaces {
		if c.DefaultNamespaces == nil {
			c.DefaultNamespaces = map[string]cache.Config{}
		}
		c.DefaultNamespaces[ns] = cache.Config{}
	}
	seesNodes := false
	for obj, by := range o.ByObject {
		if _, ok := obj.(*corev1.Node); ok {
			seesNodes = true
			if by.Transform == nil {
				by.Transform = StripNode
			}
		}
		c.ByObject[obj] = by
	}
	if !seesNodes {
		c.ByObject[&corev1.Node{}] = cache.ByObject{Transform: StripNode}
	}
	for _, obj := range o.KeepManagedFields {
		c.ByObject[obj] = cache.ByObject{Transform: func(v any) (any, error) { return v, nil }}
	}
	return c
}

// StripNode drops from a Node what nobody reads and what makes most of its
// size: managedFields and the list of images.
func StripNode(v any) (any, error) {
	n, ok := v.(*corev1.Node)
	if !ok {
		return cache.TransformStripManagedFields()(v)
	}
	n.ManagedFields = nil
	n.Status.Images = nil
	return n, nil
}
