package daemon

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/belfrydb/belfry/cmd/belfry/cli"
	"github.com/belfrydb/belfry/cmd/belfry/cli/flag"
)

// checkTLSFlags refuses incomplete credentials. It says which part is missing, and where the others
// were set: the shell of a person who also uses the client may set BELFRY_TLS_CA.
func checkTLSFlags(flags *pflag.FlagSet) error {
	for _, group := range []struct {
		names []string
		hint  string
	}{
		{[]string{flag.TLSCert, flag.TLSKey, flag.TLSCA},
			"'belfry cert' makes the three files, and without TLS none of them is set"},
		{[]string{flag.TLSClientCert, flag.TLSClientKey}, "they are shown to clients instead of --tls-cert and --tls-key"},
	} {
		var set, missing []string
		for _, name := range group.names {
			f := flags.Lookup(name)
			if f.Value.String() == "" {
				missing = append(missing, "--"+name)
				continue
			}
			set = append(set, fmt.Sprintf("--%s by %s", name, setBy(f)))
		}
		if len(set) > 0 && len(missing) > 0 {
			return cli.Usagef("%s belong together, but only a part is set: %s; missing: %s. %s",
				"--"+strings.Join(group.names, ", --"), strings.Join(set, ", "), strings.Join(missing, ", "), group.hint)
		}
	}
	return nil
}

// setBy says in a sentence what set a flag.
func setBy(f *pflag.Flag) string {
	switch origin := cli.OriginOf(f); {
	case origin == "flag":
		return "the command line"
	case strings.HasPrefix(origin, cli.EnvPrefix):
		return origin + " of the environment"
	default: // a file and its line
		return origin
	}
}
