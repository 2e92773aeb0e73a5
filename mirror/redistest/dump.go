package redistest

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Dump returns everything that Redis has: what DUMP says of each key, and whether it has a TTL.
func Dump(t *testing.T, r *redis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	scan := r.Scan(t.Context(), 0, "*", 1000).Iterator()
	for scan.Next(t.Context()) {
		all[scan.Val()] = fmt.Sprint(r.Dump(t.Context(), scan.Val()).Val(), r.PTTL(t.Context(), scan.Val()).Val() > 0)
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
