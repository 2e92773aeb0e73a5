package finder

import (
	"strings"
	"unicode"
)

// wordBytesMin is the length of the shortest word that is worth a search.
const wordBytesMin = 3

// Word returns the word of a text by which a job is found that has the text in another spelling, such as
// 4711 of "order 4711" if the id is order-4711: the longest with a digit, or else the longest. It is
// empty if no word is a part of the text that is worth a search.
func Word(text string) string {
	best, rank := "", 0
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }
	for word := range strings.FieldsFuncSeq(text, between) {
		has := len(word)
		if strings.ContainsFunc(word, unicode.IsDigit) {
			has += len(text) // before all words without one
		}
		if len(word) >= wordBytesMin && has > rank {
			best, rank = word, has
		}
	}
	if best == text {
		return ""
	}
	return best
}
