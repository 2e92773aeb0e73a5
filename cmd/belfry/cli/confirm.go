package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Confirm asks the person for a yes before something is removed or changed. Where no person can
// answer it refuses. refusal says what a no means, such as "nothing was removed".
func (a *App) Confirm(refusal string) error {
	if !a.InTerminal {
		return Usagef("%s: this is not a terminal, so say --yes if it is meant", refusal)
	}
	fmt.Fprint(a.Err, "Go on? Type yes: ")
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return ExitWith(CodeError, refusal)
	}
	return nil
}
