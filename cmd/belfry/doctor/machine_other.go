//go:build !linux

package doctor

import "strings"

// facts writes nothing: what the kernel says is read on Linux only.
func (b *Bundle) facts(s *strings.Builder, _ string) { s.WriteString("more is known on Linux only\n") }
