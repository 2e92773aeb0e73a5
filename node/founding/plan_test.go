package founding

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

func TestPlanIsChecked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(f *Plan)
		want   string
	}{
		{"sound", func(*Plan) {}, ""},
		{"too few shards", func(f *Plan) { f.Shards = f.Shards[:1] }, "1 shards, not 2"},
		{"a shard of nobody", func(f *Plan) { f.Shards[1] = nil }, "no voters"},
		{"a group of nobody", func(f *Plan) { f.Groups = nil }, "no voters"},
		{"a voter that there is not", func(f *Plan) { f.Shards[0][1] = 3 }, "voter 3 of 3"},
		{"a voter twice", func(f *Plan) { f.Shards[0][1] = 0 }, "voter 0 of 3"},
		{"a later format", func(f *Plan) { f.Format = fsm.LatestFormat + 1 }, "this program reads up to"},
		{"too large", func(f *Plan) { f.Settings = json.RawMessage(`"` + strings.Repeat("x", bytesMax) + `"`) }, "at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &Plan{
				Servers: []string{"a.1", "b.1", "c.1"}, Shards: [][]int{{0, 1}, {2, 1}}, Groups: []int{0, 1, 2},
				Settings: json.RawMessage(`{"a":1}`),
			}
			tt.change(f)
			if err := f.Check(2); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
