package main

import (
	"testing"
	"time"
)

func TestRequestID(t *testing.T) {
	at := time.UnixMilli(0x018dcb2a4f00)
	id := newRequestID(at)
	text := id.String()
	if len(text) != 36 || text[:14] != "018dcb2a-4f00-" || text[14] != '7' {
		t.Errorf("%s is no UUID of version 7 of %v", text, at)
	}
	if variant := text[19]; variant != '8' && variant != '9' && variant != 'a' && variant != 'b' {
		t.Errorf("%s has no variant of RFC 9562", text)
	}
	if again := newRequestID(at); again == id {
		t.Error("two ids of one moment are equal")
	}
	parsed, err := parseRequestID(text)
	if err != nil || parsed != id {
		t.Errorf("parsed %v, %v; want %v", parsed, err, id)
	}
	for _, bad := range []string{"", "x", text[:35], text + "0", "018dcb2a-4f00-7000-8000-00000000000g"} {
		if _, err := parseRequestID(bad); err == nil {
			t.Errorf("%q was taken for an id", bad)
		}
	}
}

// TestRequestIDPlus makes ids of parts: distinct, repeatable, and still UUIDs of the same time.
func TestRequestIDPlus(t *testing.T) {
	id, err := parseRequestID("018dcb2a-4f00-7000-bfff-ffffffffffff")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := id.plus(1).String(), "018dcb2a-4f00-7000-8000-000000000000"; got != want {
		t.Errorf("one more is %s, want %s: the variant stays", got, want)
	}
	seen := make(map[requestID]bool)
	for n := range uint64(1000) {
		part := id.plus(n)
		if seen[part] || part != id.plus(n) {
			t.Fatalf("part %d is not unique or not repeatable", n)
		}
		seen[part] = true
	}
}

func TestNearest(t *testing.T) {
	words := []string{"put", "reserve", "release", "extend"}
	for word, want := range map[string]string{
		"putt": "put", "pu": "put", "reserv": "reserve", "relaese": "release", "xyz": "", "extnd": "extend", "": "",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
	if got := nearest(string(make([]byte, 1000)), words); got != "" {
		t.Errorf("of a long word: %q", got)
	}
}

func TestColor(t *testing.T) {
	for _, test := range []struct {
		name     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"terminal", true, nil, true},
		{"no terminal", false, nil, false},
		{"NO_COLOR", true, map[string]string{"NO_COLOR": "1"}, false},
		{"an empty NO_COLOR does not count", true, map[string]string{"NO_COLOR": ""}, true},
		{"a dumb terminal", true, map[string]string{"TERM": "dumb"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &system{outTerminal: test.terminal, lookupEnv: func(name string) (string, bool) { value, ok := test.env[name]; return value, ok }}
			if got := s.color(); got != test.want {
				t.Errorf("colour: %v, want %v", got, test.want)
			}
		})
	}
}

func TestServerURL(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:7400": "http://127.0.0.1:7400", "http://x:1/": "http://x:1", "https://x": "https://x", "ftp://x": "", "http://": "", "http://[": "",
	} {
		got, err := serverURL(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("serverURL(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}
