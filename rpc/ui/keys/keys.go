// Package keys has the pages about the keys of a queue, and the acts on them.
package keys

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/outcome"
	"github.com/belfrydb/belfry/rpc/ui/payload"
	"github.com/belfrydb/belfry/rpc/ui/selection"
)

// API has the calls about keys, as the client of AdminService does.
type API interface {
	GetQueue(context.Context, *belfryv1.GetQueueRequest) (*belfryv1.GetQueueResponse, error)
	ListKeys(context.Context, *belfryv1.ListKeysRequest) (*belfryv1.ListKeysResponse, error)
	PauseKey(context.Context, *belfryv1.PauseKeyRequest) (*belfryv1.PauseKeyResponse, error)
	ResumeKey(context.Context, *belfryv1.ResumeKeyRequest) (*belfryv1.ResumeKeyResponse, error)
	PurgeKey(context.Context, *belfryv1.PurgeKeyRequest) (*belfryv1.PurgeKeyResponse, error)
}

// Visit is one request for a page about keys, or for an act on one. All fields but the last are
// required.
type Visit struct {
	*inputs.Forms
	// API makes the calls.
	API API
	// In has the values of the query and of the form.
	In    form.Values
	Clock format.Clock
	// ReadOnly leaves out all actions.
	ReadOnly bool
}

const (
	// rows is how many keys a page has.
	rows = 50
	// needed is the format that the cluster must write.
	needed = 4
	// keyBytesMax bounds a key, as in the API.
	keyBytesMax = 128
	// byName is the value of the choice of an order.
	byName = "name"
)

// explained returns the error of a call about keys.
func explained(err error) error { return outcome.Upgrading(err, "Keys", needed) }

// List shows the keys of a queue. It is not refreshed by itself, because each page is made of all keys.
func (v *Visit) List(ctx context.Context) (markup.Page, error) {
	queue := v.In("queue")
	req := &belfryv1.ListKeysRequest{Queue: queue, Prefix: v.In("prefix"), PageSize: rows, PageToken: v.In("from")}
	var err error
	if req.State, err = selection.State(v.In("state")); err != nil {
		return markup.Page{}, err
	}
	if v.In("order") == byName {
		req.Order = belfryv1.KeyOrder_KEY_ORDER_NAME
	}
	res, err := v.API.ListKeys(ctx, req)
	if err != nil {
		return markup.Page{}, explained(err)
	}
	settings, err := v.settings(ctx, queue)
	if err != nil {
		return markup.Page{}, err
	}
	table := h.P(g.Text("No key of this queue fits. A key is listed while it has jobs, or is paused."))
	if len(res.Keys) > 0 {
		table = v.table(queue, res.Keys)
	}
	return markup.Page{Title: "Keys of " + queue, Body: g.Group{
		markup.Path("Queues", "queues", queue, markup.Query("queue", "queue", queue)),
		h.H1(g.Text("Keys")), settings, v.tabs(req), v.filter(req), stopped(res), table, v.pager(req, res.NextPageToken),
	}}, nil
}

// settings says which settings of keys the queue has that are not the default.
func (v *Visit) settings(ctx context.Context, queue string) (g.Node, error) {
	res, err := v.API.GetQueue(ctx, &belfryv1.GetQueueRequest{Queue: queue, Stale: true})
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, s := range form.Settings() {
		if value := s.Text(res.Queue.GetSettings()); s.OfKeys() && value != "" && value != "0" && value != "no" {
			texts = append(texts, s.Label+": "+value)
		}
	}
	text := "The settings of the queue limit no key."
	if len(texts) > 0 {
		text = strings.Join(texts, " · ")
	}
	return h.P(g.Text(text+" "), markup.Link(markup.Query("queue", "queue", queue), "All settings")), nil
}

// query returns a page of keys with another state or place.
func query(req *belfryv1.ListKeysRequest, state belfryv1.JobState, from string) string {
	order, name := "", ""
	if req.Order == belfryv1.KeyOrder_KEY_ORDER_NAME {
		order = byName
	}
	if state != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		name = format.Word(state)
	}
	return markup.Query("keys", "queue", req.Queue, "state", name, "prefix", req.Prefix, "order", order, "from", from)
}

