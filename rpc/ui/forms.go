package ui

import (
	"net/http"

	g "maragu.dev/gomponents"

	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
)

// formError returns an error about a field of a form or a query.
func formError(name, format string, args ...any) error { return form.Errorf(name, format, args...) }

// refuse answers a form that was not accepted: with the page of the form, where what was typed stays,
// or with a page of its own if there is none, or if the person may not act at all.
func (v *visit) refuse(err error, page func(*visit) (content, error)) {
	v.Problem, v.Posted = outcome.Of(err), v.r.PostForm
	if page == nil || v.Problem.Status == http.StatusForbidden || v.Problem.Status == http.StatusUnauthorized {
		v.fail(err)
		return
	}
	c, pageErr := page(v)
	if pageErr != nil {
		v.fail(err)
		return
	}
	c.live, c.body = false, append(g.Group{v.Warning()}, c.body...)
	v.send(v.Problem.Status, c)
}
