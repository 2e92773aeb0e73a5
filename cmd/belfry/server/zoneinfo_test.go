package server_test

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/belfrydb/belfry/cmd/belfry/server"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// tzif returns the file of a zone that is always so many seconds ahead of UTC, see RFC 9636.
func tzif(ahead int32) []byte {
	header := func(types, chars uint32) []byte {
		b := append([]byte("TZif2"), make([]byte, 15+4*4)...)
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, types), chars)
	}
	b := append(header(0, 0), header(1, 4)...)
	b = binary.BigEndian.AppendUint32(b, uint32(ahead))
	return append(b, "\x00\x00TST\x00\n\n"...)
}

// zoneinfo is a small set of time-zone data.
func zoneinfo() map[string][]byte {
	return map[string][]byte{"UTC": tzif(0), "Test/Far": tzif(9 * 3600), "+VERSION": []byte("2099z\n")}
}

// writeZoneinfo writes files into a new directory.
func writeZoneinfo(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// zipZoneinfo writes files into a zip file.
func zipZoneinfo(t *testing.T, files map[string][]byte) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(f)
	for name, data := range files {
		w, err := archive.Create(name)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestZoneinfo: the rules of schedules have the data of Zoneinfo, a directory or a zip file, and the node
// says their version.
func TestZoneinfo(t *testing.T) {
	var versions []string
	for _, path := range []string{writeZoneinfo(t, zoneinfo()), zipZoneinfo(t, zoneinfo()), ""} {
		cfg := config(t, t.TempDir())
		cfg.Alone, cfg.Shards, cfg.Zoneinfo = true, 1, path
		s := start(t, cfg)
		got, err := admin(s).GetCluster(t.Context(), &belfryv1.GetClusterRequest{})
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, got.GetNodes()[0].GetTimeZoneData())
		preview, err := belfryv1connect.NewScheduleServiceClient(http.DefaultClient, s.URL()).PreviewSchedule(t.Context(),
			&belfryv1.PreviewScheduleRequest{Spec: &belfryv1.ScheduleSpec{
				Rule: &belfryv1.ScheduleSpec_Cron{Cron: "0 9 * * *"}, TimeZone: "Test/Far",
			}, After: timestamppb.New(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))})
		if path == "" {
			if err == nil {
				t.Error("the built-in data have a zone Test/Far")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
		if at := preview.GetTimes()[0].GetNominal().AsTime(); !at.Equal(want) || preview.GetZoneData() != versions[0] {
			t.Errorf("it fires at %v by %s, want %v", at, preview.GetZoneData(), want)
		}
	}
	if !strings.HasPrefix(versions[0], "2099z (") || versions[1] != versions[0] || versions[2] == versions[0] ||
		!strings.HasPrefix(versions[2], "20") {
		t.Errorf("the versions are %q", versions)
	}
}

// TestZoneinfoIsChecked at the start, before there is a data directory.
func TestZoneinfoIsChecked(t *testing.T) {
	noUTC, broken := zoneinfo(), zoneinfo()
	delete(noUTC, "UTC")
	broken["Test/Far"] = broken["Test/Far"][:60]
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no zip file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ path, want string }{
		"nothing there":      {filepath.Join(t.TempDir(), "nowhere"), "nowhere: no such file"},
		"an empty directory": {t.TempDir(), "no file has any"},
		"no UTC":             {writeZoneinfo(t, noUTC), `"UTC" is no time zone`},
		"a broken file":      {writeZoneinfo(t, broken), "Test/Far: malformed time zone information"},
		"a broken zip":       {zipZoneinfo(t, broken), "Test/Far: malformed time zone information"},
		"no zip":             {text, "text: zip: not a valid zip file"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, filepath.Join(t.TempDir(), "data"))
			cfg.Alone, cfg.Zoneinfo = true, tt.path
			s, err := server.Start(t.Context(), cfg)
			if err == nil {
				stop(t, s)
				t.Fatal("it starts")
			}
			if _, ok := errors.AsType[*server.ConfigError](err); !ok || !strings.HasPrefix(err.Error(), "--zoneinfo: ") ||
				!strings.Contains(err.Error(), tt.want) || !strings.HasSuffix(err.Error(), "of Go") {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if _, err := os.Stat(cfg.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of the data directory: %v", err)
			}
		})
	}
}
