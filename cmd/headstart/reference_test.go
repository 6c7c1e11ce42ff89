package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"headstart/cmd/config"
)

const referenceFile = "testdata/reference.txt"

// reference is what the file of the reference texts' commands holds.
type reference struct {
	// commands have their placeholders in them, answers are what is to come.
	commands, answers []string
	conf, sql         []string
}

func readReference(t *testing.T) *reference {
	t.Helper()
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	r := &reference{}
	for part := range strings.SplitSeq(string(text), "\n$ ") {
		command, answer, ok := strings.Cut(part, "\n<\n")
		if !ok { // what comes before the first command
			for line := range strings.Lines(part) {
				line = strings.TrimSpace(line)
				if conf, ok := strings.CutPrefix(line, "be.conf "); ok {
					r.conf = append(r.conf, conf)
				} else if sql, ok := strings.CutPrefix(line, "mysql "); ok {
					r.sql = append(r.sql, sql)
				}
			}
			continue
		}
		answer, _, _ = strings.Cut(answer, "\n\n")
		r.commands, r.answers = append(r.commands, command), append(r.answers, strings.TrimSpace(answer))
	}
	return r
}

// write renews the answers in the file.
func (r *reference) write(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n$ ")
	var out strings.Builder
	out.WriteString(head + "\n")
	for i := range r.commands {
		out.WriteString("$ " + r.commands[i] + "\n<\n" + r.answers[i] + "\n\n")
	}
	if err := os.WriteFile(referenceFile, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReferenceCurlLines pastes every command into a live cluster: by a reader
// of the few flags of curl that they have, and with curl itself where there is
// one. The SQL lines follow.
func TestReferenceCurlLines(t *testing.T) {
	r := readReference(t)
	if len(r.commands) != 9 || len(r.conf) != 2 || len(r.sql) != 2 {
		t.Fatalf("%d commands, %d lines of be.conf, %d of SQL", len(r.commands), len(r.conf), len(r.sql))
	}
	for name, run := range map[string]func(*testing.T, string) string{"client": likeCurl, "curl": withCurl} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, nil, readers, writers)
			for tablet := 1; tablet <= 5; tablet++ {
				c.read(1, tablet)
				c.knows(0, tablet, 1)
				if src := c.read(0, tablet); src != "peer" {
					t.Errorf("tablet %d from %s", tablet, src)
				}
				c.ctl("remove", strconv.Itoa(tablet), "-be", c.web(0))
			}
			places := strings.NewReplacer("<be_host>", "127.0.0.1", "<tablet_id>", "10086",
				"<be_webserver_port>", strconv.Itoa(c.bes[0].line.WebserverPort), "<brpc_port>", strconv.Itoa(c.bes[0].line.BrpcPort))
			for i, command := range r.commands {
				got := unify(run(t, places.Replace(command)))
				if os.Getenv("HEADSTART_WRITE_TESTDATA") != "" {
					r.answers[i] = got
				} else if got != r.answers[i] {
					t.Errorf("%s\nanswers\n%s\nand not\n%s", command, got, r.answers[i])
				}
			}
			c.wantReferenceTaken()
			c.wantReferenceSQL(t, r.sql)
		})
	}
	if os.Getenv("HEADSTART_WRITE_TESTDATA") != "" {
		r.write(t)
	}
}

// wantReferenceTaken looks whether what the commands have changed holds.
func (c *testCluster) wantReferenceTaken() {
	c.t.Helper()
	settings := c.bes[0].engine.Settings
	if settings.PeerRaceHedgeDelayMS.Load() != 30 || settings.EnableCacheReadFromPeer.Load() {
		c.t.Error("the engine goes on with the old values")
	}
	c.read(1, 9)
	c.knows(0, 9, 1)
	if src := c.read(0, 9); src != "s3" {
		c.t.Errorf("peer read is off, and a block came from %s", src)
	}
	custom, err := os.ReadFile(filepath.Join(c.dir, "be-1", "be_custom.conf"))
	if err != nil || !strings.Contains(string(custom), "enable_cache_read_from_peer = false\n") || strings.Contains(string(custom), "hedge") {
		c.t.Errorf("be_custom.conf: %s (%v)", custom, err)
	}
}

// wantReferenceSQL runs the two statements.
func (c *testCluster) wantReferenceSQL(t *testing.T, statements []string) {
	t.Helper()
	db := openFE(t, c.fe, "root", "")
	values := strings.Join(rows(t, db, strings.TrimSuffix(statements[0], ";")), "\n")
	for _, want := range []string{"|enable_cache_read_from_peer|false|bool|true", "|enable_cache_read_from_peer|true|bool|true"} {
		if strings.Count(values, want) != 1 {
			t.Errorf("%s\n%s\nwant %q once", statements[0], values, want)
		}
	}
	backends := strings.Join(rows(t, db, strings.TrimSuffix(statements[1], `\G`)), "\n")
	for _, group := range []string{readers, writers} {
		tag := fmt.Sprintf(`"compute_group_id" : %q, "compute_group_name" : "name_of_%s", "compute_group_status" : "NORMAL", "location" : "default"}`, group, group)
		if strings.Count(backends, tag) != 1 {
			t.Errorf("%s\n%s\nwant %s", statements[1], backends, tag)
		}
	}
}

// TestS60_ReferenceConfLines loads the lines of be.conf that the texts have.
func TestS60_ReferenceConfLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "be.conf")
	lines := readReference(t).conf
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := config.Load(config.BE, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		key, want, _ := strings.Cut(line, " = ")
		if item, err := set.ShowKey(key); err != nil || item.Value != want {
			t.Errorf("%s: %q (%v)", line, item.Value, err)
		}
	}
}

// unify replaces what differs from run to run.
func unify(text string) string {
	today := fmt.Sprint(time.Now().UnixMilli())[:5]
	text = regexp.MustCompile(`: `+today+`\d{8}\b`).ReplaceAllString(text, ": NOW")
	return strings.TrimSpace(regexp.MustCompile(`(?m) : \d+$`).ReplaceAllString(text, " : N"))
}

// withCurl gives a command to a shell.
func withCurl(t *testing.T, command string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl: the other half of the test reads its flags itself")
	}
	out, err := exec.Command("sh", "-c", strings.Replace(command, "curl", "curl --fail --silent --show-error", 1)).Output()
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(out)
}

// likeCurl does what curl would with the flags that the texts use.
func likeCurl(t *testing.T, command string) string {
	t.Helper()
	method, target, body := http.MethodGet, "", ""
	header := http.Header{}
	words := regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s\\]+`).FindAllString(command, -1)
	for i := 1; i < len(words); i++ {
		value := ""
		if i+1 < len(words) {
			value = strings.Trim(words[i+1], `'"`)
		}
		switch words[i] {
		case "-X":
			method = value
		case "-d":
			body = value
		case "-H":
			name, text, _ := strings.Cut(value, ": ")
			header.Set(name, text)
		default:
			target = strings.Trim(words[i], `'"`)
			continue
		}
		i++
	}
	r, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s (%v)", command, resp.StatusCode, text, err)
	}
	return string(text)
}
