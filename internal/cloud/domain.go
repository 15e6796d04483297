package cloud

// Domain is a failure domain: where one of several machines of a kind stands.
type Domain struct {
	Zone   string
	Subnet string // empty: the one of the spec
}

// String prints a domain for messages and comparisons, e.g. "zone 1, subnet
// demo-master-subnet"; empty for the zero Domain.
func (d Domain) String() string {
	switch {
	case d == Domain{}:
		return ""
	case d.Subnet == "":
		return "zone " + d.Zone
	case d.Zone == "":
		return "subnet " + d.Subnet
	}
	return "zone " + d.Zone + ", subnet " + d.Subnet
}

// ControlPlaneCodec is an optional power of a SpecCodec: it compares the specs
// of control plane machines and spreads them over failure domains.
type ControlPlaneCodec interface {
	// Domain returns where the spec puts a machine.
	Domain(Spec) Domain
	// InDomain returns a copy put there.
	InDomain(Spec, Domain) Spec
	// Differs names the field in which the machine of a spec differs from
	// what is wanted, e.g. vmSize; empty when in none. Both have their
	// defaults. Where it stands does not count, nor does what the original
	// does not replace a machine for.
	Differs(have, want Spec) string
	// ValidateControlPlane returns what only a control plane machine must have.
	ValidateControlPlane(Spec) []Problem
}
