package codec

import (
	"crypto/sha256"
	"github.com/belfrydb/belfry/fsm"
	"slices"
)

// ContentHash is the identity of what a Put asks for: body, headers and options as written. Two
// puts with the same id and the same content hash are the same put. Headers that carry a trace are
// no part of it: a repeat belongs to a trace of its own.
func ContentHash(p *fsm.Put) [16]byte {
	if slices.ContainsFunc(p.Headers, fsm.CarriesTrace) {
		asked := *p
		asked.Headers = slices.DeleteFunc(slices.Clone(p.Headers), fsm.CarriesTrace)
		p = &asked
	}
	var room [512]byte // enough for a small job, so that its hash is no garbage
	content := appendContent(room[:0], p)
	if p.Key != "" {
		content = AppendText(content, p.Key)
	}
	return hashOf(content)
}

// RequestHash is the identity of a request's commands.
func RequestHash(r *fsm.Request) [16]byte { return EncodedHash(appendCommands(nil, r.Commands)) }

// EncodedHash is RequestHash of encoded commands. The next firing that a PutSchedule names, and how it was
// found, are no part of it: an attempt that comes later finds another one.
func EncodedHash(commands []byte) [16]byte {
	if len(commands) > 0 && fsm.Kind(commands[0]) == fsm.KindPutSchedule {
		r := Reader{B: commands[1:]}
		r.Length(1)
		put, ok := readScheduleCommand(fsm.KindPutSchedule, &r).(*fsm.PutSchedule)
		if ok && r.err == nil && len(r.B) == 0 {
			put.Next, put.NextAfter, put.ZoneData = 0, 0, ""
			commands = appendCommands(nil, []fsm.Command{put})
		}
	}
	return hashOf(commands)
}

func hashOf(encoded []byte) [16]byte {
	sum := sha256.Sum256(encoded)
	return [16]byte(sum[:16])
}

// RecallOf returns the query for the jobs that an earlier attempt at req was granted.
func RecallOf(req *fsm.Request) *fsm.RecallQuery {
	return &fsm.RecallQuery{Caller: req.Caller, RequestID: req.ID, Content: RequestHash(req)}
}

// AnswerBytes is what an answer counts against Config.AnswersBytesMax: its encoded size and 64
// bytes of overhead.
func AnswerBytes(a *fsm.Answer) int64 { return int64(len(AppendAnswer(nil, a))) + AnswerOverheadBytes }

// AnswerOverheadBytes is what a remembered request counts besides its encoded bytes.
const AnswerOverheadBytes = 64
