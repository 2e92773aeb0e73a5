package main

// nearest returns the candidate that a mistyped word most likely meant: the one with the fewest edits, if those are few
// for the length of the word; "" if none is near. Of equals the first wins.
func nearest(word string, candidates []string) string {
	const wordBytesMax = 64 // what is longer is no slip of a key
	if len(word) > wordBytesMax {
		return ""
	}
	best, bestEdits := "", len(word)/3+2
	for _, candidate := range candidates {
		if n := edits(word, candidate); n < bestEdits {
			best, bestEdits = candidate, n
		}
	}
	return best
}

// edits returns how many insertions, deletions, substitutions and swaps of neighbours turn a into b.
func edits(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			changed := 1
			if a[i-1] == b[j-1] {
				changed = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+changed)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
