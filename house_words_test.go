package belfry_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The rules about words. The field has a name for every mechanism here; docs/architecture.md has
// the few of our own.
const (
	ruleWordName      = "words/name"      // a private word in a name that Go code declares
	ruleWordComment   = "words/comment"   // one in a comment
	ruleWordString    = "words/string"    // one in a text that the program writes or reads
	ruleWordPage      = "words/page"      // one in a page, a manifest, an alert or another file that is not Go
	ruleWordException = "words/exception" // an exception that nothing needs
)

var wordRuleNames = []string{ruleWordName, ruleWordComment, ruleWordString, ruleWordPage, ruleWordException}

// wordScope says where a private word is refused.
type wordScope int

const (
	everywhere wordScope = iota // in names, comments, texts and pages
	inNames                     // in names only: in a sentence the word has an honest meaning
	inVerbs                     // as a whole name of a function or of a field or parameter with one
)

// A privateWord is a word that Belfry had once for something that the field has a word for. Its
// plural counts too; other forms are words of their own. dirs are the folders where it is refused,
// none for all.
type privateWord struct {
	words    string
	scope    wordScope
	dirs     []string
	standard string
}

// privateWords is the table of renamings, with all relatives of the old names.
var privateWords = []privateWord{
	{"born birth bear bearing", everywhere, nil, "jobPayload; created; the creation of queues; to carry"},
	{"bury buried entomb entombed", everywhere, nil, "dropQueue, addTombstone"},
	{"ticket lacker", everywhere, nil, "reservation, charge, quotaWaiter"},
	{"crowded", everywhere, nil, "contended"},
	{"arbiter", everywhere, nil, "requestMutex"},
	{"owe owed owing land landed landing", everywhere, nil, "unanswered; to complete, to apply"},
	{"hurry hurried", everywhere, nil, "throttle; urgent"},
	{"rumour hearsay seeker", everywhere, nil, "leaderCache, leaderHint, leaderRouter"},
	{"patience", everywhere, nil, "retryBudget; timeout"},
	{"lane", everywhere, nil, "peerStream"},
	{"heal healed healing mend mended mending kick kicked", everywhere, nil, "reconcile, repair, requeue, wake"},
	{"story stories", everywhere, nil, "placementStatus, explain; history"},
	{"heir", everywhere, nil, "replacement, successor"},
	{"attendance", everywhere, nil, "livenessRecord"},
	{"throng lobby farewell meeting", everywhere, nil, "connlimit, notReadyServer, removalNotice, bootstrap"},
	{"bell tower wave", everywhere, nil, "broadcast, lastBatch"},
	{"keeper", everywhere, nil, "leaseRenewer; store"},
	{"strange", everywhere, nil, "foreign, unknown"},
	{"rung ringing rang", everywhere, nil, "delivered, due"},
	{"ring", everywhere, []string{"client", "cmd/belfry/bridge", "cmd/belfry/cli", "deploy", "fsm", "mirror", "rpc"},
		"to fall due, to become ready, to deliver"},
	{"share", everywhere, []string{"node/admit", "cluster/quota"}, "the shard's quota, ShardQuota"},

	{"share", inNames, nil, "quota, reservation, part"},
	{"turn", inNames, nil, "round, batchGate, mutex"},
	{"taking claim", inNames, []string{"access", "client", "cluster", "fsm", "node", "rpc", "stream"},
		"reservation, pendingGrants"},
	{"flight", inNames, nil, "inflightEntry"},
	{"pace", inNames, nil, "throttle"},
	{"shift verdict", inNames, []string{"client"}, "workerRun, handlerResult"},
	{"quick", inNames, nil, "fastPath"},
	{"gate", inNames, nil, "authenticator, authorizer, notReadyServer"},
	{"placed", inNames, []string{"rpc", "cmd/belfry/server"}, "routedCommand"},
	{"place", inNames, []string{"access", "stream"}, "Slot; position"},
	{"bring meet", inNames, nil, "reconcile; check, verify"},

	{"rest tell", inVerbs, nil, "throttle; explain, report"},
	{"guard", inVerbs, []string{"cluster", "rpc"}, "authorizer, tokensRequiredBy"},
	{"stays", inVerbs, []string{"cluster"}, "forwardedCalls"},
	{"stops", inVerbs, []string{"rpc"}, "pollInterrupts"},
}

// privateWholeNames were private as a whole; each of their words may stand in others.
var privateWholeNames = map[string]string{
	"lanehost": "streamServer", "lineroom": "reservedShare", "heardconn": "activityConn",
	"strangeanswer": "foreignResponse", "turnedaway": "authFailures", "viamessage": "slowPath",
	"doshare": "proposeToShard",
}

// A wordException is a word that stays where it is, with the reason.
type wordException struct {
	words  string
	path   string // a file, or a folder with all in it
	in     string // what the line must contain; "" for all lines
	reason string
}

