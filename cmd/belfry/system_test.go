package main

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestRequestID(t *testing.T) {
	newID := newSystem().requestID
	before := time.Now().UnixMilli()
	first, second := uuid.MustParse(newID()), uuid.MustParse(newID())
	seconds, nanos := first.Time().UnixTime()
	if at := seconds*1000 + nanos/1e6; first.Version() != 7 || at < before || at > time.Now().UnixMilli() {
		t.Errorf("%s is no UUID of version 7 of this moment", first)
	}
	if first == second {
		t.Error("two ids are equal")
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
