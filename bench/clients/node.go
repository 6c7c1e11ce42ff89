package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// node is a process of Headstart.
type node struct {
	cmd   *exec.Cmd
	ready struct {
		S3Port   int `json:"s3_port"`
		RPCPort  int `json:"rpc_port"`
		HTTPPort int `json:"http_port"`
	}
}

// s3 is the URL of a BE's front.
func (n *node) s3() string { return fmt.Sprintf("http://127.0.0.1:%d", n.ready.S3Port) }

// stop ends the node, in order.
func (n *node) stop() {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	_ = n.cmd.Wait() // its logs tell
}

// start runs a node in dir and waits until it serves.
func start(headstart, role, dir, conf string) (*node, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, role+".conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	n := &node{cmd: exec.Command(headstart, role, "-conf", path)}
	n.cmd.Dir, n.cmd.Stderr = dir, os.Stderr
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := n.cmd.StdoutPipe()
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &n.ready)
	}
	if err != nil {
		n.stop()
		return nil, fmt.Errorf("the %s does not start: %w", role, err)
	}
	return n, nil
}

// startBE starts a BE before the store at that URL; more are other lines of its
// configuration.
func startBE(headstart, dir, store, more string) (*node, error) {
	return start(headstart, "be", dir, fmt.Sprintf("host = 127.0.0.1\nwebserver_port = 0\nbrpc_port = 0\ns3_port = 0\n"+
		"s3_endpoint = %s\ns3_access_key = %s\ns3_secret_key = %s\n"+
		"file_cache_path = [{\"path\":\"cache\",\"total_size\":1073741824}]\n%s", store, keyID, secret, more))
}

// startFE starts an FE.
func startFE(headstart, dir string) (*node, error) {
	return start(headstart, "fe", dir, "host = 127.0.0.1\nhttp_port = 0\nrpc_port = 0\nquery_port = 0\nmeta_dir = meta\n")
}
