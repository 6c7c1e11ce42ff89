// Package etcdtest runs a real etcd for tests, and nothing in production.
package etcdtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Start runs an etcd until the test ends, and returns where its clients find it
// (host:port). The test is skipped where there is no etcd. flags are its own, beside
// what it needs.
func Start(t testing.TB, flags ...string) string {
	t.Helper()
	return start(t, "http", flags...)
}

// StartTLS runs an etcd that shows a certificate and wants one of the authority.
func StartTLS(t testing.TB, ca, cert, key string) string {
	t.Helper()
	return start(t, "https", "--cert-file", cert, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", ca)
}

// Member is one etcd of several.
type Member struct {
	// Addr is where its clients find it.
	Addr string
	// Process is the running etcd: a member that is stopped (SIGSTOP) is one that
	// nobody reaches.
	*os.Process
}

// StartCluster runs n etcds that are one cluster.
func StartCluster(t testing.TB, n int) []Member {
	t.Helper()
	members, peers, all := make([]Member, n), make([]string, n), ""
	for i := range members {
		members[i].Addr, peers[i] = freeAddr(t), freeAddr(t)
		all += fmt.Sprintf(",m%d=http://%s", i, peers[i])
	}
	for i := range members {
		members[i].Process = launch(t, "http", members[i].Addr, peers[i], "--name", fmt.Sprint("m", i), "--initial-cluster", all[1:])
	}
	return members
}

func start(t testing.TB, scheme string, more ...string) string {
	t.Helper()
	client, peer := freeAddr(t), freeAddr(t)
	launch(t, scheme, client, peer, append(more, "--initial-cluster", "default=http://"+peer)...)
	return client
}

func launch(t testing.TB, scheme, client, peer string, more ...string) *os.Process {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("there is no etcd here (Debian: etcd-server)")
	}
	cmd := exec.Command(program, append(more, "--data-dir", dataDir(t),
		"--listen-client-urls", scheme+"://"+client, "--advertise-client-urls", scheme+"://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it does not outlive a test that is killed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process
}

// dataDir is in memory where Linux has files there, and room for etcd's log: etcd
// answers nobody, and loses its leases, while a disk that is busy with other things
// keeps it waiting.
func dataDir(t testing.TB) string {
	t.Helper()
	const memory, room = "/dev/shm", 512 << 20
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || int64(fs.Bavail)*fs.Bsize < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "etcd")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// freeAddr returns an address that nobody listens at now: etcd can't be told to
// choose one and say which.
func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
