package vrm

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// version reads the API version out of an Accept header.
func version(accept string) string {
	for part := range strings.SplitSeq(accept, ";") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(part), "version="); ok {
			return strings.TrimPrefix(v, "v")
		}
	}
	return ""
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	defer s.leave()
	if e := s.enter(r, "session.create"); e != nil {
		refuse(w, e)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.takeFault("session.create"); f != nil {
		refuse(w, f.error())
		return
	}
	if e := s.checkLogin(r); e != nil {
		refuse(w, e)
		return
	}
	token := rand.Text()
	s.sessions[token] = s.cfg.Clock.Now()
	w.Header().Set("X-Auth-Token", token)
	answer(w, http.StatusOK, object{"validity": "600000", "userName": s.cfg.User, "userId": "1", "privilegeIds": []string{}})
}

// checkLogin judges a login; lock held.
func (s *Server) checkLogin(r *http.Request) *Error {
	if v := version(r.Header.Get("Accept")); !slices.Contains(s.cfg.Versions, v) {
		return &Error{Status: http.StatusBadRequest, Code: codeVersion, Des: "The version " + v + " is not supported."}
	}
	now := s.cfg.Clock.Now()
	lock := &Error{Status: http.StatusForbidden, Code: codeLocked, Des: "The user is locked."}
	if now.Before(s.locked) {
		s.locked = now.Add(s.cfg.LockTime)
		return lock
	}
	key := s.cfg.Password
	algorithm := r.Header.Get("X-ENCRYPT-ALGORITHM")
	if algorithm == "" {
		algorithm = r.Header.Get("X-ENCRIPT-ALGORITHM")
	}
	if algorithm != "1" {
		sum := sha256.Sum256([]byte(key))
		key = hex.EncodeToString(sum[:])
	}
	h := r.Header
	if h.Get("X-Auth-User") == s.cfg.User && h.Get("X-Auth-Key") == key && h.Get("X-Auth-UserType") == s.cfg.UserType {
		s.failed = 0
		return nil
	}
	if s.failed++; s.failed >= s.cfg.Lockout {
		s.locked, s.failed = now.Add(s.cfg.LockTime), 0
		return lock
	}
	return &Error{Status: http.StatusUnauthorized, Code: codePassword, Des: "The user name or password is incorrect."}
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, r.Header.Get("X-Auth-Token"))
	answer(w, http.StatusOK, object{})
}

// authorized checks and renews the session; lock held.
func (s *Server) authorized(r *http.Request) *Error {
	token, now := r.Header.Get("X-Auth-Token"), s.cfg.Clock.Now()
	used, ok := s.sessions[token]
	if ok && now.Sub(used) < s.cfg.TokenIdle {
		s.sessions[token] = now
		return nil
	}
	delete(s.sessions, token)
	e := &Error{Status: http.StatusUnauthorized, Code: codeNoSession, Des: "The user is not logged in or the session has expired."}
	if s.expiry {
		e.Status = http.StatusOK
	}
	return e
}
