package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/clitest"
	"github.com/belfrydb/belfry/cmd/belfry/cli/daemon"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// docsPages returns the pages of docs, by their paths from the root of the module.
func docsPages(t *testing.T) []string {
	t.Helper()
	var pages []string
	err := filepath.WalkDir(filepath.Join(repository, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			name, relErr := filepath.Rel(repository, path)
			if relErr != nil {
				return relErr
			}
			pages = append(pages, name)
		}
		return err
	})
	if err != nil || len(pages) < 10 {
		t.Fatalf("found the pages %v, %v", pages, err)
	}
	return pages
}

// TestDocs runs every command and every program of the pages in docs, in order: each page in a
// directory of its own, with a server of its own.
func TestDocs(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```(sh|go)\n(.*?)^```$")
	for _, name := range docsPages(t) {
		blocks := block.FindAllStringSubmatch(readPage(t, name), -1)
		if len(blocks) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &page{
				t: t, root: root, dir: t.TempDir(), bin: filepath.Dir(launcher), address: serve(t, launcher, t.TempDir()).address,
			}
			for i, b := range blocks {
				first := strings.SplitN(b[2], "\n", 2)[0]
				if ok := t.Run(fmt.Sprintf("%02d %s", i+1, first), func(t *testing.T) { p.step(t, b[1], b[2]) }); !ok {
					return // what follows builds on it
				}
			}
		})
	}
}

// step runs a block of a page.
func (p *page) step(t *testing.T, language, block string) {
	t.Helper()
	switch {
	case language == "sh":
		p.run(t, strings.ReplaceAll(block, "127.0.0.1:7490", addresses.FreeRow(t, 3)))
	case strings.HasPrefix(block, "package main\n"):
		p.program(t, block)
	default:
		p.tests(t, block)
	}
}

// program builds a program and runs it. A program that goes on until it is stopped is stopped once
// it has printed something.
func (p *page) program(t *testing.T, source string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	source = strings.ReplaceAll(source, "127.0.0.1:7400", p.address)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, clitest.WriteFile(t, "main.go", source))
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building it: %v\n%s", err, out)
	}
	program := exec.CommandContext(t.Context(), path)
	program.Dir = p.dir
	printed := &lockedBuffer{}
	program.Stdout, program.Stderr = printed, printed
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(source, "signal.NotifyContext") {
		await(t, "the program", func() bool { return strings.Contains(printed.String(), "\n") })
		if err := program.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	if err := program.Wait(); err != nil {
		t.Errorf("it ended with %v and printed:\n%s", err, printed)
	}
}

// tests runs the tests of a source file.
func (p *page) tests(t *testing.T, source string) {
	t.Helper()
	run := exec.CommandContext(t.Context(), "go", "test", "-v", clitest.WriteFile(t, "page_test.go", source))
	run.Dir = p.root
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "\n--- PASS: Test") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDocsError compares the error body of docs/errors.md with what the server answers to the call
// above it. The value of a detail is its binary form, in which the order of fields is not fixed.
func TestDocsError(t *testing.T) {
	t.Parallel()
	call := regexp.MustCompile("(?s)curl localhost:7400(/v1/[a-z-]+) -d '([^']*)' \\|\\| true\n```\n\n```json\n(.*?)```")
	match := call.FindStringSubmatch(readPage(t, "docs/errors.md"))
	if match == nil {
		t.Fatal("the page has no call with an error below it")
	}
	p := serve(t, launcher, t.TempDir())
	url := "http://" + p.address + match[1]
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(match[2]))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	body = regexp.MustCompile(`"value":"[^"]*"`).ReplaceAll(body, []byte(`"value":"…"`))
	var got, want any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(match[3]), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page has another error than the server (-page +server):\n%s", diff)
	}
}

// TestDocsReasons compares docs/errors.md with the error contract: it has a section for each
// reason, which begins with the Connect code, the outcome and the exit code.
func TestDocsReasons(t *testing.T) {
	text := readPage(t, "docs/errors.md")
	section := regexp.MustCompile("(?m)^### ([A-Z_]+)\n\n(.*)$")
	found := make(map[string]string)
	for _, m := range section.FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[2]
	}
	for number, name := range belfryv1.Reason_name {
		if number == 0 {
			continue
		}
		reason := strings.TrimPrefix(name, "REASON_")
		refused := &fault.Error{Reason: belfryv1.Reason(number)}
		h := newHarness(t, clitest.Refuse(refused.Code(), reason, "the server's words"))
		outcome := strings.TrimPrefix(refused.Outcome().String(), "OUTCOME_")
		want := fmt.Sprintf("`%s`, `%s`, exit code %d. ", refused.Code(), outcome, h.Run("nack", "lease").Code)
		if got, there := found[reason]; !there || !strings.HasPrefix(got+" ", want) {
			t.Errorf("the section of %s begins with %q, want %q", reason, got, want)
		}
		delete(found, reason)
	}
	for reason := range found {
		t.Errorf("there is no reason %s", reason)
	}
}

