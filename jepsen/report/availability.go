package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sentence says what was found, for people; empty of a fault that is not judged.
func (a *Availability) sentence() string {
	switch {
	case a == nil:
		return ""
	case a.Unjudged != "":
		return "availability not judged: " + a.Unjudged
	}
	said := []string{}
	if len(a.Served) > 0 {
		said = append(said, "served through "+byNode(a.Served))
	}
	if len(a.Named) > 0 {
		said = append(said, "named by "+byNode(a.Named))
	}
	return strings.Join(said, "; ")
}

// byNode lists times by node.
func byNode(seconds map[string]float64) string {
	var each []string
	for _, node := range slices.Sorted(maps.Keys(seconds)) {
		each = append(each, fmt.Sprintf("%s after %s", node, span(seconds[node])))
	}
	return strings.Join(each, ", ")
}

// availability says, for each fault of which it was judged, how soon all was served and the fault
// was named.
func (s *summary) availability(faults []Fault) {
	judged, effects := 0, 0
	for _, f := range faults {
		if f.Availability != nil {
			effects++
			if f.Availability.Unjudged == "" {
				judged++
			}
		}
	}
	if effects == 0 {
		return
	}
	s.line("availability: judged during %d of %d faults that spare a majority", judged, effects)
	for _, f := range faults {
		if f.Availability != nil {
			s.line("  %s at %s: %s", oneLine(f.Name), clock(f.From), oneLine(f.Availability.slowest()))
		}
	}
}

// slowest is sentence with the slowest nodes only.
func (a *Availability) slowest() string {
	if a.Unjudged != "" {
		return "not judged: " + a.Unjudged
	}
	var said []string
	for _, part := range []struct {
		what    string
		seconds map[string]float64
	}{{"served after ", a.Served}, {"named after ", a.Named}} {
		if len(part.seconds) > 0 {
			said = append(said, part.what+span(slices.Max(slices.Collect(maps.Values(part.seconds)))))
		}
	}
	return strings.Join(said, ", ")
}
