package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfrydb/belfry/node"
)

// page serves /metrics: the metrics of the registry, followed by those of queues. The latter
// are written as text here, because the registry takes several times as long for their tens of
// thousands of series.
type page struct {
	rest   http.Handler
	queues *queueMetrics
}

// NewPage returns the handler of /metrics. queuesMax is how many queues have their own
// series; a queue counts once for each shard that has a partition of it.
func NewPage(registry *prometheus.Registry, n Node, queuesMax int) http.Handler {
	return &page{rest: promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}),
		queues: &queueMetrics{n, queuesMax}}
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asText := r.Clone(r.Context())
	asText.Header.Del("Accept") // there is one format
	t := &pageWriter{ResponseWriter: w}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		t.packed, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	}
	p.rest.ServeHTTP(t, asText)
	if t.failed {
		return
	}
	writeQueues(t, p.queues.series())
	if t.packed != nil {
		_ = t.packed.Close() // the reader is gone
	}
}

// pageWriter is an answer that is compressed, unless it is an error.
type pageWriter struct {
	http.ResponseWriter
	packed *gzip.Writer // nil for no compression
	failed bool
}

// Write implements io.Writer.
func (w *pageWriter) Write(b []byte) (int, error) {
	if w.packed == nil || w.failed {
		return w.ResponseWriter.Write(b)
	}
	return w.packed.Write(b)
}

// WriteHeader implements http.ResponseWriter.
func (w *pageWriter) WriteHeader(status int) {
	if w.failed = status != http.StatusOK; w.failed {
		w.Header().Del("Content-Encoding")
	}
	w.ResponseWriter.WriteHeader(status)
}

// queueFamily is a metric of queues.
type queueFamily struct {
	name, kind, help string
	// write writes the samples of a queue; its prefix is the name without the labels.
	write func(t *metricsText, q *queueSeries)
}

// queueFamilies returns all metrics of queues.
func queueFamilies() []queueFamily {
	gauge := func(name, help string, value func(q *queueSeries) float64) queueFamily {
		return queueFamily{name, "gauge", help, func(t *metricsText, q *queueSeries) { t.sample("", q, "", "", value(q)) }}
	}
	// present is a gauge that is omitted if it is 0.
	present := func(name, help string, value func(q *queueSeries) float64) queueFamily {
		return queueFamily{name, "gauge", help, func(t *metricsText, q *queueSeries) {
			if v := value(q); v != 0 {
				t.sample("", q, "", "", v)
			}
		}}
	}
	return []queueFamily{
		measured("delivery_lateness_seconds", "Time from a job's due time to its first grant.",
			func(q *queueSeries) *node.Histogram { return &q.LatenessSeconds }),
		measured("job_attempts", "Attempts that a job took until it was acked or died.",
			func(q *queueSeries) *node.Histogram { return &q.Attempts }),
		measured("job_e2e_seconds", "Time from a job's put to its ack; its delay is part of it.",
			func(q *queueSeries) *node.Histogram { return &q.JobSeconds }),
		{"jobs", "gauge", "Jobs held, by queue and state.", writeJobs},
		{"jobs_due", "gauge", dueHelp, writeDue},
		gauge("queue_bytes", "Bytes held, by queue.", func(q *queueSeries) float64 { return float64(q.Counts.Bytes) }),
		present("queue_dedup_window_seconds", "For how long ids of ended jobs are really remembered, by queue; shorter "+
			"than the setting if there were too many or the queue is younger.",
			func(q *queueSeries) float64 { return q.dedup.Seconds() }),
		{"queue_events_total", "counter", "What happened to a queue's jobs since it was created.", writeEvents},
		present("queue_next_due_timestamp_seconds", "Due time of the next delayed job.", func(q *queueSeries) float64 {
			return float64(q.NextDue) / 1e9
		}),
		present("queue_oldest_ready_timestamp_seconds", "Due time of the oldest ready job.", func(q *queueSeries) float64 {
			return float64(q.OldestReady) / 1e9
		}),
		present("queue_paused", "1 if the queue is paused; left out otherwise.", func(q *queueSeries) float64 {
			return truth(q.paused)
		}),
		gauge("queue_waiting_reservers", "Calls that wait for a job of the queue.", func(q *queueSeries) float64 {
			return float64(q.Waiting)
		}),
	}
}

