package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/access/certs"
	"github.com/belfrydb/belfry/access/tokens"
	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"github.com/belfrydb/belfry/node/identity"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/check"
)

// The files of root tokens: what is kept of all, and one for each with the token itself.
const (
	RootTokensFile = "root-tokens"
	TokenSuffix    = ".token"
)

func (a verbs) tokenCommand() *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "token",
		Short: "Make, list, replace and end the tokens that calls carry",
		Long: `
Token looks after bearer tokens. Where nodes have --root-tokens every call carries one. What a token
allows is in its scopes, ACTION[,ACTION…]:QUEUES, where QUEUES is one name, or the beginning of
names and *:

  put      put jobs, cancel and reschedule them
  consume  reserve jobs, end and look at them
  view     see numbers and settings of queues, of * also the cluster's state and metrics
  admin    everything, of * also nodes, settings of the cluster, backups and tokens`,
	}, a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRotateCommand(), a.tokenDeleteCommand(),
		a.tokenRootCommand())
}

func (a verbs) tokenCreateCommand() *cobra.Command {
	request := &belfryv1.CreateTokenRequest{}
	ttl, out := tokenSpan(check.TokenTTLMin), ""
	c := &cobra.Command{
		Use:   "create --scope SCOPE",
		Short: "Make a token, and print it once",
		Long: `
Create makes a token. It is printed, or written to a file that its owner alone may read, and kept
nowhere else.`,
		Example: `  belfry token create --scope 'put:shop/*' --about 'the shop' --out shop.token
  belfry token create --scope put,consume:mails --ttl 2160h`,
		Args: cli.Arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&request.Scopes, flag.Scope, nil, "what it allows, ACTION[,ACTION…]:QUEUES; may be repeated")
	flags.StringVar(&request.About, flag.About, "", "what it is for, for people")
	flags.Var(ttl, flag.TTL, "after how long it ends; never by default")
	flags.StringVar(&out, flag.Out, "", "a new file to write it to, instead of printing it")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		if len(request.Scopes) == 0 {
			return cli.Usagef("--scope is missing: what the token allows, such as put:orders or consume:shop/*")
		}
		for _, text := range request.Scopes {
			if _, err := tokens.ParseScope(text); err != nil {
				return cli.Usagef("--scope: %s", err)
			}
		}
		request.Ttl = ttl.Proto
		if err := newFile(out); err != nil {
			return err
		}
		response, err := conn.Admin.CreateToken(ctx, request)
		if err != nil {
			return err
		}
		return a.showToken(response, out)
	})
	return a.ClientFlags(c)
}

// tokenSpan is a flag for how long a token lasts.
func tokenSpan(least time.Duration) *cli.OptionalDuration {
	return cli.BoundedDuration(least, check.TokenTTLMax,
		fmt.Sprintf("%v to %dh, which is 10 years", least, check.TokenTTLMax/time.Hour))
}

// newFile refuses the name of a file that is there, or that cannot be made. Nothing is no name.
func newFile(name string) error {
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the operator names it
	if errors.Is(err, fs.ErrExist) {
		return cli.Usagef("--out: %s is there already", name)
	}
	if err != nil {
		return cli.Usagef("--out: %s", err)
	}
	return errors.Join(file.Close(), os.Remove(name))
}

// showToken shows a token that was made, or writes it to a file.
func (a verbs) showToken(made *belfryv1.CreateTokenResponse, out string) error {
	if out != "" {
		if err := certs.WriteSecret(out, []byte(made.Token+"\n")); err != nil {
			return fmt.Errorf("token %s was made and could not be kept; end it with 'belfry token delete %s': %w",
				made.Record.Id, made.Record.Id, err)
		}
		return a.showKept(made.Record, out)
	}
	return a.Show(made, func(w io.Writer) { fmt.Fprintln(w, made.Token) })
}

// showKept shows a token that is in a file.
func (a verbs) showKept(record *belfryv1.Token, out string) error {
	text, err := cli.EncodeJSON(record)
	if err != nil {
		return err
	}
	kept := struct {
		Record json.RawMessage `json:"record"`
		Out    string          `json:"out"` // the file
	}{text, out}
	return a.ShowValue(kept, func(w io.Writer) {
		fmt.Fprintf(w, "token %s, which allows %s, is in %s (ends: %s)\n", record.Id, strings.Join(record.Scopes, " "), out,
			tokenEnd(record, a.Now()))
	})
}

