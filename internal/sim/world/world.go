// Package world knows what an installer leaves behind in a cluster on the
// simulated Azure: names, the cluster-wide objects, user data, Machines and
// MachineSets. It only makes values; internal/app/world brings them to life,
// once, and nothing ever reverts what an administrator changed afterwards.
package world

import (
	"fmt"
	"strings"
)

// The simulated account. Its secrets open nothing but a world on loopback.
const (
	SubscriptionID = "00000000-0000-4000-8000-000000000001"
	TenantID       = "00000000-0000-4000-8000-0000000000ff"
	ClientID       = "00000000-0000-4000-8000-0000000000aa"
	Region         = "francecentral"
	// ControlPlaneNodes is how many an installer makes.
	ControlPlaneNodes = 3
	// ServiceCIDR and the subnets are the installer's defaults.
	ServiceCIDR  = "172.30.0.0/16"
	MasterSubnet = "10.0.0.0/17"
	WorkerSubnet = "10.0.128.0/17"
)

// Zones of the region.
var zones = []string{"1", "2", "3"}

// Params are what differs between worlds.
type Params struct {
	InfraID      string // e.g. dev-x7k2p
	Version      string // of OpenShift, e.g. 4.20.0
	ClusterID    string // a UUID
	ClientSecret string
	APIServer    string // URL
	Workers      int    // replicas over the three worker MachineSets
	VMSize       string // of all machines
}

// ResourceGroup is the cluster's own.
func (p Params) ResourceGroup() string { return p.InfraID + "-rg" }

// Domain is the cluster's.
func (p Params) Domain() string { return p.InfraID + ".example.com" }

// InternalHost is the name that machines reach the control plane at.
func (p Params) InternalHost() string { return "api-int." + p.Domain() }

// VNet is the cluster's network.
func (p Params) VNet() string { return p.InfraID + "-vnet" }

// Subnet returns the subnet of a role, master or worker.
func (p Params) Subnet(role string) string { return p.InfraID + "-" + role + "-subnet" }

// Gallery is the image gallery: its name may not hold dashes.
func (p Params) Gallery() string { return "gallery_" + strings.ReplaceAll(p.InfraID, "-", "_") }

// Image is the RHCOS image in the gallery.
func (p Params) Image() string { return p.InfraID + "-gen2" }

// ImageResourceID is the image as a providerSpec names it: without the
// subscription.
func (p Params) ImageResourceID() string {
	return fmt.Sprintf("/resourceGroups/%s/providers/Microsoft.Compute/galleries/%s/images/%s/versions/latest",
		p.ResourceGroup(), p.Gallery(), p.Image())
}

// MasterName is the name of control plane machine i.
func (p Params) MasterName(i int) string { return fmt.Sprintf("%s-master-%d", p.InfraID, i) }

// MasterZone is its zone: one each.
func MasterZone(i int) string { return zones[i%len(zones)] }

// WorkerSetName is the name of the worker MachineSet of a zone: no dash
// before the zone, as an installer writes it.
func (p Params) WorkerSetName(zone string) string {
	return fmt.Sprintf("%s-worker-%s%s", p.InfraID, Region, zone)
}
