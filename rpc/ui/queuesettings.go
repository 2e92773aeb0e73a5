package ui

import (
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/form"
	"github.com/belfrydb/belfry/rpc/ui/format"
	"github.com/belfrydb/belfry/rpc/ui/inputs"
	"github.com/belfrydb/belfry/rpc/ui/markup"
)

// settingsTable shows the settings of a queue, and for each whether it is that of the queue or the
// default. The API does not tell an own setting from a default that is the same.
func (p *Pages) settingsTable(q *belfryv1.Queue) g.Node {
	rows := g.Group{h.Tr(h.Th(h.Scope("row"), g.Text("Partitions")), h.Td(g.Text(strconv.Itoa(int(q.Partitions)))),
		h.Td(h.Class("origin"), g.Text("never changes")))}
	for _, s := range form.Settings() {
		own, byDefault := s.Text(q.Settings), s.Text(p.cfg.Defaults)
		if own == "" {
			continue
		}
		origin, class := "default", "origin"
		if own != byDefault {
			origin, class = "this queue", "origin own"
		}
		shown := own
		if s.Name == "retryDelays" && q.Settings.GetRetryDelaysDefault() {
			shown = defaultDelays(q.Settings)
		}
		if s.Limit {
			shown = limitText(own)
		}
		rows = append(rows, h.Tr(h.Th(h.Scope("row"), g.Text(s.Label)), h.Td(g.Text(shown)),
			h.Td(h.Class(class), g.Text(origin))))
	}
	return h.Table(h.Class("plain settings"), h.THead(h.Class("unseen"), h.Tr(markup.Headings("Setting", "Value",
		"From")...)),
		h.TBody(rows))
}

// defaultDelays writes the default retry delays. A queue of an early version has none.
func defaultDelays(s *belfryv1.QueueSettings) string {
	if len(s.GetRetryDelays()) == 0 {
		return "at once"
	}
	return form.DelaysText(s.GetRetryDelays()) + ", ±10 %"
}

// limitText writes a limit for people.
func limitText(text string) string {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		return text
	case n == 0:
		return "no limit"
	default:
		return format.Grouped(n)
	}
}

// settingRows are the inputs for the settings of a queue; s is what they have at first, and nil
// leaves them empty.
func (v *visit) settingRows(s *belfryv1.QueueSettings) g.Node {
	return g.Map(form.Settings(), func(setting form.Setting) g.Node {
		in := inputs.Row{Label: setting.Label, Name: setting.Name, Help: setting.Help, Choices: setting.Choices}
		byDefault := setting.Text(v.pages.cfg.Defaults)
		switch {
		case s != nil:
			in.Value = setting.Text(s)
			if byDefault != "" && byDefault != "0" && byDefault != form.DefaultDelays {
				in.Help += " · default " + byDefault
			}
		case len(setting.Choices) > 0:
			in.Value = byDefault
		default:
			in.Attributes = []g.Node{h.Placeholder(byDefault)}
		}
		return v.Kept(in)
	})
}

func (p *Pages) showSettingsForm(v *visit) (content, error) {
	name := v.param("queue")
	res, err := p.admin.GetQueue(v.ctx, &belfryv1.GetQueueRequest{Queue: name})
	if err != nil {
		return content{}, err
	}
	return content{title: "Settings of " + name, entry: "Queues", body: g.Group{
		markup.Path("Queues", "queues", name, markup.Query("queue", "queue", name)),
		h.H1(g.Text("Change settings")),
		h.P(g.Text("What you change is sent, and nothing else. A value that a job was put with outranks the queue's.")),
		inputs.Large("queue-settings", markup.HiddenFields([]string{"queue", name}), v.settingRows(res.Queue.Settings),
			h.P(h.Class("ends"), markup.Button("Change"), markup.Link(markup.Query("queue", "queue", name), "Leave it"))),
	}}, nil
}

// changeSettings changes the settings of a queue that the person changed.
func (p *Pages) changeSettings(v *visit) (string, error) {
	settings, err := form.ReadSettings(v.r.PostForm.Get)
	if err != nil {
		return "", err
	}
	if settings == nil {
		return "", formError("", "nothing was changed, so nothing was sent")
	}
	return p.updateQueue(v, v.param("queue"), settings, "queue-settings")
}

func (p *Pages) showQueueForm(v *visit) (content, error) {
	return content{title: "New queue", entry: "Queues", body: g.Group{
		markup.Path("Queues", "queues"),
		h.H1(g.Text("New queue")),
		h.P(g.Text("A put makes its queue by itself. Make one here to have several partitions, or settings from the " +
			"first job on.")),
		inputs.Large("new-queue", v.RequestID(),
			v.Row(inputs.Row{Label: "Name", Name: "queue", Attributes: []g.Node{h.Required(), h.MaxLength("256")},
				Help: "name or namespace/Name: letters, digits and . _ : -, at most 256 bytes"}),
			v.Row(inputs.Row{Label: "Partitions", Name: "partitions", Value: "1",
				Help: "1 to the number of shards; never changes; order holds within a partition only"}),
			h.H2(g.Text("Settings")), v.settingRows(nil),
			h.P(h.Class("ends"), markup.Button("Make the queue"), markup.Link("queues", "Leave it"))),
	}}, nil
}

// createQueue makes a queue with the settings that were typed.
func (p *Pages) createQueue(v *visit) (string, error) {
	settings, err := form.ReadSettings(v.r.PostForm.Get)
	if err != nil {
		return "", err
	}
	const most = 1<<32 - 1
	partitions, err := form.Number("partitions", v.param("partitions"), 1, most)
	if err != nil {
		return "", err
	}
	res, err := p.admin.CreateQueue(v.ctx, &belfryv1.CreateQueueRequest{
		Queue: v.param("queue"), Partitions: uint32(partitions), Settings: settings, RequestId: v.param("requestId"),
	})
	if err != nil {
		return "", err
	}
	return afterChange(res.Queue, "new-queue", res.PendingShards), nil
}

// afterChange leads to a queue whose settings were changed, and says how many shards follow later.
func afterChange(queue, done string, pending []uint32) string {
	if len(pending) > 0 {
		return markup.Query("queue", "queue", queue, "done", "pending", "n", strconv.Itoa(len(pending)))
	}
	return markup.Query("queue", "queue", queue, "done", done)
}

// deleteQueue deletes a queue with its jobs. Its name must have been typed.
func (p *Pages) deleteQueue(v *visit) (string, error) {
	name := v.param("queue")
	if err := form.Confirmed(v.param, "confirm-delete", name, "delete the queue"); err != nil {
		return "", err
	}
	res, err := p.admin.DeleteQueue(v.ctx, &belfryv1.DeleteQueueRequest{Queue: name, RequestId: v.param("requestId")})
	if err != nil {
		return "", err
	}
	return markup.Query("queues", "done", "delete-queue", "n", strconv.FormatUint(uint64(res.Purged), 10)), nil
}
