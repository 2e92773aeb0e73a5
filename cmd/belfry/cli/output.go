package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/belfrydb/belfry/cmd/belfry/cli/render"
	"google.golang.org/protobuf/proto"
)

// Show writes an answer: as the server's JSON on one line, or as table does.
func (a *App) Show(message proto.Message, table func(io.Writer)) error {
	if a.Output != "json" {
		return a.Flush(table)
	}
	text, err := EncodeJSON(message)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", text)
	return err
}

// ShowValue is show for what is no message of the server's.
func (a *App) ShowValue(value any, table func(io.Writer)) error {
	if a.Output != "json" {
		return a.Flush(table)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", text)
	return err
}

// Flush writes what table renders in one piece, so that a closed pipe is noticed once.
func (a *App) Flush(table func(io.Writer)) error {
	var text strings.Builder
	table(&text)
	_, err := io.WriteString(a.Out, text.String())
	return err
}

// Canvas returns what bars are drawn on: as wide as the terminal, and finer on one.
func (a *App) Canvas() render.Canvas {
	columns, _ := a.Size()
	return render.Canvas{Columns: columns, Blocks: a.OutTerminal}
}

// StorageFailed says that the storage of a server inside this process failed, and ends the process.
func (a *App) StorageFailed(err error) {
	fmt.Fprintf(a.Err, "belfry: storage failed: %s\n", err)
	a.Exit(CodeStorage)
}
