package fsm

import (
	"bytes"
	"strings"
)

// Match says which jobs a search finds: those that all of its fields fit. An empty field fits every
// job. Letters are compared as they are, also in case.
type Match struct {
	// IDPrefix is what the id begins with.
	IDPrefix string
	// Text is in the id, in the name or value of a header, in the last error, or in the body.
	Text string
	// Cause is the Fingerprint of the last error.
	Cause string
	// Key is the key of the job. Nodes before format 4 leave it out.
	Key string
}

// Fits reports whether a search finds a job, which must have its body.
func (m *Match) Fits(j *Job) bool {
	return (m.Key == "" || m.Key == j.Key) && strings.HasPrefix(j.ID, m.IDPrefix) &&
		(m.Cause == "" || Fingerprint(j.LastError) == m.Cause) && (m.Text == "" || m.inText(j))
}

func (m *Match) inText(j *Job) bool {
	for _, h := range j.Headers {
		if strings.Contains(h.Name, m.Text) || strings.Contains(h.Value, m.Text) {
			return true
		}
	}
	return strings.Contains(j.ID, m.Text) || strings.Contains(j.LastError, m.Text) ||
		bytes.Contains(j.Body, []byte(m.Text))
}
