package belfry_test

import (
	"go/ast"
	"slices"
	"testing"
)

// The rule about the process: only the command may end it, read its environment or change what it
// shares.
const ruleProcess = "process/global"

var processRuleNames = []string{ruleProcess}

// programs are the folders that are programs of their own.
var programs = []string{"cmd/belfry"}

// commands are folders with a program, without the folders in them.
var commands = []string{"cmd/compare", "jepsen", "rpc/openapi/generate"}

// processNames are the names that act on the whole process, by package. An empty list stands for
// all of a package.
var processNames = map[string]struct {
	names  []string
	reason string
}{
	"os": {
		[]string{"Exit", "Args", "Getenv", "LookupEnv", "Environ", "Setenv", "Unsetenv", "Clearenv", "Chdir"},
		"the command ends the process and reads its arguments and environment; everything else is handed a configuration",
	},
	"syscall":   {[]string{"Exit", "Getenv", "Setenv"}, "the command ends the process and reads its environment"},
	"os/signal": {nil, "signals belong to the command; everything else gets a context"},
	"flag":      {nil, "flags belong to the command; everything else is handed a configuration"},
	"expvar":    {nil, "it registers in the process; two nodes in one test would share it"},
	"log": {
		[]string{
			"Default", "Fatal", "Fatalf", "Fatalln", "Output", "Panic", "Panicf", "Panicln", "Print", "Printf", "Println",
			"SetFlags", "SetOutput", "SetPrefix", "Writer",
		},
		"a *slog.Logger is handed in; this one is shared by the process, and its Fatal ends it",
	},
	"github.com/hashicorp/go-hclog": {[]string{"Default", "L", "SetDefault"}, "the logger is handed in"},
	"log/slog": {[]string{"Default", "SetDefault", "Debug", "Info", "Warn", "Error"},
		"the logger is handed in"},
	"net/http": {[]string{"DefaultServeMux", "Handle", "HandleFunc"},
		"routes are registered in a mux that is handed in"},
	prometheusPath: {[]string{"DefaultRegisterer", "DefaultGatherer", "Register", "MustRegister"},
		"the registerer is handed in"},
}

const prometheusPath = "github.com/prometheus/client_golang/prometheus"

// checkProcess reports what acts on the whole process outside of a program. Tests may: they are
// processes of their own.
func checkProcess(t *tree) []finding {
	var found []finding
	for _, f := range t.files {
		if f.test || slices.Contains(commands, f.dir) || slices.ContainsFunc(programs, func(dir string) bool {
			return inTree(f.dir, dir)
		}) {
			continue
		}
		names := f.names()
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			pkg, name, ok := qualified(names, n)
			if !ok {
				return true
			}
			if f.dir == "client" && pkg == "log/slog" && name == "Default" {
				return true // what a program that hands no logger in should still hear of, WithLogger says
			}
			global, listed := processNames[pkg]
			if listed && (global.names == nil || slices.Contains(global.names, name)) {
				found = append(found, f.finding(n.Pos(), ruleProcess, "%s.%s: %s", pkg, name, global.reason))
			}
			return true
		})
	}
	return found
}

var plantedProcess = []planted{
	{
		name: "allowed in programs and tests",
		files: map[string]string{
			"cmd/belfry/main.go":     "package main\n\nimport \"os\"\n\nfunc main() { os.Exit(1) }\n",
			"jepsen/main.go":         "package main\n\nimport \"flag\"\n\nfunc main() { flag.Parse() }\n",
			"node/storage/a_test.go": "package storage\n\nimport \"os\"\n\nvar _ = os.Getenv(\"HOME\")\n",
			"node/a.go": "package node\n\nimport (\n\t\"log\"\n\t\"log/slog\"\n\t\"os\"\n)\n\nvar _, _, _ = " +
				"os.Open, slog.New, log.New\n",
			"rpc/a.go": "package rpc\n\ntype t struct{ os struct{ Exit func(int) } }\n\nfunc (t t) f() { t.os.Exit(1) }\n",
		},
	},
	{
		name: "refused elsewhere",
		files: map[string]string{
			"node/a.go": `package node

import (
	renamed "flag"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

func f() {
	os.Exit(1)
	syscall.Exit(1)
	signal.Notify(nil)
	renamed.Parse()
	log.Fatal()
	slog.Info("")
	http.HandleFunc("/", nil)
	prometheus.MustRegister()
}

var exit = os.Exit
`,
			"cmd/a.go": "package cmd\n\nimport \"expvar\"\n\nvar _ = expvar.NewInt\n",
		},
		want: []string{
			"cmd/a.go:5: process/global",
			"node/a.go:16: process/global", "node/a.go:17: process/global", "node/a.go:18: process/global",
			"node/a.go:19: process/global", "node/a.go:20: process/global", "node/a.go:21: process/global",
			"node/a.go:22: process/global", "node/a.go:23: process/global", "node/a.go:26: process/global",
		},
	},
}

func TestProcessRulesReportPlanted(t *testing.T) {
	runPlanted(t, plantedProcess, func(t *testing.T, p planted) []finding { return checkProcess(parsePlanted(t, p)) })
}
