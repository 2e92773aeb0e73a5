package ui

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

func (p *Pages) showPutForm(v *visit) (content, error) {
	name := v.param("queue")
	return content{title: "Put a job into " + name, entry: "Queues", body: g.Group{
		markup.Path("Queues", "queues", name, markup.Query("queue", "queue", name)),
		h.H1(g.Text("Put a job")),
		large("put", markup.HiddenFields([]string{"queue", name}), v.requestID(),
			v.row(input{label: "Body", name: "body", lines: "8", help: "text, at most 1 MiB; line ends are sent as \\n"}),
			v.row(input{label: "Due", name: "due", attributes: []g.Node{h.Placeholder("at once")},
				help: "a delay such as 90s, 30m or 7d, or a time such as 2026-01-31 15:04, in " + v.clock.Zone.String()}),
			v.row(input{label: "Id", name: "id", attributes: []g.Node{h.Placeholder("made by the server")},
				help: "unique in the queue, at most 256 bytes; a second put of it makes no second job"}),
			v.row(input{label: "Headers", name: "headers", lines: "3", help: "one in each line, NAME: VALUE; at most 16 KiB"}),
			v.row(input{label: "Priority", name: "priority", help: "-128 to 127, lower leaves first",
				attributes: []g.Node{h.Placeholder("0")}}),
			v.row(input{label: "Lease (TTR)", name: "ttr", help: "1ms to 24h", attributes: ofQueue()}),
			v.row(input{label: "Attempts", name: "maxAttempts", help: "failed attempts until it is dead; 0 for no limit",
				attributes: ofQueue()}),
			v.row(input{label: "Retry delays", name: "retryDelays", attributes: ofQueue(),
				help: "after the n-th failed attempt, such as 1s, 10s, 2m; the last repeats"}),
			v.row(input{label: "Expires after (TTL)", name: "ttl", help: "how long it may wait for a consumer",
				attributes: []g.Node{h.Placeholder("never")}}),
			h.P(h.Class("ends"), markup.Button("Put the job"), markup.Link(markup.Query("queue", "queue", name), "Leave it"))),
	}}, nil
}

// ofQueue says of an empty input that the setting of the queue counts.
func ofQueue() []g.Node { return []g.Node{h.Placeholder("as the queue has it")} }

// putJob puts the job of the form, and shows it.
func (p *Pages) putJob(v *visit) (string, error) {
	req, err := form.ReadPut(v.r.PostForm.Get, v.clock.Zone)
	if err != nil {
		return "", err
	}
	res, err := p.queues.Put(v.ctx, req)
	if err != nil {
		return "", err
	}
	done := "put"
	if !res.Created {
		done = "put-again"
	}
	return markup.Query("job", "queue", req.Queue, "id", res.Id, "done", done), nil
}
