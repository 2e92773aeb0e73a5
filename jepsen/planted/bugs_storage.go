package planted

// The mistakes of the storage.

func storageBugs() []Bug {
	return []Bug{
		{
			Name: "lazy-sync", What: "the log is synced in one second of eight only (NATS)",
			Claims: []string{"I1", "I28"}, Or: []string{"I35"}, Workloads: []string{"puts"}, Nemeses: []string{"power-all"},
			Edits: []Edit{
				before("node/storage/engine_wal.go", `if !f.fresh {`, `if !f.fresh && planted("lazy-sync") && !plantedSyncs() {
		return nil
	}`),
				after("node/storage/marks.go", `func (m *marks) raiseLog(index uint64) error {`, `if planted("lazy-sync") {
		return nil
	}`),
			},
		},
		{
			Name: "vote-unsynced", What: "term and vote are written over and not synced",
			Claims: []string{"I35"}, Workloads: []string{"puts"}, Nemeses: []string{"power-all", "kill-leader"},
			Edits: []Edit{before("node/storage/stable.go",
				`return disk.WriteRecord(s.fsys, s.name, stableMagic, encodePairs(next))`, `if planted("vote-unsynced") {
			return plantedWrite(s.fsys, s.name, disk.EncodeRecord(stableMagic, encodePairs(next)))
		}`)},
		},
		{
			Name: "tail-cut-deep", What: "a log that is damaged is cut there, whatever follows",
			Claims: []string{"I32"}, Workloads: []string{"puts"}, Nemeses: []string{"flip-many"},
			Edits: []Edit{
				skipping("node/storage/wal_check.go", `cfg.mark.log >= s.next`, "tail-cut-deep"),
				skipping("node/storage/wal_check.go", `later`, "tail-cut-deep"),
				skipping("node/storage/stores.go", `last < mark`, "tail-cut-deep"),
			},
		},
		{
			Name:   "checksum-ignored",
			What:   "the checksums of a snapshot are not looked at, so that a node restores what its disk made of it",
			Claims: []string{"I25"}, Workloads: []string{"puts"}, Nemeses: []string{"flip-snapshot"},
			Edits: believing(
				skipping("node/storage/snapshot_read.go", `got := disk.SumBytes(disk.SumBytes(r.sum, head[:4]), data); got != sum`,
					"checksum-ignored"),
				skipping("fsm/snapshot/reader.go", `got := binary.LittleEndian.Uint32(b[:]); got != sum`, "checksum-ignored"),
			),
		},
	}
}