// TestDocsExitCodes compares the table of docs/errors.md with the help.
func TestDocsExitCodes(t *testing.T) {
	text := readPage(t, "docs/errors.md")
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| `).FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^ +(\d+) `).FindAllStringSubmatch(cli.ExitCodesText, -1) {
		want = append(want, m[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has the codes %v, the help %v", got, want)
	}
}

// TestDocsFlags compares the tables of docs/configuration.md with the flags of the program, and
// their defaults.
func TestDocsFlags(t *testing.T) {
	text := readPage(t, "docs/configuration.md")
	for _, test := range []struct {
		heading, command string
		not              []string
	}{
		{heading: "Flags of `belfry serve`", command: "serve"},
		{heading: "Flags of commands that talk to a server", command: "get", not: []string{"body", "key"}},
		{heading: "Settings of a queue", command: "queue set", not: []string{"request-id"}},
		{heading: "Settings of a namespace", command: "namespace set"},
		{heading: "Settings of the cluster", command: "cluster settings"},
	} {
		t.Run(test.command, func(t *testing.T) {
			command, _, err := newRoot(cli.New(&cli.System{})).Find(strings.Fields(test.command))
			if err != nil {
				t.Fatal(err)
			}
			compareFlags(t, flagTable(t, text, test.heading), command, test.not)
		})
	}
}

// TestDocsFields compares the tables of docs/clients.md and docs/schedules.md with the fields of the
// messages.
func TestDocsFields(t *testing.T) {
	text := readPage(t, "docs/clients.md") + readPage(t, "docs/schedules.md")
	for heading, message := range map[string]proto.Message{
		"The fields of a put": &belfryv1.PutRequest{}, "The fields of a reserve": &belfryv1.ReserveRequest{},
		"The fields of a list": &belfryv1.ListRequest{}, "The fields of a task": &belfryv1.StartTaskRequest{},
		"The fields of a spec": &belfryv1.ScheduleSpec{}, "The fields of a policy": &belfryv1.SchedulePolicy{},
	} {
		_, section, _ := strings.Cut(text, "\n### "+heading+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		var got []string
		for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1) {
			got = append(got, m[1])
		}
		want := fieldNames(message)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-contract +page):\n%s", heading, diff)
		}
	}
}

// fieldNames returns the names of a message's fields in JSON, sorted.
func fieldNames(message proto.Message) []string {
	var names []string
	fields := message.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names = append(names, fields.Get(i).JSONName())
	}
	slices.Sort(names)
	return names
}

// TestDocsRequestIDs: docs/concepts.md says which changes take no request id.
func TestDocsRequestIDs(t *testing.T) {
	var without []string
	for _, file := range []protoreflect.FileDescriptor{
		belfryv1.File_belfry_v1_queue_proto, belfryv1.File_belfry_v1_admin_proto,
		belfryv1.File_belfry_v1_schedule_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				method := methods.Get(j)
				options, _ := method.Options().(*descriptorpb.MethodOptions)
				if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS &&
					method.Input().Fields().ByName("request_id") == nil {
					without = append(without, string(method.Name()))
				}
			}
		}
	}
	// Work carries requests that have one, and Backup changes nothing.
	want := []string{"Work", "Backup", "Restore", "CreateToken", "DeleteToken", "StopTask"}
	if diff := cmp.Diff(want, without); diff != "" {
		t.Errorf("calls without a request id (-page +contract):\n%s", diff)
	}
}

// flagTable returns the flags in the table below a heading, with their defaults.
func flagTable(t *testing.T, text, heading string) map[string]string {
	t.Helper()
	_, section, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("there is no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	flags := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| ?(.*?) ?\\| ").FindAllStringSubmatch(section, -1) {
		flags[m[1]] = strings.Trim(m[2], "`")
	}
	return flags
}

