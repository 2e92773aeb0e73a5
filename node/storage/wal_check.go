package storage

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/belfrydb/belfry/node/storage/disk"
)

// checkSegments reads every segment in full before the library opens any. Sealed segments must be
// whole. The last one may end in one torn batch, which is cleared; more than that is damage.
func checkSegments(cfg engineConfig, meta *walMeta) error {
	state, err := meta.Load("")
	if err != nil {
		return err
	}
	var term, next uint64
	for i, info := range state.Segments {
		if i > 0 && info.BaseIndex != next {
			return &disk.CorruptError{File: meta.name, Index: next,
				Detail: fmt.Sprintf("lists a segment starting at entry %d where %d follows", info.BaseIndex, next)}
		}
		last := i == len(state.Segments)-1
		if info.SealTime.IsZero() != last {
			return &disk.CorruptError{File: meta.name, Index: info.BaseIndex, Detail: "lists an open segment out of place"}
		}
		var s segmentScan
		if last {
			s, err = checkTail(cfg, meta, info)
			next = s.next
		} else {
			s, err = checkSealed(cfg, info)
			next = info.MaxIndex + 1
		}
		if err != nil {
			return err
		}
		if s.next > info.BaseIndex && s.firstTerm < term {
			return &disk.CorruptError{File: s.name, Index: info.BaseIndex,
				Detail: fmt.Sprintf("begins with term %d after term %d", s.firstTerm, term)}
		}
		term = s.lastTerm
	}
	if mark := cfg.mark.log; len(state.Segments) == 0 && mark > 0 {
		return &disk.CorruptError{File: meta.name, Index: mark, Detail: "lists no segment, but entries were durable"}
	}
	return nil
}

func checkSealed(cfg engineConfig, info types.SegmentInfo) (segmentScan, error) {
	s, err := scanSegment(cfg, info)
	name := filepath.Join(cfg.dir, segment.FileName(info))
	if disk.IsMissing(err) {
		return s, &disk.CorruptError{File: name, Index: info.BaseIndex, Detail: "missing", Err: err}
	}
	if err != nil {
		return s, &disk.CorruptError{File: name, Detail: "cannot be read", Err: err}
	}
	if s.next <= info.MaxIndex || s.indexStart != int64(info.IndexStart) {
		return s, &disk.CorruptError{File: name, Offset: s.end, Index: s.next,
			Detail: fmt.Sprintf("a complete segment up to entry %d stops being readable (%s)", info.MaxIndex, s.stop)}
	}
	return s, nil
}

func checkTail(cfg engineConfig, meta *walMeta, info types.SegmentInfo) (segmentScan, error) {
	name := filepath.Join(cfg.dir, segment.FileName(info))
	s, err := scanSegment(cfg, info)
	if disk.IsMissing(err) {
		// The list is durable before the file that it names. A crash in between leaves no file, and
		// no durable entry is lost.
		if cfg.mark.log >= info.BaseIndex {
			return s, &disk.CorruptError{File: name, Index: info.BaseIndex, Err: err,
				Detail: fmt.Sprintf("missing, but entry %d was durable", cfg.mark.log)}
		}
		return segmentScan{name: name, next: info.BaseIndex}, nil
	}
	if err != nil {
		return s, &disk.CorruptError{File: name, Detail: "cannot be read", Err: err}
	}
	if cfg.mark.log >= s.next {
		return s, &disk.CorruptError{File: name, Offset: s.end, Index: s.next,
			Detail: fmt.Sprintf("the log stops here, but entry %d was durable (%s)", cfg.mark.log, s.reason())}
	}
	if s.indexStart > 0 {
		cfg.logger.Warn("finishing a segment rotation cut off by a crash", "file", name, "last", s.next-1)
		if err := settleTail(cfg.fsys, s); err != nil {
			return s, err
		}
		return s, meta.sealTail(s, time.Now(), cfg.segmentBytes)
	}
	if s.stop == "" {
		return s, settleTail(cfg.fsys, s)
	}
	later, err := laterBatch(cfg.fsys, cfg.codec, s)
	if err != nil {
		return s, &disk.CorruptError{File: name, Detail: "cannot be read", Err: err}
	}
	if later {
		return s, &disk.CorruptError{File: name, Offset: s.end, Index: s.next,
			Detail: "durable entries follow a damaged one (" + s.stop + ")"}
	}
	cfg.logger.Warn("clearing a write cut off by a crash", "file", name, "offset", s.end, "next", s.next, "found", s.stop)
	return s, settleTail(cfg.fsys, s)
}

func (s segmentScan) reason() string {
	if s.stop == "" {
		return "only zeros follow"
	}
	return s.stop
}
