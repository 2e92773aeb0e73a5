package lmstfy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Body takes the value of a job apart: the bytes that the producer sent, and the attributes that
// came with them, nil if there were none. Which form the value has is for the id to say: the value
// of a job of version 0 is its body, and is returned itself, not a copy.
//
// A value of version 1 is a JSON object of "body", in base64, and "attributes", texts by name,
// which may be missing. A field that is neither is an error, though a server would overlook it, as
// is an id that ParseID refuses. The caller then keeps the value as it is.
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
