package arm

import (
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

// listPage is how many resources one page of a list holds.
const listPage = 500

func (s *Server) groupID(name string) string {
	return "/subscriptions/" + s.cfg.SubscriptionID + "/resourceGroups/" + name
}

func (s *Server) groupKey(name string) string { return lower(s.groupID(name)) }

// idOf builds the identifier of the resource that a call addresses.
func (s *Server) idOf(c *call) string {
	group := c.route.group
	if g := s.resources[s.groupKey(group)]; g != nil {
		group = g.name()
	}
	types := strings.Split(c.kind.typ, "/")
	id := s.groupID(group) + "/providers/" + types[0]
	for i, n := range c.names() {
		id += "/" + types[i+1] + "/" + n
	}
	return id
}

func (s *Server) find(c *call) *resource { return s.resources[lower(s.idOf(c))] }

// sorted returns the resources of a kind by id; empty is every kind.
func (s *Server) sorted(kindName string) []*resource {
	var out []*resource
	for _, r := range s.resources {
		if kindName == "" || r.Kind == kindName {
			out = append(out, r)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].id() < out[j].id() })
	return out
}

// under returns what a list call asks for.
func (s *Server) under(c *call, k *kind) []*resource {
	prefix := lower("/subscriptions/" + s.cfg.SubscriptionID)
	if c.route.group != "" {
		prefix = s.groupKey(c.route.group)
	}
	if k != nil && len(c.route.parts) > 1 {
		prefix = lower(c.route.path[:strings.LastIndexByte(c.route.path, '/')])
	}
	var out []*resource
	for _, r := range s.sorted("") {
		if r.Kind == kindGroup || (k != nil && r.kind != k) {
			continue
		}
		if strings.HasPrefix(lower(r.id()), prefix+"/") {
			out = append(out, r)
		}
	}
	return out
}

func (s *Server) list(c *call) {
	if c.kind.embedded != "" {
		s.listEmbedded(c)
		return
	}
	s.answerList(c, s.under(c, c.kind))
}

// answerList writes one page and the link to the next.
func (s *Server) answerList(c *call, rs []*resource) {
	from, _ := strconv.Atoi(c.query.Get("$skiptoken"))
	if from < 0 || from > len(rs) {
		from = len(rs)
	}
	value := []any{}
	to := min(from+listPage, len(rs))
	for _, r := range rs[from:to] {
		value = append(value, s.render(r, ""))
	}
	body := object{"value": value}
	if to < len(rs) {
		q := url.Values{}
		for k, v := range c.query {
			q[k] = v
		}
		q.Set("$skiptoken", strconv.Itoa(to))
		body["nextLink"] = "https://" + c.r.Host + c.r.URL.Path + "?" + q.Encode()
	}
	c.answer(http.StatusOK, body)
}

// render is the resource as a GET shows it: complete, without secrets.
func (s *Server) render(r *resource, expand string) object {
	switch r.Kind {
	case kindVM:
		return s.renderVM(r, expand)
	case kindSet:
		return s.renderSet(r)
	case kindLB:
		return s.renderLB(r)
	}
	return r.Doc
}

// putResource creates or replaces one resource.
func (s *Server) putResource(c *call) {
	old := s.find(c)
	if e := s.checkPut(c, old); e != nil {
		c.fail(e)
		return
	}
	s.store(c, old, c.body)
}

// store takes a checked body; PUT and PATCH end here.
func (s *Server) store(c *call, old *resource, doc object) {
	s.stamp(c, old, doc)
	var done commit
	if prepare := s.hooks(c.kind).prepare; prepare != nil {
		var e *Error
		if done, e = prepare(c, old, doc); e != nil {
			c.fail(e)
			return
		}
	}
	r := old
	if r == nil {
		r = &resource{Kind: c.kind.name, kind: c.kind}
		s.resources[lower(str(doc, "id"))] = r
	}
	r.Doc = doc
	s.touch(r)
	if done != nil {
		done(r)
	}
	status := http.StatusOK
	if old == nil {
		status = http.StatusCreated
	}
	if !c.kind.slow {
		if c.kind.name == kindSet {
			status = http.StatusOK
		}
		put(doc, stateSucceeded, "properties", "provisioningState")
		s.changed(r)
		c.answer(status, s.render(r, ""))
		return
	}
	delay, state := s.cfg.CreateDelay/4, stateUpdating
	if old == nil {
		state = stateCreating
		if r.Kind == kindVM {
			delay = s.cfg.CreateDelay
		}
	}
	put(doc, state, "properties", "provisioningState")
	var failure *Error
	if c.fault != nil {
		failure = c.fault.error()
	}
	s.promise(c, s.begin(doProvision, r, delay, failure), r.Kind == kindDisk)
	if r.Kind == kindDisk {
		status = http.StatusAccepted
	}
	c.answer(status, s.render(r, ""))
}

// checkPut checks what is the same for every kind.
func (s *Server) checkPut(c *call, old *resource) *Error {
	if e := checkName(c); e != nil {
		return e
	}
	if p := parentID(s.idOf(c)); len(c.route.parts) > 2 && s.resources[lower(p)] == nil {
		return fail(http.StatusNotFound, "ParentResourceNotFound", "Failed to perform 'write' on resource(s) of type '"+strings.TrimPrefix(c.kind.typ, c.route.provider+"/")+"', because the parent resource '"+p+"' could not be found.")
	}
	if c.kind.fields != "" {
		ignored, e := checkFields(c.kind.fields, c.body)
		for _, f := range ignored {
			s.ignored[c.kind.typ+" "+f]++
		}
		if e != nil {
			return e
		}
	}
	if e := s.checkLocation(c, old); e != nil {
		return e
	}
	return s.checkMatch(c, old)
}

