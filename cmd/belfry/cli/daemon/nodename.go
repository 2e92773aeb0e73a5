package daemon

import "strings"

// nodeNameMax is how long a node's name may be.
const nodeNameMax = 64

// nameOfHost makes a node's name of the first part of a host's name; empty if that says nothing.
func nameOfHost(host string) string {
	first, _, _ := strings.Cut(host, ".")
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		default:
			return '-'
		}
	}, first), "-")
	if name == "localhost" {
		return ""
	}
	return name[:min(len(name), nodeNameMax)]
}
