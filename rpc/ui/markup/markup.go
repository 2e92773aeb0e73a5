// Package markup has the parts that the pages of the dashboard are made of. What it is given is
// escaped.
package markup

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/payload"
)

// Page is what a room shows as a page.
type Page struct {
	Title string
	Body  g.Group
	// Live says that the page may be refreshed: it shows what changes.
	Live bool
}

// Link leads to a page.
func Link(target, text string) g.Node { return h.A(h.Href(target), g.Text(text)) }

// Section is a part of a page under a heading.
func Section(heading string, nodes ...g.Node) g.Node {
	return h.Section(h.H2(g.Text(heading)), g.Group(nodes))
}

// Figures shows the main numbers of a page.
func Figures(all ...Figure) g.Node {
	return h.Dl(h.Class("figures"), g.Map(all, func(f Figure) g.Node {
		value := g.Text(f.Value)
		if f.Target != "" {
			value = Link(f.Target, f.Value)
		}
		return h.Div(h.Dt(g.Text(f.Name)), h.Dd(g.If(f.Bad, h.Class("bad")), value),
			g.If(f.Note != "", h.Dd(h.Class("help"), g.Text(f.Note))))
	}))
}

// Figure is a number with its name and, if it has a target, the page that explains it.
type Figure struct {
	Name, Value, Target string
	// Note explains the value; empty for none.
	Note string
	// Bad says that the value is about something that is wrong.
	Bad bool
}

// Bad is a text about something that is wrong.
func Bad(text string) g.Node { return h.Strong(h.Class("bad"), g.Text(text)) }

// Facts is a table of names and values.
func Facts(rows ...g.Node) g.Node { return h.Table(h.Class("plain"), h.TBody(rows...)) }

// Fact is a row of facts. It is left out if the value is empty.
func Fact(name, value string) g.Node {
	return g.If(value != "", FactOf(name, g.Text(value)))
}

// FactOf is fact for a value that is no text.
func FactOf(name string, value g.Node) g.Node {
	return h.Tr(h.Th(h.Scope("row"), g.Text(name)), h.Td(value))
}

// TimeFact is a fact that is a time. It is left out if the time is not set.
func TimeFact(clock format.Clock, name string, t *timestamppb.Timestamp) g.Node {
	return g.If(t != nil, FactOf(name, Time(clock, t)))
}

// Grid is a table that can be wider than the page. Its name is for those who do not see it.
func Grid(name string, headings []g.Node, rows g.Node, more ...g.Node) g.Node {
	return h.Div(h.Class("wide"), h.TabIndex("0"), h.Role("region"), h.Aria("label", name),
		h.Table(h.THead(h.Tr(headings...)), h.TBody(rows), g.Group(more)))
}

// Headings are the headings of columns.
func Headings(names ...string) []g.Node {
	var all []g.Node
	for _, name := range names {
		all = append(all, h.Th(h.Scope("col"), g.Text(name)))
	}
	return all
}

// Number is a cell with a number, or another short text to the right.
func Number(text string) g.Node { return h.Td(h.Class("number"), g.Text(text)) }

// Tag is a word in a frame behind a name.
func Tag(text string) g.Node { return g.Group{g.Text(" "), h.Span(h.Class("tag"), g.Text(text))} }

// List is a list of sentences; nothing if there are none.
func List(class string, sentences []string) g.Node {
	item := func(sentence string) g.Node { return h.Li(g.Text(sentence)) }
	return g.If(len(sentences) > 0, h.Ul(h.Class(class), g.Map(sentences, item)))
}

// Acting is a form that acts. Its hidden fields are names and values in turn. They travel as a query
// in one field, which ReadHidden reads: of other fields a browser changes line ends and NULs, and the
// id of a job may have them.
func Acting(path string, hidden []string, nodes ...g.Node) g.Node {
	values := url.Values{}
	for i := 0; i+1 < len(hidden); i += 2 {
		values.Set(hidden[i], hidden[i+1])
	}
	return h.Form(h.Method("post"), h.Action(path), HiddenFields([]string{hiddenField, values.Encode()}), g.Group(nodes))
}

