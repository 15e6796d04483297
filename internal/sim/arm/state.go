package arm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"time"

	"millwright.io/millwright/internal/sim/backend"
)

// formatVersion is what this program writes and the newest it reads.
const formatVersion = 1

// resource is one stored resource.
type resource struct {
	Kind string `json:"kind"`
	// Doc is the resource as ARM returns it, secrets included; render leaves
	// those out.
	Doc object `json:"doc"`
	// Power is a VM's power state.
	Power PowerState `json:"power,omitempty"`
	// Born says that the hardware was told of the VM.
	Born bool `json:"born,omitempty"`
	// Failure is why provisioning failed.
	Failure *Error `json:"failure,omitempty"`

	kind *kind
	raw  json.RawMessage // encoding kept between saves
}

func (r *resource) id() string       { return str(r.Doc, "id") }
func (r *resource) name() string     { return str(r.Doc, "name") }
func (r *resource) location() string { return str(r.Doc, "location") }
func (r *resource) state() string    { return str(r.Doc, "properties", "provisioningState") }

// operation is one long operation.
type operation struct {
	ID       string    `json:"id"`
	Do       string    `json:"do"` // what happens when it is due, see finish
	Resource string    `json:"resource"`
	Location string    `json:"location"`
	Started  time.Time `json:"started"`
	Due      time.Time `json:"due"`
	Ended    time.Time `json:"ended,omitzero"`
	Status   string    `json:"status"` // InProgress, Succeeded, Failed
	Error    *Error    `json:"error,omitempty"`
}

type stateFile struct {
	FormatVersion int               `json:"formatVersion"`
	Subscription  string            `json:"subscription"`
	SigningKey    []byte            `json:"signingKey"`
	Serial        uint64            `json:"serial"`
	Quotas        map[string]int    `json:"quotas,omitempty"`
	Resources     []json.RawMessage `json:"resources"`
	Operations    []*operation      `json:"operations,omitempty"`
}

func (s *Server) decode(b []byte) error {
	var f stateFile
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if err := backend.CheckVersion(f.FormatVersion, formatVersion, "the simulated Azure"); err != nil {
		return err
	}
	if f.Subscription != s.cfg.SubscriptionID {
		return fmt.Errorf("the file holds subscription %q, not %q", f.Subscription, s.cfg.SubscriptionID)
	}
	if len(f.SigningKey) > 0 {
		s.signingKey = f.SigningKey
	}
	s.serial = f.Serial
	for scope, n := range f.Quotas {
		s.quotas[scope] = n
	}
	for i, raw := range f.Resources {
		r, err := decodeResource(raw)
		if err != nil {
			return fmt.Errorf("resource %d: %w", i, err)
		}
		s.resources[lower(r.id())] = r
	}
	for i, op := range f.Operations {
		if op == nil || op.ID == "" {
			return fmt.Errorf("operation %d: no id", i)
		}
		s.operations[op.ID] = op
		if op.Status == "InProgress" {
			s.active[op.ID] = op
		}
	}
	s.reindex()
	return nil
}

func decodeResource(raw json.RawMessage) (*resource, error) {
	var r resource
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	r.kind = kindNamed(r.Kind)
	switch {
	case r.kind == nil:
		return nil, fmt.Errorf("unknown kind %q", r.Kind)
	case r.id() == "" || r.name() == "":
		return nil, fmt.Errorf("a %s without id or name", r.Kind)
	case r.Kind == kindVM && str(r.Doc, "properties", "vmId") == "":
		return nil, fmt.Errorf("%s has no vmId", r.id())
	}
	r.raw = bytes.Clone(raw)
	return &r, nil
}

// encode must be called with the lock held; it reuses what did not change.
func (s *Server) encode() ([]byte, error) {
	f := stateFile{FormatVersion: formatVersion, Subscription: s.cfg.SubscriptionID, SigningKey: s.signingKey, Serial: s.serial, Quotas: s.quotas}
	ids := make([]string, 0, len(s.resources))
	for id := range s.resources {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	f.Resources = make([]json.RawMessage, 0, len(ids))
	for _, id := range ids {
		r := s.resources[id]
		if r.raw == nil {
			raw, err := json.Marshal(r)
			if err != nil {
				return nil, fmt.Errorf("encode %s: %w", r.id(), err)
			}
			r.raw = raw
		}
		f.Resources = append(f.Resources, r.raw)
	}
	for _, op := range s.operations {
		f.Operations = append(f.Operations, op)
	}
	sort.Slice(f.Operations, func(i, j int) bool { return f.Operations[i].ID < f.Operations[j].ID })
	return json.Marshal(f)
}

// save writes the state if it changed since the last time.
func (s *Server) save() error {
	return s.file.Save(&s.mu, &s.dirty, s.encode)
}
