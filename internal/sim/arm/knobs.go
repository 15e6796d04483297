package arm

import (
	"maps"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	"millwright.io/millwright/internal/sim/control"
)

// asyncCodes are reported by the long operation, not by the call.
var asyncCodes = []string{"AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest", "OSProvisioningTimedOut", "VMStartTimedOut", "InternalExecutionError", "VMAgentStatusCommunicationError"}

// usual are the status and the text of known codes.
var usual = map[string]struct {
	status  int
	message string
}{
	"AllocationFailed":                      {http.StatusConflict, "Allocation failed. We do not have sufficient capacity for the requested VM size in this region. Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance"},
	"ZonalAllocationFailed":                 {http.StatusConflict, "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone. Read more about improving likelihood of allocation success at http://aka.ms/allocation-guidance"},
	"OverconstrainedAllocationRequest":      {http.StatusConflict, "Allocation failed. VM(s) with the following constraints cannot be allocated, because the condition is too restrictive. Please remove some constraints and try again."},
	"OverconstrainedZonalAllocationRequest": {http.StatusConflict, "Allocation failed. VM(s) with the following constraints cannot be allocated, because the condition is too restrictive. Please remove some constraints and try again."},
	"OSProvisioningTimedOut":                {http.StatusConflict, "OS Provisioning for the VM did not finish in the allotted time. The VM may still finish provisioning successfully. Please check provisioning state later."},
	"VMStartTimedOut":                       {http.StatusConflict, "VM did not start in the allotted time. The VM may still start successfully. Please check the power state later."},
	"OperationNotAllowed":                   {http.StatusConflict, "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. Additional details - Deployment Model: Resource Manager, Location: francecentral, Current Limit: 0, Current Usage: 0, Additional Required: 1, (Minimum) New Limit Required: 1."},
	"QuotaExceeded":                         {http.StatusConflict, "The operation could not be completed because it exceeds the approved quota of the subscription."},
	"PublicIPCountLimitReached":             {http.StatusBadRequest, "Cannot create more than 10 public IP addresses for this subscription in this region."},
	"SkuNotAvailable":                       {http.StatusConflict, "The requested VM size is currently not available in this location. Please try another size or deploy to a different location or different zone. See https://aka.ms/azureskunotavailable for details."},
	"TooManyRequests":                       {http.StatusTooManyRequests, "The request is being throttled as the limit has been reached for operation type. For more information, see - https://aka.ms/srpthrottlinglimits"},
	"SubscriptionRequestsThrottled":         {http.StatusTooManyRequests, "Number of requests for the subscription exceeded the limit. Please try again later."},
	"AuthorizationFailed":                   {http.StatusForbidden, "The client does not have authorization to perform this action over this scope or the scope is invalid. If access was recently granted, please refresh your credentials."},
	"RequestDisallowedByPolicy":             {http.StatusForbidden, "Resource was disallowed by policy."},
	"InvalidAuthenticationToken":            {http.StatusUnauthorized, "The access token is invalid."},
	"ExpiredAuthenticationToken":            {http.StatusUnauthorized, "The access token has expired."},
	"InternalServerError":                   {http.StatusInternalServerError, "The server encountered an internal error. Please retry the request."},
	"InternalExecutionError":                {http.StatusInternalServerError, "An internal execution error occurred. Please retry later."},
	"ServiceUnavailable":                    {http.StatusServiceUnavailable, "The service is unavailable. Please retry the request."},
	"ServerTimeout":                         {http.StatusGatewayTimeout, "The request timed out. Diagnostic information: the gateway did not receive a response in time."},
	"Conflict":                              {http.StatusConflict, "The request failed due to conflict with a concurrent request."},
	"AnotherOperationInProgress":            {http.StatusConflict, "Another operation on this or dependent resource is in progress."},
	"RetryableError":                        {http.StatusTooManyRequests, "A retryable error occurred."},
	"ResourceNotFound":                      {http.StatusNotFound, "The Resource was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix"},
	"ResourceGroupNotFound":                 {http.StatusNotFound, "Resource group could not be found."},
	"GalleryImageNotFound":                  {http.StatusNotFound, "The gallery image is not available in this region."},
	"ImageNotFound":                         {http.StatusNotFound, "The image cannot be found."},
	"invalid_client":                        {http.StatusUnauthorized, "AADSTS7000215: Invalid client secret provided."},
	"temporarily_unavailable":               {http.StatusServiceUnavailable, "AADSTS90033: A transient error has occurred. Please try again."},
}

func (f *Fault) error() *Error {
	u := usual[f.Code]
	e := &Error{Status: f.Status, Code: f.Code, Message: f.Message, RetryAfter: f.RetryAfter}
	if e.Status == 0 {
		e.Status = u.status
	}
	if e.Status == 0 {
		e.Status = http.StatusBadRequest
	}
	if e.Message == "" {
		e.Message = u.message
	}
	if e.Message == "" {
		e.Message = "The operation failed."
	}
	return e
}

// failsLater says that the call is accepted and its long operation fails.
func (f *Fault) failsLater(op string) bool {
	kindName, verb, _ := strings.Cut(op, ".")
	k := kindNamed(kindName)
	if k == nil || !k.slow || verb == "get" || verb == "list" || verb == "patch" {
		return false
	}
	return f.Async || (op == "vm.put" && f.Status == 0 && slices.Contains(asyncCodes, f.Code))
}