func (s *Server) checkLocation(c *call, old *resource) *Error {
	if c.kind.untracked {
		return nil
	}
	loc := strings.ToLower(strings.ReplaceAll(str(c.body, "location"), " ", ""))
	if loc == "" {
		return fail(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	if regionNamed(loc) == nil {
		return fail(http.StatusBadRequest, "LocationNotAvailableForResourceType", "The provided location '"+loc+"' is not available for resource type '"+c.kind.typ+"'. List of available regions for the resource type is '"+strings.Join(regionNames(), ",")+"'.")
	}
	if old != nil && old.location() != loc {
		return fail(http.StatusConflict, "InvalidResourceLocation", "The resource '"+old.name()+"' already exists in location '"+old.location()+"' in resource group '"+c.route.group+"'. A resource with the same name cannot be created in location '"+loc+"'. Please select a new resource name.")
	}
	c.body["location"] = loc
	return nil
}

// checkMatch honours If-Match and If-None-Match and refuses to write what is
// being deleted.
func (s *Server) checkMatch(c *call, old *resource) *Error {
	failed := fail(http.StatusPreconditionFailed, "PreconditionFailed", "The condition specified using HTTP conditional header(s) is not met.")
	if c.r.Header.Get("If-None-Match") == "*" && old != nil {
		return failed
	}
	if m := c.r.Header.Get("If-Match"); m != "" && (old == nil || (m != "*" && m != str(old.Doc, "etag"))) {
		return failed
	}
	if old != nil && old.state() == stateDeleting {
		return conflict()
	}
	return nil
}

func conflict() *Error {
	return fail(http.StatusConflict, "Conflict", "The request failed due to conflict with a concurrent request. To resolve it, please refer to https://aka.ms/activitylog to get more details on the conflicting requests.")
}

func checkName(c *call) *Error {
	name := c.route.last()
	limit := 80
	if c.kind.name == kindVM {
		limit = 64
	}
	if len(name) > limit {
		return fail(http.StatusBadRequest, "InvalidResourceName", "Resource name "+name+" is invalid. The name can be up to "+strconv.Itoa(limit)+" characters long. It must begin with a word character, and it must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'.")
	}
	return nil
}

// stamp fills the identity of a document.
func (s *Server) stamp(c *call, old *resource, doc object) {
	doc["id"], doc["name"], doc["type"] = s.idOf(c), c.route.last(), c.kind.typ
	if old != nil {
		doc["id"], doc["name"] = old.id(), old.name()
	}
	if sub(doc, "properties") == nil {
		doc["properties"] = object{}
	}
}

// touch gives a changed resource a new etag.
func (s *Server) touch(r *resource) {
	s.serial++
	r.Doc["etag"] = `"` + strconv.FormatUint(s.serial, 10) + `"`
	s.changed(r)
}

// patchTags merges a PATCH into the resource. Tags alone change at once.
func (s *Server) patchTags(c *call) {
	old := s.find(c)
	if old == nil {
		c.fail(s.notFound(c))
		return
	}
	if e := s.checkMatch(c, old); e != nil {
		c.fail(e)
		return
	}
	if sub(c.body, "properties") == nil && c.body["identity"] == nil {
		if tags, ok := c.body["tags"].(object); ok {
			old.Doc["tags"] = tags
			s.touch(old)
		}
		c.answer(http.StatusOK, s.render(old, ""))
		return
	}
	doc := clone(old.Doc)
	merge(doc, c.body)
	if c.kind.fields != "" {
		if _, e := checkFields(c.kind.fields, doc); e != nil {
			c.fail(e)
			return
		}
	}
	s.store(c, old, doc)
}

// merge overlays b on a; tags are replaced, as the service does.
func merge(a, b object) {
	for k, v := range b {
		inner, isObject := v.(object)
		if current, ok := a[k].(object); ok && isObject && k != "tags" {
			merge(current, inner)
			continue
		}
		a[k] = v
	}
}

func (s *Server) deleteResource(c *call) {
	r := s.find(c)
	if r == nil {
		c.answer(http.StatusNoContent, nil)
		return
	}
	if r.state() == stateDeleting {
		if op := s.running(r); op != nil {
			s.promise(c, op, true)
		}
		c.answer(http.StatusAccepted, nil)
		return
	}
	if held := s.hooks(c.kind).held; held != nil {
		if e := held(r); e != nil {
			c.fail(e)
			return
		}
	}
	if !c.kind.slow {
		s.remove(r)
		c.answer(http.StatusOK, nil)
		return
	}
	var failure *Error
	if c.fault != nil {
		failure = c.fault.error()
	}
	s.promise(c, s.startRemoval(r, failure), true)
	c.answer(http.StatusAccepted, nil)
}

// startRemoval begins the deletion of a slow resource; lock held.
func (s *Server) startRemoval(r *resource, failure *Error) *operation {
	s.preempt(r)
	put(r.Doc, stateDeleting, "properties", "provisioningState")
	delay := s.cfg.DeleteDelay
	if r.Kind != kindVM {
		delay /= 4
	}
	return s.begin(doRemove, r, delay, failure)
}

// hasChildren refuses to delete a parent of separately stored resources.
func (s *Server) hasChildren(r *resource) *Error {
	for id := range s.resources {
		if strings.HasPrefix(id, lower(r.id())+"/") {
			return fail(http.StatusConflict, "CannotDeleteResource", "Cannot delete resource while nested resources exist. Some existing nested resource IDs include: '"+id+"'. Please delete all nested resources before deleting this resource.")
		}
	}
	return nil
}

func stamped(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.0000000+00:00") }
