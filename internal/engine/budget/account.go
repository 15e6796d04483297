package budget

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Member is one node of an account, as it is now.
type Member struct {
	Node     string
	Ready    bool
	Cordoned bool
}

// Claim says that somebody is about to take a node out of service, or has
// done so. It is stored in the annotation millwright.io/claims of the
// account's object, written with an optimistic lock before the node is
// touched.
type Claim struct {
	Node  string    `json:"node"`
	By    string    `json:"by"` // kind/name of who claims
	Since time.Time `json:"since"`
}

// maxClaims and maxText bound what a decoder believes.
const (
	maxClaims = 10000
	maxText   = 512
)

// Decode reads the annotation's value; empty means no claims. Of several
// claims on one node the first counts.
func Decode(value string) ([]Claim, error) {
	if value == "" {
		return nil, nil
	}
	var claims []Claim
	if err := json.Unmarshal([]byte(value), &claims); err != nil {
		return nil, fmt.Errorf("decode claims: %w", err)
	}
	if len(claims) > maxClaims {
		return nil, fmt.Errorf("decode claims: %d of them, at most %d", len(claims), maxClaims)
	}
	for _, c := range claims {
		if c.Node == "" || c.By == "" || len(c.Node) > maxText || len(c.By) > maxText {
			return nil, fmt.Errorf("decode claims: a claim needs node and by, each at most %d bytes", maxText)
		}
		if y := c.Since.UTC().Year(); y < 0 || y > 9999 {
			return nil, fmt.Errorf("decode claims: year %d", y)
		}
	}
	return sorted(claims), nil
}

// Encode returns the annotation's value, empty for no claims. Equal sets of
// claims have equal texts.
func Encode(claims []Claim) string {
	if len(claims) == 0 {
		return ""
	}
	claims = sorted(claims)
	for i := range claims {
		claims[i].Since = claims[i].Since.UTC().Truncate(time.Second)
	}
	data, err := json.Marshal(claims)
	if err != nil {
		panic(fmt.Sprintf("encode claims: %v", err)) // strings and decoded times always encode
	}
	return string(data)
}

// sorted returns a copy by node, one claim each.
func sorted(claims []Claim) []Claim {
	out := slices.Clone(claims)
	slices.SortStableFunc(out, func(a, b Claim) int { return strings.Compare(a.Node, b.Node) })
	return slices.CompactFunc(out, func(a, b Claim) bool { return a.Node == b.Node })
}

// Limit is how many members may be unavailable; nil: claims are only
// recorded.
type Limit *int

// Of returns a limit of n.
func Of(n int) Limit { return &n }

// Account is one budget with everything that draws on it.
type Account struct {
	Limit   Limit
	Members []Member
	Claims  []Claim
}

// Unavailable returns the nodes that are out of service or about to be,
// sorted: not ready, cordoned or claimed.
func (a Account) Unavailable() []string {
	var out []string
	for _, m := range a.Members {
		if !m.Ready || m.Cordoned {
			out = append(out, m.Node)
		}
	}
	for _, c := range a.Claims {
		out = append(out, c.Node)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Free returns how many more nodes may be taken out of service, ≥ 0; -1
// without a limit.
func (a Account) Free() int {
	if a.Limit == nil {
		return -1
	}
	return max(0, *a.Limit-len(a.Unavailable()))
}

// Spent is the refusal of a claim: it names what fills the account.
type Spent struct {
	Node        string
	Limit       int
	Unavailable []string
	Claims      []Claim
}

// Error implements error.
func (s *Spent) Error() string {
	by := map[string]string{}
	for _, c := range s.Claims {
		by[c.Node] = " (" + c.By + ")"
	}
	const shown = 5
	var names []string
	for i, n := range s.Unavailable {
		if i == shown {
			names = append(names, fmt.Sprintf("%d more", len(s.Unavailable)-shown))
			break
		}
		names = append(names, n+by[n])
	}
	text := fmt.Sprintf("budget is spent: %d of %d nodes may be unavailable", len(s.Unavailable), s.Limit)
	if len(names) > 0 {
		text += ": " + strings.Join(names, ", ")
	}
	return text
}

// Claim returns the account's claims with one on node. A node that is
// unavailable already costs nothing more: going on with it is always allowed,
// and a claim somebody has on it stays. The error is a *Spent.
func (a Account) Claim(node, by string, now time.Time) ([]Claim, error) {
	if slices.ContainsFunc(a.Claims, func(c Claim) bool { return c.Node == node }) {
		return a.Claims, nil
	}
	unavailable := a.Unavailable()
	if _, counted := slices.BinarySearch(unavailable, node); !counted && a.Limit != nil && len(unavailable) >= *a.Limit {
		return a.Claims, &Spent{Node: node, Limit: *a.Limit, Unavailable: unavailable, Claims: a.Claims}
	}
	return sorted(append(slices.Clone(a.Claims), Claim{Node: node, By: by, Since: now})), nil
}

// Grace is how long a claim holds although its node looks available: the
// claimer may not have touched it yet.
const Grace = 10 * time.Minute

// Settle returns the claims that still mean something: those of nodes that
// are out of service, and young ones, whose work may be about to begin. A
// node that is no member any more needs no claim.
func (a Account) Settle(now time.Time) []Claim {
	state := make(map[string]Member, len(a.Members))
	for _, m := range a.Members {
		state[m.Node] = m
	}
	var out []Claim
	for _, c := range sorted(a.Claims) {
		m, member := state[c.Node]
		young := now.Sub(c.Since) < Grace && !c.Since.After(now)
		if member && (!m.Ready || m.Cordoned || young) {
			out = append(out, c)
		}
	}
	return out
}

// Release returns the claims without node's, if by made it.
func (a Account) Release(node, by string) []Claim {
	var out []Claim
	for _, c := range a.Claims {
		if c.Node != node || c.By != by {
			out = append(out, c)
		}
	}
	return out
}
