package auth

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/access/tokens"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/fault"
)

// auditedBytesMax bounds the text of a request in the log. All scopes of a token fit.
const auditedBytesMax = 4 << 10

// outcomeOK is the outcome of a call that succeeded.
const outcomeOK = "ok"

// Recorder writes audited calls to the log, and keeps the last ones.
type Recorder struct {
	// Logger receives a line for each call.
	Logger *slog.Logger
	// Trail keeps the last calls.
	Trail *Trail
}

// record writes and keeps a call. more has further attributes of the line. It takes possession of
// the record.
func (a *Recorder) record(r *belfryv1.AuditRecord, more ...any) {
	token := r.Token
	if token == "" {
		token = Nobody
	}
	attrs := []any{slog.String("token", token), slog.String("address", r.Address), slog.String("procedure", r.Procedure)}
	if r.Request != "" {
		attrs = append(attrs, slog.String("request", r.Request))
	}
	attrs = append(attrs, slog.String("outcome", r.Outcome), slog.String("request_id", r.CallId))
	if r.Dashboard {
		attrs = append(attrs, slog.Bool("dashboard", true))
	}
	a.Logger.Info("audit", append(attrs, more...)...)
	a.Trail.add(r)
}

// AuditLog writes the audit log.
type AuditLog struct {
	// Audited has the procedures whose calls are all audited. Changes has those that change state,
	// whose calls are audited if a person made them in the dashboard.
	Audited, Changes map[string]bool
	// Recorder gets the calls.
	Recorder *Recorder
	// Failures records refused calls, up to a rate.
	Failures *Failures
}

// dashboardKey is the key of the mark of OfDashboard.
type dashboardKey struct{}

// OfDashboard returns a context that marks a call as one that the dashboard makes for a person.
// Only code in this process can set the mark: no header does.
func OfDashboard(ctx context.Context) context.Context {
	return context.WithValue(ctx, dashboardKey{}, true)
}

// CallEnded records the end of an audited call, and of any other call that was refused because it
// lacked a token or a scope. err is the error of Connect that the caller gets. Failures limits the
// records of calls that were refused before they had an effect: a token with the smallest scope
// must not fill the log.
func (a *AuditLog) CallEnded(ctx context.Context, c *Call, err error, took time.Duration) {
	page, _ := ctx.Value(dashboardKey{}).(bool)
	audited := a.Audited[c.Procedure] || page && a.Changes[c.Procedure]
	code := connect.Code(0)
	wire := new(connect.Error)
	if errors.As(err, &wire) {
		code = wire.Code()
	}
	refused := code == connect.CodeUnauthenticated || code == connect.CodePermissionDenied
	if !audited && !refused {
		return
	}
	if !audited { // the log must not have the content of jobs
		c = &Call{Procedure: c.Procedure, Address: c.Address, ID: c.ID}
	}
	outcome := outcomeOK
	if code != 0 {
		outcome = code.String() + ": " + fault.Clip(tokens.Mask(wire.Message()), fault.QuotedBytesMax)
	}
	who, _ := ctx.Value(callerKey{}).(*caller)
	r := newAuditRecord(who, c, outcome)
	r.Dashboard, r.Took = page, durationpb.New(took)
	if refused || code == connect.CodeInvalidArgument {
		a.Failures.auditCall(r)
		return
	}
	more := []any{slog.Duration("took", took)}
	if made, ok := c.Answer.(*belfryv1.CreateTokenResponse); ok {
		r.MadeToken = made.GetRecord().GetId()
		more = append(more, slog.String("made", r.MadeToken))
	}
	a.Recorder.record(r, more...)
}

// newAuditRecord returns the record of a call. It masks a token that was sent in place of a name.
func newAuditRecord(who *caller, c *Call, outcome string) *belfryv1.AuditRecord {
	r := &belfryv1.AuditRecord{
		Address: c.Address, Procedure: readable(fault.Clip(c.Procedure, fault.QuotedBytesMax)),
		Outcome: readable(outcome), CallId: c.ID,
		Request: requestText(c.Request),
	}
	if who != nil {
		r.Token, r.TokenAbout = who.id, who.about
	}
	return r
}

// readable returns a text as UTF-8, as a record must have it. A caller may choose other bytes.
func readable(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// requestText returns the text of a request for the log, without the content of jobs. It masks
// tokens, which a caller may send in place of an id.
func requestText(request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	if put, ok := m.(*belfryv1.PutRequest); ok {
		put = proto.CloneOf(put)
		put.Body, put.Headers = nil, nil
		m = put
	}
	if put, ok := m.(*belfryv1.PutScheduleRequest); ok && put.GetJob() != nil {
		put = proto.CloneOf(put)
		put.Job.Body, put.Job.Headers = nil, nil
		m = put
	}
	text, err := protojson.MarshalOptions{}.Marshal(m)
	if err != nil {
		return "cannot be written"
	}
	return fault.Clip(tokens.Mask(string(text)), auditedBytesMax)
}
