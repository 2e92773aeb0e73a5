package belfry_test

import (
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The rules about names that comments and pages mention. If something is renamed in the code and
// not where it is mentioned, a reader searches for what is not there.
const (
	ruleNameIdentifier = "names/identifier" // a word in camel case that is no identifier
	ruleNameMember     = "names/member"     // Type.member or package.Name without such a member or name
	ruleNameFile       = "names/file"       // a Go or proto file that is not there
)

var nameRuleNames = []string{ruleNameIdentifier, ruleNameMember, ruleNameFile}

// foreignNames are names that this repository mentions and does not use, by where they come from.
var foreignNames = map[string][]string{
	"units and products":  {"KiB", "MiB", "GiB", "kB", "gRPC", "EventBridge", "GitHub", "OpenTelemetry"},
	"published functions": {"MurmurHash3", "SplitMix64"},
	"standard library":    {"ByteReader", "TextMarshaler", "TextUnmarshaler"},
	"raft and raft-wal": {"FileSnapshotStore", "LastVoteCand", "LastVoteTerm", "LeaderCh", "LogCache", "RecoverCluster",
		"SegmentFiler", "StreamLayer", "processLogs", "removeOldLogs"},
	"OpenTelemetry's SDK": {"GetTracerProvider"},
	"systemd":             {"ProcSubset"},
	"asynq, which docs/migration compares": {"Enqueue", "MaxRetry", "NewTask", "ProcessAt", "ProcessIn", "RetryDelayFunc",
		"RunTask", "SkipRetry", "TaskID", "SchedulerOpts", "PeriodicTaskManager"},
	"BullMQ, sidekiq-cron and SQS, which docs/migration compares": {"jobId", "lockDuration", "upsertJobScheduler",
		"startDate", "endDate", "pauseGroup", "resumeGroup", "MessageGroupId",
		"MessageDeduplicationId", "DelaySeconds", "ChangeMessageVisibility", "ReceiptHandle", "maxReceiveCount"},
	"Quartz, which docs/migration compares": {"CronTrigger", "inTimeZone", "SimpleTrigger", "HolidayCalendar",
		"DisallowConcurrentExecution", "JobDataMap", "pauseTriggers", "repeatForever",
		"triggerJob"},
	"Redisson and Java, which the mirror reads": {"ByteArrayCodec", "DoubleCodec", "FstCodec", "IntegerCodec",
		"JsonJacksonCodec", "Kryo5Codec", "LongCodec", "MarshallingCodec", "RBlockingQueue", "RBoundedBlockingQueue",
		"RDelayedQueue", "RReliableQueue", "SerializationCodec", "StringCodec", "TimeUnit", "TypedJsonJacksonCodec",
		"delayedQueue", "pollLastAndOfferFirstTo", "removeAll", "retainAll"},
}

var (
	// nameWord is an identifier, with what dots connect to it.
	nameWord = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*`)
	// camelCase is the form of an identifier that no word of English has.
	camelCase = regexp.MustCompile(`[a-z][A-Z]`)
	// fileWord is the name of a file, with folders or without; it may be a pattern.
	fileWord = regexp.MustCompile(`(?:[A-Za-z0-9_*.-]+/)*[a-z0-9_*][A-Za-z0-9_*.-]*\.(?:go|proto)\b`)
	// tagName is the name that a struct tag gives a field in JSON or YAML.
	tagName = regexp.MustCompile(`(?:json|yaml)(?:=|:")([A-Za-z0-9_]+)`)
	// protoName is a name of the contract.
	protoName = regexp.MustCompile(`(?m)^\s*(?:service|rpc|message|enum) (\w+)`)
	// alertName is the name of an alert.
	alertName = regexp.MustCompile(`(?m)^\s*- alert: (\w+)`)
	// codeSpan is text in code marks.
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// webAddress is an address, whose words are not ours.
	webAddress = regexp.MustCompile(`[a-z]+://\S+|\b(?:[a-z0-9-]+\.)+(?:com|org|io|in|dev)/\S+`)
)

// A nameSet is a set of names.
type nameSet map[string]bool

// A nameIndex has the names of a tree that comments and pages may mention.
type nameIndex struct {
	words    nameSet             // every identifier, fields as JSON has them, the contract's names
	members  map[string]nameSet  // the fields and methods of types of a name
	embedded map[string]nameSet  // the types whose members types of a name have too
	packages map[string]nameSet  // what packages of a name declare
	files    map[string][]string // paths by their last element

	elsewhere nameSet // foreignNames, and packages outside of the tree
}

func addName(m map[string]nameSet, key, name string) {
	if m[key] == nil {
		m[key] = make(nameSet)
	}
	m[key][name] = true
}

// indexNames collects the names of a tree, and of the contract.
func indexNames(t *tree, fsys fs.FS) (*nameIndex, error) {
	x := &nameIndex{
		words: make(nameSet), members: make(map[string]nameSet), embedded: make(map[string]nameSet),
		packages: make(map[string]nameSet), files: make(map[string][]string), elsewhere: make(nameSet),
	}
	for _, words := range foreignNames {
		for _, word := range words {
			x.words[word], x.elsewhere[word] = true, true
		}
	}
	for _, f := range t.files {
		x.addFile(f)
	}
	return x, walkFiles(fsys, func(name string) error {
		x.files[path.Base(name)] = append(x.files[path.Base(name)], name)
		form := map[string]*regexp.Regexp{".proto": protoName, ".yaml": alertName}[path.Ext(name)]
		if form == nil {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		for _, m := range form.FindAllSubmatch(text, -1) {
			x.words[string(m[1])] = true
		}
		return err
	})
}

// addFile collects the names in a file.
func (x *nameIndex) addFile(f *sourceFile) {
	pkg := strings.TrimSuffix(f.syntax.Name.Name, "_test")
	for name, imported := range f.names() {
		if !strings.HasPrefix(imported, modulePath) {
			x.elsewhere[name] = true
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			x.words[n.Name] = true
		case *ast.TypeSpec:
			addName(x.packages, pkg, n.Name.Name)
			x.addType(n)
		case *ast.ValueSpec:
			for _, name := range n.Names {
				addName(x.packages, pkg, name.Name)
			}
		case *ast.FuncDecl:
			if n.Recv == nil {
				addName(x.packages, pkg, n.Name.Name)
			} else {
				addName(x.members, typeName(n.Recv.List[0].Type), n.Name.Name)
			}
		case *ast.Field:
			if n.Tag != nil {
				for _, m := range tagName.FindAllStringSubmatch(n.Tag.Value, -1) {
					x.words[m[1]] = true
				}
			}
		}
		return true
	})
}

// addType collects the fields and methods that a declaration gives a type.
func (x *nameIndex) addType(spec *ast.TypeSpec) {
	name := spec.Name.Name
	addName(x.members, name, name)
	fields := &ast.FieldList{}
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	default:
		addName(x.embedded, name, typeName(typ))
	}
	for _, field := range fields.List {
		for _, n := range field.Names {
			addName(x.members, name, n.Name)
		}
		if len(field.Names) == 0 {
			addName(x.embedded, name, typeName(field.Type))
			addName(x.members, name, typeName(field.Type))
		}
	}
}

// typeName returns the name of a type without its package, or "" if it has none.
func typeName(expr ast.Expr) string {
	switch typ := expr.(type) {
	case *ast.Ident:
		return typ.Name
	case *ast.SelectorExpr:
		return typ.Sel.Name
	case *ast.StarExpr:
		return typeName(typ.X)
	case *ast.IndexExpr:
		return typeName(typ.X)
	case *ast.IndexListExpr:
		return typeName(typ.X)
	}
	return ""
}

// checkNames reports names in comments and pages that the tree does not have. The changelog and the
// decisions say what was.
func checkNames(t *testing.T, src *tree, fsys fs.FS) []finding {
	t.Helper()
	x, err := indexNames(src, fsys)
	if err != nil {
		t.Fatalf("collecting names: %v", err)
	}
	var found []finding
	for _, f := range src.files {
		if !f.generated {
			found = append(found, x.checkComments(f)...)
		}
	}
	err = walkFiles(fsys, func(name string) error {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" || inTree(path.Dir(name), "docs/decisions") {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		found = append(found, x.checkPage(name, string(text))...)
		return err
	})
	if err != nil {
		t.Fatalf("reading the pages: %v", err)
	}
	return found
}

// checkComments looks at the comments of a file, but for directives and for examples, which are
// indented.
func (x *nameIndex) checkComments(f *sourceFile) (found []finding) {
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:") || strings.HasPrefix(c.Text, "//nolint") ||
				strings.HasPrefix(c.Text, "//\t") || strings.HasPrefix(c.Text, "//  ") {
				continue
			}
			number := f.line(c.Pos())
			for line := range strings.Lines(c.Text) {
				found = append(found, x.checkLine(f.path, number, line)...)
				number++
			}
		}
	}
	return found
}