// tabs lead to the keys with jobs in a state.
func (v *Visit) tabs(req *belfryv1.ListKeysRequest) g.Node {
	states := append([]belfryv1.JobState{belfryv1.JobState_JOB_STATE_UNSPECIFIED}, selection.States()...)
	return h.Ul(h.Class("tabs"), g.Map(states, func(state belfryv1.JobState) g.Node {
		name := "all"
		if state != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
			name = "with " + format.Word(state) + " jobs"
		}
		return h.Li(h.A(h.Href(query(req, state, "")), g.If(state == req.State, h.Aria("current", "page")), g.Text(name)))
	}))
}

// filter is the form that selects other keys.
func (v *Visit) filter(req *belfryv1.ListKeysRequest) g.Node {
	state, order := "", ""
	if req.State != belfryv1.JobState_JOB_STATE_UNSPECIFIED {
		state = format.Word(req.State)
	}
	if req.Order == belfryv1.KeyOrder_KEY_ORDER_NAME {
		order = byName
	}
	return markup.Filter("keys", []string{"queue", req.Queue, "state", state},
		markup.Field("Key begins with", "prefix", h.Value(req.Prefix), h.Type("search"),
			h.MaxLength(strconv.Itoa(keyBytesMax))),
		markup.Choice("Order", "order", order, markup.Option{Value: "", Text: "most ready jobs first"},
			markup.Option{Value: byName, Text: "by name"}), markup.Button("Show"))
}

// stopped says that not all keys were looked at; nothing if all were.
func stopped(res *belfryv1.ListKeysResponse) g.Node {
	return g.If(res.StoppedEarly, h.P(h.Class("warning"), g.Text("Only "+format.Grouped(res.Searched)+
		" keys were looked at, as many as a call may. Others may be missing.")))
}

// pager leads to the first keys and to those that follow.
func (v *Visit) pager(req *belfryv1.ListKeysRequest, next string) g.Node {
	return g.If(req.PageToken != "" || next != "", h.P(h.Class("pager"),
		g.If(req.PageToken != "", markup.Link(query(req, req.State, ""), "the first")),
		g.If(next != "", g.Group{g.Text(" "), h.A(h.Rel("next"), h.Href(query(req, req.State, next)),
			g.Text("The next "+strconv.Itoa(rows)))})))
}

// table shows keys.
func (v *Visit) table(queue string, all []*belfryv1.Key) g.Node {
	columns := markup.Headings("Key", "Ready", "Delayed", "Reserved", "Dead", "Why it waits", "Next token", "Next job due")
	return markup.Grid("Keys", columns, g.Map(all, func(k *belfryv1.Key) g.Node {
		return h.Tr(h.Th(h.Scope("row"), Link(queue, k.Key)),
			v.count(queue, k, belfryv1.JobState_JOB_STATE_READY), v.count(queue, k, belfryv1.JobState_JOB_STATE_DELAYED),
			v.count(queue, k, belfryv1.JobState_JOB_STATE_RESERVED), v.count(queue, k, belfryv1.JobState_JOB_STATE_DEAD),
			h.Td(g.Text(why(k))), h.Td(markup.Time(v.Clock, k.NextTokenAt)), h.Td(markup.Time(v.Clock, k.NextDueAt)))
	}))
}

// Link leads to the page of a key. Its text is the key as far as it can be shown.
func Link(queue, key string) g.Node {
	return h.A(h.Class("free"), h.Href(pageOf(queue, key)), g.Text(payload.Visible(key)))
}

// pageOf returns the page of a key.
func pageOf(queue, key string) string { return markup.Query("key", "queue", queue, "key", key) }

// Fact leads from a job to its key, and to the other jobs of that; nothing if it has none.
func Fact(j *belfryv1.Job) g.Node {
	return g.If(j.Key != "", markup.FactOf("Key", g.Group{Link(j.Queue, j.Key), g.Text(" · "),
		markup.Link(JobsOf(j.Queue, j.Key, j.State), "its jobs")}))
}