var wordExceptions = []wordException{
	// What is on disks of users or between nodes keeps its text.
	{"born", "cluster/quota/record.go", "`json:\"born\"`", "a name in the catalog's snapshots"},
	{"share", "cluster/quota/record.go", "`json:\"shares,omitempty\"`", "a name in the catalog's snapshots"},
	{"heir", "cluster/catalog/departed.go", "`json:\"heir,omitempty\"`", "a name between nodes"},
	{"heir", "cmd/belfry/server/departed.go", "`json:\"heir,omitempty\"`", "a name in departed.json"},
	{"story", "cluster/placement/report.go", "`json:\"story,omitempty\"`", "a name between nodes"},
	{"patience", "cluster/routing/requestlock.go", "`json:\"patienceNanos\"`", "a name between nodes"},
	{"patience", "cluster/routing/forward.go", "Get(\"patience\")", "a name between nodes"},
	{"patience", "cluster/routing/forward.go", "&patience=", "a name between nodes"},
	{"lane", "cluster/routing/peerstream_test.go", "/shard/lane", "a path that earlier programs ask for"},
	{"rung", "mirror", "belfry_rung", "a key in the Redis of users"},
	{"rung", "cmd/belfry/mirrortrial", "belfry_rung", "a key in the Redis of users"},

	// Others have the word for something of theirs.
	{"bury buried kick", "docs/migration/beanstalkd.md", "", "commands and states of beanstalkd"},
	{"kick kicked bury buried", "rpc/beanstalkd", "", "commands and states of beanstalkd"},
	{"kick kicks kicked", "fsm", "", "a command of beanstalkd"},
	{"kick kicks", "node/propose", "", "a command of beanstalkd"},
	{"kick", "rpc/spelling/synonyms.go", "", "a command of beanstalkd, which a user may type"},
	{"ticket", "access/certs", "icket", "TLS calls them session tickets"},
	{"heal healed healing", "jepsen", "", "partitions of a network heal, in Jepsen and in papers"},
	{"heal healed healing", "node/nodetest", "", "partitions of a network heal, in Jepsen and in papers"},
	{"heal", "cluster/gossip", "", "partitions of a network heal, in Jepsen and in papers"},
	{"healed", "cmd/belfry/clustertrial", "", "partitions of a network heal, in Jepsen and in papers"},

	// The word has its plain meaning.
	{"story ring rung rang turn lane", "cmd/belfry/demo", "",
		"the demo is a story with bells, drawn in lanes; each event is a turn of it"},
	{"story", "cmd/belfry/DESIGN.md", "`story.go`", "the demo is a story"},
	{"ring rung", "cmd/belfry", "have rung", "a line of the demo"},
	{"story", "jepsen/checker", "", "a made-up run, in which a test tells lies"},
	{"story stories", "cmd/belfry/processtest", "", "the made-up life of one job, for a test"},
	{"lane", "jepsen/report", "", "a row of the page in which bars do not hide each other"},
	{"gate", "client", "", "batchGate is the standard name"},
	{"gate", "jepsen/disk/life.go", "gate sync.RWMutex", "what holds the steps of a disk back while it is frozen"},
	{"gate", "node/nodetest/soak", "", "what holds a node's packets back while it is frozen"},
	{"shift", "client/internal/failure/history.go", "", "a shift of bits"},
	{"pace", "jepsen", "", "the mean time between rounds of a client, a flag of the runner"},
	{"share", "cmd", "", "a fraction of a whole, as in --share"},
	{"share", "jepsen", "", "a fraction of a whole"},
	{"share", "mirror", "", "the fraction of Redis' time that scripts may take"},
	{"share", "node/propose/fairqueue.go", "ReservedShare", "reservedShare is the standard name"},
	{"tell", "mirror/bridge.go", "func(BridgeCounts)", "it says how far the bridge is"},
}

// wordForms returns the forms of a word in which it is looked for.
func wordForms(word string) []string {
	return []string{word, word + "s"}
}

// A lexicon finds private words. forms has the rows that refuse a form of a word.
type lexicon struct {
	forms      map[string][]*privateWord
	exceptions []wordException
	used       []bool // by exception
}

func newLexicon(exceptions []wordException) *lexicon {
	l := &lexicon{forms: make(map[string][]*privateWord), exceptions: exceptions, used: make([]bool, len(exceptions))}
	for i := range privateWords {
		row := &privateWords[i]
		for _, word := range strings.Fields(row.words) {
			for _, form := range wordForms(word) {
				l.forms[form] = append(l.forms[form], row)
			}
		}
	}
	return l
}

// refused returns the private words in a text of a file, and what to write instead.
func (l *lexicon) refused(file, line string, words []string, scope wordScope) []string {
	var found []string
	for i, word := range words {
		if word == "flight" && i > 0 && words[i-1] == "in" {
			continue // "in flight" is the field's
		}
		for _, row := range l.forms[word] {
			here := len(row.dirs) == 0 || slices.ContainsFunc(row.dirs, func(dir string) bool { return inTree(file, dir) })
			if here && (row.scope == everywhere || row.scope == scope) && !l.excepted(file, line, word) {
				found = append(found, fmt.Sprintf("%q is a word of our own; the field's are: %s", word, row.standard))
			}
		}
	}
	return found
}

