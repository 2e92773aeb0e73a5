package protocol

import "strconv"

// The answers without a value, with their line ends.
const (
	OutOfMemory    = "OUT_OF_MEMORY\r\n"
	InternalError  = "INTERNAL_ERROR\r\n"
	Draining       = "DRAINING\r\n"
	BadFormat      = "BAD_FORMAT\r\n"
	UnknownCommand = "UNKNOWN_COMMAND\r\n"
	ExpectedCRLF   = "EXPECTED_CRLF\r\n"
	JobTooBig      = "JOB_TOO_BIG\r\n"
	DeadlineSoon   = "DEADLINE_SOON\r\n"
	TimedOut       = "TIMED_OUT\r\n"
	NotFound       = "NOT_FOUND\r\n"
	NotIgnored     = "NOT_IGNORED\r\n"
	Deleted        = "DELETED\r\n"
	Released       = "RELEASED\r\n"
	Buried         = "BURIED\r\n"
	Touched        = "TOUCHED\r\n"
	Paused         = "PAUSED\r\n"
	KickedOne      = "KICKED\r\n"
)

// The words of answers with a value.
const (
	inserted = "INSERTED "
	reserved = "RESERVED "
	found    = "FOUND "
	kicked   = "KICKED "
	using    = "USING "
	watching = "WATCHING "
	ok       = "OK "
	crlf     = "\r\n"
)

// AppendInserted appends the answer to a put.
func AppendInserted(dst []byte, id uint64) []byte { return appendNumber(dst, inserted, id) }

// AppendKicked appends the answer to a kick of n jobs.
func AppendKicked(dst []byte, n uint64) []byte { return appendNumber(dst, kicked, n) }

// AppendWatching appends how many tubes a connection watches.
func AppendWatching(dst []byte, tubes int) []byte {
	return appendNumber(dst, watching, uint64(tubes)) //nolint:gosec // a count
}

// AppendUsing appends which tube a connection uses.
func AppendUsing(dst []byte, tube string) []byte {
	return append(append(append(dst, using...), tube...), crlf...)
}

// AppendReserved appends a job that was reserved.
func AppendReserved(dst []byte, id uint64, body []byte) []byte {
	return appendJob(dst, reserved, id, body)
}

// AppendFound appends a job that was only read.
func AppendFound(dst []byte, id uint64, body []byte) []byte { return appendJob(dst, found, id, body) }

// AppendData appends a chunk of data, such as statistics.
func AppendData(dst, data []byte) []byte {
	dst = strconv.AppendInt(append(dst, ok...), int64(len(data)), 10)
	return append(append(append(dst, crlf...), data...), crlf...)
}

func appendNumber(dst []byte, word string, n uint64) []byte {
	return append(strconv.AppendUint(append(dst, word...), n, 10), crlf...)
}

func appendJob(dst []byte, word string, id uint64, body []byte) []byte {
	dst = append(strconv.AppendUint(append(dst, word...), id, 10), ' ')
	dst = strconv.AppendInt(dst, int64(len(body)), 10)
	return append(append(append(dst, crlf...), body...), crlf...)
}

// Statistics is a YAML dictionary, as the stats commands answer.
type Statistics struct{ text []byte }

// Number adds a number.
func (s *Statistics) Number(name string, value uint64) {
	s.text = append(strconv.AppendUint(s.key(name), value, 10), '\n')
}

// Text adds a text, as it is.
func (s *Statistics) Text(name, value string) { s.text = append(append(s.key(name), value...), '\n') }

func (s *Statistics) key(name string) []byte {
	if len(s.text) == 0 {
		s.text = append(s.text, yamlStart...)
	}
	return append(append(s.text, name...), ": "...)
}

// Append appends the answer.
func (s *Statistics) Append(dst []byte) []byte { return AppendData(dst, s.text) }

const yamlStart = "---\n"

// AppendTubes appends a YAML list of tubes.
func AppendTubes(dst []byte, tubes []string) []byte {
	text := []byte(yamlStart)
	for _, tube := range tubes {
		text = append(append(append(text, "- "...), tube...), '\n')
	}
	return AppendData(dst, text)
}
