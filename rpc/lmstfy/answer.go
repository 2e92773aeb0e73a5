package lmstfy

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// reasonHeader carries Belfry's reason of an error, for people: lmstfy's clients show a text only.
const reasonHeader = "Belfry-Reason"

// answer is the answer to a request.
type answer struct {
	status int
	// body is a value whose JSON is the body; nil for none. With indent it is indented, as lmstfy
	// does on its routes for administrators.
	body   any
	indent string
	// reason and retryAfter go into headers; zero for none.
	reason     string
	retryAfter time.Duration
	// unsent, if it is not nil, is called if the answer could not be written.
	unsent func()
}

// problem is the body of an error.
type problem struct {
	Error string `json:"error"`
	// Msg repeats the text where lmstfy has it under this name.
	Msg string `json:"msg,omitempty"`
}

// message is the body of an answer that is a text only.
type message struct {
	Msg string `json:"msg"`
}

// failure returns the answer for an error.
func failure(status int, text string) answer {
	return answer{status: status, body: problem{Error: text}}
}

// send writes an answer.
func (a answer) send(w http.ResponseWriter) {
	header := w.Header()
	if a.reason != "" {
		header.Set(reasonHeader, a.reason)
	}
	if a.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(a.retryAfter.Seconds()))))
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	text, err := json.MarshalIndent(a.body, "", a.indent)
	if a.indent == "" {
		text, err = json.Marshal(a.body)
	}
	if err != nil { // no body has a value without JSON
		a.status, text = http.StatusInternalServerError, []byte(`{"error":"internal error"}`)
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.status)
	if _, err := w.Write(text); err != nil && a.unsent != nil {
		a.unsent()
	}
}

// refusal returns the answer to a request whose caller is not known.
func refusal(f *fault.Error, token string) answer {
	if f.Reason != belfryv1.Reason_REASON_UNAUTHENTICATED {
		return failed(f)
	}
	text := "invalid token"
	if token == "" {
		text = "token not found"
	}
	a := failure(http.StatusUnauthorized, text)
	a.reason = fault.ReasonName(f.Reason)
	return a
}

// failed returns the answer to a call that a service did not carry out.
func failed(err error) answer {
	f := faultOf(err)
	a := failure(http.StatusServiceUnavailable, f.Message)
	switch f.Reason {
	case belfryv1.Reason_REASON_INVALID:
		a.status = http.StatusBadRequest
	case belfryv1.Reason_REASON_TOO_LARGE:
		a.status = http.StatusRequestEntityTooLarge
	case belfryv1.Reason_REASON_JOB_NOT_FOUND, belfryv1.Reason_REASON_QUEUE_NOT_FOUND:
		a.status = http.StatusNotFound
	case belfryv1.Reason_REASON_UNAUTHENTICATED:
		a = failure(http.StatusUnauthorized, "invalid token")
	case belfryv1.Reason_REASON_FORBIDDEN:
		a = failure(http.StatusUnauthorized, "invalid token: "+f.Message)
	case belfryv1.Reason_REASON_RATE_LIMITED, belfryv1.Reason_REASON_QUOTA, belfryv1.Reason_REASON_QUEUE_FULL:
		a.status, a.body = http.StatusTooManyRequests, problem{Error: f.Message, Msg: f.Message}
	case belfryv1.Reason_REASON_INTERNAL:
		a = failure(http.StatusInternalServerError, "internal error")
	default: // a repeat may succeed, and lmstfy's clients repeat what is 500 and above
	}
	a.reason, a.retryAfter = fault.ReasonName(f.Reason), f.RetryAfter
	return a
}
