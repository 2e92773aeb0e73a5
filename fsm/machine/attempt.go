package machine

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/codec"
	"github.com/belfrydb/belfry/fsm/rule"
	"github.com/belfrydb/belfry/fsm/store"
)

// consumer is who asks for jobs in one Reserve.
type consumer struct {
	name  string
	index uint32 // see store.SetClient
}

// noteClient notes that a consumer holds a job that was just leased.
func (m *Machine) noteClient(l *store.Lease, c *consumer) {
	if m.format >= rule.AttemptsFormat {
		l.Leased = m.scalars.Clock
		c.index = m.store.SetClient(l, c.name, c.index)
	}
}

// noteFailure adds the attempt that a nack or a lapse ends to those that the job remembers, and
// replaces its last error unless text is empty. at is when the attempt ended.
func (m *Machine) noteFailure(j job, at fsm.Time, lapsed bool, text string) {
	l := m.store.EditLease(j.index)
	note := m.store.Note(l)
	if m.format >= rule.AttemptsFormat {
		list := append(codec.ParseAttempts(note.Attempts), fsm.Attempt{
			Number: l.Attempt, Began: l.Leased, Ended: at, Lapsed: lapsed, Client: string(m.store.Client(l)),
			Error: rule.ClipError(text),
		})
		note.Attempts = codec.AppendAttempts(nil, list[max(0, len(list)-fsm.AttemptsKept):])
		m.store.DropClient(l)
		l.Leased = 0
	} else if text == "" {
		return
	}
	if text != "" {
		note.LastError = []byte(text)
	}
	m.store.SetNote(j.index, &note)
}

// noteRelease notes that nobody holds a job any more, which takes its attempt back.
func (m *Machine) noteRelease(j job) {
	l := m.store.EditLease(j.index)
	l.Attempt--
	l.Leased = 0
	m.store.DropClient(l)
}

// showWork fills in what a reader sees of the holder and the attempts of a job.
func (m *Machine) showWork(l *store.Lease, v *fsm.Job) {
	note := m.store.Note(l)
	v.LastError, v.Client, v.Leased = string(note.LastError), string(m.store.Client(l)), l.Leased
	v.Attempts = codec.ParseAttempts(note.Attempts)
}

// resetWork moves the times of the holder and of the attempts of a lifted job to the new clock at
// the latest.
func (m *Machine) resetWork(j job, l *store.Lease, to fsm.Time) {
	l.Leased = min(l.Leased, to)
	note := m.store.Note(l)
	if len(note.Attempts) == 0 {
		return
	}
	list := codec.ParseAttempts(note.Attempts)
	for i := range list {
		list[i].Began, list[i].Ended = min(list[i].Began, to), min(list[i].Ended, to)
	}
	note.Attempts = codec.AppendAttempts(nil, list)
	m.store.SetNote(j.index, &note)
}
