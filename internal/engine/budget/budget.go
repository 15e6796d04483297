// Package budget is the arithmetic of how much may be out of service: limits
// given as a number or a percentage, and accounts on which every cause of
// unavailability draws. An account belongs to a pool or an owner set; a node
// is unavailable when it is not ready, cordoned or claimed, and counts once.
//
// It is pure. It must never round in two ways for one dialect, grant a claim
// that would exceed the account's limit, or refuse to go on with a node that
// has a claim already.
//
//	a := budget.Account{Limit: budget.Of(2), Members: nodes, Claims: claims}
//	claims, err := a.Claim("w-1", "machinehealthcheck/workers", now)
package budget

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Floor returns the part of total that v means, percentages rounded down.
func Floor(v intstr.IntOrString, total int) (int, error) { return part(v, total, 0) }

// Ceil returns the part of total that v means, percentages rounded up.
func Ceil(v intstr.IntOrString, total int) (int, error) { return part(v, total, 99) }

// part is total × v % in whole numbers, after adding extra hundredths.
func part(v intstr.IntOrString, total, extra int) (int, error) {
	n, percent, err := number(v)
	if err != nil || !percent {
		return n, err
	}
	return (n*total + extra) / 100, nil
}

// maxPercent keeps the product with any number of nodes inside an int.
const maxPercent = 100000

// number returns the number in v, and whether it is a percentage. A string
// without a percent sign is a plain number.
func number(v intstr.IntOrString) (n int, percent bool, err error) {
	switch v.Type {
	case intstr.Int:
		return int(v.IntVal), false, nil
	case intstr.String:
		text, percent := strings.CutSuffix(v.StrVal, "%")
		n, err := strconv.Atoi(text)
		if err != nil || percent && (n < 0 || n > maxPercent) {
			return 0, percent, fmt.Errorf("read %q: neither a number nor a percentage", v.StrVal)
		}
		return n, percent, nil
	}
	return 0, false, fmt.Errorf("read limit of type %d: neither a number nor a percentage", v.Type)
}

// MaxUnhealthy returns how many of expected machines may be unhealthy before
// repair stops, ≥ 0: percentages round down, nil means all.
func MaxUnhealthy(v *intstr.IntOrString, expected int) (int, error) {
	if v == nil {
		return expected, nil
	}
	n, err := Floor(*v, expected)
	return max(0, n), err
}

// PoolMaxUnavailable returns how many nodes of a Machine Config pool may be
// unavailable, ≥ 1: percentages round down, nil means 1.
func PoolMaxUnavailable(v *intstr.IntOrString, nodes int) (int, error) {
	if v == nil {
		return 1, nil
	}
	n, err := Floor(*v, nodes)
	return max(1, n), err
}

// ErrNoMove refuses a rollout that may neither add nor take away.
var ErrNoMove = errors.New("maxSurge and maxUnavailable may not both be 0")

// Surge is how far a rolling update may go above and below its replicas.
type Surge struct{ Above, Below int }

// Rolling returns what a Cluster API rollout may do: surge rounds up, default
// 1; unavailable rounds down, default 0. Two values that are not zero but
// become zero leave one unavailable; two zeros are ErrNoMove.
func Rolling(maxSurge, maxUnavailable *intstr.IntOrString, replicas int) (Surge, error) {
	surge, unavailable := intstr.FromInt32(1), intstr.FromInt32(0)
	if maxSurge != nil {
		surge = *maxSurge
	}
	if maxUnavailable != nil {
		unavailable = *maxUnavailable
	}
	above, err := Ceil(surge, replicas)
	if err != nil {
		return Surge{}, fmt.Errorf("maxSurge: %w", err)
	}
	below, err := Floor(unavailable, replicas)
	if err != nil {
		return Surge{}, fmt.Errorf("maxUnavailable: %w", err)
	}
	above, below = max(0, above), min(max(0, below), replicas)
	if above > 0 || below > 0 {
		return Surge{Above: above, Below: below}, nil
	}
	if zero(surge) && zero(unavailable) {
		return Surge{}, ErrNoMove
	}
	return Surge{Below: 1}, nil
}

func zero(v intstr.IntOrString) bool {
	n, _, err := number(v)
	return err == nil && n == 0
}
