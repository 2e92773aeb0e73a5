package portcheck

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
)

// ErrorDomain is the domain of each google.rpc.ErrorInfo that Belfry sends.
const ErrorDomain = "belfry"

// A ForeignResponse is a response that did not come from Belfry: from a proxy without a server
// behind it, or from another server at the address. Belfry's responses have a Connect content type,
// and its errors are JSON with a detail that names Belfry.
type ForeignResponse struct {
	// Status is the HTTP status. What is its text and the content type.
	Status int
	What   string
}

// refusalBytesMax is larger than any error of Belfry.
const refusalBytesMax = 1 << 20

// ForeignIn returns nil if a response may have come from Belfry. It reads the body of an error and
// restores it.
func ForeignIn(res *http.Response) (*ForeignResponse, error) {
	content, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch content = strings.TrimSpace(content); {
	case res.StatusCode == http.StatusOK && strings.HasPrefix(content, "application/"):
		return nil, nil
	case res.StatusCode != http.StatusOK && content == "application/json":
		body, err := io.ReadAll(io.LimitReader(res.Body, refusalBytesMax))
		if err != nil {
			return nil, fmt.Errorf("reading an error: %w", err)
		}
		if explained(body) {
			res.Body = &readAgain{Reader: bytes.NewReader(body), Closer: res.Body}
			return nil, nil
		}
	}
	return &ForeignResponse{Status: res.StatusCode, What: strings.TrimSpace(res.Status + " " + content)}, nil
}

// readAgain is a body that is read a second time.
type readAgain struct {
	io.Reader
	io.Closer
}

// explained reports whether a JSON error has Belfry's ErrorInfo. Gateways write errors in JSON too.
func explained(body []byte) bool {
	var wire struct {
		Details []struct{ Type, Value string }
	}
	if json.Unmarshal(body, &wire) != nil {
		return false
	}
	for _, detail := range wire.Details {
		var info errdetails.ErrorInfo
		if detail.Type != string(info.ProtoReflect().Descriptor().FullName()) {
			continue
		}
		value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(detail.Value, "="))
		if err == nil && proto.Unmarshal(value, &info) == nil && info.GetDomain() == ErrorDomain {
			return true
		}
	}
	return false
}

// Error returns the status and what it means.
func (r *ForeignResponse) Error() string {
	if r.Temporary() {
		return fmt.Sprintf("HTTP %s, which is no answer of Belfry", r.What)
	}
	return fmt.Sprintf("HTTP %s, which is no answer of Belfry: the address is not that of a Belfry server", r.What)
}

// Temporary reports whether a further attempt may succeed: a proxy has lost its server, or is busy.
func (r *ForeignResponse) Temporary() bool {
	switch r.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	default:
		return r.Status >= http.StatusInternalServerError
	}
}

// NotExecuted reports whether the status proves that no Belfry server executed the request: a
// gateway or another server sends it before it forwards or executes a request. With any other
// status the request may have been executed, for example behind a filter that replaces responses.
func (r *ForeignResponse) NotExecuted() bool {
	switch r.Status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusTooManyRequests,
		http.StatusRequestHeaderFieldsTooLarge,
		http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return true
	}
	return false
}

// Code returns the nearest Connect code.
func (r *ForeignResponse) Code() connect.Code {
	switch {
	case r.Temporary():
		return connect.CodeUnavailable
	case r.Status == http.StatusUnauthorized:
		return connect.CodeUnauthenticated
	case r.Status == http.StatusForbidden:
		return connect.CodePermissionDenied
	case r.Status == http.StatusRequestEntityTooLarge:
		return connect.CodeResourceExhausted
	default:
		return connect.CodeUnimplemented
	}
}
