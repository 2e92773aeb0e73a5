package redisson

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeys(t *testing.T) {
	want := Keys{
		Ready:     "orders",
		Timer:     "redisson_delay_queue_timeout:{orders}",
		List:      "redisson_delay_queue:{orders}",
		Channel:   "redisson_delay_queue_channel:{orders}",
		Semaphore: "redisson_bqs:{orders}",
	}
	if diff := cmp.Diff(want, KeysOf("orders")); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if got := KeyOf("dq_migrating", "svc:{orders}"); got != "dq_migrating:svc:{orders}" {
		t.Errorf("a key of the mirror is %s", got)
	}
}

// TestSlots has the slots that a server with Redis Cluster told.
func TestSlots(t *testing.T) {
	for _, v := range []struct {
		queue, timer string
		same         bool
		slot         uint16 // of all keys, if it is the same; 0 where it was not asked for
	}{
		{"orders", "redisson_delay_queue_timeout:{orders}", true, 105},
		{"{svc}:orders", "redisson_delay_queue_timeout:{svc}:orders", true, 16226},
		{"svc:{orders}", "redisson_delay_queue_timeout:svc:{orders}", true, 105},
		{"订单", "redisson_delay_queue_timeout:{订单}", true, 4529},
		{"}a{b}", "redisson_delay_queue_timeout:}a{b}", true, 0},
		{"a{b}{c", "redisson_delay_queue_timeout:a{b}{c", true, 0},
		{"a{b", "redisson_delay_queue_timeout:a{b", false, 0},
		{"a}b", "redisson_delay_queue_timeout:{a}b}", false, 0},
		{"a{}b", "redisson_delay_queue_timeout:a{}b", false, 0},
		{"{}x", "redisson_delay_queue_timeout:{}x", false, 0},
		{"a{}{b}", "redisson_delay_queue_timeout:a{}{b}", false, 0},
		{"", "redisson_delay_queue_timeout:{}", false, 0},
	} {
		k := KeysOf(v.queue)
		if k.Timer != v.timer {
			t.Errorf("the timer of %s is %s, want %s", v.queue, k.Timer, v.timer)
		}
		if got := SameSlot(v.queue); got != v.same {
			t.Errorf("the keys of %s share a slot: %v, want %v", v.queue, got, v.same)
		}
		ready := slotOf(k.Ready)
		for _, key := range []string{k.Timer, k.List, k.Channel, k.Semaphore, KeyOf("dq_migrating", v.queue)} {
			if slot := slotOf(key); v.same != (slot == ready) || v.slot != 0 && slot != v.slot {
				t.Errorf("%s is in slot %d and %s in %d, want %v and %d", key, slot, k.Ready, ready, v.same, v.slot)
			}
		}
	}
}

// slotOf returns the slot of a key: CRC-16 (XMODEM) of what is hashed, by 16,384.
func slotOf(key string) uint16 {
	var crc uint16
	for _, c := range []byte(hashed(key)) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&(1<<15) != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
