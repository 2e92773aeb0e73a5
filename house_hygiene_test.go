package belfry_test

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The rules about what may not enter the repository.
const (
	ruleBinary      = "hygiene/binary"       // a program, or bytes that no review can read
	ruleLarge       = "hygiene/large"        // a file that every clone would carry for ever
	ruleMachinePath = "hygiene/machine-path" // a path that exists on one machine only
	ruleReplace     = "hygiene/replace"      // a directive that breaks go install
	ruleUnfinished  = "hygiene/unfinished"   // a note that something is missing, or a merge left half done
	ruleSecret      = "hygiene/secret"       // a private key
)

var hygieneRuleNames = []string{ruleBinary, ruleLarge, ruleMachinePath, ruleReplace, ruleUnfinished, ruleSecret}

const fileBytesMax = 1 << 20

// pictures are files that are not text and that a reader can look at.
var pictures = []string{".png", ".gif", ".jpg", ".ico", ".woff2"}

// compressed are files that are part of the program, with what a reader has instead.
var compressed = map[string]string{
	"cron/zoneinfo.zip.gz": "the zone data of the Go distribution, with which TestBuiltInIsGos compares them",
}

// programHeads are the first bytes of programs: ELF, PE, Mach-O and ar archives.
var programHeads = []string{"\x7fELF", "MZ\x90", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "!<arch>\n"}

// linePatterns are what no line of a text may hold. The words are put together here so that this
// file does not hold them.
var linePatterns = []struct {
	pattern *regexp.Regexp
	rule    string
	why     string
}{
	{regexp.MustCompile(`(^|[^\w./])/(home|Users)/\w+/`), ruleMachinePath, "a home directory; nobody else has it"},
	{regexp.MustCompile(`(^|[^.\w])(TO` + `DO|FIX` + `ME)\b`), ruleUnfinished,
		"do it, or write the limit into the documentation"},
	{regexp.MustCompile(`^(<<<` + `<<<<|>>>` + `>>>>) `), ruleUnfinished, "a merge left half done"},
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIV` + `ATE KEY-----`), ruleSecret, "tests make their own keys"},
}

// checkHygiene reports files and lines that may not be in the repository. machine lists directories
// of this machine.
func checkHygiene(t *testing.T, fsys fs.FS, machine []string) []finding {
	t.Helper()
	var found []finding
	err := walkFiles(fsys, func(name string) error {
		text, err := fs.ReadFile(fsys, name)
		if err == nil {
			found = append(found, checkFile(name, text, machine)...)
		}
		return err
	})
	if err != nil {
		t.Fatalf("reading the tree: %v", err)
	}
	return found
}

func checkFile(name string, text []byte, machine []string) []finding {
	var found []finding
	if len(text) > fileBytesMax {
		found = append(found, finding{name, 0, ruleLarge, "more than 1 MiB; generate it in the test, or keep it elsewhere"})
	}
	if slices.ContainsFunc(programHeads, func(head string) bool { return bytes.HasPrefix(text, []byte(head)) }) {
		return append(found, finding{name, 0, ruleBinary, "a program; build it instead"})
	}
	if bytes.IndexByte(text, 0) >= 0 {
		known := slices.Contains(pictures, path.Ext(name)) || compressed[name] != ""
		if !known && !slices.Contains(strings.Split(name, "/"), "testdata") {
			found = append(found, finding{name, 0, ruleBinary, "not text; data of tests belongs into testdata"})
		}
		return found
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		found = append(found, checkLine(finding{path: name, line: number}, line, machine)...)
	}
	return found
}

func checkLine(at finding, line string, machine []string) []finding {
	var found []finding
	for _, p := range linePatterns {
		if p.pattern.MatchString(line) {
			found = append(found, finding{at.path, at.line, p.rule, p.why})
		}
	}
	for _, dir := range machine {
		if namesDir(line, dir) {
			found = append(found, finding{at.path, at.line, ruleMachinePath, dir + " exists on this machine only"})
		}
	}
	if path.Base(at.path) == "go.mod" && strings.HasPrefix(strings.TrimSpace(line), "replace") {
		found = append(found, finding{at.path, at.line, ruleReplace, "go install refuses a module that replaces others"})
	}
	return found
}

// namesDir reports whether a line names a directory or something in it. A directory of one element,
// such as /app in a container, is too common a word to look for.
func namesDir(line, dir string) bool {
	if strings.Count(dir, "/") < 2 {
		return false
	}
	for {
		before, after, ok := strings.Cut(line, dir)
		if !ok {
			return false
		}
		if !strings.HasSuffix(before, "/") && !endsInWord(before) && !startsWithWord(after) {
			return true
		}
		line = after
	}
}

var (
	wordAtEnd   = regexp.MustCompile(`[\w.-]$`)
	wordAtStart = regexp.MustCompile(`^[\w-]`)
)

func endsInWord(s string) bool     { return wordAtEnd.MatchString(s) }
func startsWithWord(s string) bool { return wordAtStart.MatchString(s) }

// plantedMachine is the machine on which the planted trees were built.
var plantedMachine = []string{"/builds/one/belfry", "/app"}

var plantedHygiene = []planted{
	{
		name: "allowed",
		files: map[string]string{
			".gitignore":            "/bin/\n/belfry\n*.test\n",
			"bin/tool":              "\x7fELF",
			"belfry":                "\x7fELF",
			"node/node.test":        "\x7fELF",
			".git/config":           "/builds/one/belfry",
			"node/testdata/log.bin": "\x00\x01",
			"docs/picture.png":      "\x89PNG\x00",
			"cron/zoneinfo.zip.gz":  "\x1f\x8b\x00",
			"README.md": "Data is in /var/lib/belfry, not in /srv/builds/one/belfry or /builds/one/belfry-data; " +
				"/app is a container's.\n",
			"go.mod":        "module " + modulePath + "\n// replaced nothing\n",
			"node/a.go":     "package node\n\nvar _ = context.TO" + "DO()\n",
			"docs/merge.md": "Title\n=======\n",
		},
	},
	{
		name: "refused",
		files: map[string]string{
			"belfry.exe":              "MZ\x90\x00",
			"node/testdata/program":   "\x7fELF\x02",
			"node/state":              "a\x00b",
			"node/testdata/large":     strings.Repeat("x", fileBytesMax+1),
			"deploy/unit":             "[Service]\nExecStart=/builds/one/belfry/bin/belfry serve\n",
			"README.md":               "\ncd /ho" + "me/ann/src\n",
			"go.mod":                  "module " + modulePath + "\n\nreplace example.org/x => ../x\n",
			"node/a.go":               "package node\n\n// TO" + "DO: wait for the disk\n",
			"node/b.go":               "package node\n\n<<<<" + "<<< HEAD\n",
			"rpc/testdata/server.key": "-----BEGIN EC PRIV" + "ATE KEY-----\n",
		},
		want: []string{
			"README.md:2: hygiene/machine-path",
			"belfry.exe:0: hygiene/binary",
			"deploy/unit:2: hygiene/machine-path",
			"go.mod:3: hygiene/replace",
			"node/a.go:3: hygiene/unfinished",
			"node/b.go:3: hygiene/unfinished",
			"node/state:0: hygiene/binary",
			"node/testdata/large:0: hygiene/large",
			"node/testdata/program:0: hygiene/binary",
			"rpc/testdata/server.key:1: hygiene/secret",
		},
	},
}

func TestHygieneRulesReportPlanted(t *testing.T) {
	runPlanted(t, plantedHygiene, func(t *testing.T, p planted) []finding {
		return checkHygiene(t, p.fs(), plantedMachine)
	})
}
