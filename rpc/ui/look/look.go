// Package look has how the pages of the dashboard appear to a person, which a cookie keeps.
package look

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the image has no files, and a zone must not depend on the machine

	"github.com/belfrydb/belfry/rpc/ui/form"
)

// Look is how the pages appear to one person. It is kept in a cookie, because a person has it in
// one browser, also without a token.
type Look struct {
	// Theme is light, dark or auto: as the system has it.
	Theme string
	// Zone is that of all times.
	Zone *time.Location
	// Refresh is after how many seconds pages are refreshed; 0 for never.
	Refresh int
	// HidesBodies keeps headers and bodies of jobs hidden until the person asks for those of one.
	HidesBodies bool
}

// Cookie is the name of the cookie. Its value is theme, seconds, bodies and zone, with colons
// between.
const Cookie = "belfry-look"

// Refreshes are the seconds that a person can choose.
func Refreshes() []int { return []int{0, 2, 5, 10, 30, 60} }

// BodiesChoices say whether the page of a job shows its headers and body.
func BodiesChoices() []string { return []string{"shown", "hidden"} }

// Themes are the themes that a person can choose.
func Themes() []string { return []string{"auto", "light", "dark"} }

// Of reads the cookie. What cannot be read has its default.
func Of(r *http.Request) Look {
	l := Look{Theme: "auto", Zone: time.UTC, Refresh: 5}
	cookie, err := r.Cookie(Cookie)
	if err != nil {
		return l
	}
	parts := strings.SplitN(cookie.Value, ":", 4)
	if len(parts) != 4 {
		return l
	}
	if read, err := Read(parts[0], parts[1], parts[2], parts[3]); err == nil {
		return read
	}
	return l
}

// Read checks what a person chose. The error names the field.
func Read(theme, refresh, bodies, zone string) (Look, error) {
	if !slices.Contains(Themes(), theme) {
		return Look{}, form.Errorf("theme", "%q is none of %s", theme, strings.Join(Themes(), ", "))
	}
	seconds, err := strconv.Atoi(refresh)
	if err != nil || seconds < 0 || seconds > 3600 {
		return Look{}, form.Errorf("refresh", "%q is no number of seconds from 0 to 3600", refresh)
	}
	if !slices.Contains(BodiesChoices(), bodies) {
		return Look{}, form.Errorf("bodies", "%q is none of %s", bodies, strings.Join(BodiesChoices(), ", "))
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		return Look{}, form.Errorf("zone", "%q is no name of a time zone such as UTC or Europe/Berlin", zone)
	}
	return Look{Theme: theme, Zone: location, Refresh: seconds, HidesBodies: bodies == BodiesChoices()[1]}, nil
}

// Bodies returns the choice about headers and bodies.
func (l Look) Bodies() string {
	if l.HidesBodies {
		return BodiesChoices()[1]
	}
	return BodiesChoices()[0]
}

// String returns the value of the cookie.
func (l Look) String() string {
	return fmt.Sprintf("%s:%d:%s:%s", l.Theme, l.Refresh, l.Bodies(), l.Zone)
}
