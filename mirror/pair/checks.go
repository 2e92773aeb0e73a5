package pair

import (
	"errors"
	"strings"
)

// A Check is one thing that must be so before a step of a migration, and whether it is.
type Check struct {
	// What names it, Found says what there is.
	What  string `json:"what"`
	Found string `json:"found"`
	OK    bool   `json:"ok"`
}

// Failed returns an error that names all checks that are not OK, nil if there are none.
func Failed(checks []Check) error {
	var texts []string
	for _, c := range checks {
		if !c.OK {
			texts = append(texts, "not so: "+c.What+" ("+c.Found+")")
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}