// checkPage looks at the words of a page in code marks. Other tests run its blocks of code.
func (x *nameIndex) checkPage(name, text string) (found []finding) {
	number, fenced := 0, false
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			found = append(found, x.checkLine(name, number, m[1])...)
		}
	}
	return found
}

// checkLine returns what is wrong with the names in a line.
func (x *nameIndex) checkLine(file string, number int, line string) (found []finding) {
	if !mayName(line) {
		return nil
	}
	if strings.Contains(line, "/") {
		line = webAddress.ReplaceAllString(line, "")
	}
	report := func(rule, name string) {
		found = append(found, finding{file, number, rule, name + " is not there"})
	}
	if strings.Contains(line, ".go") || strings.Contains(line, ".proto") {
		for _, name := range fileWord.FindAllString(line, -1) {
			if !strings.HasPrefix(name, "_") && !x.hasFile(name) { // _test.go is the end of a name
				report(ruleNameFile, name)
			}
		}
		line = fileWord.ReplaceAllString(line, "")
	}
	for _, name := range nameWord.FindAllString(line, -1) {
		parts := strings.Split(name, ".")
		for _, part := range parts {
			if camelCase.MatchString(part) && !x.words[part] {
				report(ruleNameIdentifier, part)
			}
		}
		if len(parts) > 1 && !x.elsewhere[parts[1]] && !x.qualifies(parts[0], parts[1]) {
			report(ruleNameMember, parts[0]+"."+parts[1])
		}
	}
	return found
}