// count is a cell with how many jobs of a key are in a state, which leads to them.
func (v *Visit) count(queue string, k *belfryv1.Key, state belfryv1.JobState) g.Node {
	n := selection.CountOf(k.Counts, state)
	if n == 0 {
		return markup.Number("0")
	}
	return h.Td(h.Class("number"), markup.Link(JobsOf(queue, k.Key, state), format.Grouped(n)))
}

// JobsOf returns the page of the jobs of a key in a state.
func JobsOf(queue, key string, state belfryv1.JobState) string {
	of := selection.Selection{Queue: queue, State: state, Key: key}
	return markup.Query("jobs", of.Pairs()...)
}

// why says why no ready job of a key is handed out.
func why(k *belfryv1.Key) string {
	switch k.Blocked {
	case belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED:
		switch {
		case k.Paused: // it has no jobs
			return "it is paused"
		case k.Counts.GetReady() > 0:
			return "nothing holds it: the next consumer gets a job"
		}
		return "no job is ready"
	case belfryv1.KeyBlock_KEY_BLOCK_LIMIT:
		return "as many of its jobs are reserved as may be"
	case belfryv1.KeyBlock_KEY_BLOCK_RATE:
		return "its rate: it has no token"
	case belfryv1.KeyBlock_KEY_BLOCK_PAUSED:
		return "it is paused"
	case belfryv1.KeyBlock_KEY_BLOCK_DEAD:
		return "a dead job holds it"
	case belfryv1.KeyBlock_KEY_BLOCK_ORDER:
		return "its jobs keep their order, and the first one is delayed"
	default:
		return "not known"
	}
}

// Show shows a key. One that has no jobs and is not paused is shown as such: it can be paused ahead.
func (v *Visit) Show(ctx context.Context) (markup.Page, error) {
	queue, key := v.In("queue"), v.In("key")
	if key == "" || len(key) > keyBytesMax {
		return markup.Page{}, form.Errorf("key", "it has %d bytes; the limit is 1 to %d", len(key), keyBytesMax)
	}
	// Of all keys that begin with this one, it comes first.
	res, err := v.API.ListKeys(ctx, &belfryv1.ListKeysRequest{Queue: queue, Prefix: key,
		Order: belfryv1.KeyOrder_KEY_ORDER_NAME, PageSize: 1})
	if err != nil {
		return markup.Page{}, explained(err)
	}
	k, known := &belfryv1.Key{Key: key, Blocked: belfryv1.KeyBlock_KEY_BLOCK_NOT_BLOCKED}, false
	if len(res.Keys) > 0 && res.Keys[0].Key == key {
		k, known = res.Keys[0], true
	}
	figure := func(name string, state belfryv1.JobState) markup.Figure {
		return markup.Figure{Name: name, Value: format.Grouped(selection.CountOf(k.Counts, state)),
			Target: JobsOf(queue, key, state), Bad: state == belfryv1.JobState_JOB_STATE_DEAD && k.Counts.GetDead() > 0}
	}
	facts := g.If(!res.StoppedEarly, h.P(g.Text("It has no jobs, and is not paused.")))
	if known {
		facts = markup.Facts(markup.Fact("Why it waits", why(k)), markup.TimeFact(v.Clock, "Next token", k.NextTokenAt),
			markup.TimeFact(v.Clock, "Next job due", k.NextDueAt))
	}
	body := g.Group{
		markup.Path("Queues", "queues", queue, markup.Query("queue", "queue", queue), "Keys",
			markup.Query("keys", "queue", queue)),
		h.H1(h.Span(h.Class("free"), g.Text(payload.Visible(key))), g.If(k.Paused, markup.Tag("paused"))),
		markup.Figures(figure("Ready", belfryv1.JobState_JOB_STATE_READY),
			figure("Delayed", belfryv1.JobState_JOB_STATE_DELAYED), figure("Reserved", belfryv1.JobState_JOB_STATE_RESERVED),
			figure("Dead", belfryv1.JobState_JOB_STATE_DEAD)),
		stopped(res), facts,
	}
	if !v.ReadOnly {
		body = append(body, markup.Section("Actions", v.actions(queue, k)))
	}
	return markup.Page{Title: payload.Visible(key), Body: body}, nil
}

