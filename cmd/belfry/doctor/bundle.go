package doctor

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Part is a file of a bundle.
type Part struct {
	Name string `json:"name"`
	// About says what is in it, for the person who sends it.
	About string `json:"about"`
	Bytes int    `json:"bytes"`
	text  string
}

// A Finding is something that looks wrong.
type Finding struct {
	What string `json:"what"`
	// Do says what to do about it.
	Do string `json:"do"`
}

// A Bundle is what is sent, from New.
type Bundle struct {
	Parts []Part `json:"parts"`
	// Missing says what could not be had, and why.
	Missing  []string  `json:"missing"`
	Findings []Finding `json:"findings"`

	secrets secrets
	names   Names
}

// New returns an empty bundle, in which queues have these names.
func New(names Names) *Bundle {
	return &Bundle{Parts: []Part{}, Missing: []string{}, Findings: []Finding{}, secrets: newSecrets(), names: names}
}

// Add adds a file, redacted.
func (b *Bundle) Add(name, about, text string) {
	b.add(name, about, b.secrets.redact(text))
}

func (b *Bundle) add(name, about, text string) {
	b.Parts = append(b.Parts, Part{Name: name, About: about, Bytes: len(text), text: text})
}

// AddMetrics is Add for what /metrics answers, whose names look like tokens.
func (b *Bundle) AddMetrics(name, about, text string) {
	b.add(name, about, b.secrets.metrics(text, b.names))
}

// Miss notes what could not be had.
func (b *Bundle) Miss(what string, err error) {
	b.Missing = append(b.Missing, b.secrets.redact(fmt.Sprintf("%s: %v", what, err)))
}

// Find notes what looks wrong, and what to do about it.
func (b *Bundle) Find(what, do string) {
	b.Findings = append(b.Findings, Finding{What: b.secrets.redact(what), Do: do})
}

// Summary returns what looks wrong and what is missing, as text.
func (b *Bundle) Summary() string {
	var s strings.Builder
	switch len(b.Findings) {
	case 0:
		s.WriteString("nothing looks wrong\n")
	case 1:
		s.WriteString("1 thing looks wrong:\n")
	default:
		fmt.Fprintf(&s, "%d things look wrong:\n", len(b.Findings))
	}
	for _, f := range b.Findings {
		fmt.Fprintf(&s, "  - %s\n    → %s\n", indented(f.What), f.Do)
	}
	if len(b.Missing) > 0 {
		s.WriteString("not reached:\n")
	}
	for _, m := range b.Missing {
		fmt.Fprintf(&s, "  - %s\n", indented(m))
	}
	return s.String()
}

// indented has what follows a line's end stand below the line's begin.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// Write writes the bundle as a compressed archive in which every file dates from at.
func (b *Bundle) Write(w io.Writer, at time.Time) error {
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	for _, p := range b.Parts {
		head := &tar.Header{
			Name: "belfry-doctor/" + p.Name, Mode: 0o600, Size: int64(len(p.text)), ModTime: at, Typeflag: tar.TypeReg,
		}
		if err := archive.WriteHeader(head); err != nil {
			return fmt.Errorf("packing %s: %w", p.Name, err)
		}
		if _, err := io.WriteString(archive, p.text); err != nil {
			return fmt.Errorf("packing %s: %w", p.Name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	if err := packed.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}
