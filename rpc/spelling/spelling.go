// Package spelling finds the word that a mistyped one most likely meant: for the server, which
// answers what is unknown, and for the commands, which read words themselves.
package spelling

import "strings"

// Nearest returns the candidate that a mistyped word most likely meant: the one with the fewest
// edits, if those are few for the length of the word, else the first that it abbreviates. It
// returns "" if nothing is near. Case does not count.
func Nearest(word string, candidates []string) string {
	const wordBytesMax = 64 // what is longer is no slip of a key
	if len(word) > wordBytesMax {
		return ""
	}
	best, bestEdits := "", len(word)/3+2
	for _, c := range candidates {
		if edits := Edits(lower(word), lower(c)); edits < bestEdits {
			best, bestEdits = c, edits
		}
	}
	for _, c := range candidates {
		if best == "" && len(word) >= 3 && strings.HasPrefix(lower(c), lower(word)) {
			best = c
		}
	}
	return best
}

// lower returns the ASCII lower case of s.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Edits counts the insertions, deletions, substitutions and swaps of neighbours that turn a into b
// (the optimal string alignment distance).
func Edits(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
