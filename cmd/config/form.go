package config

import (
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// What the Strings of a form must look like, in words.
const (
	formReachable = "a host name or IP address that others can reach, without a port"
	formListen    = "an IP address or host name of this machine, without a port, or nothing"
	formEndpoints = "host:port, several separated by commas, or nothing"
	formID        = "letters, digits, '.', '_', '-' and ':', at least one and at most 128"
	formPatterns  = "patterns of names separated by commas (* stands for anything but /), or nothing"
	formIDs       = "compute group ids separated by commas, or nothing"
	formNetworks  = "networks as 10.0.0.0/8 or addresses, separated by commas, or nothing"
	formUsers     = "name:password, or name:password:read for one who may look only, several separated by commas (which are in no password, nor are colons), or nothing"
	formStore     = "etcd://host:2379,host:2379/prefix (the prefix is headstart without one), etcds:// for TLS, or nothing"
	formURL       = "a URL as https://host:port, or nothing"
)

func notEmpty(s string) bool { return s != "" }

// isHost admits IP addresses and host names, and nothing that could carry a
// port, a user or a path.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	if s == "" || len(s) > 253 || strings.HasPrefix(s, "-") {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notHostRune) {
			return false
		}
	}
	return true
}

func notHostRune(r rune) bool { return !isAlnum(r) && r != '-' && r != '_' }

func isAlnum(r rune) bool {
	return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9')
}

// isReachableHost leaves out the addresses that only a listener can use.
func isReachableHost(s string) bool {
	a, err := netip.ParseAddr(s)
	return isHost(s) && (err != nil || !a.IsUnspecified())
}

func isListenHost(s string) bool { return s == "" || isHost(s) }

func isID(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return !isAlnum(r) && !strings.ContainsRune("._-:", r)
	})
}

// each reports whether s is empty or a list of what check admits.
func each(s string, check func(string) bool) bool {
	for _, part := range splitList(s) {
		if !check(part) {
			return false
		}
	}
	return true
}

// splitList cuts a list at its commas. An empty text is an empty list.
func splitList(s string) []string {
	if s == "" {
		return nil
	}
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func isIDs(s string) bool { return each(s, isID) }

func isEndpoints(s string) bool { return each(s, isEndpoint) }

func isEndpoint(s string) bool {
	host, service, err := net.SplitHostPort(s)
	if err != nil || !isReachableHost(host) {
		return false
	}
	n, err := strconv.ParseUint(service, 10, 16)
	return err == nil && n != 0
}

func isNetworks(s string) bool { return each(s, isNetwork) }

func isNetwork(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isStore(s string) bool {
	scheme, rest, _ := strings.Cut(s, "://")
	hosts, _, _ := strings.Cut(rest, "/")
	return s == "" || (scheme == "etcd" || scheme == "etcds") && hosts != "" && isEndpoints(hosts)
}

func isUsers(s string) bool { return each(s, isUser) }

func isUser(s string) bool {
	name, rest, ok := strings.Cut(s, ":")
	_, right, limited := strings.Cut(rest, ":")
	return ok && name != "" && (!limited || right == "read")
}

func isURL(s string) bool {
	if s == "" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && isHost(u.Hostname()) &&
		u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func isLogLevel(s string) bool {
	switch s {
	case "debug", "info", "warn", "error":
		return true
	}
	return false
}

func isPatterns(s string) bool { return each(s, isPattern) }

func isPattern(s string) bool {
	_, err := path.Match(s, "")
	return err == nil && s != ""
}

func isQueuePolicy(s string) bool { return s == "fifo" || s == "adaptive" }

func isBalanceType(s string) bool {
	switch s {
	case "without_warmup", "async_warmup", "sync_warmup", "peer_read_async_warmup":
		return true
	}
	return false
}