func matches(pattern, op string) bool {
	if pattern == "*" || strings.EqualFold(pattern, op) {
		return true
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasPrefix(op, strings.ToLower(prefix))
}

// count notes a call and returns how long it has to wait.
func (s *Server) count(op string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[op]++
	var d time.Duration
	for pattern, slow := range s.slow {
		if matches(pattern, op) {
			d = max(d, slow)
		}
	}
	return d
}

// takeFault returns the fault that this call has to suffer; lock held.
func (s *Server) takeFault(op string) *Fault {
	for i, f := range s.faults {
		if !matches(f.Op, op) {
			continue
		}
		taken := *f
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		return &taken
	}
	return nil
}

// SetQuota sets the limit of a scope, in vCPUs, in every region. Scope is
// cores (the region's total), lowPriorityCores or a size family such as
// standardDSv3Family, in any case; another one is refused with the known ones.
func (s *Server) SetQuota(scope string, limit int) error {
	for _, known := range scopes() {
		if strings.EqualFold(known, scope) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.quotas[known] = limit
			s.changed(nil)
			return nil
		}
	}
	return &control.NotFoundError{Message: "no quota " + scope + "; there are " + strings.Join(scopes(), ", ")}
}

// Quotas lists the limits and their use in the configured location.
func (s *Server) Quotas() []Quota {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.used(s.cfg.Location)
	var out []Quota
	for _, scope := range scopes() {
		out = append(out, Quota{Scope: scope, Location: s.cfg.Location, Limit: s.limit(scope), Used: used[strings.ToLower(scope)]})
	}
	return out
}

// Fail makes calls fail; see Fault. An unknown operation is refused.
func (s *Server) Fail(f Fault) error {
	if e := checkOp(f.Op); e != nil {
		return e
	}
	if f.Count == 0 {
		f.Count = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	return nil
}

func checkOp(op string) error {
	if slices.ContainsFunc(Ops(), func(known string) bool { return matches(op, known) }) {
		return nil
	}
	return &control.NotFoundError{Message: "no operation " + op + "; there are " + strings.Join(Ops(), ", ")}
}

// Faults lists the faults that are still to come.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Fault, 0, len(s.faults))
	for _, f := range s.faults {
		out = append(out, *f)
	}
	return out
}

// ClearFaults forgets every fault and every delay.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	clear(s.slow)
}

// Slow delays every call of an operation; 0 removes the delay.
func (s *Server) Slow(op string, d time.Duration) error {
	if e := checkOp(op); e != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d <= 0 {
		delete(s.slow, op)
		return nil
	}
	s.slow[op] = d
	return nil
}

// Requests counts the calls so far by operation.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.requests)
}

// Ignored counts the read-only fields that callers sent, by type and path.
func (s *Server) Ignored() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ignored)
}

// SetClientSecret replaces the secret, as a rotation does. Tokens already
// issued stay valid; see RevokeTokens.
func (s *Server) SetClientSecret(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret = secret
}

// RevokeTokens makes every token issued so far invalid.
func (s *Server) RevokeTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokenEpoch = s.cfg.Clock.Now()
}

// VMs lists the VMs by name.
func (s *Server) VMs() []VM {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	var out []VM
	for _, r := range s.sorted(kindVM) {
		out = append(out, s.vmOf(r))
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// named finds a VM by name, whatever its group; lock held.
func (s *Server) named(name string) (*resource, error) {
	var names []string
	for _, r := range s.sorted(kindVM) {
		if strings.EqualFold(r.name(), name) {
			return r, nil
		}
		names = append(names, r.name())
	}
	return nil, &control.NotFoundError{Message: "no VM " + name + "; there are: " + strings.Join(names, ", ")}
}

// StartVM turns a VM on behind everybody's back.
func (s *Server) StartVM(name string) error { return s.power(name, doStart) }

// StopVM deallocates a VM behind everybody's back.
func (s *Server) StopVM(name string) error { return s.power(name, doDeallocate) }

func (s *Server) power(name, do string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	r, err := s.named(name)
	if err != nil {
		return err
	}
	if e := s.powerAllowed(r, do); e != nil {
		return e
	}
	s.startPower(r, do, nil)
	return nil
}

// DeleteVM deletes a VM behind everybody's back, as somebody in the portal
// would: its interfaces and disks stay, unless they go with the VM.
func (s *Server) DeleteVM(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	r, err := s.named(name)
	if err != nil || r.state() == stateDeleting {
		return err
	}
	s.startRemoval(r, nil)
	return nil
}

// GuestPower notes that the machine with that UUID turned itself off, or came
// back. Machines is not told, since it knows.
func (s *Server) GuestPower(vmID string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.resources {
		if r.Kind != kindVM || str(r.Doc, "properties", "vmId") != vmID || !r.Born {
			continue
		}
		r.Power = PowerStopped
		if on {
			r.Power = PowerRunning
		}
		s.changed(r)
	}
}

// Resource is one line of a Snapshot.
type Resource struct {
	ID, Kind, Name, State string
	Tags                  map[string]string
	// Owner is the VM that holds a disk or an interface; empty: nobody does.
	Owner string
}

// Snapshot lists every resource by id.
func (s *Server) Snapshot() []Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	var out []Resource
	for _, r := range s.sorted("") {
		line := Resource{ID: r.id(), Kind: r.Kind, Name: r.name(), State: r.state(), Owner: str(r.Doc, "managedBy"), Tags: map[string]string{}}
		if r.Kind == kindNIC {
			line.Owner = str(r.Doc, "properties", "virtualMachine", "id")
		}
		for k := range sub(r.Doc, "tags") {
			line.Tags[k] = str(r.Doc, "tags", k)
		}
		out = append(out, line)
	}
	return out
}