func writeJobs(t *metricsText, q *queueSeries) {
	t.sample("", q, "state", "delayed", float64(q.Counts.Delayed))
	t.sample("", q, "state", "ready", float64(q.Counts.Ready))
	t.sample("", q, "state", "reserved", float64(q.Counts.Reserved))
	t.sample("", q, "state", "dead", float64(q.Counts.Dead))
}

func writeDue(t *metricsText, q *queueSeries) {
	for _, w := range dueWithin(&q.Due) {
		t.sample("", q, "within", w.label, float64(w.jobs))
	}
}

func writeEvents(t *metricsText, q *queueSeries) {
	for _, e := range []struct {
		event string
		n     uint64
	}{
		{"put", q.Counters.Put}, {"duplicate", q.Counters.Duplicate}, {"reserved", q.Counters.Granted},
		{"acked", q.Counters.Acked},
		{"nacked", q.Counters.Nacked}, {"released", q.Counters.Released}, {"lapsed", q.Counters.Lapsed},
		{"extended", q.Counters.Extended}, {"cancelled", q.Counters.Cancelled}, {"expired", q.Counters.Expired},
		{"died", q.Counters.Died}, {"redriven", q.Counters.Redriven}, {"rescheduled", q.Counters.Rescheduled},
		{"purged", q.Counters.Purged},
	} {
		t.sample("", q, "event", e.event, float64(e.n))
	}
}

// measured is a histogram that is omitted if it is empty.
func measured(name, help string, of func(q *queueSeries) *node.Histogram) queueFamily {
	return queueFamily{name, "histogram", help, func(t *metricsText, q *queueSeries) {
		h := of(q)
		if h.Bounds == nil {
			return
		}
		var sum uint64
		for i, bound := range h.Bounds {
			sum += h.Counts[i]
			t.sample("_bucket", q, "le", formatFloat(bound), float64(sum))
		}
		t.sample("_bucket", q, "le", "+Inf", float64(h.Count))
		t.sample("_sum", q, "", "", h.Sum)
		t.sample("_count", q, "", "", float64(h.Count))
	}}
}

// metricsText is text in the format of
// https://prometheus.io/docs/instrumenting/exposition_formats/.
type metricsText struct {
	b    []byte
	name string // of the family
}

// sample adds a line. suffix is appended to the name. A label, if it is not empty, follows those of
// the queue.
func (t *metricsText) sample(suffix string, q *queueSeries, label, value string, v float64) {
	t.b = append(append(append(t.b, t.name...), suffix...), q.labels...)
	if label != "" {
		t.b = append(append(append(append(append(t.b, ','), label...), `="`...), value...), '"')
	}
	t.b = strconv.AppendFloat(append(t.b, "} "...), v, 'g', -1, 64)
	t.b = append(t.b, '\n')
}

func formatFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// metricsFlush is the size at which text is sent.
const metricsFlush = 32 << 10

// writeQueues writes the metrics of queues. It stops if the reader is gone.
func writeQueues(w io.Writer, queues []*queueSeries) {
	escape := strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	for _, q := range queues {
		q.labels = []byte(`{queue="` + escape.Replace(q.Name) + `",shard="` + shardLabel(q.shard) + `"`)
	}
	t := &metricsText{b: make([]byte, 0, 2*metricsFlush)}
	for _, f := range queueFamilies() {
		t.name = "belfry_" + f.name
		t.b = append(t.b, "# HELP "+t.name+" "+f.help+"\n# TYPE "+t.name+" "+f.kind+"\n"...)
		for _, q := range queues {
			f.write(t, q)
			if len(t.b) >= metricsFlush {
				if _, err := w.Write(t.b); err != nil {
					return
				}
				t.b = t.b[:0]
			}
		}
	}
	_, _ = w.Write(t.b) // the reader is gone
}
