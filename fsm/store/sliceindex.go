package store

import "slices"

// sliceIndex keeps the first keys of the slices of an order, sorted, in blocks. A find takes two
// short searches; an insert moves a part of a block.
type sliceIndex struct {
	lows   []Key // the first key of each block
	blocks [][]Key
	n      int
}

// blockMax is the most keys of a block.
const blockMax = 256

// find returns the position of the last key up to k, or false if all keys are above k.
func (x *sliceIndex) find(k Key) (block, i int, ok bool) {
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
func above(keys []Key, k Key) int {
	low, high := 0, len(keys)
	for low < high {
		if middle := int(uint(low+high) >> 1); k.Less(keys[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func (x *sliceIndex) insert(k Key) {
	x.n++
	block, i, ok := x.find(k)
	switch {
	case len(x.blocks) == 0:
		x.lows, x.blocks = append(x.lows, k), append(x.blocks, []Key{k})
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

// remove removes a key that is in the index.
func (x *sliceIndex) remove(k Key) {
	x.n--
	block, i, _ := x.find(k)
	x.blocks[block] = slices.Delete(x.blocks[block], i, i+1)
	if len(x.blocks[block]) == 0 {
		x.lows, x.blocks = slices.Delete(x.lows, block, block+1), slices.Delete(x.blocks, block, block+1)
	} else {
		x.lows[block] = x.blocks[block][0]
	}
}

// ascend calls f for the last key up to k, or the first key if there is none, and for those after
// it, until f returns false.
func (x *sliceIndex) ascend(k Key, f func(Key) bool) {
	block, i, _ := x.find(k)
	for ; block < len(x.blocks); block, i = block+1, 0 {
		for _, k := range x.blocks[block][i:] {
			if !f(k) {
				return
			}
		}
	}
}

// beside returns the neighbour of k, which must be in the Index: the next key if step is 1, the
// previous one if it is -1. It returns false if there is none.
func (x *sliceIndex) beside(k Key, step int) (found Key, ok bool) {
	block, i, _ := x.find(k)
	if i += step; i < 0 || i == len(x.blocks[block]) {
		if block += step; block < 0 || block == len(x.blocks) {
			return Key{}, false
		}
		i = max(0, -step) * (len(x.blocks[block]) - 1)
	}
	return x.blocks[block][i], true
}
