package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/daemon"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/rpc/check"
)

// options are the flags of `doctor`.
type options struct {
	out, data, debug string
	withNames        bool
}

// doctored is what the command says of its bundle.
type doctored struct {
	File string `json:"file"`
	*Bundle
}

// verbs is `doctor`.
type verbs struct{ *cli.App }

// Commands returns `doctor`.
func Commands(a *cli.App) []*cobra.Command { return []*cobra.Command{verbs{a}.doctorCommand()} }

func (a verbs) doctorCommand() *cobra.Command {
	f := &options{}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what looks wrong, and make a bundle of facts for a report of it",
		Long: `
Doctor asks the server how it and its cluster are, looks at this machine, says what looks wrong with
what to do about it, and packs what it found into one file. It says what goes into the file before
it writes it. It works without a server too, and then says what it could not reach. Run it on the
node that is in trouble, with the settings that the server has: the same --config, or the same
variables.

No bodies, headers, ids or errors of jobs are in the file, no tokens, keys or passwords; of files of
keys there are the names. Names of queues are hashed, the same way in the whole file, unless
--with-names says otherwise; names and addresses of nodes are there.`,
		Example: "  belfry doctor\n  belfry doctor --out trouble.tar.gz && tar xzf trouble.tar.gz",
		Args:    cli.Arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.out, flag.Out, "", "the `FILE` to write, which must not exist; belfry-doctor-TIME.tar.gz if empty")
	flags.StringVar(&f.data, flag.Data, "", "the server's data directory on this machine; by default as its settings say")
	flags.StringVar(&f.debug, flag.DebugAddr, "",
		"where the server listens with its --debug-addr, HOST:PORT, to have what its goroutines do; by default as its "+
			"settings say")
	flags.BoolVar(&f.withNames, flag.WithNames, false, "leave the names of queues as they are")
	c.Annotations = map[string]string{cli.DespiteSettings: "true"}
	c.RunE = func(c *cobra.Command, _ []string) error {
		conn, err := a.Connect()
		if err != nil {
			return err
		}
		return a.examine(c, conn, f)
	}
	return a.ClientFlags(c)
}

// examine makes the bundle, says what is in it, and writes it.
func (a verbs) examine(c *cobra.Command, conn *cli.Connection, f *options) error {
	now := a.Now()
	if f.out == "" {
		f.out = "belfry-doctor-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	if _, err := os.Lstat(f.out); err == nil {
		return cli.ExitWith(cli.CodeConflict, f.out+" exists; a bundle overwrites nothing")
	}
	names := Hashed()
	if f.withNames {
		names = Names{}
	}
	e := &examination{App: a.App, conn: conn, flags: f, names: names, bundle: New(names)}
	e.own()
	e.settings(c)
	e.bundle.Machine(f.data)
	e.server(c.Context())
	if err := context.Cause(c.Context()); err != nil {
		return err
	}
	e.bundle.Miss("log lines",
		errors.New("the server keeps none: add what it wrote to standard error, as 'journalctl -u belfry' shows it, and "+
			"look for names in it"))
	e.bundle.Add("summary.txt", "what looks wrong, and what could not be reached", e.bundle.Summary())
	e.list()
	if err := writeBundle(f.out, e.bundle, now); err != nil {
		return err
	}
	return a.ShowValue(doctored{f.out, e.bundle}, func(w io.Writer) {
		fmt.Fprintf(w, "\n%s\nwrote %s\n", strings.TrimSuffix(e.bundle.Summary(), "\n"), f.out)
	})
}

// examination makes one bundle.
type examination struct {
	*cli.App
	conn   *cli.Connection
	flags  *options
	names  Names
	bundle *Bundle
}

// list says what is about to be written.
func (e *examination) list() {
	w := e.Out
	if e.Output == "json" {
		w = e.Err
	}
	fmt.Fprintf(w, "into %s go:\n", e.flags.out)
	var lines [][]string
	for _, p := range e.bundle.Parts {
		lines = append(lines, []string{"  " + p.Name, render.Grouped(uint64(p.Bytes)), p.About}) //nolint:gosec // a length
	}
	render.Rows(w, []string{"  FILE", "BYTES", "WHAT"}, lines)
}

// own adds what this binary is and allows.
func (e *examination) own() {
	b := cli.ThisBuild()
	var s strings.Builder
	fmt.Fprintln(&s, b)
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"} {
		value, _ := e.LookupEnv(name)
		fmt.Fprintf(&s, "%s=%s\n", name, value)
	}
	fmt.Fprintf(&s, "made at %s on %s/%s\n", e.Now().UTC().Format(time.RFC3339), runtime.GOOS, runtime.GOARCH)
	e.bundle.Add("version.txt", "what this command was built from, and what tunes Go in its environment", s.String())
	e.json("limits.json", "the limits of requests in this version", check.DefaultLimits())
}

// json adds a value.
func (e *examination) json(name, about string, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		e.bundle.Miss(name, err)
		return
	}
	e.bundle.Add(name, about, string(text)+"\n")
}

// settings adds those that serve would have here, and takes from them what the flags leave open.
func (e *examination) settings(c *cobra.Command) {
	serve, _, err := c.Root().Find([]string{"serve"})
	if err == nil {
		err = serve.ParseFlags(nil) // which makes it know the flags of all commands, --config among them
	}
	if err == nil {
		err = cli.Resolve(serve, e.LookupEnv)
	}
	if err != nil {
		where, _, _ := strings.Cut(err.Error(), "have \"") // what stands there may be a password in the wrong place
		e.bundle.Find("the settings have a mistake: "+where, "'belfry serve --print-config' shows them, and what is wrong")
	}
	setting := func(flag *string, name string) {
		if f := serve.Flags().Lookup(name); f != nil && *flag == "" {
			*flag = f.Value.String()
		}
	}
	setting(&e.flags.data, flag.Data)
	setting(&e.flags.debug, flag.DebugAddr)
	lines := daemon.EffectiveConfig(serve)
	for _, line := range lines {
		if line[0] == "mirror-queue" && !e.flags.withNames && line[1] != "-" {
			line[1] = render.Count(strings.Count(line[1], ",")+1, "queue")
		}
	}
	var s strings.Builder
	render.Rows(&s, []string{"SETTING", "VALUE", "ORIGIN"}, lines)
	e.bundle.Add("config.txt",
		"the settings that 'belfry serve' would have here, and where each comes from; keys and passwords by the names of "+
			"their files", s.String())
	e.certificate(serve)
}

// writeBundle writes a bundle to a file that is not there yet.
func writeBundle(path string, b *Bundle, at time.Time) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the person names the file
	if errors.Is(err, fs.ErrExist) {
		return cli.ExitWith(cli.CodeConflict, path+" exists; a bundle overwrites nothing")
	}
	if err != nil {
		return fmt.Errorf("making the file: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			_ = os.Remove(path) // a part of it is useless
		}
	}()
	return b.Write(file, at)
}
