package mirrortrial

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// lmstfyPast judges what lmstfy's keys went through. A consumer's ack is a DEL of the job's value,
// an import's an UNLINK.
type lmstfyPast struct {
	*stage
	past
	payloads map[string]string // by the key of the value
	reserved map[string]bool   // jobs that a consumer holds, by the same
	claimed  map[string]bool
	late     map[string]bool // of them those that a consumer ended
	stopped  bool
}

// replay goes through commands in order, and enters what consumers of lmstfy ended.
func (p *lmstfyPast) replay(commands [][]string) {
	p.payloads, p.reserved, p.claimed, p.late = map[string]string{}, map[string]bool{}, map[string]bool{},
		map[string]bool{}
	windows := map[string]time.Time{}
	for _, c := range commands {
		name, key := strings.ToUpper(c[0]), ""
		if len(c) > 1 {
			key = c[1]
		}
		switch {
		case key == markKey:
			p.mark(c[2])
		case key == stoppedKey:
			p.stopped = true
		case name == "SET" && strings.HasPrefix(key, "j/"):
			p.payloads[key] = c[2]
		case key == "timer_set":
			p.timer(name, c)
		case name == "HSETNX" && strings.HasPrefix(key, "belfry_handover"):
			job := c[2]
			if p.reserved[job] && !p.stopped {
				p.t.Errorf("%s was claimed while a consumer held it", p.payloads[job])
			}
			p.claimed[job] = true
		case name == "HDEL" && strings.HasPrefix(key, "belfry_handover"):
			for _, job := range c[2:] {
				if p.late[job] {
					p.closing = append(p.closing, closing{p.marks + 2, windows, p.payloads[job]})
				}
				delete(p.claimed, job)
				delete(p.late, job)
			}
		case name == "DEL" && strings.HasPrefix(key, "j/"):
			p.ledger.byRedis(p.payloads[key])
			if p.claimed[key] { // its lease had ended: it may be in Belfry until the import hears of it
				p.late[key], windows[p.payloads[key]] = true, time.Time{}
			}
			delete(p.reserved, key)
		}
	}
	for payload, until := range windows {
		p.ledger.mayHave(payload, until, 1)
	}
	p.t.Logf("%d jobs were ended by a consumer of lmstfy after they had been claimed", len(windows))
}

// timer is a command over the timer.
func (p *lmstfyPast) timer(name string, c []string) {
	members := c[2:]
	if name == "ZADD" {
		members = c[len(c)-1:]
	}
	for _, member := range members {
		job, tries, err := readMember(member)
		if err != nil {
			p.t.Errorf("a member of the timer: %v", err)
			continue
		}
		p.reserved[job] = name == "ZADD" && tries < sourceTries
	}
}

// readMember reads a member of the timer: namespace, queue, tries and id, with the lengths of texts
// before them.
func readMember(member string) (job string, tries int, err error) {
	rest, parts := []byte(member), []string{}
	for n := range 3 {
		if n == 2 && len(rest) >= 2 {
			tries, rest = int(binary.LittleEndian.Uint16(rest)), rest[2:]
		}
		if len(rest) < 2 || len(rest) < 2+int(binary.LittleEndian.Uint16(rest)) {
			return "", 0, fmt.Errorf("%q is cut off", member)
		}
		length := 2 + int(binary.LittleEndian.Uint16(rest))
		parts, rest = append(parts, string(rest[2:length])), rest[length:]
	}
	return "j/" + strings.Join(parts, "/"), tries, nil
}

// youzanPast judges what the keys of ouqiang/delay-queue went through. Each command of a server
// stands alone, those of an import are between MULTI and EXEC.
type youzanPast struct {
	*stage
	waits, reserved map[string]bool // jobs that were in a bucket, and those that a consumer holds
}

// replay goes through commands in order, and enters what consumers ended.
func (p *youzanPast) replay(commands [][]string) {
	p.waits, p.reserved = map[string]bool{}, map[string]bool{}
	within, stopped := false, false
	for _, c := range commands {
		name, key := strings.ToUpper(c[0]), ""
		if len(c) > 1 {
			key = c[1]
		}
		switch {
		case name == "MULTI" || name == "EXEC":
			within = name == "MULTI"
		case key == stoppedKey:
			stopped = true
		case name == "ZADD" && strings.HasPrefix(key, "dq_bucket_") && !within:
			id := c[len(c)-1]
			p.reserved[id] = p.waits[id] // the first is the push
			p.waits[id] = true
		case name == "RPUSH" && strings.HasPrefix(key, "dq_queue_"):
			p.reserved[c[2]] = false
		case name == "HSET" && strings.HasPrefix(key, "belfry_handover"):
			if id := c[2]; p.reserved[id] && !stopped {
				p.t.Errorf("%s was claimed while a consumer held it", id)
			}
		case name == "DEL" && strings.HasPrefix(key, youzanIDs) && !within:
			p.ledger.byRedis(payloadPrefix + strings.TrimPrefix(key, youzanIDs))
			p.reserved[key] = false
		}
	}
}
