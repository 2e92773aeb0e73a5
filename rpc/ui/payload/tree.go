package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

const (
	// treeDepthMax is how deep a tree may be: a deeper one is shown as text.
	treeDepthMax = 32
	// treeValuesMax bounds the values of a tree, and so the page.
	treeValuesMax = 2000
)

// Tree shows a JSON object or array as lists that can be closed. Each number and string is as it was
// written, of any size and precision; names that are there twice are shown twice. It reports false for
// what is no JSON object or array, and for one that is too large or too deep for a page.
func Tree(body []byte) (g.Node, bool) {
	start := bytes.TrimLeft(body, " \t\r\n")
	if len(body) > ShownMax || len(start) == 0 || start[0] != '{' && start[0] != '[' || !utf8.Valid(body) ||
		!json.Valid(body) {
		return nil, false
	}
	t := &tree{body: body, tokens: json.NewDecoder(bytes.NewReader(body))}
	t.tokens.UseNumber() // a number of any size is read
	node := t.value("", 0)
	if t.tooLarge {
		return nil, false
	}
	return h.Div(h.Class("json"), h.Dir("ltr"), node), true
}

// tree makes one tree of a valid body.
type tree struct {
	body   []byte
	tokens *json.Decoder
	values int
	// tooLarge says that the tree cannot be shown.
	tooLarge bool
}

// next returns the next token, and what stands for it in the body.
func (t *tree) next() (json.Token, string) {
	from := t.tokens.InputOffset()
	token, err := t.tokens.Token()
	if err != nil { // the body is valid, so only a number that no type can hold gets here
		t.tooLarge = true
		return nil, ""
	}
	return token, string(bytes.TrimLeft(t.body[from:t.tokens.InputOffset()], " \t\r\n,:"))
}

// value shows the next value; name is what stands before it.
func (t *tree) value(name string, depth int) g.Node {
	t.values++
	if t.values > treeValuesMax || depth > treeDepthMax {
		t.tooLarge = true
	}
	if t.tooLarge {
		return nil
	}
	token, raw := t.next()
	delim, isList := token.(json.Delim)
	if !isList {
		return g.Group{label(name), h.Span(h.Class(kind(token)), g.Text(Visible(raw)))}
	}
	var items g.Group
	for t.tokens.More() && !t.tooLarge {
		item := ""
		if delim == '{' {
			_, item = t.next()
		}
		items = append(items, h.Li(t.value(item, depth+1)))
	}
	t.next() // the end of the list
	open, end, list := "[", "]", h.Ol
	if delim == '{' {
		open, end, list = "{", "}", h.Ul
	}
	if len(items) == 0 {
		return g.Group{label(name), g.Text(open + end)}
	}
	return h.Details(g.Attr("open"), h.Summary(label(name), g.Text(open),
		h.Span(h.Class("count"), g.Text(fmt.Sprintf(" %d ", len(items)))), g.Text(end)), list(items))
}

// label is the name of a value, which is a JSON string.
func label(name string) g.Node {
	return g.If(name != "", g.Group{h.Span(h.Class("name"), g.Text(Visible(name))), g.Text(": ")})
}

// kind is the class of a value that is no list.
func kind(token json.Token) string {
	if _, isString := token.(string); isString {
		return "string"
	}
	return "number"
}