// mayName reports whether a line has a capital after a small letter, or a letter after a dot.
func mayName(line string) bool {
	small := func(c byte) bool { return c >= 'a' && c <= 'z' }
	capital := func(c byte) bool { return c >= 'A' && c <= 'Z' }
	for i := 1; i < len(line); i++ {
		if small(line[i-1]) && capital(line[i]) || line[i-1] == '.' && (small(line[i]) || capital(line[i])) {
			return true
		}
	}
	return false
}

// qualifies reports whether a name may stand after another and a dot. It knows the members of types
// and the exported names of packages. A type with a name of one word in small letters may also be a
// variable of another type, so any may follow it.
func (x *nameIndex) qualifies(qualifier, name string) bool {
	if x.packages[qualifier] != nil && !x.elsewhere[qualifier] && ast.IsExported(name) {
		variable := strings.ToUpper(qualifier[:1]) + qualifier[1:] // queue.Put is also said of a Queue
		return x.packages[qualifier][name] || x.members[qualifier][name] || x.hasMember(variable, name, 3)
	}
	if ast.IsExported(qualifier) || camelCase.MatchString(qualifier) {
		return x.members[qualifier] == nil || x.hasMember(qualifier, name, 3)
	}
	return true
}

// hasMember reports whether a type has a member itself, or through at most so many types that it
// embeds. A type of another module may have any.
func (x *nameIndex) hasMember(typ, member string, depth int) bool {
	if x.members[typ][member] {
		return true
	}
	for embedded := range x.embedded[typ] {
		if embedded != "" && (x.members[embedded] == nil || depth > 0 && x.hasMember(embedded, member, depth-1)) {
			return true
		}
	}
	return false
}

// hasFile reports whether a file is there, or one of a pattern. A name may leave out folders at its
// beginning.
func (x *nameIndex) hasFile(name string) bool {
	name = path.Clean(name)
	if !strings.Contains(name, "*") {
		return slices.ContainsFunc(x.files[path.Base(name)], func(p string) bool {
			return p == name || strings.HasSuffix(p, "/"+name)
		})
	}
	for base := range x.files {
		if ok, err := path.Match(path.Base(name), base); ok && err == nil {
			return true
		}
	}
	return false
}

var plantedNames = []planted{
	{
		name: "names that are there",
		files: map[string]string{
			"node/a.go": "package node\n\nimport \"net/http\"\n\n// ShardQueue has the field perShard. See " +
				"ShardQueue.drain, Outer.perShard, other.Start, node/other/b.go, b.go and *.go; 5 MiB, requestId.\n" +
				"type ShardQueue struct { perShard int; RequestID string `json:\"requestId\"` }\n\n" +
				"// drain is one of http.Handler, queue.shardCount and https://x.org/aB.go.\n" +
				"func (s *ShardQueue) drain(http.Handler) {}\n\ntype Outer struct{ *ShardQueue }\n",
			"node/other/b.go": "package other\n\nfunc Start(shardCount int) {}\n",
			"a.proto":         "service ShardService {\n  rpc DrainShard(X)\n",
			"rules.yaml":      "  - alert: ShardSlow\n",
			"docs/a.md": "notThere `shardCount` `ShardService`, `DrainShard` and `ShardSlow` in `a.proto`\n" +
				"```\n`notThere`\n```\n",
			"CHANGELOG.md":        "`notThere`\n",
			"docs/decisions/1.md": "`notThere`\n",
		},
	},
	{
		name: "names that are gone",
		files: map[string]string{
			"node/a.go": "package node\n\n// Shard has shardCount.\ntype Shard struct{ count int } // see " +
				"gone.go\n\n/*\nf uses Shard.gone,\n\nother.Stop and node/b.go.\n*/\nfunc f() {\n\t// Shard.count " +
				"and ShardGone\n}\n",
			"node/other/b.go": "package other\n\nfunc Start() {}\n",
			"node/DESIGN.md":  "text `shardCount`\n\n`c_test.go` and `Shard.gone(x)`\n",
		},
		want: []string{
			"node/DESIGN.md:1: names/identifier", "node/DESIGN.md:3: names/file", "node/DESIGN.md:3: names/member",
			"node/a.go:3: names/identifier", "node/a.go:4: names/file", "node/a.go:7: names/member",
			"node/a.go:9: names/file", "node/a.go:9: names/member", "node/a.go:12: names/identifier",
		},
	},
}

func TestPlantedNames(t *testing.T) {
	runPlanted(t, plantedNames, func(t *testing.T, p planted) []finding {
		t.Helper()
		return checkNames(t, parsePlanted(t, p), p.fs())
	})
}
