package arm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Seed is what an installer leaves in a subscription before the first VM.
// Empty fields take the installer's names.
type Seed struct {
	InfraID       string
	ResourceGroup string // <infra>-rg
	AddressSpace  string // 10.0.0.0/16
	MasterPrefix  string // 10.0.0.0/17
	WorkerPrefix  string // 10.0.128.0/17
	ImageVersion  string // 9.6.20251015
	// Images are further image names in the gallery, beside <infra> and
	// <infra>-gen2.
	Images []string
}

func (d *Seed) fill() {
	for _, f := range []struct {
		field *string
		value string
	}{
		{&d.ResourceGroup, d.InfraID + "-rg"}, {&d.AddressSpace, "10.0.0.0/16"}, {&d.MasterPrefix, "10.0.0.0/17"},
		{&d.WorkerPrefix, "10.0.128.0/17"}, {&d.ImageVersion, "9.6.20251015"},
	} {
		if *f.field == "" {
			*f.field = f.value
		}
	}
}

// Seed makes the resource group, the network with its master and worker
// subnets, security group, load balancers, identity and image gallery. What
// exists already stays as it is.
func (s *Server) Seed(d Seed) error {
	if d.InfraID == "" {
		return fmt.Errorf("seed: an infra ID is needed")
	}
	d.fill()
	rg := s.groupID(d.ResourceGroup)
	net := rg + "/providers/Microsoft.Network/"
	tags := object{"kubernetes.io_cluster." + d.InfraID: "owned"}
	vnet := net + "virtualNetworks/" + d.InfraID + "-vnet"
	nsg := object{"id": net + "networkSecurityGroups/" + d.InfraID + "-nsg"}
	subnet := func(role, prefix string) any {
		return object{"name": d.InfraID + "-" + role + "-subnet", "properties": object{"addressPrefix": prefix, "networkSecurityGroup": nsg}}
	}
	gallery := rg + "/providers/Microsoft.Compute/galleries/gallery_" + strings.ReplaceAll(d.InfraID, "-", "_")
	type item struct {
		id    string
		props object
		extra object
	}
	items := []item{
		{rg, nil, nil},
		{str(nsg, "id"), object{"securityRules": []any{apiRule()}}, nil},
		{vnet, object{"addressSpace": object{"addressPrefixes": []any{d.AddressSpace}}, "subnets": []any{subnet("master", d.MasterPrefix), subnet("worker", d.WorkerPrefix)}}, nil},
		{net + "publicIPAddresses/" + d.InfraID + "-pip-v4", object{"publicIPAllocationMethod": "Static", "dnsSettings": object{"domainNameLabel": d.InfraID}}, object{"sku": object{"name": "Standard"}}},
		{net + "loadBalancers/" + d.InfraID, balancer(d.InfraID, object{"publicIPAddress": object{"id": net + "publicIPAddresses/" + d.InfraID + "-pip-v4"}}), object{"sku": object{"name": "Standard"}}},
		{net + "loadBalancers/" + d.InfraID + "-internal", balancer(d.InfraID, object{"subnet": object{"id": vnet + "/subnets/" + d.InfraID + "-master-subnet"}}), object{"sku": object{"name": "Standard"}}},
		{rg + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/" + d.InfraID + "-identity", object{}, nil},
		{gallery, object{}, nil},
	}
	for _, image := range append([]string{d.InfraID, d.InfraID + "-gen2"}, d.Images...) {
		id := gallery + "/images/" + image
		items = append(items,
			item{id, object{"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2", "identifier": object{"publisher": "RedHat", "offer": image, "sku": "basic"}}, nil},
			item{id + "/versions/" + d.ImageVersion, object{"storageProfile": object{}, "publishingProfile": object{}}, nil})
	}
	for _, it := range items {
		body := object{"location": s.cfg.Location, "tags": clone(tags)}
		if it.props != nil {
			body["properties"] = it.props
		}
		for k, v := range it.extra {
			body[k] = v
		}
		if err := s.ensure(it.id, body); err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	return nil
}

func apiRule() any {
	return object{"name": "apiserver_in", "properties": object{
		"priority": 101, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
		"sourcePortRange": "*", "sourceAddressPrefix": "*", "destinationPortRange": "6443", "destinationAddressPrefix": "*",
	}}
}

func balancer(infra string, frontend object) object {
	return object{
		"frontendIPConfigurations": []any{object{"name": "public-lb-ip-v4", "properties": frontend}},
		"backendAddressPools":      []any{object{"name": infra}},
		"probes":                   []any{object{"name": "api-probe", "properties": object{"protocol": "Https", "port": 6443, "requestPath": "/readyz"}}},
	}
}

// ensure makes a resource through the same code as a caller's PUT, unless it
// exists.
func (s *Server) ensure(id string, body object) error {
	s.mu.Lock()
	exists := s.resources[lower(id)] != nil
	s.mu.Unlock()
	if exists {
		return nil
	}
	return s.apply(http.MethodPut, id, body)
}

// apply performs one request of our own: no token, no count, no fault.
func (s *Server) apply(method, id string, body object) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", id, err)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, "https://management.invalid"+id+"?api-version=2024-03-01", bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("address %s: %w", id, err)
	}
	rt, ok := parseRoute(r.URL.Path)
	if !ok {
		return fmt.Errorf("address %s: not an ARM id", id)
	}
	w := &recorder{header: http.Header{}}
	c := &call{w: w, r: r, route: rt, query: r.URL.Query(), apiVersion: "2024-03-01"}
	if e := c.readBody(); e != nil {
		return e
	}
	s.mu.Lock()
	s.dispatch(c)
	s.settle()
	s.mu.Unlock()
	if w.code >= 300 {
		return fmt.Errorf("put %s: %d %s", id, w.code, w.body.String())
	}
	return nil
}

