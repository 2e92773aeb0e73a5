package fsm

// QueueOf returns the queue that a command names: the first one of a Reserve, empty for a command
// without a queue. An Import names its queues inside its records.
func QueueOf(c Command) string {
	switch c := c.(type) {
	case *Put:
		return c.Queue
	case *Reserve:
		if len(c.Queues) > 0 {
			return c.Queues[0]
		}
	case *Ack:
		return c.Queue
	case *Nack:
		return c.Queue
	case *Release:
		return c.Queue
	case *Extend:
		return c.Queue
	case *Cancel:
		return c.Queue
	case *Reschedule:
		return c.Queue
	case *Redrive:
		return c.Queue
	case *Purge:
		return c.Queue
	case *Configure:
		return c.Queue
	case *Open:
		return c.Queue
	case *DeleteQueue:
		return c.Queue
	case *PauseKey:
		return c.Queue
	case *PurgeKey:
		return c.Queue
	case *PutSchedule:
		return c.Queue
	case *DeleteSchedule:
		return c.Queue
	case *PauseSchedules:
		return c.Queue
	case *Fire:
		return c.Queue
	case *RunSchedule:
		return c.Queue
	case *Kick:
		return c.Queue
	case *ReserveJob:
		return c.Queue
	}
	return ""
}

// CreatedBy returns the queue that a command of a caller creates if no queue has the name; empty if it
// creates none.
func CreatedBy(c Command) string {
	switch c := c.(type) {
	case *Put:
		if c.CreatesQueue() {
			return c.Queue
		}
	case *PutSchedule:
		if c.Partition == 0 && c.Partitions == 1 && c.IfVersion == 0 {
			return c.Queue
		}
	}
	return ""
}
