package cron

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Zones and rules know the time from horizonFirst on, and up to horizonEnd, which is not part of it, both in
// seconds since 1970: the years 1900 to 2199.
const (
	horizonFirst = -2208988800
	horizonEnd   = 7258118400
)

// ruleStep divides, in seconds, all times at which a zone's rules for the future change the clock.
const ruleStep = 15 * 60

// builtInVersion is the version of IANA's data in builtInData.
const builtInVersion = "2025c"

// builtInFingerprint is the fingerprint of builtInData. It is written down because it takes a tenth of a
// second to find, and every program needs it.
const builtInFingerprint = "a5d24815"

// builtInData is lib/time/zoneinfo.zip of the Go distribution, which is also what time/tzdata has,
// compressed. See DESIGN.md for why it is not time/tzdata.
//
//go:generate ./generate
//go:embed zoneinfo.zip.gz
var builtInData []byte

// Limits of a directory of zone data. IANA's has about 600 files of up to 4 kB.
const (
	zoneFilesMax     = 4096
	zoneFileBytesMax = 256 << 10
	zoneEntriesMax   = 20_000
)

// Zones has the data of time zones: the built-in data, or those of a directory. All of it is read
// when it is made, so that later changes of files change nothing. Any goroutine may use it.
type Zones struct {
	version string
	data    map[string][]byte // by name, in TZif format (RFC 9636)
	names   []string          // sorted

	fingerprint func() string

	mu     sync.Mutex
	loaded map[string]*Zone // at most one for each of names
}

// A Zone is a time zone, from 1900 to 2199. It never changes.
type Zone struct {
	name     string
	location *time.Location
	spans    []span // in order, without a gap
}

// A span is a time in which the offset of a zone stays the same. Times are in seconds since 1970,
// local ones as if the zone were UTC.
type span struct {
	start, end int64 // end is the start of the next span
	offset     int64 // what a local time is ahead of UTC
	// passed is the first local time that the clock did not reach before start. If it is less than
	// start+offset, the span begins with a gap, if it is more, with a fold.
	passed int64
}

// BuiltInZones returns the zones of the data that are part of the program. It depends on no file and
// no environment variable of the machine.
func BuiltInZones() (*Zones, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(builtInData))
	if err != nil {
		return nil, fmt.Errorf("unpacking the built-in zone data: %w", err)
	}
	archive, err := io.ReadAll(unpacked)
	if err != nil {
		return nil, fmt.Errorf("unpacking the built-in zone data: %w", err)
	}
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, fmt.Errorf("reading the built-in zone data: %w", err)
	}
	zones, err := readZones(files, builtInVersion)
	if err == nil {
		zones.fingerprint = func() string { return builtInFingerprint }
	}
	return zones, err
}

// ReadZones returns the zones of a directory in the form of /usr/share/zoneinfo, such as
// os.DirFS("/usr/share/zoneinfo") or a zip.Reader. It reads all files at once, so it may take some tens
// of milliseconds. The version is that of the files tzdata.zi or +VERSION, if one is there.
func ReadZones(dir fs.FS) (*Zones, error) {
	return readZones(dir, directoryVersion(dir))
}

// directoryVersion returns the version of IANA's data in a directory, or "unknown".
func directoryVersion(dir fs.FS) string {
	const versionBytesMax = 32
	for _, name := range []string{"tzdata.zi", "+VERSION"} {
		f, err := dir.Open(name)
		if err != nil {
			continue
		}
		head, _ := io.ReadAll(io.LimitReader(f, 256))
		f.Close() //nolint:errcheck // it was only read
		line, _, _ := strings.Cut(string(head), "\n")
		version := strings.TrimSpace(strings.TrimPrefix(line, "# version "))
		if version != "" && len(version) <= versionBytesMax && isPrintable(version) {
			return version
		}
	}
	return "unknown"
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

func readZones(dir fs.FS, version string) (*Zones, error) {
	z := &Zones{version: version, data: make(map[string][]byte), loaded: make(map[string]*Zone)}
	entries := 0
	err := fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > zoneEntriesMax {
			return fmt.Errorf("it has more than %d entries", zoneEntriesMax)
		}
		if d.IsDir() && (name == "posix" || name == "right" || name != "." && path.Base(name)[0] == '.') {
			return fs.SkipDir // copies of the others, with leap seconds or without; what tools left
		}
		if d.IsDir() || !isZoneName(name) {
			return nil
		}
		return z.readFile(dir, name)
	})
	if err != nil {
		return nil, fmt.Errorf("reading zone data: %w", err)
	}
	if len(z.names) == 0 {
		return nil, fmt.Errorf("reading zone data: no file has any")
	}
	slices.Sort(z.names)
	z.fingerprint = sync.OnceValue(z.hash)
	return z, nil
}

