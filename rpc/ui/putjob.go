package ui

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

func (p *Pages) showPutForm(v *visit) (content, error) {
	name := v.param("queue")
	return content{title: "Put a job into " + name, entry: "Queues", body: g.Group{
		markup.Path("Queues", "queues", name, markup.Query("queue", "queue", name)),
		h.H1(g.Text("Put a job")),
		inputs.Large("put", markup.HiddenFields([]string{"queue", name}), v.RequestID(),
			v.Row(inputs.Row{Label: "Body", Name: "body", Lines: "8", Help: "text, at most 1 MiB; line ends are sent as \\n"}),
			v.Row(inputs.Row{Label: "Due", Name: "due", Attributes: []g.Node{h.Placeholder("at once")},
				Help: "a delay such as 90s, 30m or 7d, or a time such as 2026-01-31 15:04, in " + v.clock.Zone.String()}),
			v.Row(inputs.Row{Label: "Id", Name: "id", Attributes: []g.Node{h.Placeholder("made by the server")},
				Help: "unique in the queue, at most 256 bytes; a second put of it makes no second job"}),
			v.Row(inputs.Row{Label: "Headers", Name: "headers", Lines: "3",
				Help: "one in each line, NAME: VALUE; at most 16 KiB"}),
			v.Row(inputs.Row{Label: "Priority", Name: "priority", Help: "-128 to 4294967295, lower leaves first",
				Attributes: []g.Node{h.Placeholder("0")}}),
			v.Row(inputs.Row{Label: "Lease (TTR)", Name: "ttr", Help: "1ms to 24h", Attributes: ofQueue()}),
			v.Row(inputs.Row{Label: "Attempts", Name: "maxAttempts", Help: "failed attempts until it is dead; 0 for no limit",
				Attributes: ofQueue()}),
			v.Row(inputs.Row{Label: "Retry delays", Name: "retryDelays", Attributes: ofQueue(),
				Help: "after the n-th failed attempt, such as 1s, 10s, 2m; the last repeats"}),
			v.Row(inputs.Row{Label: "Expires after (TTL)", Name: "ttl", Help: "how long it may wait for a consumer",
				Attributes: []g.Node{h.Placeholder("never")}}),
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
