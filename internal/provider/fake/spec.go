package fake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"millwright.io/millwright/internal/cloud"
)

// Kind is the kind that users of the fake cloud write.
const Kind = "FakeMachineProviderSpec"

// APIVersion goes with Kind.
const APIVersion = "machine.openshift.io/v1beta1"

// Spec describes a fake instance.
type Spec struct {
	Kind              string `json:"kind"`
	APIVersion        string `json:"apiVersion,omitempty"`
	Region            string `json:"region,omitempty"`
	Zone              string `json:"zone,omitempty"`
	Size              string `json:"size,omitempty"`
	UserDataSecret    *Ref   `json:"userDataSecret,omitempty"`
	CredentialsSecret *Ref   `json:"credentialsSecret,omitempty"`
}

// Ref names a Secret.
type Ref struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// CloudKind implements cloud.Spec.
func (*Spec) CloudKind() string { return Kind }

// Scope implements cloud.Spec: the fake has one scope.
func (*Spec) Scope() string { return "" }

// Codec implements cloud.SpecCodec for Spec.
type Codec struct{}

var _ cloud.SpecCodec = Codec{}

// Kind implements cloud.SpecCodec.
func (Codec) Kind() string { return Kind }

// Decode implements cloud.SpecCodec. An unknown field is a warning.
func (Codec) Decode(raw []byte) (cloud.Spec, []cloud.Problem, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil, errors.New("a value must be provided")
	}
	var s Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, nil, fmt.Errorf("decode %s: %w", Kind, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, nil, fmt.Errorf("decode %s: %w", Kind, err)
	}
	known := []string{"kind", "apiVersion", "region", "zone", "size", "userDataSecret", "credentialsSecret"}
	var problems []cloud.Problem
	for f := range fields {
		if !slices.Contains(known, f) {
			problems = append(problems, cloud.Problem{Rule: "unknown-field", Type: cloud.ProblemUnsupported, Field: "providerSpec.value",
				Value: strconv.Quote(f), Detail: "Unknown field (" + f + ") will be ignored", Warning: true})
		}
	}
	slices.SortFunc(problems, func(a, b cloud.Problem) int { return bytes.Compare([]byte(a.Value), []byte(b.Value)) })
	return &s, problems, nil
}

// Encode implements cloud.SpecCodec.
func (Codec) Encode(s cloud.Spec) ([]byte, error) {
	fs, ok := s.(*Spec)
	if !ok {
		return nil, fmt.Errorf("encode %T: not a %s", s, Kind)
	}
	return json.Marshal(fs)
}

// Default implements cloud.SpecCodec.
func (Codec) Default(s cloud.Spec, c cloud.SpecContext) cloud.Spec {
	fs, ok := s.(*Spec)
	if !ok {
		return s
	}
	out := *fs
	out.Region = first(out.Region, c.Region, "nowhere")
	out.Size = first(out.Size, "small")
	user, cred := Ref{}, Ref{}
	if fs.UserDataSecret != nil {
		user = *fs.UserDataSecret
	}
	if fs.CredentialsSecret != nil {
		cred = *fs.CredentialsSecret
	}
	user.Name = first(user.Name, "worker-user-data")
	cred.Name = first(cred.Name, "fake-cloud-credentials")
	out.UserDataSecret, out.CredentialsSecret = &user, &cred
	return &out
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// Validate implements cloud.SpecCodec.
func (Codec) Validate(s cloud.Spec, c cloud.SpecContext) []cloud.Problem {
	fs, ok := s.(*Spec)
	if !ok {
		return []cloud.Problem{{Rule: "provider-kind", Type: cloud.ProblemInvalid, Field: "providerSpec.value.kind",
			Value: fmt.Sprintf("%T", s), Detail: "must be " + Kind}}
	}
	var out []cloud.Problem
	if fs.Kind != Kind {
		out = append(out, cloud.Problem{Rule: "provider-kind", Type: cloud.ProblemInvalid, Field: "providerSpec.value.kind",
			Value: strconv.Quote(fs.Kind), Detail: "must be " + Kind})
	}
	if c.Regions != nil && fs.Region != "" && !slices.Contains(c.Regions, fs.Region) {
		out = append(out, cloud.Problem{Rule: "fake-region", Type: cloud.ProblemInvalid, Field: "providerSpec.region",
			Value: strconv.Quote(fs.Region), Detail: fmt.Sprintf("known regions are %v", c.Regions)})
	}
	if c.Sizes != nil && !slices.ContainsFunc(c.Sizes, func(z cloud.Size) bool { return z.Name == fs.Size }) {
		out = append(out, cloud.Problem{Rule: "fake-size", Type: cloud.ProblemInvalid, Field: "providerSpec.size",
			Value: strconv.Quote(fs.Size), Detail: "not sold here"})
	}
	return out
}

// Digest implements cloud.SpecCodec.
func (c Codec) Digest(s cloud.Spec) string {
	raw, err := c.Encode(s)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// Place implements cloud.SpecCodec.
func (Codec) Place(s cloud.Spec) (region, zone, size string) {
	if fs, ok := s.(*Spec); ok {
		return fs.Region, fs.Zone, fs.Size
	}
	return "", "", ""
}

// References implements cloud.SpecCodec.
func (Codec) References(s cloud.Spec) (userData, credentials cloud.SecretRef) {
	fs, ok := s.(*Spec)
	if !ok {
		return userData, credentials
	}
	if r := fs.UserDataSecret; r != nil {
		userData = cloud.SecretRef{Name: r.Name}
	}
	if r := fs.CredentialsSecret; r != nil {
		credentials = cloud.SecretRef{Namespace: r.Namespace, Name: r.Name}
	}
	return userData, credentials
}

// Opener opens always the same Cloud, whatever the credentials say, unless
// OpOpen is scripted to fail.
type Opener struct{ Cloud *Cloud }

var _ cloud.Opener = Opener{}

// Open implements cloud.Opener.
func (o Opener) Open(ctx context.Context, _ cloud.Account) (cloud.Cloud, error) {
	if err := o.Cloud.enter(ctx, OpOpen, ""); err != nil {
		return nil, err
	}
	return o.Cloud, nil
}