// readFile keeps a file, if it has the data of a zone.
func (z *Zones) readFile(dir fs.FS, name string) error {
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != "TZif" {
		return nil //nolint:nilerr // too short, or another file: there are some beside the zones
	}
	if len(z.names) == zoneFilesMax {
		return fmt.Errorf("it has more than %d zones", zoneFilesMax)
	}
	data, err := io.ReadAll(io.LimitReader(f, zoneFileBytesMax+1))
	if err != nil {
		return err
	}
	if len(data) > zoneFileBytesMax {
		return fmt.Errorf("%s has more than %d bytes", name, zoneFileBytesMax)
	}
	data = append(magic, data...)
	if _, err := time.LoadLocationFromTZData(name, data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	z.data[name], z.names = data, append(z.names, name)
	return nil
}

// isZoneName says whether a file may be a zone. The zone of the machine is none: it would be another
// one on another node.
func isZoneName(name string) bool {
	switch name {
	case "Local", "localtime", "posixrules":
		return false
	}
	return len(name) <= zoneBytesMax && isPrintable(name)
}

// Load returns the zone of a name. An error names the zone of the data whose name is much the same,
// if there is one. Names are those of the data only: "", "Local" and paths are unknown.
func (z *Zones) Load(name string) (*Zone, error) {
	data, ok := z.data[name]
	if !ok {
		return nil, z.unknown(name)
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if zone := z.loaded[name]; zone != nil {
		return zone, nil
	}
	zone, err := newZone(name, data)
	if err != nil {
		return nil, err
	}
	z.loaded[name] = zone
	return zone, nil
}

// unknown returns the error for a name that the data do not have.
func (z *Zones) unknown(name string) error {
	written := strings.ReplaceAll(name, " ", "_")
	near := ""
	for _, n := range z.names {
		if strings.EqualFold(n, written) || near == "" && strings.EqualFold(path.Base(n), path.Base(written)) {
			near = n
		}
	}
	if near != "" && name != "" {
		return fmt.Errorf("%q is no time zone of the IANA data; did you mean %q?", name, near)
	}
	return fmt.Errorf("%q is no time zone of the IANA data, which has names such as Europe/Berlin and UTC", name)
}

// Version returns the version of IANA's data and a fingerprint, as in "2025c (1f0c9b7e)". The
// fingerprint is a hash of the names and of each zone's offsets from 1970 to 2199: it differs exactly
// if a schedule might fire at another time, and not with the format of the files. The first call for
// zones that were read takes a tenth of a second.
func (z *Zones) Version() string { return z.version + " (" + z.fingerprint() + ")" }

func (z *Zones) hash() string {
	h := sha256.New()
	for _, name := range z.names {
		zone, err := newZone(name, z.data[name])
		if err != nil {
			panic("cron: zone data that were readable are not: " + err.Error()) // readFile has checked them
		}
		fmt.Fprintf(h, "%q\n", name) //nolint:errcheck // a hash has no errors
		for _, s := range zone.spans {
			if s.end > 0 {
				line := binary.BigEndian.AppendUint64(nil, uint64(max(s.start, 0)))
				h.Write(binary.BigEndian.AppendUint64(line, uint64(s.offset)))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// newZone reads the data of a zone.
func newZone(name string, data []byte) (*Zone, error) {
	location, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w", name, err)
	}
	zone := &Zone{name: name, location: location}
	for at := int64(horizonFirst); at < horizonEnd; {
		t := time.Unix(at, 0).In(location)
		_, offset := t.Zone()
		_, ends := t.ZoneBounds()
		end := int64(horizonEnd)
		if !ends.IsZero() {
			end = min(end, ends.Unix())
		}
		if end <= at { // so Go 1.26 says on the last day of a leap year, after 2037
			end = at + daySeconds
			if _, then := time.Unix(end, 0).In(location).Zone(); then != offset {
				end = at + ruleStep
			}
		}
		zone.add(at, end, int64(offset))
		at = end
	}
	zone.spans = slices.Clip(zone.spans)
	return zone, nil
}

// add appends a span, or extends the last one by it.
func (z *Zone) add(start, end, offset int64) {
	s := span{start: start, end: end, offset: offset, passed: start + offset}
	if n := len(z.spans); n > 0 {
		last := &z.spans[n-1]
		if last.offset == offset {
			last.end = end
			return
		}
		s.passed = max(last.passed, last.end+last.offset)
	}
	z.spans = append(z.spans, s)
}

// spanAt returns the index of the span at a time, or len(spans) after the last.
func (z *Zone) spanAt(at int64) int {
	low, high := 0, len(z.spans)
	for low < high {
		if middle := (low + high) / 2; z.spans[middle].end <= at {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// Name returns the name of the zone.
func (z *Zone) Name() string { return z.name }

// Location returns the zone for package time.
func (z *Zone) Location() *time.Location { return z.location }
