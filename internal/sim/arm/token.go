package arm

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// serveToken plays the authority: instance discovery, OpenID configuration and
// the client-credentials grant.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	c := &call{w: w, r: r, query: r.URL.Query()}
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	host := "https://" + r.Host + "/"
	switch {
	case r.URL.Path == "/common/discovery/instance":
		tenant := s.cfg.TenantID
		if e := c.query.Get("authorization_endpoint"); e != "" {
			if q := strings.Split(strings.TrimPrefix(e, host), "/"); len(q) > 1 {
				tenant = q[0]
			}
		}
		c.answer(http.StatusOK, object{
			"tenant_discovery_endpoint": host + tenant + "/v2.0/.well-known/openid-configuration", "api-version": "1.1",
			"metadata": []any{object{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []any{r.Host}}},
		})
	case len(p) >= 3 && strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		if e := s.checkTenant(p[0]); e != nil {
			c.answer(http.StatusBadRequest, e)
			return
		}
		c.answer(http.StatusOK, object{
			"token_endpoint":         host + p[0] + "/oauth2/v2.0/token",
			"authorization_endpoint": host + p[0] + "/oauth2/v2.0/authorize",
			"issuer":                 host + p[0] + "/v2.0",
			"jwks_uri":               host + p[0] + "/discovery/v2.0/keys",
		})
	case len(p) >= 3 && p[1] == "oauth2" && p[len(p)-1] == "token":
		s.grant(c, p[0])
	default:
		c.fail(fail(http.StatusNotFound, "NotFound", "No resource provider answers '"+r.URL.Path+"'."))
	}
}

func (s *Server) checkTenant(tenant string) object {
	if strings.EqualFold(tenant, s.cfg.TenantID) {
		return nil
	}
	return s.tokenError("invalid_request", 90002, "Tenant '"+tenant+"' not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud. Check with your subscription administrator, this may happen if there are no active subscriptions for the tenant.")
}

func (s *Server) tokenError(kind string, code int, text string) object {
	trace, correlation := s.uuid(), s.uuid()
	at := s.cfg.Clock.Now().UTC().Format("2006-01-02 15:04:05Z")
	return object{
		"error": kind, "error_codes": []any{code}, "timestamp": at, "trace_id": trace, "correlation_id": correlation,
		"error_description": fmt.Sprintf("AADSTS%d: %s Trace ID: %s Correlation ID: %s Timestamp: %s", code, text, trace, correlation, at),
		"error_uri":         fmt.Sprintf("https://login.microsoftonline.com/error?code=%d", code),
	}
}

func (s *Server) grant(c *call, tenant string) {
	s.count("token")
	s.mu.Lock()
	f, secret := s.takeFault("token"), s.secret
	s.mu.Unlock()
	if f != nil {
		e := f.error()
		retryAfter(c.w.Header(), e.RetryAfter)
		c.answer(e.Status, object{"error": e.Code, "error_description": e.Message})
		return
	}
	if c.r.Method != http.MethodPost {
		c.fail(fail(http.StatusMethodNotAllowed, "HttpMethodNotAllowed", "Use POST."))
		return
	}
	if e := s.checkTenant(tenant); e != nil {
		c.answer(http.StatusBadRequest, e)
		return
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, 64<<10)
	if err := c.r.ParseForm(); err != nil {
		c.answer(http.StatusBadRequest, s.tokenError("invalid_request", 900144, "The request body must contain the following parameter: 'grant_type'."))
		return
	}
	form := c.r.PostForm
	id, given := form.Get("client_id"), form.Get("client_secret")
	if user, pass, ok := c.r.BasicAuth(); ok {
		id, given = user, pass
	}
	switch {
	case form.Get("grant_type") != "client_credentials":
		c.answer(http.StatusBadRequest, s.tokenError("unsupported_grant_type", 70003, "The app requested an unsupported grant type '"+form.Get("grant_type")+"'."))
	case !strings.EqualFold(id, s.cfg.ClientID):
		c.answer(http.StatusBadRequest, s.tokenError("unauthorized_client", 700016, "Application with identifier '"+id+"' was not found in the directory '"+tenant+"'. This can happen if the application has not been installed by the administrator of the tenant or consented to by any user in the tenant."))
	case subtle.ConstantTimeCompare([]byte(given), []byte(secret)) != 1:
		c.answer(http.StatusUnauthorized, s.tokenError("invalid_client", 7000215, "Invalid client secret provided. Ensure the secret being sent in the request is the client secret value, not the client secret ID, for a secret added to app '"+id+"'."))
	default:
		ttl := int(s.cfg.TokenTTL / time.Second)
		c.answer(http.StatusOK, object{"token_type": "Bearer", "expires_in": ttl, "ext_expires_in": ttl, "access_token": s.issue()})
	}
}

