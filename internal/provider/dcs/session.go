package dcs

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"millwright.io/millwright/internal/cloud"
)

const (
	// loginPause keeps away from an account after a refusal: each attempt
	// starts a lock anew.
	loginPause = 5 * time.Minute
	// loginWindow is how long the refusals of an account count.
	loginWindow = time.Hour
)

// versions of the API that we ask for, the best first.
var versions = []string{"8.1", "8.0", "6.5"}

// session is the login of one account. One goroutine logs in, the others wait
// for it; a refusal is remembered, so that nobody knocks again too early.
type session struct {
	user, key cloud.Secret
	userType  string
	max       int // refused logins in loginWindow
	clk       clock.PassiveClock

	turn    chan struct{} // held while logging in
	token   string
	version int
	refused []time.Time
	until   time.Time
	why     *cloud.Fault
}

// get returns a token other than stale.
func (s *session) get(ctx context.Context, c *client, stale string) (token, version string, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", "", unreachable("log in", ctx.Err())
	}
	if s.token != "" && s.token != stale {
		return s.token, versions[s.version], nil
	}
	s.token = ""
	if left := s.until.Sub(s.clk.Now()); left > 0 {
		f := *s.why
		f.RetryAfter = left
		return "", "", &f
	}
	for ; s.version < len(versions); s.version++ {
		s.token, err = s.login(ctx, c)
		if reason(err) != codeVersion {
			break
		}
	}
	if s.version == len(versions) {
		s.version = 0
		err = s.refuse(&cloud.Fault{Kind: cloud.Invalid, Op: "log in", Reason: "ApiVersionUnsupported", Message: "log in: VRM accepts none of the API versions 8.1, 8.0 and 6.5"}, false)
	}
	return s.token, versions[s.version], err
}

func (s *session) login(ctx context.Context, c *client) (string, error) {
	h := headers(versions[s.version])
	h.Set("X-Auth-User", string(s.user))
	h.Set("X-Auth-Key", string(s.key))
	h.Set("X-ENCRYPT-ALGORITHM", "1")
	h.Set("X-Auth-UserType", userTypes[s.userType])
	got, _, err := c.send(ctx, "log in", http.MethodPost, c.base+"/service/session", h, []byte("{}"))
	if err == nil {
		if token := got.Get("X-Auth-Token"); token != "" {
			s.refused, s.why = nil, nil
			return token, nil
		}
		return "", &cloud.Fault{Kind: cloud.Transient, Op: "log in", Reason: "BadAnswer", Message: "log in: the answer has no X-Auth-Token"}
	}
	f := cloud.FaultOf(err)
	switch {
	case f.Reason == codeVersion, f.Reason == "SiteUnreachable", f.Kind == cloud.Throttled, f.Kind == cloud.Transient:
		return "", f
	case f.Reason == codeLicence:
		return "", s.refuse(f, false)
	case f.Reason == codeLocked:
		f.Message = "log in: the account is locked (" + codeLocked + "); nothing is tried for 5 minutes; use an account of its own"
	default:
		f.Message = "log in: VRM refuses user name or password, or wants the password changed first: " + f.Message
	}
	f.Kind = cloud.Credentials
	return "", s.refuse(f, true)
}

// refuse remembers a fault and when to try again: after a pause, and not more
// than max times in the window.
func (s *session) refuse(f *cloud.Fault, counts bool) error {
	now := s.clk.Now()
	s.why, s.until = f, now.Add(loginPause)
	if counts {
		s.refused = append(s.refused, now)
		if n := len(s.refused) - s.max; n >= 0 {
			if end := s.refused[n].Add(loginWindow); end.After(s.until) {
				s.until = end
			}
			s.refused = s.refused[n:]
		}
	}
	out := *f
	out.RetryAfter = s.until.Sub(now)
	return &out
}

// named says what a login was for.
func named(op string, err error) error {
	var f *cloud.Fault
	if !errors.As(err, &f) {
		return err
	}
	g := *f
	g.Op = op
	return &g
}
