// Package payload turns what producers and consumers wrote into what a page may show: bodies, and
// texts that could look like something else.
package payload

import (
	"bytes"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// The forms in which a page shows a body.
const (
	JSON = "json"
	Text = "text"
	Hex  = "hex"
)

// ShownMax is how many bytes of a body a page shows at most.
const ShownMax = 16 << 10

// hexMax is how many bytes a dump shows: it has four characters for each.
const hexMax = ShownMax / 4

// Body is what a page shows of a body.
type Body struct {
	// Forms are the forms that this body has, the best one first.
	Forms []string
	// Form is the form that is shown.
	Form string
	// Shown is how many bytes, from the first, are shown.
	Shown int
	// Node shows them.
	Node g.Node
}

// Show shows a body in a form, or in the best one if it does not have that form. JSON has every
// number and string as it was written. Text has � for what is not UTF-8, and for characters that
// Visible replaces.
func Show(body []byte, form string) Body {
	out := Body{Forms: []string{Text, Hex}}
	tree, isJSON := Tree(body)
	switch {
	case isJSON:
		out.Forms = []string{JSON, Text, Hex}
	case !utf8.Valid(trimmed(body[:min(len(body), ShownMax)])) || bytes.IndexByte(body, 0) >= 0:
		out.Forms = []string{Hex, Text}
	}
	out.Form = out.Forms[0]
	for _, has := range out.Forms {
		if has == form {
			out.Form = form
		}
	}
	switch out.Form {
	case JSON:
		out.Shown, out.Node = len(body), tree
	case Text:
		part := trimmed(body[:min(len(body), ShownMax)])
		out.Shown, out.Node = len(part), pre(Visible(string(part)))
	default:
		part := body[:min(len(body), hexMax)]
		out.Shown, out.Node = len(part), pre(hex.Dump(part))
	}
	return out
}

// pre shows a text as it is.
func pre(text string) g.Node { return h.Pre(h.TabIndex("0"), h.Dir("ltr"), g.Text(text)) }

// trimmed leaves out a character that was cut at the end.
func trimmed(part []byte) []byte {
	for n := 0; n < utf8.UTFMax && n < len(part); n++ {
		if r, size := utf8.DecodeLastRune(part[:len(part)-n]); r != utf8.RuneError || size > 1 {
			return part[:len(part)-n]
		}
	}
	return part
}

// Visible returns a text with � for each byte that is not UTF-8, and for characters that would change
// how the text around them looks, such as those that turn its direction.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return r
		}
		return '�'
	}, text)
}
