package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed imports.txt
var importTable string

// imports is the import table: what packages may import of ours, and who may
// import a module of others.
type imports struct {
	may  map[string][]string
	only map[string][]string
}

func parseImports(table string) (imports, error) {
	im := imports{may: make(map[string][]string), only: make(map[string][]string)}
	no := 0
	for line := range strings.Lines(table) {
		no++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		rows, arrow := im.may, "->"
		if strings.Contains(line, "<-") {
			rows, arrow = im.only, "<-"
		}
		name, list, ok := strings.Cut(line, arrow)
		name = strings.TrimSpace(name)
		if _, twice := rows[name]; !ok || twice || name == "" {
			return im, fmt.Errorf("imports.txt:%d: want one line a name, as a -> b or a <- b", no)
		}
		rows[name] = strings.Fields(list)
	}
	return im, nil
}

// matches reports whether a name of the table stands for the package.
func matches(name, pkg string) bool {
	if name == "*" || name == pkg {
		return true
	}
	parent, below := strings.CutSuffix(name, "/...")
	return below && (pkg == parent || strings.HasPrefix(pkg, parent+"/"))
}

// row returns what a package may import of ours.
func (im imports) row(pkg string) (list []string, known bool) {
	best := ""
	for name, may := range im.may {
		if matches(name, pkg) && (!known || len(name) > len(best) || name == pkg) && best != pkg {
			best, list, known = name, may, true
		}
	}
	return list, known
}

// check looks at the imports of one file.
func (im imports) check(module string, s *source) []finding {
	if s.test || !s.own {
		return nil
	}
	var found []finding
	may, known := im.row(s.dir)
	if !known {
		found = append(found, finding{s.path, s.line(s.ast.Package), "imports", "package " + s.dir + " is not in cmd/tidy/imports.txt"})
	}
	for _, spec := range s.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		pkg, ours := strings.CutPrefix(name, module+"/")
		if ours && known && !slices.ContainsFunc(may, func(n string) bool { return matches(n, pkg) }) {
			found = append(found, finding{s.path, s.line(spec.Pos()), "imports", s.dir + " may not import " + pkg})
		}
		for theirs, users := range im.only {
			if (name == theirs || strings.HasPrefix(name, theirs+"/")) && !slices.ContainsFunc(users, func(n string) bool { return matches(n, s.dir) }) {
				found = append(found, finding{s.path, s.line(spec.Pos()), "imports", s.dir + " may not import " + theirs})
			}
		}
	}
	return found
}
