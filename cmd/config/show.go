package config

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Item is one key as show_config and SHOW BACKEND CONFIG show it.
type Item struct {
	Name, Type, Value string
	Mutable           bool
}

// Show returns all keys with the values in force, in name order. Secrets are
// masked.
func (s *Set) Show() []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]Item, 0, len(s.names))
	for _, name := range s.names {
		items = append(items, s.itemLocked(name))
	}
	return items
}

// ShowKey returns one key as Show does. The error says what could have been
// meant.
func (s *Set) ShowKey(name string) (Item, error) {
	if _, err := s.lookup(name); err != nil {
		return Item{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.itemLocked(name), nil
}

func (s *Set) itemLocked(name string) Item {
	k := s.keys[name]
	return Item{Name: name, Type: k.Kind.String(), Value: s.mu.values[name].Shown(), Mutable: !k.Static}
}

// Print writes the values in force as a configuration file with comments. It
// can be loaded again, but for secrets: their lines are comments.
func (s *Set) Print(w io.Writer) error {
	var b bytes.Buffer
	for _, section := range Sections() {
		title := "# ---- " + section.Title + " ----\n"
		for _, k := range section.Keys {
			if !k.Role.Has(s.role) {
				continue
			}
			v := s.value(k.Name, k.Kind)
			fmt.Fprintf(&b, "%s\n# %s\n# Default %s; %s.\n", title, k.Help, fileForm(k.Default), k.Want())
			if v.Shown() == v.Text() {
				fmt.Fprintf(&b, "%s = %s\n", k.Name, fileForm(v.Text()))
			} else {
				fmt.Fprintf(&b, "# %s = %s\n", k.Name, Mask)
			}
			title = ""
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// WriteDoc writes docs/CONFIG.md.
func WriteDoc(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString(docIntro)
	for _, section := range Sections() {
		fmt.Fprintf(&b, "\n## %s\n\n| key | of | default | takes | at run time | |\n|---|---|---|---|---|---|\n", section.Title)
		for _, k := range section.Keys {
			atRunTime := "yes"
			if k.Static {
				atRunTime = "no"
			}
			fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s | %s | %s |\n", k.Name, k.Role, fileForm(k.Default), cell(k.Want()), atRunTime, cell(k.Help))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// cell makes text fit for a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const docIntro = `# Configuration

Generated from ` + "`cmd/config`" + ` by ` + "`make gen`" + `; a test fails when they differ.

A node reads, each overriding what comes before:

1. the defaults below;
2. the file that ` + "`-conf`" + ` names (` + "`be.conf`, `fe.conf`" + `);
3. the file with ` + "`_custom`" + ` in its name beside it (` + "`be_custom.conf`" + `), if there is one: ` + "`update_config`" + ` with
   ` + "`persist=true`" + ` writes there, so a later edit of ` + "`be.conf`" + ` does not change a key that was persisted;
4. the environment: ` + "`HEADSTART_WEBSERVER_PORT`" + ` sets ` + "`webserver_port`" + `;
5. the command line.

A file has a ` + "`key = value`" + ` a line; blanks around ` + "`=`" + ` don't matter. A line that starts with ` + "`#`" + ` is a comment; there are
no comments behind a value. One pair of double quotes around a text is not part of it. A key that is given twice in one
file is warned of, and the last line counts. An unknown key, or a value that the key does not take, stops the start; all
that is wrong is named at once, with file and line.

At run time ` + "`POST /api/update_config?key=value`" + ` changes keys, several at once if need be: all are taken or none. Secrets
are never shown.

` + "`headstart be -print-config`" + ` prints the values in force in the form of a file.
`
