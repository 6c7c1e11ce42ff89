package placement

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"headstart/engine/block"
)

// maxName is the longest text a heartbeat may hold in one field, in bytes.
const maxName = 256

// Addr is what identifies a backend over its restarts.
func (h *Heartbeat) Addr() block.Addr { return block.Addr{Host: h.Host, Port: h.BrpcPort} }

// Validate refuses a heartbeat that nobody could use, and says which field is
// wrong and what would be right. The error is an ErrInvalid.
func (h *Heartbeat) Validate() error {
	if err := checkHost(h.Host); err != nil {
		return fmt.Errorf("%w heartbeat: host %q: %w", ErrInvalid, h.Host, err)
	}
	if err := h.checkPorts(); err != nil {
		return err
	}
	if !isID(h.GroupID) {
		return fmt.Errorf("%w heartbeat of %s: compute_group_id %q: want 1 to %d of letters, digits, '_', '-', '.' and ':'",
			ErrInvalid, h.Addr(), h.GroupID, maxName)
	}
	if h.NodeID == "" {
		return fmt.Errorf("%w heartbeat of %s: the node id is empty", ErrInvalid, h.Addr())
	}
	for _, f := range [...]struct{ name, text string }{
		{"node id", h.NodeID},
		{"compute_group_name", h.GroupName},
		{"cloud_unique_id", h.CloudUniqueID},
		{"location", h.Location},
		{"version", h.Version},
	} {
		if !isPrintable(f.text) {
			return fmt.Errorf("%w heartbeat of %s: %s %.80q: want at most %d bytes of printable UTF-8",
				ErrInvalid, h.Addr(), f.name, f.text, maxName)
		}
	}
	if h.CPUCores < 0 || h.MemoryBytes < 0 || h.CacheCapacityBytes < 0 || h.CacheUsedBytes < 0 {
		return fmt.Errorf("%w heartbeat of %s: a negative number of cores or bytes", ErrInvalid, h.Addr())
	}
	return nil
}

func (h *Heartbeat) checkPorts() error {
	if h.BrpcPort < 1 || h.BrpcPort > 65535 {
		return fmt.Errorf("%w heartbeat of %s: brpc_port %d: want 1 to 65535", ErrInvalid, h.Host, h.BrpcPort)
	}
	for _, p := range [...]struct {
		name string
		port int
	}{
		{"heartbeat_service_port", h.HeartbeatPort},
		{"be_port", h.BePort},
		{"webserver_port", h.HTTPPort},
		{"arrow_flight_sql_port", h.ArrowFlightSQLPort},
	} {
		if p.port < 0 || p.port > 65535 {
			return fmt.Errorf("%w heartbeat of %s: %s %d: want 0 (none) to 65535", ErrInvalid, h.Addr(), p.name, p.port)
		}
	}
	return nil
}

// normal returns a valid heartbeat in the one form that is compared and kept:
// one spelling for each host, defaults filled in, and no monotonic clock.
func (h Heartbeat) normal() Heartbeat {
	h.Host = strings.ToLower(h.Host)
	if ip, err := netip.ParseAddr(h.Host); err == nil {
		h.Host = ip.Unmap().String()
	}
	if h.GroupName == "" {
		h.GroupName = h.GroupID
	}
	if h.Location == "" {
		h.Location = "default"
	}
	h.Started = h.Started.Round(0).UTC()
	return h
}

// same reports whether two heartbeats say the same of everything that is worth
// a write to the store: not so what is for show only.
func (h Heartbeat) same(other Heartbeat) bool {
	if !h.Started.Equal(other.Started) {
		return false
	}
	h.Started, h.CacheUsedBytes = other.Started, other.CacheUsedBytes
	h.CPUCores, h.MemoryBytes = other.CPUCores, other.MemoryBytes
	return h == other
}

// checkHost takes a host name or an IP address that another node can dial.
func checkHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		switch {
		case ip.IsUnspecified(), ip.IsMulticast():
			return fmt.Errorf("nobody can connect to it; want the address that other nodes reach this one at")
		case ip == netip.AddrFrom4([4]byte{169, 254, 169, 254}):
			return fmt.Errorf("that is the metadata service of clouds, not a node")
		}
		return nil
	}
	if len(host) > 253 {
		return fmt.Errorf("longer than 253 bytes")
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return fmt.Errorf("want a host name or an IP address, without port, brackets or scheme")
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("neither an IP address nor a host name")
	}
	return nil
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if !isAlphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func isID(s string) bool {
	for _, c := range []byte(s) {
		if !isAlphanumeric(c) && !strings.ContainsRune("_-.:", rune(c)) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func isPrintable(s string) bool {
	return len(s) <= maxName && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
