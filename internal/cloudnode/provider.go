// Package cloudnode keeps Nodes true to their cloud instances: provider ID,
// addresses, zone and type labels, the uninitialized taint, and the removal of
// Nodes whose instance is gone. The loops are k8s.io/cloud-provider's; this
// package is the cloud they see, made from the cloud contract. It reads
// instances and never changes one, and a Node with a foreign provider ID is
// none of its business.
package cloudnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/cloud"
)

// listAge is how old the list of instances may be when it is asked about a
// Node that it knows. A Node that it does not know is never judged by a list
// older than missAge.
const (
	listAge = 10 * time.Second
	missAge = time.Second
)

// callTimeout bounds one question to the cloud.
const callTimeout = 30 * time.Second

// Open returns the account, as its credentials Secret says right now.
type Open func(ctx context.Context) (cloud.Cloud, error)

// Provider is a cloudprovider.Interface over one account. Only instances are
// supported: no routes, no load balancers.
type Provider struct {
	name  string
	owner cloud.Owner
	open  Open
	clk   clock.PassiveClock

	mu     sync.Mutex
	listed time.Time
	byID   map[string]cloud.Instance // by lower-case provider ID
	byName map[string]cloud.Instance // by lower-case name
}

var (
	_ cloudprovider.Interface   = (*Provider)(nil)
	_ cloudprovider.InstancesV2 = (*Provider)(nil)
)

// New returns a provider; name is the scheme of its provider IDs (azure).
func New(name string, owner cloud.Owner, open Open, clk clock.PassiveClock) *Provider {
	return &Provider{name: name, owner: owner, open: open, clk: clk}
}

// Initialize implements cloudprovider.Interface; there is nothing to start.
func (p *Provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// LoadBalancer implements cloudprovider.Interface.
func (p *Provider) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// Instances implements cloudprovider.Interface.
func (p *Provider) Instances() (cloudprovider.Instances, bool) { return nil, false }

// InstancesV2 implements cloudprovider.Interface.
func (p *Provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p, true }

// Zones implements cloudprovider.Interface.
func (p *Provider) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface.
func (p *Provider) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes implements cloudprovider.Interface.
func (p *Provider) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (p *Provider) ProviderName() string { return p.name }

// HasClusterID implements cloudprovider.Interface.
func (p *Provider) HasClusterID() bool { return true }

// foreign says whether the Node was made by another cloud.
func (p *Provider) foreign(n *corev1.Node) bool {
	return n.Spec.ProviderID != "" && !strings.HasPrefix(n.Spec.ProviderID, p.name+"://")
}

// InstanceExists is false only when a list younger than a second lacks the
// instance. Foreign Nodes always exist.
func (p *Provider) InstanceExists(ctx context.Context, n *corev1.Node) (bool, error) {
	if p.foreign(n) {
		return true, nil
	}
	_, err := p.find(ctx, n)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}

// InstanceShutdown says whether the instance is stopped or deallocated. Lists
// carry no power state, so it asks for the instance itself.
func (p *Provider) InstanceShutdown(ctx context.Context, n *corev1.Node) (bool, error) {
	if p.foreign(n) {
		return false, nil
	}
	i, err := p.observe(ctx, n)
	if err != nil {
		return false, err
	}
	switch i.State {
	case cloud.StateStopped, cloud.StateDeallocating, cloud.StateDeallocated:
		return true, nil
	default:
		return false, nil
	}
}

// InstanceMetadata returns what goes onto the Node. The zone label is
// <region>-<zone>; an instance without a zone gets 0, its fault domain.
func (p *Provider) InstanceMetadata(ctx context.Context, n *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	if p.foreign(n) {
		return nil, fmt.Errorf("node %s belongs to another cloud: provider ID %s", n.Name, n.Spec.ProviderID)
	}
	i, err := p.observe(ctx, n)
	if err != nil {
		return nil, err
	}
	return metadata(n, i), nil
}

// observe reads the Node's instance whole.
func (p *Provider) observe(ctx context.Context, n *corev1.Node) (cloud.Instance, error) {
	listed, err := p.find(ctx, n)
	if err != nil {
		return cloud.Instance{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := p.open(ctx)
	if err != nil {
		return cloud.Instance{}, fmt.Errorf("open cloud: %w", err)
	}
	i, err := c.Observe(ctx, listed.Key)
	if cloud.KindOf(err) == cloud.NotFound {
		return cloud.Instance{}, cloudprovider.InstanceNotFound
	}
	if err != nil {
		return cloud.Instance{}, fmt.Errorf("observe instance of node %s: %w", n.Name, err)
	}
	return i, nil
}

func metadata(n *corev1.Node, i cloud.Instance) *cloudprovider.InstanceMetadata {
	region := strings.ToLower(i.Region)
	zone := "0"
	if i.Zone != "" {
		zone = region + "-" + i.Zone
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:    i.ProviderID,
		InstanceType:  i.Size,
		NodeAddresses: addresses(n, i),
		Zone:          zone,
		Region:        region,
	}
}

// addresses are the host name and the IP addresses; DNS names stay on the
// Machine.
func addresses(n *corev1.Node, i cloud.Instance) []corev1.NodeAddress {
	out := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}}
	for _, a := range i.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			out = append(out, a)
		}
	}
	return out
}

// find looks the instance up by provider ID, else by name.
func (p *Provider) find(ctx context.Context, n *corev1.Node) (cloud.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clk.Since(p.listed) > listAge {
		if err := p.list(ctx); err != nil {
			return cloud.Instance{}, err
		}
	}
	if i, ok := p.lookup(n); ok {
		return i, nil
	}
	if p.clk.Since(p.listed) > missAge {
		if err := p.list(ctx); err != nil {
			return cloud.Instance{}, err
		}
	}
	if i, ok := p.lookup(n); ok {
		return i, nil
	}
	return cloud.Instance{}, cloudprovider.InstanceNotFound
}

func (p *Provider) lookup(n *corev1.Node) (cloud.Instance, bool) {
	if n.Spec.ProviderID != "" {
		i, ok := p.byID[strings.ToLower(n.Spec.ProviderID)]
		return i, ok
	}
	i, ok := p.byName[strings.ToLower(n.Name)]
	return i, ok
}

// list reads all instances of the cluster; p.mu is held.
func (p *Provider) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := p.open(ctx)
	if err != nil {
		return fmt.Errorf("open cloud: %w", err)
	}
	all, err := c.List(ctx, p.owner)
	if err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	p.byID, p.byName = map[string]cloud.Instance{}, map[string]cloud.Instance{}
	for _, i := range all {
		if i.State == cloud.StateLeftover {
			continue
		}
		p.byID[strings.ToLower(i.ProviderID)] = i
		p.byName[strings.ToLower(i.Key.Name)] = i
	}
	p.listed = p.clk.Now()
	return nil
}
