package ui

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the image has no files, and a zone must not depend on the machine

	"github.com/belfrydb/belfry/rpc/ui/markup"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// look is how the pages appear to one person. It is kept in a cookie, because a person has it in
// one browser, also without a token.
type look struct {
	// theme is light, dark or auto: as the system has it.
	theme string
	zone  *time.Location
	// refresh is after how many seconds pages are refreshed; 0 for never.
	refresh int
	// hidesBodies keeps headers and bodies of jobs hidden until the person asks for those of one.
	hidesBodies bool
}

// lookCookie is the name of the cookie. Its value is theme, seconds, bodies and zone, with colons
// between.
const lookCookie = "belfry-look"

// refreshes are the seconds that a person can choose.
func refreshes() []int { return []int{0, 2, 5, 10, 30, 60} }

// bodiesChoices say whether the page of a job shows its headers and body.
func bodiesChoices() []string { return []string{"shown", "hidden"} }

func themes() []string { return []string{"auto", "light", "dark"} }

// lookOf reads the cookie. What cannot be read has its default.
func lookOf(r *http.Request) look {
	l := look{theme: "auto", zone: time.UTC, refresh: 5}
	cookie, err := r.Cookie(lookCookie)
	if err != nil {
		return l
	}
	parts := strings.SplitN(cookie.Value, ":", 4)
	if len(parts) != 4 {
		return l
	}
	if read, err := readLook(parts[0], parts[1], parts[2], parts[3]); err == nil {
		return read
	}
	return l
}

// readLook checks what a person chose.
func readLook(theme, refresh, bodies, zone string) (look, error) {
	if !slices.Contains(themes(), theme) {
		return look{}, formError("theme", "%q is none of %s", theme, strings.Join(themes(), ", "))
	}
	seconds, err := strconv.Atoi(refresh)
	if err != nil || seconds < 0 || seconds > 3600 {
		return look{}, formError("refresh", "%q is no number of seconds from 0 to 3600", refresh)
	}
	if !slices.Contains(bodiesChoices(), bodies) {
		return look{}, formError("bodies", "%q is none of %s", bodies, strings.Join(bodiesChoices(), ", "))
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		return look{}, formError("zone", "%q is no name of a time zone such as UTC or Europe/Berlin", zone)
	}
	return look{theme: theme, zone: location, refresh: seconds, hidesBodies: bodies == bodiesChoices()[1]}, nil
}

func (p *Pages) showSettings(v *visit) (content, error) {
	var rhythm []markup.Option
	for _, n := range refreshes() {
		text := "never"
		if n > 0 {
			text = fmt.Sprintf("every %d s", n)
		}
		rhythm = append(rhythm, markup.Option{Value: strconv.Itoa(n), Text: text})
	}
	var looks []markup.Option
	for _, t := range themes() {
		looks = append(looks, markup.Option{Value: t, Text: t})
	}
	return content{title: "Settings", entry: "Settings", body: g.Group{
		h.H1(g.Text("Settings")),
		h.P(g.Text("They are kept in this browser.")),
		h.Form(h.Method("post"), h.Action("settings"), h.Class("stack"),
			markup.Choice("Theme", "theme", v.look.theme, looks...),
			markup.Field("Time zone", "zone", h.Value(v.typed("zone", v.look.zone.String())), v.invalid("zone"), h.Required(),
				h.Aria("describedby", "zone-help")),
			h.Span(h.ID("zone-help"), h.Class("help"), g.Text("UTC, or a name such as Europe/Berlin. "),
				h.Button(h.ID("zone-here"), h.Type("button"), h.Class("quiet"), g.Attr("hidden"),
					g.Text("Use that of this browser"))),
			markup.Choice("Refresh", "refresh", strconv.Itoa(v.look.refresh), rhythm...),
			markup.Choice("Headers and bodies of jobs", "bodies", chosenBodies(v.look),
				markup.Option{Value: "shown", Text: "shown"},
				markup.Option{Value: "hidden", Text: "hidden until I ask for them"}),
			markup.Button("Keep")),
	}}, nil
}

func chosenBodies(l look) string {
	if l.hidesBodies {
		return bodiesChoices()[1]
	}
	return bodiesChoices()[0]
}

// keepSettings keeps the settings in a cookie. It changes nothing on the server, so a dashboard that
// only shows allows it.
func (p *Pages) keepSettings(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	chosen, err := readLook(v.param("theme"), v.param("refresh"), v.param("bodies"), strings.TrimSpace(v.param("zone")))
	if err != nil {
		v.refuse(err, p.showSettings)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: lookCookie, Value: fmt.Sprintf("%s:%d:%s:%s", chosen.theme, chosen.refresh, chosenBodies(chosen),
			chosen.zone),
		MaxAge: int((365 * 24 * time.Hour).Seconds()), HttpOnly: true, Secure: ThroughTLS(r),
		SameSite: http.SameSiteLaxMode,
	})
	v.redirect("settings?done=settings")
}

// ThroughTLS reports whether a browser sent a request through TLS, of this server or of a proxy.
func ThroughTLS(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