func (a verbs) tokenListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List what is kept of tokens",
		Long: `
List shows the tokens that were made with 'create' and have not been deleted. Root tokens are in
files of the nodes.`,
		Args: cli.Arguments(0, 0),
	}
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, _ []string) error {
		response, err := listTokens(ctx, conn)
		if err != nil {
			return err
		}
		return a.Show(response, func(w io.Writer) {
			if len(response.Tokens) == 0 {
				fmt.Fprintln(w, "no tokens but the root tokens")
				return
			}
			var lines [][]string
			for _, t := range response.Tokens {
				lines = append(lines, []string{
					t.Id, strings.Join(t.Scopes, " "), tokenEnd(t, a.Now()), t.CreatedAt.AsTime().Format(time.RFC3339),
					cmp.Or(t.CreatedBy, "-"), t.About,
				})
			}
			render.Rows(w, []string{"ID", "SCOPES", "ENDS", "MADE", "WITH", "ABOUT"}, lines)
		})
	})
	return a.ClientFlags(c)
}

// listTokens reads all pages.
func listTokens(ctx context.Context, conn *cli.Connection) (*belfryv1.ListTokensResponse, error) {
	all, request := &belfryv1.ListTokensResponse{}, &belfryv1.ListTokensRequest{PageSize: 1000}
	for {
		page, err := conn.Admin.ListTokens(ctx, request)
		if err != nil {
			return nil, err
		}
		all.Tokens = append(all.Tokens, page.Tokens...)
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			return all, nil
		}
	}
}

// tokenEnd says when a token ends.
func tokenEnd(t *belfryv1.Token, now time.Time) string {
	switch {
	case t.NotAfter == nil:
		return "never"
	case !now.Before(t.NotAfter.AsTime()):
		return "has ended"
	default:
		return t.NotAfter.AsTime().Format(time.RFC3339)
	}
}

func (a verbs) tokenRotateCommand() *cobra.Command {
	ttl, overlap := tokenSpan(check.TokenTTLMin), tokenSpan(0)
	out := ""
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace a token by one that allows the same",
		Long: `
Rotate makes a token with the scopes of another one, and has that one end after --overlap. Give the
new one to its clients before: Go clients with WithTokenFile, and 'belfry' with --token-file, read
it when its file changes.`,
		Example: `  belfry token rotate ke4h5nvsdg2fcu7a --overlap 1h --out shop-2.token &&
    mv shop-2.token shop.token`,
		Args:              cli.Arguments(1, 1, "ID"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.Var(overlap, flag.Overlap,
		"for how long the old one may still be used, if it does not end before; an hour by default")
	flags.Var(ttl, flag.TTL, "after how long the new one ends; as long as the old one was made for by default")
	flags.StringVar(&out, flag.Out, "", "a new file to write the token to, instead of printing it")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		if err := newFile(out); err != nil {
			return err
		}
		old, err := a.goodToken(ctx, conn, idOf(args[0]))
		if err != nil {
			return err
		}
		if ttl.Proto == nil {
			ttl.Proto = old.Ttl
		}
		made, err := conn.Admin.CreateToken(ctx, &belfryv1.CreateTokenRequest{
			Scopes: old.Scopes, About: old.About, Ttl: ttl.Proto,
		})
		if err != nil {
			return err
		}
		if err := a.showToken(made, out); err != nil {
			return err
		}
		after := overlap.Proto
		if after == nil {
			after = durationpb.New(time.Hour)
		}
		if _, err := conn.Admin.DeleteToken(ctx, &belfryv1.DeleteTokenRequest{Id: old.Id, After: after}); err != nil {
			return fmt.Errorf("the new token was made, and the old one goes on: %w", err)
		}
		return nil
	})
	return a.ClientFlags(c)
}