// recorder keeps the answer to a request of our own.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// SeedVM is a VM that an installer leaves, such as a control plane machine.
type SeedVM struct {
	Name     string
	Size     string // Standard_D8s_v3
	Zone     string
	Role     string // master or worker: its subnet and, for master, the balancers' pools
	UserData []byte
	Tags     map[string]string
}

// SeedVM makes an interface and a VM as the installer of seed d does, unless a
// VM of that name exists. Both are provisioned at once.
func (s *Server) SeedVM(d Seed, v SeedVM) (VM, error) {
	d.fill()
	if v.Size == "" {
		v.Size = "Standard_D8s_v3"
	}
	rg := s.groupID(d.ResourceGroup)
	id := rg + "/providers/Microsoft.Compute/virtualMachines/" + v.Name
	nic := rg + "/providers/Microsoft.Network/networkInterfaces/" + v.Name + "-nic"
	tags := object{"kubernetes.io_cluster." + d.InfraID: "owned"}
	for k, t := range v.Tags {
		tags[k] = t
	}
	if err := s.ensure(nic, s.seedNIC(d, v, tags)); err != nil {
		return VM{}, fmt.Errorf("seed VM %s: %w", v.Name, err)
	}
	s.hasten(nic)
	if err := s.ensure(id, s.seedMachine(d, v, nic, tags)); err != nil {
		return VM{}, fmt.Errorf("seed VM %s: %w", v.Name, err)
	}
	s.hasten(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[lower(id)]
	if r == nil {
		return VM{}, fmt.Errorf("seed VM %s: it was deleted meanwhile", v.Name)
	}
	return s.vmOf(r), nil
}

func (s *Server) seedNIC(d Seed, v SeedVM, tags object) object {
	net := s.groupID(d.ResourceGroup) + "/providers/Microsoft.Network/"
	ip := object{
		"subnet":                    object{"id": net + "virtualNetworks/" + d.InfraID + "-vnet/subnets/" + d.InfraID + "-" + v.Role + "-subnet"},
		"privateIPAllocationMethod": "Dynamic", "primary": true,
	}
	if v.Role == "master" {
		ip["loadBalancerBackendAddressPools"] = []any{
			object{"id": net + "loadBalancers/" + d.InfraID + "/backendAddressPools/" + d.InfraID},
			object{"id": net + "loadBalancers/" + d.InfraID + "-internal/backendAddressPools/" + d.InfraID},
		}
	}
	return object{"location": s.cfg.Location, "tags": clone(tags), "properties": object{"ipConfigurations": []any{object{"name": "pipConfig", "properties": ip}}}}
}

func (s *Server) seedMachine(d Seed, v SeedVM, nic string, tags object) object {
	image := s.groupID(d.ResourceGroup) + "/providers/Microsoft.Compute/galleries/gallery_" + strings.ReplaceAll(d.InfraID, "-", "_") + "/images/" + d.InfraID + "-gen2/versions/latest"
	body := object{"location": s.cfg.Location, "tags": clone(tags), "properties": object{
		"hardwareProfile": object{"vmSize": v.Size},
		"osProfile":       object{"computerName": v.Name, "adminUsername": "core", "adminPassword": s.uuid(), "customData": base64.StdEncoding.EncodeToString(v.UserData)},
		"storageProfile": object{
			"imageReference": object{"id": image},
			"osDisk":         object{"name": v.Name + "_OSDisk", "createOption": "FromImage", "diskSizeGB": 128, "managedDisk": object{"storageAccountType": "Premium_LRS"}},
		},
		"networkProfile": object{"networkInterfaces": []any{object{"id": nic, "properties": object{"primary": true}}}},
	}}
	if v.Zone != "" {
		body["zones"] = []any{v.Zone}
	}
	return body
}

// hasten ends the running operations of a resource now.
func (s *Server) hasten(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.active {
		if op.Resource == lower(id) {
			op.Due = s.cfg.Clock.Now()
		}
	}
	s.settle()
}
