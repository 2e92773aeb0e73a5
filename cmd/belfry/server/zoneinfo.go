package server

import (
	"archive/zip"
	"fmt"
	"log/slog"
	"os"

	"github.com/belfrydb/belfry/cron"
	"github.com/belfrydb/belfry/cron/calendar"
)

// loadCalendars returns calendars with the time-zone data at Config.Zoneinfo, or with those of this
// program.
func loadCalendars(cfg Config) (*calendar.Calendars, error) {
	if cfg.Zoneinfo == "" {
		zones, err := cron.BuiltInZones()
		if err != nil {
			return nil, fmt.Errorf("reading the time-zone data of this program: %w", err)
		}
		return calendar.New(zones), nil
	}
	zones, err := readZoneinfo(cfg.Zoneinfo)
	if err != nil {
		return nil, &ConfigError{fmt.Sprintf("--zoneinfo: %s; want a directory like /usr/share/zoneinfo, or a zip file like "+
			"lib/time/zoneinfo.zip of Go", err)}
	}
	cfg.Logger.Info("time-zone data", slog.String("from", cfg.Zoneinfo), slog.String("version", zones.Version()))
	return calendar.New(zones), nil
}

// readZoneinfo reads the zones of a directory or of a zip file.
func readZoneinfo(path string) (zones *cron.Zones, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		zones, err = cron.ReadZones(os.DirFS(path))
	} else {
		zones, err = readZip(path)
	}
	if err == nil {
		_, err = zones.Load("UTC") // rules that name no zone have it
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return zones, nil
}

func readZip(path string) (*cron.Zones, error) {
	files, err := zip.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer files.Close() //nolint:errcheck // it is only read
	return cron.ReadZones(files)
}
