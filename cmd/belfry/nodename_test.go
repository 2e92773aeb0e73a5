package main

import (
	"strings"
	"testing"
)

func TestNameOfHost(t *testing.T) {
	for host, want := range map[string]string{
		"db-1": "db-1", "db_1.example.com": "db_1", "Büro PC": "B-ro-PC", "-x-": "x", "": "", ".": "", "localhost": "",
		"localhost.localdomain": "", "10.0.0.1": "10",
		strings.Repeat("n", 70): strings.Repeat("n", 64), "é": "",
	} {
		if got := nameOfHost(host); got != want {
			t.Errorf("nameOfHost(%q) = %q, want %q", host, got, want)
		}
	}
}
