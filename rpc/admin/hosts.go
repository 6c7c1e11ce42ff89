package admin

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

	"headstart/cmd/config"
)

// hosts says which hosts may become candidates by hand: a candidate is an
// address that this node will connect to, so whoever names one steers our
// connections (SE-02).
type hosts struct {
	// networks follows peer_candidate_allowed_networks.
	networks atomic.Pointer[[]netip.Prefix]
	// ipv6: this node is reached by IPv6 itself.
	ipv6 bool
	// resolve finds the addresses of a name.
	resolve func(ctx context.Context, name string) ([]netip.Addr, error)
}

func newHosts(set *config.Set) *hosts {
	h := &hosts{resolve: func(ctx context.Context, name string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}}
	if own, err := netip.ParseAddr(set.String("host")); err == nil {
		h.ipv6 = own.Is6() && !own.Is4In6()
	}
	set.Bind("peer_candidate_allowed_networks", func(config.Value) {
		var list []netip.Prefix
		for _, text := range set.List("peer_candidate_allowed_networks") {
			if p, err := netip.ParsePrefix(text); err == nil {
				list = append(list, p.Masked())
			} else if a, err := netip.ParseAddr(text); err == nil {
				list = append(list, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		h.networks.Store(&list)
	})
	return h
}

// check reports why a host may not be named; ctx bounds the look-up of a name.
// A name is as good as what it
// stands for now, which may change, so that with a list of networks only
// addresses will do.
func (h *hosts) check(ctx context.Context, host string) error {
	networks := *h.networks.Load()
	if a, err := netip.ParseAddr(host); err == nil {
		return h.checkAddr(a, networks)
	}
	if !isName(host) {
		return errors.New("host " + quote(host) + ": want an IP address or a host name, without port, user or path")
	}
	if len(networks) > 0 {
		return errors.New("host " + quote(host) + ": with peer_candidate_allowed_networks set, want an IP address")
	}
	found, _ := h.resolve(ctx, host) // a name that stands for nothing leads nowhere
	for _, a := range found {
		if never(a.Unmap()) {
			return errors.New("host " + quote(host) + " stands for " + a.String() + ", which no node has")
		}
	}
	return nil
}

func (h *hosts) checkAddr(a netip.Addr, networks []netip.Prefix) error {
	switch plain := a.Unmap(); {
	case a.Zone() != "" || a.Is4In6():
		return errors.New("host " + quote(a.String()) + ": want a plain IP address")
	case never(plain):
		return errors.New("host " + a.String() + " is an address that no node has")
	case inside(plain, networks):
		return nil
	case len(networks) > 0:
		return errors.New("host " + a.String() + " is outside of peer_candidate_allowed_networks")
	case plain.Is6() && !h.ipv6:
		return errors.New("host " + a.String() + ": this node speaks IPv4; peer_candidate_allowed_networks admits IPv6 networks")
	}
	return nil
}

// never are addresses that are no node of a cluster, whatever the list of
// networks says: above all the link-local ones, where clouds answer questions
// about the machine and its credentials.
func never(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a == metadataIPv6()
}

// metadataIPv6 is where one cloud answers such questions over IPv6.
func metadataIPv6() netip.Addr { return netip.MustParseAddr("fd00:ec2::254") }

func inside(a netip.Addr, networks []netip.Prefix) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// isName admits host names. The last label has to begin with a letter: some
// resolvers take 2852039166 and 0xa9fea9fe for IP addresses.
func isName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || strings.ContainsFunc(label, notInName) {
			return false
		}
		last = label
	}
	return last[0]|0x20 >= 'a' && last[0]|0x20 <= 'z'
}

func notInName(r rune) bool {
	return (r|0x20 < 'a' || r|0x20 > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}
