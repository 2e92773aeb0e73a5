package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// testPaths, testHeaders and testIgnored make the grammar of the tests.
func testPaths() []string   { return []string{"/v1/put", "/v1/reserve"} }
func testHeaders() []string { return []string{"Content-Type", "Authorization"} }
func testIgnored() []string { return []string{"User-Agent", "Accept", "X-Forwarded-For"} }

// testGrammar returns the grammar of the tests.
func testGrammar() *grammar { return newGrammar(testPaths(), testHeaders(), testIgnored()) }

// heads are heads, and what parse makes of them.
func heads() map[string]verdict {
	const first = "POST /v1/put HTTP/1.1\r\nHost: a\r\n"
	with := func(lines string) string { return first + "Content-Length: 2\r\n" + lines + "\r\n{}" }
	return map[string]verdict{
		with(""): whole,
		with("Content-Type: application/json\r\nuser-AGENT:curl/8\r\nAccept:  */* \r\n"): whole,
		with("Connection: Keep-Alive\r\nAuthorization: Bearer x y\r\n"):                  whole,
		"POST /v1/reserve HTTP/1.1\r\nHost: [::1]:7400\r\nContent-Length: 0\r\n\r\n":     whole,
		"":                      incomplete,
		"PO":                    incomplete,
		first:                   incomplete,
		first + "Content-Leng":  incomplete,
		"PRI * HTTP/2.0\r\n":    foreign,
		"GET /v1/put HTTP/1.1":  foreign,
		"POST http://a/v1/put ": foreign,
		"\r\n" + with(""):       foreign,
		"POST /v1/put?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}": foreign,
		"POST /v1/%70ut HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}":   foreign,
		"POST /v1/put HTTP/1.0\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}":     foreign,
		"POST  /v1/put HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}":    foreign,
		"POST /v1/put HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}":                foreign,
		"POST /v1/put HTTP/1.1\r\nHost:\r\nContent-Length: 2\r\n\r\n{}":       foreign,
		"POST /v1/put HTTP/1.1\r\nHost: a/b\r\nContent-Length: 2\r\n\r\n{}":   foreign,
		"POST /v1/put HTTP/1.1\nHost: a\nContent-Length: 2\r\n\r\n{}":         foreign,
		"POST /v1/put HTTP/1.1\r\nHost: a\r\r\nContent-Length: 2\r\n\r\n{}":   foreign,
		first + "\r\n":                                         foreign, // no length
		first + "Content-Length: +2\r\n\r\n":                   foreign,
		first + "Content-Length: 02\r\n\r\n":                   foreign,
		first + "Content-Length: 2, 2\r\n\r\n":                 foreign,
		first + "Content-Length: -1\r\n\r\n":                   foreign,
		first + "Content-Length: 0x2\r\n\r\n":                  foreign,
		first + "Content-Length:\r\n\r\n":                      foreign,
		first + "Content-Length: 65537\r\n\r\n":                foreign,
		first + "Content-Length : 2\r\n\r\n":                   foreign,
		with("Content-Length: 2\r\n"):                          foreign,
		with("Transfer-Encoding: chunked\r\n"):                 foreign,
		with("Transfer-Encoding : chunked\r\n"):                foreign,
		with("Connection: close\r\n"):                          foreign,
		with("Connection: keep-alive, te\r\n"):                 foreign,
		with("Expect: 100-continue\r\n"):                       foreign,
		with("Upgrade: h2c\r\n"):                               foreign,
		with("Origin: http://a\r\n"):                           foreign,
		with("Accept: a\r\nAccept: b\r\n"):                     foreign,
		with("Accept: a\r\n b\r\n"):                            foreign,
		with("Accept: a\x00\r\n"):                              foreign,
		with("Accept: \xe9\r\n"):                               foreign,
		with("Accept: a\tb\r\n"):                               foreign,
		with("Accept:\r\n"):                                    foreign,
		with("Accept\r\n"):                                     foreign,
		with(": a\r\n"):                                        foreign,
		with("Acc\nept: a\r\n"):                                foreign,
		with(strings.Repeat("x", 100) + ": a\r\n"):             foreign,
		first + "Accept: " + strings.Repeat("a", headBytesMax): foreign,
	}
}

// TestParse: the grammar accepts what it must, and leaves the rest to net/http.
func TestParse(t *testing.T) {
	for text, want := range heads() {
		var h head
		if got := testGrammar().parse([]byte(text), &h); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
		agrees(t, []byte(text))
	}
}

// agrees fails the test if parse accepts a head that net/http reads otherwise.
func agrees(t *testing.T, text []byte) {
	t.Helper()
	var h head
	if testGrammar().parse(text, &h) != whole {
		return
	}
	rest := bytes.NewReader(text)
	r, err := http.ReadRequest(bufio.NewReaderSize(rest, len(text)+16))
	if err != nil {
		t.Fatalf("%q: net/http refuses it: %v", text, err)
	}
	if r.Method != http.MethodPost || r.RequestURI != testPaths()[h.path] || r.URL.Path != r.RequestURI ||
		r.ProtoMajor != 1 || r.ProtoMinor != 1 {
		t.Errorf("%q: net/http reads %s %s HTTP/%d.%d", text, r.Method, r.RequestURI, r.ProtoMajor, r.ProtoMinor)
	}
	if r.Host != string(h.host) || r.ContentLength != int64(h.length) || len(r.TransferEncoding) > 0 || r.Close ||
		len(r.Trailer) > 0 {
		t.Errorf("%q: net/http reads the host %q, %d bytes, %v, %v, %v; parse reads %q and %d bytes", text, r.Host,
			r.ContentLength, r.TransferEncoding, r.Close, r.Trailer, h.host, h.length)
	}
	for i, name := range testHeaders() {
		values := r.Header.Values(name)
		if len(values) > 1 || r.Header.Get(name) != string(h.values[i]) || (len(values) > 0) != (h.values[i] != nil) {
			t.Errorf("%q: net/http reads %s as %q, parse as %q", text, name, values, h.values[i])
		}
		r.Header.Del(name)
	}
	for _, name := range append(testIgnored(), "Connection", "Content-Length") {
		r.Header.Del(name)
	}
	if len(r.Header) > 0 {
		t.Errorf("%q: net/http reads also %v", text, r.Header)
	}
	body, err := io.ReadAll(r.Body)
	got := text[h.size:min(len(text), h.size+h.length)]
	if len(got) == h.length && (err != nil || !bytes.Equal(body, got)) {
		t.Errorf("%q: net/http reads the body %q, %v, parse %q", text, body, err, got)
	}
}

// FuzzParse compares parse with net/http: both must agree on where a request ends and on what it
// says, or one could be smuggled past the other.
func FuzzParse(f *testing.F) {
	for text := range heads() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { agrees(t, text) })
}

// BenchmarkParse is the head of a put.
func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	g, h := testGrammar(), head{}
	text := []byte("POST /v1/put HTTP/1.1\r\nHost: 127.0.0.1:7400\r\nUser-Agent: curl/8.0\r\nAccept: */*\r\n" +
		"Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")
	for b.Loop() {
		if g.parse(text, &h) != whole {
			b.Fatal("it is not accepted")
		}
	}
}
