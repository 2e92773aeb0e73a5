package node

import "context"

// Settle carries out everything that is due in the shards that this node leads, grants due jobs to
// parked calls, and returns when nothing is left. It is for tests that move Config.Clock by hand;
// with a running clock it is not needed. It may be repeated after an error.
func (n *Node) Settle(ctx context.Context) error {
	for _, s := range n.here() {
		if !s.Serves() {
			continue
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *shard) settle(ctx context.Context) error {
	deadline := s.nextDeadline()
	for more := deadline != 0 && deadline <= s.clock.Now(); more; {
		var err error
		if more, err = s.expire(ctx); err != nil {
			return s.refusal(err)
		}
	}
	return s.calls.Settle(ctx)
}
