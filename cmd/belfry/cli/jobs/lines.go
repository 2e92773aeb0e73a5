package jobs

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A lineSet is a set of lines of a file, as ranges in ascending order. It is a flag, written as
// 7,9-12.
type lineSet []lineRange

// A lineRange is the lines from first to last, both included.
type lineRange struct{ first, last uint64 }

func (s *lineSet) String() string {
	var texts []string
	for _, r := range *s {
		if r.first == r.last {
			texts = append(texts, fmt.Sprint(r.first))
		} else {
			texts = append(texts, fmt.Sprintf("%d-%d", r.first, r.last))
		}
	}
	return strings.Join(texts, ",")
}

// Type names the value in the help.
func (s *lineSet) Type() string { return "lines" }

// Set reads a value.
func (s *lineSet) Set(text string) error {
	var set lineSet
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 64)
		last := first
		if isRange && err == nil {
			last, err = strconv.ParseUint(to, 10, 64)
		}
		if err != nil || last < first {
			return fmt.Errorf("want lines such as 7,9-12, have %q", part)
		}
		set = append(set, lineRange{first, last})
	}
	*s = set.merged(nil)
	return nil
}

// has reports whether a line is in the set.
func (s lineSet) has(line uint64) bool {
	_, found := slices.BinarySearchFunc(s, line, func(r lineRange, line uint64) int {
		switch {
		case r.last < line:
			return -1
		case r.first > line:
			return 1
		default:
			return 0
		}
	})
	return found
}

// add adds a line that comes after all others.
func (s *lineSet) add(line uint64) {
	if n := len(*s); n > 0 && (*s)[n-1].last+1 == line {
		(*s)[n-1].last = line
		return
	}
	*s = append(*s, lineRange{line, line})
}

// merged returns the lines of both sets.
func (s lineSet) merged(other lineSet) lineSet {
	all := slices.Concat(s, other)
	slices.SortFunc(all, func(a, b lineRange) int { return cmp.Compare(a.first, b.first) })
	var set lineSet
	for _, r := range all {
		if n := len(set); n > 0 && r.first <= set[n-1].last+1 {
			set[n-1].last = max(set[n-1].last, r.last)
		} else {
			set = append(set, r)
		}
	}
	return set
}

// lineReader reads a file line by line. It keeps nothing of a line of more than lineBytesMax, and
// goes on after it.
type lineReader struct {
	input *bufio.Reader
	text  []byte // the line, with its end; empty if it is too long
	size  int64  // bytes of the line
	err   error  // what ended the reading before the end of the file
}

// next reads a line. It returns false at the end of the file, and after an error.
func (l *lineReader) next() bool {
	l.text, l.size = l.text[:0], 0
	for {
		part, err := l.input.ReadSlice('\n')
		l.size += int64(len(part))
		if l.text = append(l.text, part...); l.long() {
			l.text = l.text[:0]
		}
		switch {
		case err == nil:
			return true
		case errors.Is(err, io.EOF):
			return l.size > 0
		case !errors.Is(err, bufio.ErrBufferFull):
			l.err = err
			return false
		}
	}
}

// long reports whether the line is too long to be kept.
func (l *lineReader) long() bool { return l.size > lineBytesMax }