// hiddenField is the name of the field with the hidden fields of an action.
const hiddenField = "of"

// ReadHidden adds the hidden fields of an action to those of its form, and refuses what is not UTF-8.
func ReadHidden(r *http.Request) error {
	values, err := url.ParseQuery(r.PostForm.Get(hiddenField))
	for name := range values {
		r.Form[name] = values[name]
	}
	return cmp.Or(err, form.CheckText(r.Form))
}

// IDLink leads to a job. Its text is the id as far as it can be shown. key is that of the job, "" for
// none: in a queue with several partitions an id is unique per key only.
func IDLink(queue, id, key string) g.Node {
	return h.A(h.Class("free"), h.Href(Query("job", "queue", queue, "id", id, "key", key)), g.Text(payload.Visible(id)))
}

// Filter is a form that shows something else.
func Filter(path string, hidden []string, nodes ...g.Node) g.Node {
	return h.Form(h.Method("get"), h.Action(path), h.Class("filter"), HiddenFields(hidden), g.Group(nodes))
}

// HiddenFields are inputs that are not shown: names and values in turn.
func HiddenFields(pairs []string) g.Node {
	var fields g.Group
	for i := 0; i+1 < len(pairs); i += 2 {
		fields = append(fields, h.Input(h.Type("hidden"), h.Name(pairs[i]), h.Value(pairs[i+1])))
	}
	return fields
}

// Field is an input with its label. Its id is its name.
func Field(label, name string, attributes ...g.Node) g.Node {
	return labelled(label, name, h.Input(h.ID(name), h.Name(name), g.Group(attributes)))
}

// labelled keeps an input beside its label, whatever the width of the page.
func labelled(label, id string, control g.Node) g.Node {
	return h.Span(h.Class("field"), h.Label(h.For(id), g.Text(label)), g.Text(" "), control)
}

// Width is how many characters an input shows.
func Width(characters string) g.Node { return g.Attr("size", characters) }

// Choice is a list to choose from, with its label.
func Choice(label, name, chosen string, options ...Option) g.Node {
	return labelled(label, name, h.Select(h.ID(name), h.Name(name), g.Map(options, func(o Option) g.Node {
		return h.Option(h.Value(o.Value), g.If(o.Value == chosen, h.Selected()), g.Text(o.Text))
	})))
}

// Option is one of a choice.
type Option struct{ Value, Text string }

// Time shows a time, and as its title how far away it is; nothing if it is not set.
func Time(clock format.Clock, t *timestamppb.Timestamp) g.Node {
	if t == nil {
		return g.Text("")
	}
	return h.Time(h.DateTime(t.AsTime().UTC().Format(time.RFC3339Nano)), h.Title(clock.Relative(t)), g.Text(clock.Text(t)))
}

// Button sends its form.
func Button(text string) g.Node { return h.Button(g.Text(text)) }

// DangerButton sends a form that removes something.
func DangerButton(text string) g.Node { return h.Button(h.Class("danger"), g.Text(text)) }

// Copied shows a text that a person may copy, with a button for it that the script shows.
func Copied(id, text string) g.Node {
	return h.Div(h.Class("copied"), h.Pre(h.ID(id), h.TabIndex("0"), h.Dir("ltr"), g.Text(text)),
		h.Button(h.Type("button"), h.Data("copies", id), g.Attr("hidden"), g.Text("Copy")))
}

// Path shows what a page is a part of: names and their pages in turn.
func Path(pairs ...string) g.Node {
	var nodes g.Group
	for i := 0; i+1 < len(pairs); i += 2 {
		nodes = append(nodes, Link(pairs[i+1], pairs[i]), g.Text(" / "))
	}
	return h.P(h.Class("path"), nodes)
}

// Query returns a path with a query. Its arguments are names and values in turn; empty values are
// left out.
func Query(path string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}
