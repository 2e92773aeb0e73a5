package beanstalkd_test

import (
	"sync/atomic"
	"testing"

	"github.com/belfrydb/belfry/node"
	"github.com/belfrydb/belfry/rpc"
	"github.com/belfrydb/belfry/rpc/backend/backendtest"
)

// TestFailedDelete: a connection still holds a job whose delete was refused, and releases it at its end.
func TestFailedDelete(t *testing.T) {
	var full atomic.Bool
	address, _ := serveWith(t, rpc.Beanstalkd{JobBytesMax: jobBytesMax}, func(c *rpc.Config) {
		c.Node.(*backendtest.Node).Fail = func(uint32) error {
			if full.Load() {
				return node.ErrDiskFull
			}
			return nil
		}
	})
	first, second := connect(t, address), connect(t, address)
	id, other := first.put(t, "5 0 100", "x"), first.put(t, "5 0 100", "y")
	first.expect(t, "reserve", "RESERVED "+id+" 1 x")
	first.expect(t, "reserve", "RESERVED "+other+" 1 y")
	full.Store(true)
	first.expect(t, "delete "+id, "INTERNAL_ERROR")
	first.expect(t, "put 5 0 100 1\nz", "OUT_OF_MEMORY")
	full.Store(false)
	first.expect(t, "delete "+id, "DELETED")
	full.Store(true)
	first.expect(t, "delete "+other, "INTERNAL_ERROR")
	full.Store(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second.expect(t, "reserve-with-timeout 50", "RESERVED "+other+" 1 y") // not after its lease
}

// TestCommandsWaitForTheCluster: what will work in a moment is no error: there is no leader yet, or not
// all nodes have said which format they know.
func TestCommandsWaitForTheCluster(t *testing.T) {
	for name, err := range map[string]error{"no leader": node.ErrNoLeader, "an early format": node.ErrUnsupported} {
		t.Run(name, func(t *testing.T) {
			var left atomic.Int64
			address, _ := serveWith(t, rpc.Beanstalkd{JobBytesMax: jobBytesMax}, func(c *rpc.Config) {
				c.Node.(*backendtest.Node).Fail = func(uint32) error {
					if left.Add(-1) >= 0 {
						return err
					}
					return nil
				}
			})
			c := connect(t, address)
			left.Store(2)
			id := c.put(t, "5 0 100", "x")
			left.Store(2)
			c.expect(t, "reserve-with-timeout 10", "RESERVED "+id+" 1 x")
			left.Store(2)
			c.expect(t, "delete "+id, "DELETED")
		})
	}
}
