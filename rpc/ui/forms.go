package ui

import (
	"crypto/rand"
	"net/http"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// warning says what is wrong, and leads to the input.
func (v *visit) warning() g.Node {
	return h.P(h.Class("warning"), h.Role("alert"), h.Strong(g.If(v.problem.Reason != "", g.Text(v.problem.Reason+" "))),
		h.Span(g.Text(v.problem.Text)), g.If(v.problem.Field != "",
			g.Group{g.Text(" · "), markup.Link("#"+v.problem.Field, "to the field")}))
}

// formError returns an error about a field of a form or a query.
func formError(name, format string, args ...any) error { return form.Errorf(name, format, args...) }

// refuse answers a form that was not accepted: with the page of the form, where what was typed stays,
// or with a page of its own if there is none, or if the person may not act at all.
func (v *visit) refuse(err error, page func(*visit) (content, error)) {
	v.problem = outcome.Of(err)
	if page == nil || v.problem.Status == http.StatusForbidden || v.problem.Status == http.StatusUnauthorized {
		v.fail(err)
		return
	}
	c, pageErr := page(v)
	if pageErr != nil {
		v.fail(err)
		return
	}
	c.live, c.body = false, append(g.Group{v.warning()}, c.body...)
	v.send(v.problem.Status, c)
}

// typed returns what was typed into an input of a form that was refused, and else value.
func (v *visit) typed(name, value string) string {
	if v.problem != nil && v.r.PostForm.Has(name) {
		return v.r.PostForm.Get(name)
	}
	return value
}

// invalid marks the input of a problem.
func (v *visit) invalid(name string) g.Node {
	return g.If(v.problem != nil && v.problem.Field == name, h.Aria("invalid", "true"))
}

// field is an input with its label in a form that acts.
func (v *visit) field(label, name string, attributes ...g.Node) g.Node {
	return markup.Field(label, name, h.Value(v.typed(name, "")), v.invalid(name), g.Group(attributes))
}

// input is a row of a larger form: label, input and help. value is what it has at first.
type input struct {
	label, name, value, help string
	// choices are all values, if it is a list to choose from.
	choices []string
	// lines is the height of an input for several lines; 0 for one line.
	lines      string
	attributes []g.Node
}

// row draws an input.
func (v *visit) row(in input) g.Node {
	value := v.typed(in.name, in.value)
	common := g.Group{h.ID(in.name), h.Name(in.name), v.invalid(in.name),
		g.If(in.help != "", h.Aria("describedby", in.name+"-help")), g.Group(in.attributes)}
	var control g.Node
	switch {
	case len(in.choices) > 0:
		control = h.Select(common, g.Map(in.choices, func(c string) g.Node {
			return h.Option(h.Value(c), g.If(c == value, h.Selected()), g.Text(c))
		}))
	case in.lines != "":
		// A browser leaves out the first line end.
		control = h.Textarea(common, h.Rows(in.lines), g.Attr("spellcheck", "false"), g.Text("\n"+value))
	default:
		control = h.Input(common, h.Value(value), h.AutoComplete("off"))
	}
	return h.Div(h.Class("row"), h.Label(h.For(in.name), g.Text(in.label)), control,
		g.If(in.help != "", h.Span(h.ID(in.name+"-help"), h.Class("help"), g.Text(in.help))))
}

// kept is row, with the value that the input had at first, so that what was not changed is not sent.
func (v *visit) kept(in input) g.Node {
	before := form.Before(in.name)
	return g.Group{v.row(in), markup.HiddenFields([]string{before, v.typed(before, in.value)})}
}

// requestID is a hidden input that makes a repeat of a form safe: one that is sent twice, or again
// after an answer that did not say whether the act was done, acts once.
func (v *visit) requestID() g.Node {
	if v.problem != nil && v.problem.Unknown {
		return markup.HiddenFields([]string{"requestId", v.typed("requestId", rand.Text())})
	}
	return newRequestID()
}

// newRequestID is requestID for a form that was not sent before.
func newRequestID() g.Node { return markup.HiddenFields([]string{"requestId", rand.Text()}) }

// large is a form with rows.
func large(path string, nodes ...g.Node) g.Node {
	return h.Form(h.Method("post"), h.Action(path), h.Class("rows"), g.Group(nodes))
}

// confirmed returns an error unless the name of what is to be removed was typed.
func (v *visit) confirmed(field, name, act string) error {
	if v.param(field) != name {
		return formError(field, "type %s to %s; nothing was done", name, act)
	}
	return nil
}

// confirmation asks for the name of what is to be removed.
func (v *visit) confirmation(label, name string) g.Node {
	return v.field(label, name, h.Required(), h.AutoComplete("off"), markup.Width("20"))
}
