package client

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

// strangeAnswer is the answer of something that is not Belfry: of a proxy whose server is gone, or of another server at the
// address. Belfry's own are of a Connect content type, its errors JSON with a detail that names Belfry.
type strangeAnswer struct {
	status int
	what   string
}

// refusalBytesMax is more than an error of Belfry's has.
const refusalBytesMax = 1 << 20

// strangeIn returns nil if an answer may be one of Belfry's. It reads the body of an error, and puts it back.
func strangeIn(res *http.Response) (*strangeAnswer, error) {
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
	return &strangeAnswer{status: res.StatusCode, what: strings.TrimSpace(res.Status + " " + content)}, nil
}

// readAgain is a body that was read.
type readAgain struct {
	io.Reader
	io.Closer
}

// explained reports whether a JSON error has a detail by which Belfry says what it means. Gateways write errors in JSON too.
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
		if err == nil && proto.Unmarshal(value, &info) == nil && info.GetDomain() == errorDomain {
			return true
		}
	}
	return false
}

// Error names the status.
func (a *strangeAnswer) Error() string {
	if a.passes() {
		return fmt.Sprintf("HTTP %s, which is no answer of Belfry", a.what)
	}
	return fmt.Sprintf("HTTP %s, which is no answer of Belfry: the address is not that of a Belfry server", a.what)
}

// passes reports whether another attempt may be answered otherwise: a proxy has lost its server, or is busy.
func (a *strangeAnswer) passes() bool {
	switch a.status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	default:
		return a.status >= http.StatusInternalServerError
	}
}

// refuses reports whether the answer proves that the request went no further: those are the statuses that a gateway or another
// server gives before it passes a request on or acts on it. Behind any other, a success in words that are not Belfry's or a
// filter that looks at answers, the request may have been carried out.
func (a *strangeAnswer) refuses() bool {
	switch a.status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return true
	}
	return false
}

// code is the Connect code that comes nearest.
func (a *strangeAnswer) code() connect.Code {
	switch {
	case a.passes():
		return connect.CodeUnavailable
	case a.status == http.StatusUnauthorized:
		return connect.CodeUnauthenticated
	case a.status == http.StatusForbidden:
		return connect.CodePermissionDenied
	case a.status == http.StatusRequestEntityTooLarge:
		return connect.CodeResourceExhausted
	default:
		return connect.CodeUnimplemented
	}
}
