package arm

import (
	"net/http"
	"strings"
)

// serveGroup serves resource groups themselves.
func (s *Server) serveGroup(c *call) {
	c.kind = kindNamed(kindGroup)
	if c.route.group == "" {
		if c.r.Method != http.MethodGet {
			c.fail(methodNotAllowed(c))
			return
		}
		s.answerList(c, s.sorted(kindGroup))
		return
	}
	old := s.resources[s.groupKey(c.route.group)]
	if old == nil && c.r.Method != http.MethodPut {
		if c.r.Method == http.MethodHead {
			c.answer(http.StatusNotFound, nil)
			return
		}
		c.fail(groupNotFound(c.route.group))
		return
	}
	switch {
	case strings.EqualFold(c.route.last(), "resources") && c.r.Method == http.MethodGet:
		s.answerList(c, s.under(c, nil))
	case len(c.route.parts) > 0:
		c.fail(invalidType(c))
	default:
		s.serveOneGroup(c, old)
	}
}

func (s *Server) serveOneGroup(c *call, old *resource) {
	switch c.r.Method {
	case http.MethodHead:
		c.answer(http.StatusNoContent, nil)
	case http.MethodGet:
		c.answer(http.StatusOK, old.Doc)
	case http.MethodPut:
		if e := s.checkLocation(c, old); e != nil {
			c.fail(e)
			return
		}
		status := http.StatusOK
		if old == nil {
			status = http.StatusCreated
		}
		c.answer(status, s.putGroup(c.route.group, c.body).Doc)
	case http.MethodPatch:
		if tags, ok := c.body["tags"].(object); ok {
			old.Doc["tags"] = tags
			s.changed(old)
		}
		c.answer(http.StatusOK, old.Doc)
	case http.MethodDelete:
		put(old.Doc, stateDeleting, "properties", "provisioningState")
		s.promise(c, s.begin(doRemove, old, s.cfg.DeleteDelay, nil), true)
		c.answer(http.StatusAccepted, nil)
	default:
		c.fail(methodNotAllowed(c))
	}
}

func (s *Server) putGroup(name string, body object) *resource {
	r := s.resources[s.groupKey(name)]
	if r == nil {
		r = &resource{Kind: kindGroup, kind: kindNamed(kindGroup)}
		s.resources[s.groupKey(name)] = r
	} else {
		name = r.name()
	}
	r.Doc = object{
		"id": s.groupID(name), "name": name, "type": "Microsoft.Resources/resourceGroups", "location": body["location"],
		"properties": object{"provisioningState": stateSucceeded},
	}
	if tags, ok := body["tags"].(object); ok {
		r.Doc["tags"] = tags
	}
	s.changed(r)
	return r
}

// emptyGroup removes what a deleted group held, VMs first.
func (s *Server) emptyGroup(g *resource) {
	prefix := lower(g.id()) + "/"
	for _, name := range []string{kindVM, kindNIC, ""} {
		for _, r := range s.sorted(name) {
			if strings.HasPrefix(lower(r.id()), prefix) {
				s.preempt(r)
				s.remove(r)
			}
		}
	}
}