type claims struct {
	Tenant  string `json:"tid"`
	App     string `json:"appid"`
	Issued  int64  `json:"iat"`
	Expires int64  `json:"exp"` // both in nanoseconds: short lives are needed in tests
	ID      string `json:"uti"`
}

// issue makes a token that this server, also after a restart, accepts.
func (s *Server) issue() string {
	now := s.cfg.Clock.Now()
	b, err := json.Marshal(claims{s.cfg.TenantID, s.cfg.ClientID, now.UnixNano(), now.Add(s.cfg.TokenTTL).UnixNano(), s.uuid()})
	if err != nil {
		panic("claims always encode: " + err.Error())
	}
	enc := base64.RawURLEncoding
	head := enc.EncodeToString([]byte(`{"typ":"JWT","alg":"HS256"}`)) + "." + enc.EncodeToString(b)
	return head + "." + enc.EncodeToString(s.sign(head))
}

func (s *Server) sign(head string) []byte {
	m := hmac.New(sha256.New, s.signingKey)
	m.Write([]byte(head))
	return m.Sum(nil)
}

// authenticate checks the bearer token.
func (s *Server) authenticate(c *call) *Error {
	e := s.checkToken(c.r.Header.Get("Authorization"))
	if e != nil {
		c.w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer authorization_uri="https://%s/%s", error="invalid_token", error_description="%s"`, c.r.Host, s.cfg.TenantID, e.Message))
	}
	return e
}

func (s *Server) checkToken(header string) *Error {
	if header == "" {
		return fail(http.StatusUnauthorized, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
	}
	invalid := fail(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return fail(http.StatusUnauthorized, "AuthenticationFailedInvalidHeader", "Authentication failed. The 'Authorization' header is provided in an invalid format.")
	}
	cut := strings.LastIndexByte(token, '.')
	if cut < 0 {
		return invalid
	}
	mac, err := base64.RawURLEncoding.DecodeString(token[cut+1:])
	if err != nil || !hmac.Equal(mac, s.sign(token[:cut])) {
		return invalid
	}
	_, payload, _ := strings.Cut(token[:cut], ".")
	b, err := base64.RawURLEncoding.DecodeString(payload)
	var cl claims
	if err != nil || json.Unmarshal(b, &cl) != nil {
		return invalid
	}
	now := s.cfg.Clock.Now()
	if end := time.Unix(0, cl.Expires); !now.Before(end) {
		const layout = "1/2/2006 3:04:05 PM"
		return fail(http.StatusUnauthorized, "ExpiredAuthenticationToken", "The access token expiry UTC time '"+end.UTC().Format(layout)+"' is earlier than current UTC time '"+now.UTC().Format(layout)+"'.")
	}
	s.mu.Lock()
	revoked := time.Unix(0, cl.Issued).Before(s.tokenEpoch)
	s.mu.Unlock()
	if revoked {
		return invalid
	}
	return nil
}

// uuid makes a random version 4 UUID.
func (s *Server) uuid() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("the system's random source failed: " + err.Error())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
