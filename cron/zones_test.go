package cron_test

import (
	"archive/zip"
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/belfrydb/belfry/cron"
)

// tzif returns the file of a zone, from the zones of the Go distribution.
func tzif(t testing.TB, name string) []byte {
	t.Helper()
	archive, err := zip.OpenReader(filepath.Join(goroot(t), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	f, err := archive.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestBuiltInIsIndependent runs this test in a process whose ZONEINFO has a false Berlin, which
// package time takes, and the built-in zones do not.
func TestBuiltInIsIndependent(t *testing.T) {
	const child = "BELFRY_CRON_FALSE_BERLIN"
	if os.Getenv(child) != "" {
		local := func(l *time.Location) string { return time.Unix(0, 0).In(l).Format("-0700") }
		fooled, err := time.LoadLocation("Europe/Berlin")
		if err != nil || local(fooled) != "+0900" {
			t.Fatalf("package time has Berlin at %v, %v; the test proves nothing", fooled, err)
		}
		zone, err := zones(t).Load("Europe/Berlin")
		if err != nil || local(zone.Location()) != "+0100" {
			t.Errorf("the built-in Berlin is at %s, %v", local(zone.Location()), err)
		}
		return
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "Europe"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), tzif(t, "Asia/Tokyo"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), child+"=1", "ZONEINFO="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestBuiltInIsGos compares the built-in zones with those of the Go distribution that runs the test:
// they are to be renewed together with it.
func TestBuiltInIsGos(t *testing.T) {
	root := goroot(t)
	script, err := os.ReadFile(filepath.Join(root, "lib", "time", "update.bash"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^DATA=(\S+)$`).FindSubmatch(script)
	if version == nil {
		t.Fatal("update.bash of Go does not say which data it has")
	}
	got := zones(t).Version()
	if !strings.HasPrefix(got, string(version[1])+" (") {
		t.Errorf("the built-in zones are %s, those of %s are %s: go generate ./cron", got, runtime.Version(), version[1])
	}
	archive, err := zip.OpenReader(filepath.Join(root, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	theirs, err := cron.ReadZones(archive)
	if err != nil {
		t.Fatal(err)
	}
	if ours, theirs := fingerprint(got), fingerprint(theirs.Version()); ours != theirs {
		t.Errorf("the built-in zones are %s, those of Go %s", ours, theirs)
	}
}

// fingerprint returns the part of a version that is in parentheses.
func fingerprint(version string) string {
	_, text, _ := strings.Cut(version, " ")
	return text
}

func TestVersion(t *testing.T) {
	if got := zones(t).Version(); !regexp.MustCompile(`^20\d\d[a-z] \([0-9a-f]{8}\)$`).MatchString(got) {
		t.Errorf("the version of the built-in zones is %q", got)
	}
	berlin, tokyo := &fstest.MapFile{Data: tzif(t, "Europe/Berlin")}, &fstest.MapFile{Data: tzif(t, "Asia/Tokyo")}
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	base := readZones(t, fstest.MapFS{"Europe/Berlin": berlin}).Version()
	if !strings.HasPrefix(base, "unknown (") {
		t.Errorf("without a version it is %q", base)
	}
	for _, c := range []struct {
		name  string
		files fstest.MapFS
		want  string // the version, without the fingerprint
		same  bool   // the fingerprint is that of base
	}{
		{"tzdata.zi", fstest.MapFS{"Europe/Berlin": berlin, "tzdata.zi": text("# version 2026a\nR x\n")}, "2026a", true},
		{"+VERSION", fstest.MapFS{"Europe/Berlin": berlin, "+VERSION": text("2026b\n")}, "2026b", true},
		{"no text", fstest.MapFS{"Europe/Berlin": berlin, "+VERSION": text("\x00\x01")}, "unknown", true},
		{"long", fstest.MapFS{"Europe/Berlin": berlin, "+VERSION": text(strings.Repeat("x", 40))}, "unknown", true},
		{"other files", fstest.MapFS{"Europe/Berlin": berlin, "leapseconds": text("Leap"), "localtime": tokyo,
			"posix/X": tokyo,
			"right/X": tokyo, ".old/X": tokyo, "posixrules": tokyo}, "unknown", true},
		{"another zone", fstest.MapFS{"Europe/Berlin": berlin, "Asia/Tokyo": tokyo}, "unknown", false},
		{"other data", fstest.MapFS{"Europe/Berlin": tokyo}, "unknown", false},
		{"another name", fstest.MapFS{"Europe/Bonn": berlin}, "unknown", false},
	} {
		got := readZones(t, c.files).Version()
		if !strings.HasPrefix(got, c.want+" (") || (fingerprint(got) == fingerprint(base)) != c.same {
			t.Errorf("%s: the version is %q; base is %q", c.name, got, base)
		}
	}
}

// TestBuiltInFingerprint is what reading the same data finds.
func TestBuiltInFingerprint(t *testing.T) {
	archive, err := zip.OpenReader(filepath.Join(goroot(t), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	_, want, _ := strings.Cut(readZones(t, archive).Version(), " ")
	if _, got, _ := strings.Cut(zones(t).Version(), " "); got != want {
		t.Errorf("builtInFingerprint is %s, want %s", got, want)
	}
}

// TestFingerprintSeesOneOffset changes a zone by a second from the end of its data on.
func TestFingerprintSeesOneOffset(t *testing.T) {
	data := tzif(t, "Asia/Tokyo")
	moved := bytes.Replace(data, []byte("\nJST-9\n"), []byte("\nJST-8\n"), 1)
	if bytes.Equal(data, moved) {
		t.Fatal("Tokyo's rule for the future is not as expected")
	}
	a := readZones(t, fstest.MapFS{"Asia/Tokyo": {Data: data}}).Version()
	if b := readZones(t, fstest.MapFS{"Asia/Tokyo": {Data: moved}}).Version(); a == b {
		t.Errorf("both are %s", a)
	}
}

func readZones(t testing.TB, dir fs.FS) *cron.Zones {
	t.Helper()
	z, err := cron.ReadZones(dir)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestReadZonesRefuses(t *testing.T) {
	berlin := tzif(t, "Europe/Berlin")
	many := fstest.MapFS{}
	for i := range 4097 {
		many["Z/"+time.Unix(int64(i), 0).UTC().Format("150405")] = &fstest.MapFile{Data: berlin}
	}
	crowd := fstest.MapFS{}
	for i := range 20_001 {
		crowd[time.Unix(int64(i), 0).UTC().Format("150405")] = &fstest.MapFile{}
	}
	for _, c := range []struct {
		name, want string
		files      fs.FS
	}{
		{"empty", "no file has any", fstest.MapFS{}},
		{"missing", "no such file", os.DirFS(filepath.Join(t.TempDir(), "none"))},
		{"other files only", "no file has any", fstest.MapFS{"a": {Data: []byte("b")}, "TZ": {Data: []byte("TZ")}}},
		{"damaged", "Europe/Berlin", fstest.MapFS{"Europe/Berlin": {Data: berlin[:100]}}},
		{"large", "262144 bytes", fstest.MapFS{"X": {Data: append(berlin, make([]byte, 256<<10)...)}}},
		{"many zones", "4096 zones", many},
		{"many files", "20000 entries", crowd},
	} {
		if _, err := cron.ReadZones(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not contain %q", c.name, err, c.want)
		}
	}
}

// TestDirectoryOverrides reads a directory whose Berlin is Tokyo, changes it, and finds that what was
// read stays.
func TestDirectoryOverrides(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "Berlin")
	if err := os.WriteFile(file, tzif(t, "Asia/Tokyo"), 0o600); err != nil {
		t.Fatal(err)
	}
	z := readZones(t, os.DirFS(dir))
	if err := os.WriteFile(file, tzif(t, "Europe/Berlin"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := cron.Compile(&cron.Spec{Cron: "@daily", TimeZone: "Berlin"}, z)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := r.Next(at(t, "2027-01-01T00:00:00Z"))
	if got, want := next.Format(time.RFC3339), "2027-01-02T00:00:00+09:00"; got != want {
		t.Errorf("Next is %s; want %s", got, want)
	}
}

func TestLoadFromManyGoroutines(t *testing.T) {
	z := readZones(t, fstest.MapFS{"Berlin": {Data: tzif(t, "Europe/Berlin")}})
	var all sync.WaitGroup
	loaded := make([]*cron.Zone, 8)
	for i := range loaded {
		all.Go(func() {
			loaded[i], _ = z.Load("Berlin")
			z.Version()
		})
	}
	all.Wait()
	for _, zone := range loaded {
		if zone == nil || zone != loaded[0] || zone.Name() != "Berlin" {
			t.Errorf("one zone is %v, another %v", zone, loaded[0])
		}
	}
}
