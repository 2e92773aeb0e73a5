package http1

import (
	"bytes"
	"net/textproto"
	"strings"
)

const (
	// headBytesMax bounds the head of a request that is carried out here.
	headBytesMax = 4 << 10
	// bodyBytesMax bounds its body.
	bodyBytesMax = 64 << 10
	// valuesMax bounds the headers that a handler gets.
	valuesMax = 12
	// namesMax bounds the names of headers: each has a bit.
	namesMax = 64
	// nameBytesMax bounds the name of a header.
	nameBytesMax = 32
)

// begin is how every request begins that is carried out here.
const begin = "POST /"

// verdict is what a parser says about the bytes that have arrived.
type verdict int

const (
	// incomplete: more bytes are needed.
	incomplete verdict = iota
	// whole: the head is there, and is of a request that may be carried out here.
	whole
	// foreign: net/http must decide what this is.
	foreign
)

// head is the head of a request. Its slices are parts of the bytes that were parsed.
type head struct {
	size   int // of the head
	length int // of the body
	path   int // index in Config.Paths
	host   []byte
	values [valuesMax][]byte // of the headers in Config.Headers; nil for those that are absent
}

// header is what a grammar knows about the header of a name.
type header struct {
	bit  uint64 // of its own
	kind headerKind
	pass int // index in Config.Headers, if the handler gets it
}

// headerKind is what a header is for.
type headerKind int

const (
	ignored headerKind = iota
	passed
	host
	contentLength
	connection
)

// grammar parses heads. It accepts a small part of HTTP/1.1, in which nothing can be read in two
// ways: each header at most once, of a known name, in visible ASCII, on one line that ends in CRLF.
type grammar struct {
	paths   map[string]int
	headers map[string]header // by names in lower case
}

// newGrammar returns the grammar of some paths and headers. It ignores the headers of ignore.
func newGrammar(paths, pass, ignore []string) *grammar {
	g := &grammar{paths: map[string]int{}, headers: map[string]header{}}
	for i, p := range paths {
		g.paths[p] = i
	}
	add := func(name string, kind headerKind, i int) {
		g.headers[strings.ToLower(textproto.CanonicalMIMEHeaderKey(name))] = header{1 << len(g.headers), kind, i}
	}
	add("Host", host, 0)
	add("Content-Length", contentLength, 0)
	add("Connection", connection, 0)
	for i, name := range pass {
		add(name, passed, i)
	}
	for _, name := range ignore {
		add(name, ignored, 0)
	}
	if len(pass) > valuesMax || len(g.headers) > namesMax {
		panic("http1: too many headers")
	}
	return g
}

// parse parses the head at the begin of b.
func (g *grammar) parse(b []byte, h *head) verdict {
	if n := min(len(b), len(begin)); string(b[:n]) != begin[:n] {
		return foreign
	}
	end := bytes.Index(b[:min(len(b), headBytesMax)], []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) >= headBytesMax {
			return foreign
		}
		return incomplete
	}
	*h = head{size: end + 4, length: -1}
	lines := b[:end+2]
	line, lines := cutLine(lines)
	if !g.requestLine(line, h) {
		return foreign
	}
	for seen := uint64(0); len(lines) > 0; {
		line, lines = cutLine(lines)
		if !g.header(line, h, &seen) {
			return foreign
		}
	}
	if h.host == nil || h.length < 0 {
		return foreign
	}
	return whole
}

// cutLine returns the first line of b, without its CRLF, and the rest. b ends in CRLF.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.Index(b, []byte("\r\n"))
	return b[:i], b[i+2:]
}

// requestLine parses the first line.
func (g *grammar) requestLine(line []byte, h *head) bool {
	path, ok := bytes.CutSuffix(line[len("POST "):], []byte(" HTTP/1.1"))
	if !ok {
		return false
	}
	h.path, ok = g.paths[string(path)]
	return ok
}

// header parses the line of a header. seen has the bits of the headers before it.
func (g *grammar) header(line []byte, h *head, seen *uint64) bool {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || colon > nameBytesMax {
		return false
	}
	var lower [nameBytesMax]byte
	for i, c := range line[:colon] {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	known, ok := g.headers[string(lower[:colon])]
	if !ok || *seen&known.bit != 0 {
		return false
	}
	*seen |= known.bit
	value, ok := visible(line[colon+1:])
	if !ok || len(value) == 0 {
		return false
	}
	switch known.kind {
	case passed:
		h.values[known.pass] = value
	case host:
		h.host = value
		return validHost(value)
	case contentLength:
		h.length = parseLength(value)
		return h.length >= 0
	case connection:
		return strings.EqualFold(string(value), "keep-alive")
	case ignored:
	}
	return true
}

// visible returns the value of a header without the blanks around it. ok is false if it has other
// bytes than visible ASCII and blanks.
func visible(value []byte) (trimmed []byte, ok bool) {
	for _, c := range value {
		if c < ' ' || c > '~' {
			return nil, false
		}
	}
	return bytes.Trim(value, " "), true
}

// validHost reports whether a Host has only letters, digits and what separates them in names and
// addresses.
func validHost(value []byte) bool {
	for _, c := range value {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '.', c == '-', c == ':', c == '[', c == ']', c == '_':
		default:
			return false
		}
	}
	return true
}

// parseLength returns the length of a body, -1 if it is none or too large.
func parseLength(value []byte) int {
	if len(value) > 1 && value[0] == '0' {
		return -1
	}
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return -1
		}
		if n = 10*n + int(c-'0'); n > bodyBytesMax {
			return -1
		}
	}
	return n
}
