package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm asks the person for a yes before something is removed. Where no person can answer it
// refuses.
func (a *App) Confirm() error {
	if !a.InTerminal {
		return Usagef("nothing was removed: this is not a terminal, so say --yes if it is meant")
	}
	fmt.Fprint(a.Err, "Go on? Type yes: ")
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return ExitWith(CodeError, "nothing was removed")
	}
	return nil
}
