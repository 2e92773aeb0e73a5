// Jepsen breaks a cluster of Belfry on purpose and says what held; see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitValid   = 0
	exitInvalid = 1
)

const usage = `usage: go run ./jepsen COMMAND

  run     start a cluster, break it, and say what held; run -h has the settings
  suite   many runs, with faults that rotate; suite -h has the settings
  prove   run each planted bug; the checker must find it
  check   judge a run again, of which the directory was kept
  list    list workloads and nemeses
`

// errInvalid says that a run was judged invalid; the verdict was printed.
var errInvalid = errors.New("the verdict is invalid")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(conclude(err, os.Stdout, os.Stderr))
}

// conclude says what came in the way of a command, if anything did, and returns the exit status.
func conclude(err error, out, problems io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitValid
	case errors.Is(err, errInvalid):
		return exitInvalid
	}
	fmt.Fprintln(problems, "jepsen:", err)
	// A reader of only the last line must not take a run that broke for a valid one.
	what, _, _ := strings.Cut(err.Error(), "\n")
	fmt.Fprintf(out, "verdict: invalid: it could not be carried out: %s\n", what)
	return exitInvalid
}

// command carries out one command.
func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command is given\n%s", usage)
	}
	switch args[0] {
	case "run":
		return run(ctx, args[1:], out)
	case "suite":
		return suite(ctx, args[1:], out)
	case "prove":
		return prove(ctx, args[1:], out)
	case "check":
		return recheck(ctx, args[1:], out)
	case "list":
		return list(out)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(out, usage)
		return nil
	default:
		return fmt.Errorf("there is no command %q\n%s", args[0], usage)
	}
}