// purgeable are the states whose jobs a purge can remove.
func purgeable() []belfryv1.JobState {
	return slices.DeleteFunc(selection.States(), func(s belfryv1.JobState) bool {
		return s == belfryv1.JobState_JOB_STATE_RESERVED
	})
}

// actions are the forms of the acts on a key.
func (v *Visit) actions(queue string, k *belfryv1.Key) g.Node {
	hidden := []string{"queue", queue, "key", k.Key}
	pause := markup.Acting("pause-key", hidden, v.RequestID(), markup.Button("Pause"),
		h.Span(h.Class("help"), g.Text("Its jobs are not handed out until it is resumed. Puts and leases go on.")))
	if k.Paused {
		pause = markup.Acting("resume-key", hidden, v.RequestID(), markup.Button("Resume"))
	}
	all := uint64(0)
	options := []markup.Option{{}}
	for _, state := range purgeable() {
		n := selection.CountOf(k.Counts, state)
		all += n
		options = append(options, markup.Option{Value: format.Word(state),
			Text: format.Word(state) + " (" + format.Grouped(n) + ")"})
	}
	options[0].Text = "delayed, ready or dead (" + format.Grouped(all) + ")"
	purge := markup.Acting("purge-key", hidden, v.RequestID(),
		h.P(g.Text("Jobs of this key are removed for good, with puts that wait for the end of one. Reserved jobs stay.")),
		markup.Choice("Remove the jobs that are", "state", v.Typed("state", ""), options...),
		h.P(g.Text("To confirm, type "), h.Code(g.Text(toType(k.Key)))), v.Confirmation("Type the key", "confirm"),
		markup.DangerButton("Remove the jobs of the key"))
	return h.Div(h.Class("actions"), pause, purge)
}

// after returns the page of the key of a form, with the notice about what was done.
func (v *Visit) after(done string, more ...string) string {
	return markup.Query("key", append([]string{"queue", v.In("queue"), "key", v.In("key"), "done", done}, more...)...)
}

// Pause pauses a key. It returns the page that follows, as do all acts.
func (v *Visit) Pause(ctx context.Context) (string, error) {
	_, err := v.API.PauseKey(ctx, &belfryv1.PauseKeyRequest{Queue: v.In("queue"), Key: v.In("key"),
		RequestId: v.In("requestId")})
	return v.after("pause-key"), explained(err)
}

// Resume ends the pause of a key.
func (v *Visit) Resume(ctx context.Context) (string, error) {
	_, err := v.API.ResumeKey(ctx, &belfryv1.ResumeKeyRequest{Queue: v.In("queue"), Key: v.In("key"),
		RequestId: v.In("requestId")})
	return v.after("resume-key"), explained(err)
}

// toType returns what a person types for a key: without line ends and characters that a page does not
// show, and with one blank for several. A key of blanks alone is typed in quotes.
func toType(key string) string {
	return cmp.Or(strings.Join(strings.Fields(payload.Visible(key)), " "), strconv.Quote(key))
}

// Purge removes the jobs of a key in one state, or in all but RESERVED. The key must have been typed.
func (v *Visit) Purge(ctx context.Context) (string, error) {
	key := v.In("key")
	if typed := v.In("confirm"); typed != key && toType(typed) != toType(key) {
		return "", form.Errorf("confirm", "type %s to remove the jobs of the key; nothing was done", toType(key))
	}
	req := &belfryv1.PurgeKeyRequest{Queue: v.In("queue"), Key: key, States: purgeable(), RequestId: v.In("requestId")}
	state, err := selection.State(v.In("state"))
	switch {
	case err != nil:
		return "", err
	case state == belfryv1.JobState_JOB_STATE_RESERVED:
		return "", form.Errorf("state", "reserved jobs are not removed with their key; nothing was done")
	case state != belfryv1.JobState_JOB_STATE_UNSPECIFIED:
		req.States = []belfryv1.JobState{state}
	}
	res, err := v.API.PurgeKey(ctx, req)
	return v.after("purge-key", "n", strconv.FormatUint(uint64(res.GetPurged()), 10)), explained(err)
}
