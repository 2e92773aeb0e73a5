// Package inputs draws the inputs of the forms of a page. After a refusal they have what was typed, and
// the one that is to blame is marked.
package inputs

import (
	"crypto/rand"
	"net/url"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// Forms are the forms of a page. The zero value is for a page where none was refused.
type Forms struct {
	// Problem is why a form was refused; nil if none was. Posted has the fields of that form.
	Problem *outcome.Problem
	Posted  url.Values
}

// Warning says what is wrong, and leads to the input. A problem is required.
func (f *Forms) Warning() g.Node {
	return h.P(h.Class("warning"), h.Role("alert"), h.Strong(g.If(f.Problem.Reason != "", g.Text(f.Problem.Reason+" "))),
		h.Span(g.Text(f.Problem.Text)), g.If(f.Problem.Field != "",
			g.Group{g.Text(" · "), markup.Link("#"+f.Problem.Field, "to the field")}))
}

// Typed returns what was typed into an input of the form that was refused, and else value.
func (f *Forms) Typed(name, value string) string {
	if f.Problem != nil && f.Posted.Has(name) {
		return f.Posted.Get(name)
	}
	return value
}

// Invalid marks the input of the problem.
func (f *Forms) Invalid(name string) g.Node {
	return g.If(f.Problem != nil && f.Problem.Field == name, h.Aria("invalid", "true"))
}

// Field is an input with its label.
func (f *Forms) Field(label, name string, attributes ...g.Node) g.Node {
	return markup.Field(label, name, h.Value(f.Typed(name, "")), f.Invalid(name), g.Group(attributes))
}

// Row is a row of a larger form: label, input and help. Value is what the input has at first.
type Row struct {
	Label, Name, Value, Help string
	// Choices are all values, if it is a list to choose from.
	Choices []string
	// Lines is the height of an input for several lines; "" for one line.
	Lines      string
	Attributes []g.Node
}

// Row draws a row.
func (f *Forms) Row(in Row) g.Node {
	value := f.Typed(in.Name, in.Value)
	common := g.Group{h.ID(in.Name), h.Name(in.Name), f.Invalid(in.Name),
		g.If(in.Help != "", h.Aria("describedby", in.Name+"-help")), g.Group(in.Attributes)}
	var control g.Node
	switch {
	case len(in.Choices) > 0:
		control = h.Select(common, g.Map(in.Choices, func(c string) g.Node {
			return h.Option(h.Value(c), g.If(c == value, h.Selected()), g.Text(c))
		}))
	case in.Lines != "":
		// A browser leaves out the first line end.
		control = h.Textarea(common, h.Rows(in.Lines), g.Attr("spellcheck", "false"), g.Text("\n"+value))
	default:
		control = h.Input(common, h.Value(value), h.AutoComplete("off"))
	}
	return h.Div(h.Class("row"), h.Label(h.For(in.Name), g.Text(in.Label)), control,
		g.If(in.Help != "", h.Span(h.ID(in.Name+"-help"), h.Class("help"), g.Text(in.Help))))
}

// Kept is Row with the value that the input had at first, so that what was not changed is not sent.
func (f *Forms) Kept(in Row) g.Node {
	before := form.Before(in.Name)
	return g.Group{f.Row(in), markup.HiddenFields([]string{before, f.Typed(before, in.Value)})}
}

// RequestID is a hidden input that makes a repeat of a form safe: one that is sent twice, or again
// after an answer that did not say whether the act was done, acts once.
func (f *Forms) RequestID() g.Node {
	if f.Problem != nil && f.Problem.Unknown {
		return markup.HiddenFields([]string{"requestId", f.Typed("requestId", rand.Text())})
	}
	return NewRequestID()
}

// NewRequestID is RequestID for a form that was not sent before.
func NewRequestID() g.Node { return markup.HiddenFields([]string{"requestId", rand.Text()}) }

// Confirmation asks for the name of what is to be removed. form.Confirmed reads it.
func (f *Forms) Confirmation(label, name string) g.Node {
	return f.Field(label, name, h.Required(), h.AutoComplete("off"), markup.Width("20"))
}

// Large is a form with rows.
func Large(path string, nodes ...g.Node) g.Node {
	return h.Form(h.Method("post"), h.Action(path), h.Class("rows"), g.Group(nodes))
}