// excepted reports whether an exception allows a word in a line of a file.
func (l *lexicon) excepted(file, line, word string) bool {
	for i, e := range l.exceptions {
		if inTree(file, e.path) && strings.Contains(line, e.in) &&
			slices.ContainsFunc(strings.Fields(e.words), func(w string) bool { return slices.Contains(wordForms(w), word) }) {
			l.used[i] = true
			return true
		}
	}
	return false
}

// checkWords reports private words where the field has a standard one: in names, comments and texts
// of Go code, and in all other files. Data of tests, and what is generated from sources that are
// read, is not read.
func checkWords(t *testing.T, fsys fs.FS, src *tree, exceptions []wordException) []finding {
	t.Helper()
	l := newLexicon(exceptions)
	var found []finding
	for _, f := range src.files {
		if !f.generated && !strings.HasPrefix(f.path, "house_") {
			found = append(found, l.checkSource(f)...)
		}
	}
	err := walkFiles(fsys, func(name string) error {
		if path.Ext(name) == ".go" && !strings.HasPrefix(name, ".") || !hasProse(name) {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if utf8.Valid(text) {
			lines := strings.Split(string(text), "\n")
			found = append(found, l.checkText(finding{name, 1, ruleWordPage, ""}, string(text), lines)...)
		}
		return err
	})
	if err != nil {
		t.Fatalf("reading the pages: %v", err)
	}
	for i, e := range exceptions {
		if !l.used[i] {
			found = append(found, finding{e.path, 0, ruleWordException, "no line needs the exception of " + e.words})
		}
	}
	return found
}

// hasProse reports whether a file is written by us for people. Others wrote the license and the
// names of modules; the description of the API is made from the protobuf sources.
func hasProse(name string) bool {
	return !slices.Contains(strings.Split(name, "/"), "testdata") && !slices.Contains(
		[]string{"LICENSE", "go.mod", "go.sum", "openapi.json"}, path.Base(name))
}

// textWord is a run of letters, in which wordsOf finds words.
var textWord = regexp.MustCompile(`[A-Za-z]+`)

// checkText reports the private words of a text that begins at a place in a file of these lines.
func (l *lexicon) checkText(at finding, text string, lines []string) []finding {
	var found []finding
	for line := range strings.Lines(text) {
		var words []string
		for _, run := range textWord.FindAllString(line, -1) {
			words = append(words, wordsOf(run)...)
		}
		for _, why := range l.refused(at.path, lines[at.line-1], words, everywhere) {
			found = append(found, finding{at.path, at.line, at.rule, why})
		}
		at.line++
	}
	return found
}

// checkSource reports the private words of a Go file.
func (l *lexicon) checkSource(f *sourceFile) []finding {
	var found []finding
	lines := strings.Split(f.text, "\n")
	for _, name := range declaredNames(f.syntax) {
		line, words, scope := f.line(name.Pos()), wordsOf(name.Name), inNames
		if f.test && strings.HasPrefix(name.Name, "Test") {
			scope = everywhere // a sentence, not a name
		}
		for _, why := range l.refused(f.path, lines[line-1], words, scope) {
			found = append(found, f.finding(name.Pos(), ruleWordName, "%s: %s", name.Name, why))
		}
		if standard := privateWholeNames[strings.ToLower(name.Name)]; standard != "" {
			found = append(found, f.finding(name.Pos(), ruleWordName, "%s: the field's name is %s", name.Name, standard))
		}
	}
	for _, name := range functionNames(f.syntax) {
		line := f.line(name.Pos())
		for _, why := range l.refused(f.path, lines[line-1], []string{strings.ToLower(name.Name)}, inVerbs) {
			found = append(found, f.finding(name.Pos(), ruleWordName, "%s: %s", name.Name, why))
		}
	}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			found = append(found, l.checkText(finding{f.path, f.line(c.Pos()), ruleWordComment, ""}, c.Text, lines)...)
		}
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			found = append(found, l.checkText(finding{f.path, f.line(lit.Pos()), ruleWordString, ""}, lit.Value, lines)...)
		}
		return true
	})
	return found
}

// declaredNames returns the names that a file declares, those of fields, parameters and variables
// included.
func declaredNames(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			names = append(names, assignedNames(n)...)
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				names = append(names, identsOf(n.Key, n.Value)...)
			}
		}
		return true
	})
	return names
}

// assignedNames returns the names that a := declares.
func assignedNames(n *ast.AssignStmt) []*ast.Ident {
	if n.Tok != token.DEFINE {
		return nil
	}
	return identsOf(n.Lhs...)
}

func identsOf(exprs ...ast.Expr) (names []*ast.Ident) {
	for _, x := range exprs {
		if name, ok := x.(*ast.Ident); ok {
			names = append(names, name)
		}
	}
	return names
}

// functionNames returns the names of functions and methods, and of fields and parameters that hold
// one.
func functionNames(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.Field:
			if _, ok := n.Type.(*ast.FuncType); ok {
				names = append(names, n.Names...)
			}
		}
		return true
	})
	return names
}

// wordsOf returns the words of a name in camel case, in lower case.
func wordsOf(name string) []string {
	var words []string
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			words = append(words, strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
	return words
}
