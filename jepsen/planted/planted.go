// Package planted holds mistakes that servers of this kind have had, as edits of Belfry's source,
// and builds a server that makes one of them. Each is there to be found: a checker that lets it
// pass proves nothing. None of them is in the source.
package planted

import (
	"slices"
	"strings"
)

// Variable is the environment variable that names the bug which a planted server has. Without it
// the server is as it should be; with a name that is no bug's it does not start.
const Variable = "BELFRY_PLANTED"

// Bug is one mistake.
type Bug struct {
	// Name is what Variable is set to.
	Name string
	// What says what the server does wrong.
	What string
	// Edits make the mistake, if planted(Name) is true in the process, and change nothing else.
	Edits []Edit
	// Claims are the invariants each of which must find a violation, such as "I8".
	Claims []string
	// Or are others that may find it in the place of those: whether it costs acknowledged jobs or the
	// cluster is decided by the moment.
	Or []string
	// Workloads and Nemeses are those under which it shows. All run together; no nemesis means that it
	// shows without a fault.
	Workloads, Nemeses []string
}

// Edit replaces a piece of the source. Old occurs exactly once in the file. Edits may be shared by
// bugs, but do not overlap otherwise.
type Edit struct {
	// File is the path from the root of the module.
	File     string
	Old, New string
}

// Bugs returns all bugs, by layer.
func Bugs() []Bug {
	return slices.Concat(
		timeBugs(), orderBugs(), identityBugs(), adminBugs(), leaseBugs(), holderBugs(), attemptBugs(),
		snapshotBugs(), replicaBugs(), answerBugs(), waiterBugs(), storageBugs(), edgeBugs(), clusterBugs(),
		availabilityBugs(), accessBugs(), taskBugs(), keyBugs(), scheduleBugs(),
		bridgeBugs(), importBugs(),
	)
}

// after puts code behind a piece of the source.
func after(file, old, code string) Edit { return Edit{File: file, Old: old, New: old + "\n" + code} }

// before puts code before a piece of the source.
func before(file, old, code string) Edit { return Edit{file, old, code + "\n" + old} }

// unless leaves a statement out where a bug is planted.
func unless(name, file, statement string) Edit {
	return Edit{file, statement, "if !planted(" + quoted(name) + ") {\n" + statement + "\n}"}
}

// skipping has an if statement's body left out where one of the bugs is planted. head is what
// stands between "if" and "{", or the end of it.
func skipping(file, head string, names ...string) Edit {
	condition := strings.LastIndex(head, "; ") + 1
	whole := head[:condition] + " (" + strings.TrimSpace(head[condition:]) + ")"
	for _, name := range names {
		whole += " && !planted(" + quoted(name) + ")"
	}
	return Edit{file, head + " {", whole + " {"}
}

func quoted(name string) string { return `"` + name + `"` }