// compareFlags compares a table of flags with those of a command. The flags by which commands find
// their server have a table of their own.
func compareFlags(t *testing.T, got map[string]string, command *cobra.Command, not []string) {
	t.Helper()
	connection := []string{"server", "tls-ca", "token-file", "timeout", "output"}
	for name, text := range got {
		flag := command.Flag(name)
		if flag == nil {
			t.Errorf("there is no --%s", name)
			continue
		}
		if want := shownDefault(command, flag); want != "" && text != want {
			t.Errorf("the default of --%s is %q, the page says %q", name, want, text)
		}
	}
	command.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		_, there := got[flag.Name]
		// serve has a --tls-ca of its own.
		elsewhere := command.Name() != "get" && slices.Contains(connection, flag.Name) && command.Flag("server") != nil
		if !there && !elsewhere && flag.Name != "help" && !slices.Contains(not, flag.Name) {
			t.Errorf("the page does not show --%s", flag.Name)
		}
	})
}

// shownDefault returns the default that a page has to show for a flag, "" if it may say anything.
func shownDefault(command *cobra.Command, flag *pflag.Flag) string {
	if implied := daemon.ImpliedValue(command, flag); implied != "" {
		return implied
	}
	if slices.Contains([]string{"0", "false", "[]", "none"}, flag.DefValue) {
		return ""
	}
	return flag.DefValue
}

// TestDocsAlerts: docs/operations.md says for each alert what to do, and names no other.
func TestDocsAlerts(t *testing.T) {
	var named, wanted []string
	for _, m := range regexp.MustCompile(`(?m)^\| \[(Belfry\w+)\]`).FindAllStringSubmatch(
		readPage(t, "docs/operations.md"), -1) {
		named = append(named, m[1])
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(readPage(t, "deploy/prometheus/rules.yaml"),
		-1) {
		if !slices.Contains(wanted, m[1]) {
			wanted = append(wanted, m[1])
		}
	}
	slices.Sort(named)
	slices.Sort(wanted)
	if diff := cmp.Diff(wanted, named); diff != "" {
		t.Errorf("the page has other alerts than the rules (-rules +page):\n%s", diff)
	}
}

// TestDocsNameTestsThatExist guards the promises: a test that was renamed must be renamed there.
func TestDocsNameTestsThatExist(t *testing.T) {
	named := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(readPage(t, "docs/concepts.md"), -1)
	if len(named) < 10 {
		t.Fatalf("found %d names of tests; the page has more", len(named))
	}
	grep := exec.CommandContext(t.Context(), "grep", "-rhoE", "^func Test[A-Za-z]+", "--include=*_test.go", repository)
	out, err := grep.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range named {
		if !strings.Contains(string(out), "func "+name[1]+"\n") {
			t.Errorf("the page names %s; there is no such test", name[1])
		}
	}
}

// TestDocsGiveReasonsForDependencies compares the table of modules in CONTRIBUTING with go.mod.
func TestDocsGiveReasonsForDependencies(t *testing.T) {
	mod := readPage(t, "go.mod")
	required := regexp.MustCompile(`(?m)^\t(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(mod, -1)
	direct := make(map[string]bool)
	for _, r := range required {
		direct[r[1]] = r[2] == ""
	}
	_, text, _ := strings.Cut(readPage(t, "CONTRIBUTING.md"), "\n## Dependencies\n")
	for module, isDirect := range direct {
		if isDirect && !strings.Contains(text, "| `"+module+"` | ") {
			t.Errorf("CONTRIBUTING gives no reason for %s", module)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\S+)` \\| ").FindAllStringSubmatch(text, -1) {
		if !direct[row[1]] {
			t.Errorf("CONTRIBUTING gives a reason for %s, which go.mod does not require directly", row[1])
		}
	}
}

// TestDocsFit: the README has at most 200 lines, and no line of it or of a page for users is wider
// than 100 columns, tables aside.
func TestDocsFit(t *testing.T) {
	if lines := strings.Count(readme(t), "\n"); lines > 200 {
		t.Errorf("the README has %d lines; the limit is 200", lines)
	}
	for _, name := range append(docsPages(t), "README.md", "deploy/README.md") {
		if name == "docs/architecture.md" || filepath.Dir(name) == "docs/decisions" {
			continue // for contributors
		}
		for i, line := range strings.Split(readPage(t, name), "\n") {
			if utf8.RuneCountInString(line) > 100 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d is wider than 100 columns", name, i+1)
			}
		}
	}
}
