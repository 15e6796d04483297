package arm

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Operation results are kept this long for pollers that come late.
const operationMemory = time.Hour

// What an operation does when it is due.
const (
	doProvision  = "provision" // the resource is ready
	doRemove     = "remove"
	doStart      = "start"
	doPowerOff   = "powerOff"
	doDeallocate = "deallocate"
	doRestart    = "restart"
)

const (
	stateCreating  = "Creating"
	stateUpdating  = "Updating"
	stateDeleting  = "Deleting"
	stateSucceeded = "Succeeded"
	stateFailed    = "Failed"
)

// begin starts a long operation; lock held. failure, if any, is its end.
func (s *Server) begin(do string, r *resource, delay time.Duration, failure *Error) *operation {
	now := s.cfg.Clock.Now()
	loc := r.location()
	if loc == "" {
		loc = s.cfg.Location
	}
	op := &operation{ID: s.uuid(), Do: do, Resource: lower(r.id()), Location: loc, Started: now, Due: now.Add(delay), Status: "InProgress", Error: failure}
	s.operations[op.ID], s.active[op.ID] = op, op
	s.changed(r)
	return op
}

// settle finishes what is due and returns how long until the next is; 0 when
// nothing runs. Lock held.
func (s *Server) settle() time.Duration {
	now := s.cfg.Clock.Now()
	var next time.Duration
	var due []*operation
	for _, op := range s.active {
		left := op.Due.Sub(now)
		if left <= 0 {
			due = append(due, op)
		} else if next == 0 || left < next {
			next = left
		}
	}
	slices.SortFunc(due, func(a, b *operation) int { return a.Due.Compare(b.Due) })
	for _, op := range due {
		s.finish(op, now)
	}
	return next
}

// forget drops results that nobody will ask for any more; lock held.
func (s *Server) forget() {
	now := s.cfg.Clock.Now()
	for id, op := range s.operations {
		if op.Status != "InProgress" && now.Sub(op.Ended) > operationMemory {
			delete(s.operations, id)
			s.dirty = true
		}
	}
}

func (s *Server) finish(op *operation, now time.Time) {
	delete(s.active, op.ID)
	op.Status, op.Ended = stateSucceeded, now
	r := s.resources[op.Resource]
	if op.Error != nil {
		op.Status = stateFailed
	}
	if r == nil {
		s.changed(nil)
		return
	}
	defer s.changed(r)
	if op.Error != nil {
		r.Failure = op.Error
		r.Power = r.Power.undone()
		put(r.Doc, stateFailed, "properties", "provisioningState")
		return
	}
	switch op.Do {
	case doRemove:
		s.remove(r)
		return
	case doProvision:
		if r.Kind == kindVM {
			s.provisioned(r)
		}
	default:
		s.powered(r, op.Do)
	}
	r.Failure = nil
	put(r.Doc, stateSucceeded, "properties", "provisioningState")
}

// running returns the operation that works on a resource, if any.
func (s *Server) running(r *resource) *operation {
	id := lower(r.id())
	var last *operation
	for _, op := range s.active {
		if op.Resource == id && (last == nil || op.Started.After(last.Started)) {
			last = op
		}
	}
	return last
}

// preempt ends the running operations of a resource, as a deletion does.
func (s *Server) preempt(r *resource) {
	id, now := lower(r.id()), s.cfg.Clock.Now()
	for _, op := range s.active {
		if op.Resource == id {
			delete(s.active, op.ID)
			op.Status, op.Ended = stateFailed, now
			op.Error = fail(http.StatusConflict, "OperationPreempted", "Operation execution has been preempted by a more recent operation.")
		}
	}
}

// promise writes the headers by which a client follows an operation.
func (s *Server) promise(c *call, op *operation, withLocation bool) {
	base := fmt.Sprintf("https://%s/subscriptions/%s/providers/%s/locations/%s", c.r.Host, s.cfg.SubscriptionID, c.route.namespace(), op.Location)
	q := "?api-version=" + c.apiVersion
	h := c.w.Header()
	h.Set("Azure-AsyncOperation", base+"/operations/"+op.ID+q)
	if withLocation {
		h.Set("Location", base+"/operationResults/"+op.ID+q)
	}
	retryAfter(h, op.Due.Sub(s.cfg.Clock.Now()))
}

// retryAfter tells when to come again: whole seconds for everybody, and
// milliseconds when it is sooner than that.
func retryAfter(h http.Header, d time.Duration) {
	switch {
	case d <= 0:
	case d < time.Second:
		h.Set("Retry-After-Ms", strconv.FormatInt(max(d.Milliseconds(), 1), 10))
	default:
		h.Set("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
	}
}

// getOperation answers Azure-AsyncOperation polls.
func (s *Server) getOperation(c *call) {
	op := s.operations[c.route.last()]
	if op == nil {
		c.fail(fail(http.StatusNotFound, "NotFound", "The operation '"+c.route.last()+"' was not found."))
		return
	}
	body := object{"name": op.ID, "startTime": op.Started.UTC().Format(time.RFC3339Nano), "status": op.Status}
	if !op.Ended.IsZero() {
		body["endTime"] = op.Ended.UTC().Format(time.RFC3339Nano)
	}
	if op.Error != nil && op.Status == stateFailed {
		body["error"] = op.Error.body()
	}
	if op.Status == "InProgress" {
		retryAfter(c.w.Header(), op.Due.Sub(s.cfg.Clock.Now()))
	}
	c.answer(http.StatusOK, body)
}

// getOperationResult answers Location polls.
func (s *Server) getOperationResult(c *call) {
	op := s.operations[c.route.last()]
	switch {
	case op == nil:
		c.fail(fail(http.StatusNotFound, "NotFound", "The operation '"+c.route.last()+"' was not found."))
	case op.Status == "InProgress":
		c.w.Header().Set("Location", "https://"+c.r.Host+c.r.URL.RequestURI())
		retryAfter(c.w.Header(), op.Due.Sub(s.cfg.Clock.Now()))
		c.answer(http.StatusAccepted, nil)
	case op.Status == stateFailed && op.Error != nil:
		c.fail(op.Error)
	default:
		c.answer(http.StatusNoContent, nil)
	}
}

// remove takes a resource out of the state and frees what it held.
func (s *Server) remove(r *resource) {
	id := lower(r.id())
	delete(s.resources, id)
	switch r.Kind {
	case kindVM:
		s.vmGone(r)
	case kindNIC, kindLB:
		s.freeAddresses(id)
	case kindGroup:
		s.emptyGroup(r)
	}
	s.changed(nil)
}
