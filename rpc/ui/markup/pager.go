package markup

import (
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Pager says which part of a list is on a page. Pages are numbered from 1.
type Pager struct {
	page, pages int
	// From and To are the first row of the page, and the one behind its last.
	From, To int
}

// rowsOnPage is how many rows a page has.
const rowsOnPage = 100

// PagerOf returns the part of so many rows that a page has. What is no number is page 1.
func PagerOf(page string, rows int) Pager {
	number, _ := strconv.Atoi(page) // what is no number is page 1
	part := Pager{pages: max(1, (rows+rowsOnPage-1)/rowsOnPage)}
	part.page = min(max(number, 1), part.pages)
	part.From = (part.page - 1) * rowsOnPage
	part.To = min(part.From+rowsOnPage, rows)
	return part
}

// Links leads to the pages beside this one; nothing if there are none.
func (part Pager) Links(target string, pairs ...string) g.Node {
	if part.pages == 1 {
		return nil
	}
	to := func(page int, rel, text string) g.Node {
		if page < 1 || page > part.pages {
			return nil
		}
		return g.Group{g.Text(" · "),
			h.A(h.Rel(rel), h.Href(Query(target, append(pairs, "page", strconv.Itoa(page))...)), g.Text(text))}
	}
	return h.P(h.Class("pager"), g.Textf("Page %d of %d", part.page, part.pages), to(part.page-1, "prev", "before"),
		to(part.page+1, "next", "after"))
}
