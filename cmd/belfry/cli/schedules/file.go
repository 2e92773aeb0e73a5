package schedules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The keys of a file. The fields of a schedule's parts have the names of the API.
const (
	keyQueue     = "queue"
	keyPrefix    = "prefix"
	keySchedules = "schedules"
	keyName      = "name"
	keySpec      = "spec"
	keyPolicy    = "policy"
	keyJob       = "job"
)

// entry is a schedule of a file.
type entry struct {
	queue, name string
	spec        *belfryv1.ScheduleSpec
	policy      *belfryv1.SchedulePolicy
	job         *belfryv1.ScheduleJob
	// file and line are where it begins. lines has the lines of its fields, by their paths.
	file  string
	line  int
	lines map[string]int
}

// place returns where a field of the entry is, or the nearest part around it.
func (e *entry) place(path string) string {
	for {
		if line, ok := e.lines[path]; ok {
			return fmt.Sprintf("%s:%d", e.file, line)
		}
		end := strings.LastIndexAny(path, ".[")
		if end < 0 {
			return fmt.Sprintf("%s:%d", e.file, e.line)
		}
		path = path[:end]
	}
}

// scope is a part of a queue whose schedules are all in the files: those whose names begin with a
// prefix, or all of them.
type scope struct {
	queue, prefix string
	place         string // where it was named first
}

// definitions are what files say.
type definitions struct {
	entries []*entry
	scopes  []scope
}

// addScope notes that a file has all schedules of a scope.
func (d *definitions) addScope(s scope) {
	if !slices.ContainsFunc(d.scopes, func(have scope) bool { return have.queue == s.queue && have.prefix == s.prefix }) {
		d.scopes = append(d.scopes, s)
	}
}

// add adds what a file says. The error has all problems that were found, a line each.
func (d *definitions) add(file string, data []byte) error {
	r := reader{file: file, all: d}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.problems = append(r.problems, fmt.Errorf("%s: %s", file, syntaxText(err)))
			break
		}
		r.document(document.Content[0])
	}
	return errors.Join(r.problems...)
}

// syntaxText says what is wrong with a text that is no YAML. An expression such as */5 is the usual
// cause: YAML takes what begins with * for a reference.
func syntaxText(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "alphabetic or numeric") || strings.Contains(text, "unknown anchor") {
		text += "; quote a value that begins with *"
	}
	return text
}

// reader reads the documents of one file.
type reader struct {
	file     string
	all      *definitions
	problems []error
}

// fail notes a problem.
func (r *reader) fail(line int, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s:%d: %s", r.file, line, fmt.Sprintf(format, args...)))
}

// document reads a document: a schedule, a group, or a list of both.
func (r *reader) document(node *yaml.Node) {
	switch node = resolved(node); {
	case node.Kind == yaml.SequenceNode:
		for _, item := range node.Content {
			r.item(item)
		}
	case node.Tag == "!!null": // an empty document
	default:
		r.item(node)
	}
}

// item reads a schedule or a group.
func (r *reader) item(node *yaml.Node) {
	node = resolved(node)
	pairs, ok := r.mapping(node, "a schedule, or a mapping with "+keySchedules)
	if !ok {
		return
	}
	if slices.ContainsFunc(pairs, func(p pair) bool { return p.key == keySchedules }) {
		r.group(node.Line, pairs)
		return
	}
	r.schedule(node.Line, pairs, scope{})
}

// group reads schedules that have a queue, and maybe the beginning of their names, in common.
func (r *reader) group(line int, pairs []pair) {
	within := scope{place: fmt.Sprintf("%s:%d", r.file, line)}
	var list *yaml.Node
	for _, p := range pairs {
		switch p.key {
		case keyQueue:
			within.queue = r.text(p)
		case keyPrefix:
			within.prefix = r.prefix(p)
		case keySchedules:
			list = resolved(p.value)
		default:
			r.unknown(p, keyQueue, keyPrefix, keySchedules)
		}
	}
	if within.queue != "" {
		r.all.addScope(within)
	}
	if list.Tag == "!!null" {
		return
	}
	if list.Kind != yaml.SequenceNode {
		r.fail(list.Line, "%s: want a list, not %s", keySchedules, kindOf(list))
		return
	}
	for _, item := range list.Content {
		item = resolved(item)
		if pairs, ok := r.mapping(item, "a schedule"); ok {
			r.schedule(item.Line, pairs, within)
		}
	}
}

// prefix returns the value of a prefix, which must be able to begin a name.
func (r *reader) prefix(p pair) string {
	text := r.text(p)
	if strings.ContainsFunc(text, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && !strings.ContainsRune("._:/-", c)
	}) {
		r.fail(p.line, "%s: no name begins with %q: only letters, digits and the characters . _ : / - are allowed",
			p.key, text)
	}
	return text
}

// schedule reads a schedule within a group; of none the scope is empty.
func (r *reader) schedule(line int, pairs []pair, within scope) {
	e := &entry{
		queue: within.queue, file: r.file, line: line, lines: map[string]int{}, spec: &belfryv1.ScheduleSpec{},
		policy: &belfryv1.SchedulePolicy{}, job: &belfryv1.ScheduleJob{},
	}
	before := len(r.problems)
	for _, p := range pairs {
		e.lines[p.key] = p.line
		switch p.key {
		case keyQueue:
			e.queue = r.text(p)
		case keyName:
			e.name = r.text(p)
		case keySpec:
			r.message(e, p, e.spec)
		case keyPolicy:
			r.message(e, p, e.policy)
		case keyJob:
			r.message(e, p, e.job)
		default:
			r.unknown(p, keyQueue, keyName, keySpec, keyPolicy, keyJob)
		}
	}
	switch {
	case len(r.problems) > before:
	case e.queue == "":
		r.fail(line, "queue: required, of the schedule or of the mapping around it")
	case e.name == "":
		r.fail(line, "name: required")
	case !strings.HasPrefix(e.name, within.prefix):
		r.fail(e.lines[keyName], "name: %q does not begin with the prefix %q", e.name, within.prefix)
	case e.spec.Rule == nil:
		r.fail(line, "spec: cron or every is required")
	}
	if same := slices.IndexFunc(r.all.entries, func(other *entry) bool {
		return other.queue == e.queue && other.name == e.name
	}); same >= 0 && len(r.problems) == before {
		r.fail(line, "%s in %s is also at %s", e.name, e.queue, r.all.entries[same].place(""))
	}
	r.all.entries = append(r.all.entries, e)
	if e.queue != "" {
		r.all.addScope(scope{e.queue, within.prefix, e.place("")})
	}
}

// unknown refuses a key.
func (r *reader) unknown(p pair, known ...string) {
	hint := cli.DidYouMean(p.key, known)
	if hint == "" {
		hint = "; the keys here are " + strings.Join(known, ", ")
	}
	r.fail(p.line, "%s: unknown key%s", p.key, hint)
}

// text returns the value of a key that has a text, which must not be empty.
func (r *reader) text(p pair) string {
	value := resolved(p.value)
	if value.Kind != yaml.ScalarNode || value.Tag == "!!null" || value.Value == "" {
		r.fail(p.line, "%s: want a text, not %s", p.key, kindOf(value))
		return ""
	}
	return value.Value
}
