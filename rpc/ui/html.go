package ui

import (
	"net/http"
	"net/url"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// link leads to a page.
func link(target, text string) g.Node { return h.A(h.Href(target), g.Text(text)) }

// section is a part of a page under a heading.
func section(heading string, nodes ...g.Node) g.Node {
	return h.Section(h.H2(g.Text(heading)), g.Group(nodes))
}

// figures shows the main numbers of a page.
func figures(all ...figure) g.Node {
	return h.Dl(h.Class("figures"), g.Map(all, func(f figure) g.Node {
		value := g.Text(f.value)
		if f.target != "" {
			value = link(f.target, f.value)
		}
		return h.Div(h.Dt(g.Text(f.name)), h.Dd(g.If(f.bad, h.Class("bad")), value))
	}))
}

// figure is a number with its name and, if it has a target, the page that explains it.
type figure struct {
	name, value, target string
	bad                 bool
}

// facts is a table of names and values.
func facts(rows ...g.Node) g.Node { return h.Table(h.Class("plain"), h.TBody(rows...)) }

// fact is a row of facts. It is left out if the value is empty.
func fact(name, value string) g.Node {
	return g.If(value != "", factOf(name, g.Text(value)))
}

// factOf is fact for a value that is no text.
func factOf(name string, value g.Node) g.Node {
	return h.Tr(h.Th(h.Scope("row"), g.Text(name)), h.Td(value))
}

// grid is a table that can be wider than the page. Its name is for those who do not see it.
func grid(name string, headings []g.Node, rows g.Node, more ...g.Node) g.Node {
	return h.Div(h.Class("wide"), h.TabIndex("0"), h.Role("region"), h.Aria("label", name),
		h.Table(h.THead(h.Tr(headings...)), h.TBody(rows), g.Group(more)))
}

// headings are the headings of columns.
func headings(names ...string) []g.Node {
	var all []g.Node
	for _, name := range names {
		all = append(all, h.Th(h.Scope("col"), g.Text(name)))
	}
	return all
}

// number is a cell with a number, or another short text to the right.
func number(text string) g.Node { return h.Td(h.Class("number"), g.Text(text)) }

// tag is a word in a frame behind a name.
func tag(text string) g.Node { return g.Group{g.Text(" "), h.Span(h.Class("tag"), g.Text(text))} }

// list is a list of sentences; nothing if there are none.
func list(class string, sentences []string) g.Node {
	item := func(sentence string) g.Node { return h.Li(g.Text(sentence)) }
	return g.If(len(sentences) > 0, h.Ul(h.Class(class), g.Map(sentences, item)))
}

// acting is a form that acts. Its hidden fields are names and values in turn. They travel as a query
// in one field, which readHidden reads: of other fields a browser changes line ends and NULs, and the
// id of a job may have them.
func acting(path string, hidden []string, nodes ...g.Node) g.Node {
	values := url.Values{}
	for i := 0; i+1 < len(hidden); i += 2 {
		values.Set(hidden[i], hidden[i+1])
	}
	return h.Form(h.Method("post"), h.Action(path), hiddenFields([]string{hiddenField, values.Encode()}), g.Group(nodes))
}

// hiddenField is the name of the field with the hidden fields of an action.
const hiddenField = "of"

// readHidden adds the hidden fields of an action to those of its form.
func readHidden(r *http.Request) error {
	values, err := url.ParseQuery(r.PostForm.Get(hiddenField))
	for name := range values {
		r.Form[name] = values[name]
	}
	return err
}

// idLink leads to a job. Its text is the id as far as it can be shown.
func idLink(queue, id string) g.Node {
	return h.A(h.Class("free"), h.Href(query("job", "queue", queue, "id", id)), g.Text(payload.Visible(id)))
}

// filter is a form that shows something else.
func filter(path string, hidden []string, nodes ...g.Node) g.Node {
	return h.Form(h.Method("get"), h.Action(path), h.Class("filter"), hiddenFields(hidden), g.Group(nodes))
}

func hiddenFields(pairs []string) g.Node {
	var fields g.Group
	for i := 0; i+1 < len(pairs); i += 2 {
		fields = append(fields, h.Input(h.Type("hidden"), h.Name(pairs[i]), h.Value(pairs[i+1])))
	}
	return fields
}

// field is an input with its label. Its id is its name.
func field(label, name string, attributes ...g.Node) g.Node {
	return g.Group{
		h.Label(h.For(name), g.Text(label)), g.Text(" "), h.Input(h.ID(name), h.Name(name), g.Group(attributes)),
	}
}

// width is how many characters an input shows.
func width(characters string) g.Node { return g.Attr("size", characters) }

// choice is a list to choose from, with its label.
func choice(label, name, chosen string, options ...option) g.Node {
	return g.Group{
		h.Label(h.For(name), g.Text(label)), g.Text(" "),
		h.Select(h.ID(name), h.Name(name), g.Map(options, func(o option) g.Node {
			return h.Option(h.Value(o.value), g.If(o.value == chosen, h.Selected()), g.Text(o.text))
		})),
	}
}

// option is one of a choice.
type option struct{ value, text string }

// button sends its form.
func button(text string) g.Node { return h.Button(g.Text(text)) }

// dangerButton sends a form that removes something.
func dangerButton(text string) g.Node { return h.Button(h.Class("danger"), g.Text(text)) }

// copied shows a text that a person may copy, with a button for it that the script shows.
func copied(id, text string) g.Node {
	return h.Div(h.Class("copied"), h.Pre(h.ID(id), h.TabIndex("0"), h.Dir("ltr"), g.Text(text)),
		h.Button(h.Type("button"), h.Data("copies", id), g.Attr("hidden"), g.Text("Copy")))
}

// path shows what a page is a part of: names and their pages in turn.
func path(pairs ...string) g.Node {
	var nodes g.Group
	for i := 0; i+1 < len(pairs); i += 2 {
		nodes = append(nodes, link(pairs[i+1], pairs[i]), g.Text(" / "))
	}
	return h.P(h.Class("path"), nodes)
}

// plural writes a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
