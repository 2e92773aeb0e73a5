package keys

import (
	"github.com/belfrydb/belfry/fsm"
	"github.com/belfrydb/belfry/fsm/store"
)

// heap is a binary heap of groups. Each group knows its position in it, from 1, and the list that it
// is in.
type heap struct {
	list   uint8 // see KeyGroup.List
	groups []uint32
	keys   *store.Keys
	less   func(a, b uint32) bool
}

// The values of KeyGroup.List. The last ones have no list: they only say why a key is in none although
// it has READY jobs, and are in the order of fsm.KeyBlock.
const (
	inNone uint8 = iota
	inEligible
	inWaiting
	heldByPause
	heldByDead
	heldByLimit
	heldByOrder
)

// blockOf returns what keeps back the keys of a list.
func blockOf(list uint8) fsm.KeyBlock {
	switch list {
	case inNone, inEligible:
		return fsm.NotBlocked
	case inWaiting:
		return fsm.BlockedByRate
	default:
		return fsm.BlockedByPause + fsm.KeyBlock(list-heldByPause)
	}
}

// mark notes the list of a group, and counts it by what keeps it back.
func mark(keys *store.Keys, group uint32, list uint8) {
	g := keys.At(group)
	if before := blockOf(g.List); before != fsm.NotBlocked {
		keys.Blocked[before]--
	}
	g.List = list
	if now := blockOf(list); now != fsm.NotBlocked {
		keys.Blocked[now]++
	}
}

// first returns the least group, 0 if there is none.
func (h *heap) first() uint32 {
	if len(h.groups) == 0 {
		return 0
	}
	return h.groups[0]
}

func (h *heap) push(group uint32) {
	h.groups = append(h.groups, group)
	mark(h.keys, group, h.list)
	h.up(len(h.groups) - 1)
}

func (h *heap) remove(group uint32) {
	g := h.keys.At(group)
	i, last := int(g.Position)-1, len(h.groups)-1
	g.Position = 0
	mark(h.keys, group, inNone)
	moved := h.groups[last]
	h.groups = h.groups[:last]
	if i == last {
		return
	}
	h.groups[i] = moved
	h.fixAt(i)
}

// fix moves a group whose key has changed.
func (h *heap) fix(group uint32) { h.fixAt(int(h.keys.At(group).Position) - 1) }

func (h *heap) fixAt(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap) up(i int) {
	group := h.groups[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(group, h.groups[parent]) {
			break
		}
		h.place(i, h.groups[parent])
		i = parent
	}
	h.place(i, group)
}

// down reports whether the group at i moved.
func (h *heap) down(i int) bool {
	group, start := h.groups[i], i
	for {
		child := 2*i + 1
		if child >= len(h.groups) {
			break
		}
		if right := child + 1; right < len(h.groups) && h.less(h.groups[right], h.groups[child]) {
			child = right
		}
		if !h.less(h.groups[child], group) {
			break
		}
		h.place(i, h.groups[child])
		i = child
	}
	h.place(i, group)
	return i > start
}

func (h *heap) place(i int, group uint32) {
	h.groups[i] = group
	h.keys.At(group).Position = uint32(i + 1)
}
