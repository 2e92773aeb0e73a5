package ui

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/look"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

func (p *Pages) showSettings(v *visit) (content, error) {
	var rhythm []markup.Option
	for _, n := range look.Refreshes() {
		text := "never"
		if n > 0 {
			text = fmt.Sprintf("every %d s", n)
		}
		rhythm = append(rhythm, markup.Option{Value: strconv.Itoa(n), Text: text})
	}
	var looks []markup.Option
	for _, t := range look.Themes() {
		looks = append(looks, markup.Option{Value: t, Text: t})
	}
	return content{title: "Settings", entry: "Settings", body: g.Group{
		h.H1(g.Text("Settings")),
		h.P(g.Text("They are kept in this browser.")),
		h.Form(h.Method("post"), h.Action("settings"), h.Class("stack"),
			markup.Choice("Theme", "theme", v.look.Theme, looks...),
			markup.Field("Time zone", "zone", h.Value(v.Typed("zone", v.look.Zone.String())), v.Invalid("zone"), h.Required(),
				h.Aria("describedby", "zone-help")),
			h.Span(h.ID("zone-help"), h.Class("help"), g.Text("UTC, or a name such as Europe/Berlin. "),
				h.Button(h.ID("zone-here"), h.Type("button"), h.Class("quiet"), g.Attr("hidden"),
					g.Text("Use that of this browser"))),
			markup.Choice("Refresh", "refresh", strconv.Itoa(v.look.Refresh), rhythm...),
			markup.Choice("Headers and bodies of jobs", "bodies", v.look.Bodies(),
				markup.Option{Value: "shown", Text: "shown"},
				markup.Option{Value: "hidden", Text: "hidden until I ask for them"}),
			markup.Button("Keep")),
	}}, nil
}

// keepSettings keeps the settings in a cookie. It changes nothing on the server, so a dashboard that
// only shows allows it.
func (p *Pages) keepSettings(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	chosen, err := look.Read(v.param("theme"), v.param("refresh"), v.param("bodies"), strings.TrimSpace(v.param("zone")))
	if err != nil {
		v.refuse(err, p.showSettings)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: look.Cookie, Value: chosen.String(),
		MaxAge: int((365 * 24 * time.Hour).Seconds()), HttpOnly: true, Secure: ThroughTLS(r),
		SameSite: http.SameSiteLaxMode,
	})
	v.redirect("settings?done=settings")
}

// ThroughTLS reports whether a browser sent a request through TLS, of this server or of a proxy.
func ThroughTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
