package lmstfy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Body splits the value of a job: the bytes that the producer sent, and their attributes, nil if
// there are none. The id decides the form of the value. The value of a job of version 0 is its
// body; Body returns it without a copy.
//
// A value of version 1 is a JSON object of "body", in base64, and "attributes", texts by name.
// Attributes may be missing. Any other field is an error, although a server would ignore it. So is
// an id that ParseID refuses. The caller then keeps the value as it is.
func Body(id string, value []byte) (body []byte, attributes map[string]string, err error) {
	parsed, err := ParseID(id)
	if err != nil {
		return nil, nil, err
	}
	if parsed.Version == 0 {
		return value, nil, nil
	}
	var v struct {
		Body       []byte            `json:"body"`
		Attributes map[string]string `json:"attributes"`
	}
	in := json.NewDecoder(bytes.NewReader(value))
	in.DisallowUnknownFields()
	if err := in.Decode(&v); err != nil {
		return nil, nil, fmt.Errorf("lmstfy: the value of job %s: %w", id, err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("lmstfy: the value of job %s: something follows the object", id)
	}
	if v.Body == nil {
		return nil, nil, fmt.Errorf("lmstfy: the value of job %s has no body", id)
	}
	return v.Body, v.Attributes, nil
}