// goodToken returns a token that has not ended.
func (a verbs) goodToken(ctx context.Context, conn *cli.Connection, id string) (*belfryv1.Token, error) {
	known, err := listTokens(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, t := range known.Tokens {
		switch {
		case t.Id != id:
		case t.NotAfter != nil && !a.Now().Before(t.NotAfter.AsTime()):
			return nil, cli.ExitWith(cli.CodeUsage,
				fmt.Sprintf("token %s has ended; make another with 'belfry token create'", id))
		default:
			return t, nil
		}
	}
	return nil, cli.ExitWith(cli.CodeNotFound,
		fmt.Sprintf("there is no token %s; 'belfry token list' shows those there are, and root tokens are in the "+
			"nodes' files", id))
}

func (a verbs) tokenDeleteCommand() *cobra.Command {
	after := tokenSpan(0)
	c := &cobra.Command{
		Use:   "delete ID",
		Short: "End a token",
		Long: `
Delete ends a token, at once or with --after. Calls that are under way are finished; connections
that carry it are of no more use. Tokens that were made with it go on; 'belfry token list' says
which those are.`,
		Example:           "  belfry token delete ke4h5nvsdg2fcu7a --after 1h",
		Args:              cli.Arguments(1, 1, "ID"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().Var(after, flag.After, "for how long it may still be used")
	c.RunE = a.Command(nil, func(ctx context.Context, conn *cli.Connection, args []string) error {
		id := idOf(args[0])
		response, err := conn.Admin.DeleteToken(ctx, &belfryv1.DeleteTokenRequest{Id: id, After: after.Proto})
		if err != nil {
			return err
		}
		if !response.GetFound() {
			return cli.ExitWith(cli.CodeNotFound,
				fmt.Sprintf("there is no token %s: it has ended before, or the id is wrong; 'belfry token list' shows those "+
					"there are", id))
		}
		return a.Show(response, func(w io.Writer) {
			if d := after.Proto.AsDuration(); d > 0 {
				fmt.Fprintf(w, "%s ends in %s\n", id, render.Short(d))
				return
			}
			fmt.Fprintf(w, "ended %s\n", id)
		})
	})
	return a.ClientFlags(c)
}

// idOf returns the id of a token, for which the token itself may be given: that is what one has of
// a token that leaked, and it should not get into a log.
func idOf(text string) string {
	if id, _, err := tokens.Parse(strings.TrimSpace(text)); err == nil {
		return id
	}
	return text
}

// MadeRoot is what `token root` made.
type MadeRoot struct {
	ID         string `json:"id,omitempty"` // empty for one that was there
	Token      string `json:"token"`        // its file
	RootTokens string `json:"rootTokens"`   // the file for the nodes
}

// isComplete reports whether both files are there.
func (m *MadeRoot) isComplete() bool {
	_, tokenErr := os.Lstat(m.Token)
	_, rootsErr := os.Lstat(m.RootTokens)
	return tokenErr == nil && rootsErr == nil
}

func (a verbs) tokenRootCommand() *cobra.Command {
	var dir, name string
	keep := false
	c := &cobra.Command{
		Use:   "root",
		Short: "Make a token that may do everything, for --root-tokens",
		Long: `
Root makes a token without asking a server: NAME.token has it, and what is kept of it is added to
root-tokens, the file for the nodes' --root-tokens. With it others are made; it works also while the
cluster has no leader. To replace it make another with a NAME of its own, give root-tokens to the
nodes and send SIGHUP, and later the same without the old one's line.`,
		Example: `  belfry token root --dir certs
  belfry serve --root-tokens certs/root-tokens
  belfry token create --token-file certs/root.token --scope put:orders`,
		Args: cli.Arguments(0, 0),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&dir, flag.Dir, "certs", "the directory of the files")
	flags.StringVar(&name, flag.Name, "root", "the name of the token's file, without .token")
	flags.BoolVar(&keep, flag.Keep, false, "if that file is there already, leave all as it is")
	c.RunE = func(*cobra.Command, []string) error {
		if there := (&MadeRoot{
			Token: filepath.Join(dir, name+TokenSuffix), RootTokens: filepath.Join(dir, RootTokensFile),
		}); keep && there.isComplete() {
			return a.ShowValue(there, func(w io.Writer) { fmt.Fprintf(w, "root token %s is there already\n", there.Token) })
		}
		made, err := makeRootToken(dir, name)
		if err != nil {
			return err
		}
		return a.ShowValue(made, func(w io.Writer) {
			fmt.Fprintf(w, "root token %s is in %s, and what nodes need of it in %s\n", made.ID, made.Token, made.RootTokens)
		})
	}
	return a.OutputFlag(c)
}

// makeRootToken makes a token and adds what is kept of it to the file for the nodes.
func makeRootToken(dir, name string) (*MadeRoot, error) {
	if !identity.ValidName(name) {
		return nil, cli.Usagef("--name: have %q, want 1 to 64 letters of a to z and A to Z, digits, _ and -", name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the token in it is for its owner only
		return nil, fmt.Errorf("making the directory of the tokens: %w", err)
	}
	made := &MadeRoot{Token: filepath.Join(dir, name+TokenSuffix), RootTokens: filepath.Join(dir, RootTokensFile)}
	if _, err := os.Lstat(made.Token); !errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Usagef("--name: %s is there already", made.Token)
	}
	known, err := os.ReadFile(made.RootTokens)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the tokens that there are: %w", err)
	}
	if len(known) > 0 && known[len(known)-1] != '\n' {
		known = append(known, '\n')
	}
	text, id, hash := tokens.New()
	made.ID = id
	if err := certs.WriteSecret(made.Token, []byte(text+"\n")); err != nil {
		return nil, err
	}
	return made, certs.WriteSecret(made.RootTokens, append(known, tokens.FormatRoot(id, hash)...))
}
