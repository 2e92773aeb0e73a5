package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrDamaged says that a file holds something that WriteJSON did not write.
var ErrDamaged = errors.New("the report is damaged")

// WriteJSON writes the report as JSON. A report that is not as Validate wants it is not written.
func WriteJSON(w io.Writer, r *Report) error {
	if err := r.Validate(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// ReadJSON reads what WriteJSON wrote, and nothing else: a field that Report does not have,
// something after the report, or a report that is not as Validate wants it are all ErrDamaged.
func ReadJSON(r io.Reader) (*Report, error) {
	in := json.NewDecoder(r)
	in.DisallowUnknownFields()
	read := &Report{}
	if err := in.Decode(read); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var more json.RawMessage
	switch err := in.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("%w: something follows it", ErrDamaged)
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: after its end: %w", ErrDamaged, err)
	}
	if err := read.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return read, nil
}
