package cloud

import "fmt"

// SpecCodec decodes, defaults and checks the cloud specific part of a
// machine, as its users write it. It is pure: whatever it needs from outside
// comes in SpecContext.
type SpecCodec interface {
	// Kind is the kind it understands, e.g. AzureMachineProviderSpec.
	Kind() string
	// Decode reads raw JSON (or YAML). It accepts what the original accepts,
	// reports unknown fields as Problems (suggesting the nearest known one)
	// and returns an error only when the bytes cannot be understood; the
	// error names the field and the type wanted.
	Decode(raw []byte) (Spec, []Problem, error)
	// Encode writes the spec as the original would store it.
	Encode(Spec) ([]byte, error)
	// Default returns a copy with the defaults filled in.
	Default(Spec, SpecContext) Spec
	// Validate returns every problem, in the original's order and words.
	Validate(Spec, SpecContext) []Problem
	// Digest changes exactly when the meaning of the spec does.
	Digest(Spec) string
	// Place returns what users see in columns and what admission compares
	// with the catalogue; empty strings where the spec says nothing.
	Place(Spec) (region, zone, size string)
	// References names the Secrets of the spec: first-boot data and
	// credentials.
	References(Spec) (userData, credentials SecretRef)
}

// SecretRef names a Secret. An empty namespace means the owner's.
type SecretRef struct{ Namespace, Name string }

// SpecContext is what a codec may know about the world.
type SpecContext struct {
	InfraID       string            // Infrastructure/cluster .status.infrastructureName
	ResourceGroup string            // the cluster's own; "" when unknown
	Region        string            // the cluster's region; "" when unknown
	Arch          string            // amd64 or arm64, for defaults
	CloudName     string            // AzurePublicCloud unless told otherwise
	Private       bool              // installed without public DNS zone
	MachineName   string            // "" for templates
	Regions       []string          // known regions; nil: unknown, do not check
	Sizes         []Size            // sizes of the spec's region; nil: unknown, do not check
	UserTags      map[string]string // tags of the Infrastructure object
}

// ProblemType is the class of a Problem, worded as API machinery words it.
type ProblemType string

// Problem types.
const (
	ProblemInvalid     ProblemType = "Invalid value"
	ProblemRequired    ProblemType = "Required value"
	ProblemForbidden   ProblemType = "Forbidden"
	ProblemUnsupported ProblemType = "Unsupported value"
)

// Problem is one finding in a spec: the rule that found it, the field, the
// value and what would be right.
type Problem struct {
	Rule    string // stable id, lower-case with dashes, e.g. azure-disk-size
	Type    ProblemType
	Field   string // path under the object, e.g. providerSpec.osDisk.diskSizeGB
	Value   string // as it would be printed; empty for Required and Forbidden
	Detail  string
	Warning bool // admitted, with a warning
}

// String prints the problem as API machinery prints a field error. Without a
// type the detail is the whole sentence.
func (p Problem) String() string {
	switch p.Type {
	case "":
		return p.Detail
	case ProblemRequired, ProblemForbidden:
		return fmt.Sprintf("%s: %s: %s", p.Field, p.Type, p.Detail)
	default:
		return fmt.Sprintf("%s: %s: %s: %s", p.Field, p.Type, p.Value, p.Detail)
	}
}

// Rule is one check that admission makes.
type Rule struct {
	ID string // as in Problem.Rule
	// Ours tells a check that the original does not make: its refusals say
	// how to accept the risk, while the original's keep the original's words.
	Ours bool
}

// RuleLister is an optional power of a SpecCodec: it lists the rules of all
// its problems, sorted by ID.
type RuleLister interface {
	Rules() []Rule
}
