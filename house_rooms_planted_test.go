package belfry_test

import (
	"fmt"
	"strings"
	"testing"
)

// lines returns a source of so many lines after head.
func lines(head string, count int) string {
	return head + strings.Repeat("//\n", count-strings.Count(head, "\n"))
}

// folder returns so many files of a package, each of so many lines.
func folder(dir string, files, each int) map[string]string {
	all := map[string]string{}
	for i := range files {
		all[fmt.Sprintf("%s/f%d.go", dir, i)] = lines("package p\n", each)
	}
	return all
}

// with returns files and one more.
func with(files map[string]string, name, text string) map[string]string {
	files[name] = text
	return files
}

var plantedRooms = []planted{
	{
		name: "as large as allowed",
		files: with(with(folder("room", roomFilesMax, roomLinesMax/roomFilesMax),
			"room/f_test.go", lines("package p\n", roomLinesMax)),
			"room/made.go", lines(generatedHead+"package p\n", roomLinesMax)),
	},
	{
		name:  "one file too many",
		files: folder("room", roomFilesMax+1, 1),
		want:  []string{"room:0: rooms/files"},
	},
	{
		name:  "one line too many",
		files: folder("room", 1, roomLinesMax+1),
		want:  []string{"room:0: rooms/lines"},
	},
	{
		name: "lines as wide as allowed, and wider",
		files: map[string]string{
			"room/a.go": "package room\n\n//" + strings.Repeat("ä", columnsMax-2) + "\n\nvar s = `" +
				strings.Repeat("x", columnsMax) +
				"\n" + strings.Repeat("x", columnsMax) + "`\n",
			"room/b_test.go": "package room\n\n//" + strings.Repeat("x", columnsMax-1) + "\n",
		},
		want: []string{"room/b_test.go:3: rooms/width"},
	},
	{
		name: "folders in a circle",
		files: map[string]string{
			"room/a.go":       "package room\n\nimport _ \"" + modulePath + "/wing/wire\"\n",
			"wing/wire/a.go":  "package wire\n",
			"wing/a.go":       "package wing\n\nimport _ \"" + modulePath + "/yard\"\n",
			"yard/a.go":       "package yard\n\nimport _ \"" + modulePath + "/room/clock\"\n",
			"room/clock/a.go": "package clock\n",
			"hall/a.go":       "package main\n\nimport _ \"" + modulePath + "/wing\"\n",
			"attic/a_test.go": "package attic\n\nimport _ \"" + modulePath + "/hall\"\n",
		},
		want: []string{"room:0: rooms/circle", "wing:0: rooms/circle", "yard:0: rooms/circle"},
	},
}

func TestRoomRulesReportPlanted(t *testing.T) {
	runPlanted(t, plantedRooms, func(t *testing.T, p planted) []finding { return checkRooms(parsePlanted(t, p)) })
}
