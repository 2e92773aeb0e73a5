package rpc

import (
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/rpc/auth"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
	"github.com/belfrydb/belfry/rpc/check"
	"github.com/belfrydb/belfry/rpc/codec"
	"github.com/belfrydb/belfry/rpc/fault"
	"github.com/belfrydb/belfry/rpc/spelling"
	"github.com/belfrydb/belfry/rpc/wire"
)

// rawPrefix is the prefix of the paths on which a job's body is the body of the HTTP message, byte
// for byte.
const rawPrefix = "/q/"

// validText reports whether s may be a string field.
func validText(s string) bool { return utf8.ValidString(s) }

// serveRaw serves POST /q/{queue} and GET /q/{queue}. It refuses HEAD, which would reserve a job.
func (h *handler) serveRaw(w http.ResponseWriter, r *http.Request, queue string) {
	c := &auth.Call{Address: r.RemoteAddr, ID: r.Header.Get(auth.CallIDHeader)}
	var serve func(http.ResponseWriter, *http.Request, string) error
	switch r.Method {
	case http.MethodPost:
		c.Procedure, serve = belfryv1connect.QueueServicePutProcedure, h.rawPut
	case http.MethodGet:
		c.Procedure, serve = belfryv1connect.QueueServiceReserveProcedure, h.rawReserve
	default:
		w.Header().Set("Allow", "GET, POST")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if err := h.interceptor.run(r.Context(), c, func() error { return serve(w, r, queue) }); err != nil {
		writeFault(h.errors, w, plainRequest(r), err)
	}
}

// plainRequest returns a request whose errors are plain JSON, whatever content type its job's body
// has.
func plainRequest(r *http.Request) *http.Request {
	plain := *r
	plain.Header = http.Header{}
	return &plain
}

// rawPut puts the request's body as a job and answers as Put does.
func (h *handler) rawPut(w http.ResponseWriter, r *http.Request, queue string) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fault.Invalid("Content-Encoding", "%s is not taken here: a job keeps the bytes as they come",
			fault.Quote([]byte(encoding)))
	}
	req := &belfryv1.PutRequest{Queue: queue}
	requestID, err := readQuery(r, putParameters(req))
	if err != nil {
		return err
	}
	req.RequestId = requestID
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	req.Body = &belfryv1.PutRequest_Data{Data: body}
	res, err := h.queues.Put(r.Context(), req)
	if err != nil {
		return err
	}
	text, err := codec.JSON().Marshal(res)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	setWitness(w.Header(), res.GetWitness())
	return send(w, text)
}

