package main

import (
	"fmt"
	"os/exec"
	"strconv"
)

// network is a bridge that nodes are plugged into. The process itself has the
// last address of it.
type network struct {
	name   string
	number int
}

// hub is the number of the process's own address in each network.
const hub = 254

func newNetwork(name string, number int) (*network, error) {
	n := &network{name, number}
	for _, args := range [][]string{
		{"link", "add", n.name, "type", "bridge"},
		{"addr", "add", n.addr(hub) + "/24", "dev", n.name},
		{"link", "set", n.name, "up"},
		{"link", "set", "lo", "up"}, // own addresses are reached by it
	} {
		if err := ip(args...); err != nil {
			return nil, fmt.Errorf("%w (unshare -rn gives a process networks of its own)", err)
		}
	}
	return n, nil
}

func (n *network) addr(host int) string { return fmt.Sprintf("10.77.%d.%d", n.number, host) }

// device is the name of the network's interface in a node's namespace.
func (n *network) device() string { return "eth" + strconv.Itoa(n.number) }

// port is the end of a node's cable at the bridge.
func (n *network) port(b *node) string { return n.name + strconv.Itoa(b.number) }

// plug lays a cable to a process in a namespace of its own.
func (n *network) plug(b *node) error {
	err := ip("link", "add", n.port(b), "type", "veth", "peer", "name", n.device(), "netns", strconv.Itoa(b.cmd.Process.Pid))
	if err == nil {
		err = n.heal(b)
	}
	if err == nil {
		err = ip("link", "set", n.port(b), "up")
	}
	return err
}

// cut takes a node's cable out of the bridge: the node does not notice, but no
// packet comes through.
func (n *network) cut(b *node) error { return ip("link", "set", n.port(b), "nomaster") }

// heal puts it in again.
func (n *network) heal(b *node) error { return ip("link", "set", n.port(b), "master", n.name) }

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}
