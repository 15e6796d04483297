package kubelet

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// addresses hands out the addresses of one prefix, each to one pod.
type addresses struct {
	prefix netip.Prefix
	first  netip.Addr
	last   netip.Addr // the one given most recently; reuse comes as late as possible
	holder map[netip.Addr]types.UID
	of     map[types.UID]netip.Addr
}

// newAddresses leaves out the first two addresses: network and gateway for a
// pod CIDR, the node itself for loopback.
func newAddresses(prefix netip.Prefix) *addresses {
	prefix = prefix.Masked()
	first := prefix.Addr().Next().Next()
	return &addresses{
		prefix: prefix, first: first, last: first.Prev(),
		holder: map[netip.Addr]types.UID{}, of: map[types.UID]netip.Addr{},
	}
}

// take gives uid an address: the one it has, else wish if that is free, else
// the next free one.
func (a *addresses) take(uid types.UID, wish string) (string, error) {
	if have, ok := a.of[uid]; ok {
		return have.String(), nil
	}
	if ip, err := netip.ParseAddr(wish); err == nil && a.usable(ip) {
		return a.give(uid, ip), nil
	}
	// Of so many addresses in a row one is free, unless all are taken.
	ip := a.last
	for range len(a.holder) + 2 {
		if ip = a.after(ip); a.usable(ip) {
			a.last = ip
			return a.give(uid, ip), nil
		}
	}
	return "", fmt.Errorf("no free address in %s", a.prefix)
}

func (a *addresses) give(uid types.UID, ip netip.Addr) string {
	a.holder[ip], a.of[uid] = uid, ip
	return ip.String()
}

func (a *addresses) free(uid types.UID) {
	if ip, ok := a.of[uid]; ok {
		delete(a.of, uid)
		delete(a.holder, ip)
	}
}

func (a *addresses) usable(ip netip.Addr) bool {
	_, taken := a.holder[ip]
	return !taken && a.prefix.Contains(ip) && !ip.Less(a.first) && a.prefix.Contains(ip.Next())
}

func (a *addresses) after(ip netip.Addr) netip.Addr {
	next := ip.Next()
	if !a.prefix.Contains(next) || next.Less(a.first) {
		return a.first
	}
	return next
}
