package fsm

import "strings"

// NoErrorText is the fingerprint of jobs without an error text, such as those that expired.
const NoErrorText = "(no error text)"

// Fingerprint returns what errors of one cause have in common: the text with numbers, UUIDs, hashes
// and addresses replaced by signs, and cut to 200 characters. The code of an answer stays, such as 503
// of HTTP.
func Fingerprint(text string) string {
	if text == "" {
		return NoErrorText
	}
	var out strings.Builder
	runes, before, after := 0, "", text
	for word := range wordsOf(text) {
		was := word
		after = after[len(word):]
		if kind := variable(word); kind != "" && !isCode(word, before, after) {
			word = kind
		}
		if strings.Trim(was, " :=(") != "" {
			before = was
		}
		for _, r := range word {
			if runes == fingerprintMax {
				return out.String()
			}
			out.WriteRune(r)
			runes++
		}
	}
	return out.String()
}

// fingerprintMax bounds a fingerprint.
const fingerprintMax = 200

// wordsOf yields the words of a text and what is between them: runs of letters, digits and dashes,
// and every other character by itself.
func wordsOf(text string) func(yield func(string) bool) {
	part := func(b byte) bool {
		return b >= 0x80 || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '_'
	}
	return func(yield func(string) bool) {
		for len(text) > 0 {
			n := 1
			if part(text[0]) {
				for n < len(text) && part(text[n]) {
					n++
				}
			}
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// isCode reports whether a word is the code of an answer: three digits after a word that says so, or at
// the beginning before a colon or the code of a mail server, such as 5.1.1. before is the word before
// it, empty at the beginning, and after what follows.
func isCode(word, before, after string) bool {
	if len(word) != 3 || word[0] < '1' || word[0] > '5' || strings.Trim(word, digits) != "" {
		return false
	}
	switch strings.ToLower(before) {
	case "http", "smtp", "status", "code":
		return true
	case "":
		class, _, _ := strings.Cut(after, ".")
		return strings.HasPrefix(after, ":") || len(class) == 2 && class[0] == ' ' && strings.Contains(digits, class[1:])
	}
	return false
}

const digits = "0123456789"

// variable returns the sign for a word that differs between errors of one cause: # for a number and
// for what has several digits, such as a UUID or a hash; nothing for other words.
func variable(word string) string {
	numbers, hex := 0, 0
	for i := range len(word) {
		switch b := word[i]; {
		case b >= '0' && b <= '9':
			numbers++
			hex++
		case b >= 'a' && b <= 'f', b >= 'A' && b <= 'F', b == '-':
			hex++
		}
	}
	switch {
	case numbers == 0:
		return ""
	case hex == len(word): // a number, a UUID, a hash, a date
		return "#"
	case numbers >= 2: // an id with a prefix, such as user15
		return "#"
	default: // a word that has a digit, such as sha1 or http2
		return ""
	}
}
