package ctl

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"headstart/cmd/config"
)

// completion prints a script for bash. It has all words in it: nothing runs
// while somebody types.
func completion(_ context.Context, s *session) error {
	if s.args[0] != "bash" {
		return fmt.Errorf("%w: there is a completion for bash only", errUsage)
	}
	var verbs []string
	var cases strings.Builder
	for _, c := range commands() {
		verbs = append(verbs, c.name)
		words := append([]string{"-token-file"}, c.words...)
		c.flags(&session{}).VisitAll(func(f *flag.Flag) { words = append(words, "-"+f.Name) })
		if c.name == "config" {
			for _, k := range config.Keys(config.BE) {
				words = append(words, k.Name)
			}
		}
		fmt.Fprintf(&cases, "    %s) words='%s' ;;\n", c.name, strings.Join(words, " "))
	}
	_, err := fmt.Fprintf(s.stdout, bashScript, strings.Join(verbs, " "), cases.String())
	return err
}

const bashScript = `_headstart() {
  local words=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='be fe demo ctl version help'
  elif [ "${COMP_WORDS[1]}" = ctl ] && [ "$COMP_CWORD" -eq 2 ]; then
    words='%s help'
  elif [ "${COMP_WORDS[1]}" = ctl ]; then
    case "${COMP_WORDS[2]}" in
%s    esac
  else
    words='-conf -print-config -h'
  fi
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _headstart headstart
`