// rawReserve reserves one job and answers with its body, or 204.
func (h *handler) rawReserve(w http.ResponseWriter, r *http.Request, queue string) error {
	req := &belfryv1.ReserveRequest{Queues: []string{queue}}
	requestID, err := readQuery(r, reserveParameters(req))
	if err != nil {
		return err
	}
	req.RequestId = requestID
	res, err := h.queues.Reserve(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	if len(res.GetJobs()) == 0 {
		if len(res.GetWitnesses()) > 0 {
			setWitness(w.Header(), res.GetWitnesses()[0])
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	job := res.GetJobs()[0]
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Belfry-Queue", job.GetQueue())
	header.Set("Belfry-Id", headerText(job.GetId()))
	header.Set("Belfry-Lease", job.GetLease())
	header.Set("Belfry-Fence", strconv.FormatUint(job.GetFence(), 10))
	if job.GetKey() != "" {
		header.Set("Belfry-Key", headerText(job.GetKey()))
	}
	header.Set("Belfry-Version", strconv.FormatUint(job.GetVersion(), 10))
	header.Set("Belfry-Attempt", strconv.FormatUint(uint64(job.GetAttempt()), 10))
	header.Set("Belfry-Due-At", job.GetDueAt().AsTime().Format(time.RFC3339Nano))
	header.Set("Belfry-Lease-Until", job.GetLeaseUntil().AsTime().Format(time.RFC3339Nano))
	setWitness(header, job.GetWitness())
	header.Set("Content-Length", strconv.Itoa(len(job.GetData())))
	if err := send(w, job.GetData()); err != nil && requestID == "" { // with an id, a repeat may collect it
		h.queues.ReleaseUnsent(r.Context(), res.GetJobs())
	}
	return nil
}

// send writes a whole answer.
func send(w http.ResponseWriter, body []byte) error {
	if _, err := w.Write(body); err != nil {
		return err
	}
	return nil
}

// setWitness sets the header with the position of the answer in the history of a shard.
func setWitness(header http.Header, w *belfryv1.Witness) {
	if w == nil {
		return
	}
	if text, err := codec.AppendJSON(nil, w.ProtoReflect()); err == nil {
		header.Set("Belfry-Witness", string(text))
	}
}

// headerText converts a text to the value of a header: it percent-encodes % and all that is not
// visible ASCII.
func headerText(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '%' {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// parameter is a query parameter, with the function that reads its value.
type parameter struct {
	name string
	read func(text string) error
}

// readQuery reads a query strictly: every parameter must be known and given once. It returns the
// request id, from the query or the header.
func readQuery(r *http.Request, parameters []parameter) (requestID string, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", unreadableQuery(err)
	}
	requestID = r.Header.Get(requestIDHeader)
	parameters = append(parameters, parameter{"requestId", func(text string) error {
		if requestID != "" && requestID != text {
			return fault.Invalid("requestId", "it differs from the header %s", requestIDHeader)
		}
		requestID = text
		return nil
	}})
	seen := 0
	for _, p := range parameters {
		values, ok := query[p.name]
		if !ok {
			continue
		}
		seen++
		switch {
		case len(values) > 1:
			return "", fault.Invalid(p.name, "given %d times; the limit is 1", len(values))
		case !validText(values[0]):
			return "", fault.Invalid(p.name, "not valid UTF-8")
		}
		if err := p.read(values[0]); err != nil {
			return "", err
		}
	}
	if seen < len(query) {
		return "", unknownParameter(query, parameters)
	}
	if !validText(requestID) {
		return "", fault.Invalid("requestId", "not valid UTF-8")
	}
	return requestID, nil
}

// unreadableQuery returns the fault of a query that cannot be parsed.
func unreadableQuery(err error) *fault.Error {
	return fault.Invalid("query", "cannot be read: %s", fault.Clip(err.Error(), 100))
}

// unknownParameter returns a fault for the first unknown parameter, in alphabetical order.
func unknownParameter(query url.Values, parameters []parameter) *fault.Error {
	names := make([]string, len(parameters))
	for i, p := range parameters {
		names[i] = p.name
	}
	first := ""
	for name := range query {
		known := false
		for _, n := range names {
			known = known || n == name
		}
		if !known && (first == "" || name < first) {
			first = name
		}
	}
	field := fault.Clip(strings.ToValidUTF8(first, "\ufffd"), fault.QuotedBytesMax)
	if field == "" {
		return fault.Invalid("query", "a parameter without a name; the parameters here are %s", strings.Join(names, ", "))
	}
	if near := spelling.Nearest(first, names); near != "" {
		return fault.Invalid(field, "unknown parameter; did you mean %q?", near)
	}
	return fault.Invalid(field, "unknown parameter; the parameters here are %s", strings.Join(names, ", "))
}

// putParameters returns the parameters of POST /q/{queue}: the fields of a put without its body.
func putParameters(req *belfryv1.PutRequest) []parameter {
	return []parameter{
		{"id", func(text string) error { req.Id = text; return nil }},
		{"delay", func(text string) error {
			d, err := queryDuration("delay", text)
			if _, twice := req.GetWhen().(*belfryv1.PutRequest_DueAt); twice {
				return errTwoTimes()
			}
			req.When = &belfryv1.PutRequest_Delay{Delay: d}
			return err
		}},
		{"dueAt", func(text string) error {
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				return fault.Invalid("dueAt", `want a time such as "2026-11-21T09:30:00Z", not %s`,
					fault.Clip(text, fault.QuotedBytesMax))
			}
			if req.GetWhen() != nil {
				return errTwoTimes()
			}
			due := timestamppb.New(at)
			if !due.IsValid() {
				return fault.Invalid("dueAt", "%s is out of range: the years 1 to 9999", fault.Clip(text, fault.QuotedBytesMax))
			}
			req.When = &belfryv1.PutRequest_DueAt{DueAt: due}
			return nil
		}},
		{"ttr", func(text string) (err error) { req.Ttr, err = queryDuration("ttr", text); return err }},
		{"ttl", func(text string) (err error) { req.Ttl, err = queryDuration("ttl", text); return err }},
		{"priority", func(text string) error {
			n, err := queryNumber("priority", text, check.PriorityMin, check.PriorityMax)
			req.Priority = &n
			return err
		}},
		{"maxAttempts", func(text string) error {
			n, err := queryNumber("maxAttempts", text, 0, 1<<32-1)
			attempts := uint32(n)
			req.MaxAttempts = &attempts
			return err
		}},
		{"retryDelays", func(text string) error {
			for i, part := range strings.Split(text, ",") {
				d, err := queryDuration(fault.Indexed("retryDelays", i), strings.TrimSpace(part))
				if err != nil {
					return err
				}
				req.RetryDelays = append(req.RetryDelays, d)
			}
			return nil
		}},
		{"again", func(text string) error {
			if text != "true" && text != "false" {
				return fault.Invalid("again", "want true or false, not %s", fault.Clip(text, fault.QuotedBytesMax))
			}
			req.Again = text == "true"
			return nil
		}},
		{"key", func(text string) error { req.Key = text; return nil }},
		{"onExisting", func(text string) (err error) { req.OnExisting, err = queryOnExisting(text); return err }},
		{"maxWait", func(text string) (err error) { req.MaxWait, err = queryDuration("maxWait", text); return err }},
		{"ifVersion", func(text string) (err error) {
			if req.IfVersion, err = strconv.ParseUint(text, 10, 64); err != nil {
				return fault.Invalid("ifVersion", "want a whole number from 0 to %d, not %s", uint64(math.MaxUint64),
					fault.Clip(text, fault.QuotedBytesMax))
			}
			return nil
		}},
	}
}

// queryOnExisting parses what a put does if a job has its id.
func queryOnExisting(text string) (belfryv1.OnExisting, error) {
	o, ok := belfryv1.OnExisting_value["ON_EXISTING_"+text]
	if !ok || text == "UNSPECIFIED" {
		return 0, fault.Invalid("onExisting", "want one of RETURN, KEEP, REPLACE, NEXT, not %s",
			fault.Clip(text, fault.QuotedBytesMax))
	}
	return belfryv1.OnExisting(o), nil
}

// errTwoTimes returns the fault of a due time that was given twice, in different ways.
func errTwoTimes() *fault.Error { return fault.Invalid("dueAt", "give either delay or dueAt") }

// reserveParameters returns the parameters of GET /q/{queue}.
func reserveParameters(req *belfryv1.ReserveRequest) []parameter {
	return []parameter{
		{"wait", func(text string) (err error) { req.Wait, err = queryDuration("wait", text); return err }},
		{"ttr", func(text string) (err error) { req.Ttr, err = queryDuration("ttr", text); return err }},
	}
}

// queryDuration parses a duration.
func queryDuration(name, text string) (*durationpb.Duration, error) {
	d, err := wire.ParseDuration(text)
	if err != nil {
		return nil, fault.Invalid(name, "%v; not %s", err, fault.Clip(text, fault.QuotedBytesMax))
	}
	return durationpb.New(d), nil
}

// queryNumber parses a whole number in a range.
func queryNumber(name, text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fault.Invalid(name, "want a whole number from %d to %d, not %s", least, most,
			fault.Clip(text, fault.QuotedBytesMax))
	}
	return n, nil
}
