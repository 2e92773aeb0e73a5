package fsm

import "slices"

// index keeps the first keys of the slices of an order, sorted, in blocks: to find one takes two short searches, to add one moves a part of a block.
type index struct {
	lows   []key // the first key of each block
	blocks [][]key
	n      int
}

// blockMax is the most keys of a block.
const blockMax = 256

// find returns where the last key up to k is; false if all are above.
func (x *index) find(k key) (block, i int, ok bool) {
	if x == nil {
		return 0, 0, false
	}
	block = above(x.lows, k) - 1
	if block < 0 {
		return 0, 0, false
	}
	return block, above(x.blocks[block], k) - 1, true
}

// above returns the number of keys up to k.
func above(keys []key, k key) int {
	low, high := 0, len(keys)
	for low < high {
		if middle := int(uint(low+high) >> 1); k.less(keys[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func (x *index) insert(k key) {
	x.n++
	block, i, ok := x.find(k)
	switch {
	case len(x.blocks) == 0:
		x.lows, x.blocks = append(x.lows, k), append(x.blocks, []key{k})
		return
	case !ok:
		x.lows[0] = k
		x.blocks[0] = slices.Insert(x.blocks[0], 0, k)
	default:
		x.blocks[block] = slices.Insert(x.blocks[block], i+1, k)
	}
	if keys := x.blocks[block]; len(keys) == blockMax {
		upper := slices.Clone(keys[blockMax/2:])
		x.blocks[block] = keys[:blockMax/2]
		x.lows, x.blocks = slices.Insert(x.lows, block+1, upper[0]), slices.Insert(x.blocks, block+1, upper)
	}
}

// remove takes out a key that is there.
func (x *index) remove(k key) {
	x.n--
	block, i, _ := x.find(k)
	x.blocks[block] = slices.Delete(x.blocks[block], i, i+1)
	if len(x.blocks[block]) == 0 {
		x.lows, x.blocks = slices.Delete(x.lows, block, block+1), slices.Delete(x.blocks, block, block+1)
	} else {
		x.lows[block] = x.blocks[block][0]
	}
}

// ascend calls f for the keys from the last one up to k on, or from the first, until f returns false.
func (x *index) ascend(k key, f func(key) bool) {
	block, i, _ := x.find(k)
	for ; block < len(x.blocks); block, i = block+1, 0 {
		for _, k := range x.blocks[block][i:] {
			if !f(k) {
				return
			}
		}
	}
}

// beside returns the key after k, which is there, or before it if step is -1; false if there is none.
func (x *index) beside(k key, step int) (found key, ok bool) {
	block, i, _ := x.find(k)
	if i += step; i < 0 || i == len(x.blocks[block]) {
		if block += step; block < 0 || block == len(x.blocks) {
			return key{}, false
		}
		i = max(0, -step) * (len(x.blocks[block]) - 1)
	}
	return x.blocks[block][i], true
}
