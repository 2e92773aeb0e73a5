package store

import "github.com/belfrydb/belfry/fsm"

// The jobs of a key are a treap: a binary tree in their order, which is a heap by a hash of their
// serials. (R. Seidel, C. Aragon, "Randomized search trees", Algorithmica 1996.) Its nodes are
// the links of the jobs, so it takes no memory of its own. It has the same shape whatever the order
// of the changes. The key of a job must not change while the job is in the tree.

// Each node knows in which states the jobs of its subtree are, so that a search passes over all others.

// keyLink is what belongs to a job that has a key.
type keyLink struct {
	group       uint32 // and, in the bits from groupBits on, the states of the jobs of its subtree
	left, right uint32 // jobs
}

// groupBits is what the index of a group takes: more of them would take 12 GiB.
const groupBits = 32 - 4

func (k *Keys) linkOf(job uint32) *keyLink {
	page, i := k.store.slots.locate(job)
	return &k.links[page][i]
}

// link adds a job to the group of its key.
func (k *Keys) link(job, queue uint32, key string) {
	page, _ := k.store.slots.locate(job)
	for int(page) >= len(k.links) {
		k.links = append(k.links, nil)
	}
	if k.links[page] == nil {
		k.links[page] = make([]keyLink, 1<<slotShift)
		k.linkPages++
	}
	group := k.Add(queue, key)
	*k.linkOf(job) = keyLink{group: group}
}

// unlink removes a job, which is in no tree. Its owner trims the group.
func (k *Keys) unlink(job uint32) { *k.linkOf(job) = keyLink{} }

// dropLinks drops the links of the page of slots that a job was on, if that has no job any more.
func (k *Keys) dropLinks(job uint32) {
	page, _ := k.store.slots.locate(job)
	if int(page) < len(k.links) && k.links[page] != nil && k.store.slots.live[page] == 0 {
		k.links[page] = nil
		k.linkPages--
	}
}

// GroupOf returns the group of a job that has a key.
func (k *Keys) GroupOf(job uint32) uint32 { return k.linkOf(job).group & (1<<groupBits - 1) }

// class says which jobs of a key come together: first those that wait for their turn, then the
// DELAYED, the RESERVED and the DEAD ones.
func (k *Keys) class(order KeyOrder, job uint32) uint8 {
	state := k.store.slots.at(job).State()
	if state == fsm.Ready || state == fsm.Delayed && order == ByPlace {
		return 0
	}
	return uint8(state)
}

// less reports whether job a comes before job b.
func (k *Keys) less(order KeyOrder, a, b uint32) bool {
	class, other := k.class(order, a), k.class(order, b)
	switch {
	case class != other:
		return class < other
	case class > 0:
		return k.store.slots.at(a).Serial < k.store.slots.at(b).Serial
	case order == ByPlace:
		return k.placeOf(a) < k.placeOf(b)
	default:
		return k.Rank(a).Less(k.Rank(b))
	}
}

// Rank returns the key of a READY job in the order in which jobs leave their queue.
func (k *Keys) Rank(job uint32) Key { return k.store.orders.key(ByPriority, job) }

func (k *Keys) placeOf(job uint32) uint64 {
	s := k.store.slots.at(job)
	if s.lease != 0 {
		if place := k.store.Place(k.store.leases.at(s.lease)); place != 0 {
			return place
		}
	}
	return s.Serial
}

// weight is by what the tree is a heap. Serials come in a row; their products do not.
func (k *Keys) weight(job uint32) uint32 {
	return uint32(k.store.slots.at(job).Serial * 0x9e3779b97f4a7c15 >> 32)
}

// statesOf returns the states of the jobs of a subtree, which may be empty.
func (k *Keys) statesOf(node uint32) fsm.StateSet {
	if node == 0 {
		return 0
	}
	return fsm.StateSet(k.linkOf(node).group>>groupBits) << fsm.Delayed
}

// setStates derives the states of a subtree from those of its parts.
func (k *Keys) setStates(node uint32) {
	n := k.linkOf(node)
	all := fsm.Set(k.store.slots.at(node).State()) | k.statesOf(n.left) | k.statesOf(n.right)
	n.group = k.GroupOf(node) | uint32(all>>fsm.Delayed)<<groupBits
}

// Insert adds a job to the tree of its group.
func (k *Keys) Insert(order KeyOrder, job uint32) {
	g := k.groups.edit(k.GroupOf(job))
	if g.Head == 0 || k.less(order, job, g.Head) {
		g.Head = job
	}
	g.root = k.insert(order, g.root, job)
}

// insert adds a job to a subtree and returns the root of that.
func (k *Keys) insert(order KeyOrder, node, job uint32) uint32 {
	n := k.linkOf(job)
	if node == 0 || k.weight(node) < k.weight(job) {
		n.left, n.right = k.split(order, node, job)
		k.setStates(job)
		return job
	}
	n = k.linkOf(node)
	if k.less(order, job, node) {
		n.left = k.insert(order, n.left, job)
	} else {
		n.right = k.insert(order, n.right, job)
	}
	n.group |= uint32(fsm.Set(k.store.slots.at(job).State())>>fsm.Delayed) << groupBits
	return node
}

// split divides a subtree into the jobs before and those after one that is not in it.
func (k *Keys) split(order KeyOrder, node, job uint32) (left, right uint32) {
	if node == 0 {
		return 0, 0
	}
	n := k.linkOf(node)
	if k.less(order, node, job) {
		left = node
		n.right, right = k.split(order, n.right, job)
	} else {
		right = node
		left, n.left = k.split(order, n.left, job)
	}
	k.setStates(node)
	return left, right
}

// Remove removes a job from the tree of its group.
func (k *Keys) Remove(order KeyOrder, job uint32) {
	g := k.groups.edit(k.GroupOf(job))
	g.root = k.remove(order, g.root, job)
	if g.Head == job {
		g.Head = k.after(order, g.root, 0, ^fsm.StateSet(0))
	}
}

// remove removes a job from a subtree and returns the root of what is left.
func (k *Keys) remove(order KeyOrder, node, job uint32) uint32 {
	if node == 0 {
		panic("fsm: a job is missing from the tree of its key")
	}
	n := k.linkOf(node)
	switch {
	case node == job:
		return k.merge(n.left, n.right)
	case k.less(order, job, node):
		n.left = k.remove(order, n.left, job)
	default:
		n.right = k.remove(order, n.right, job)
	}
	k.setStates(node)
	return node
}

// merge makes one subtree of two, of which all jobs of the first come before those of the second.
func (k *Keys) merge(left, right uint32) uint32 {
	switch {
	case left == 0 || right == 0:
		return left | right
	case k.weight(left) >= k.weight(right):
		n := k.linkOf(left)
		n.right = k.merge(n.right, right)
		k.setStates(left)
		return left
	default:
		n := k.linkOf(right)
		n.left = k.merge(left, n.left)
		k.setStates(right)
		return right
	}
}

// Clear empties the tree of a group, of which the caller then inserts all jobs anew.
func (k *Keys) Clear(group uint32) {
	g := k.groups.edit(group)
	g.root, g.Head = 0, 0
}

// After returns the next job of a group after the given one that is in one of the states, 0 if there is
// none; after 0 the first. It passes over any number of jobs in other states.
func (k *Keys) After(order KeyOrder, group, job uint32, states fsm.StateSet) uint32 {
	return k.after(order, k.groups.at(group).root, job, states)
}

func (k *Keys) after(order KeyOrder, node, job uint32, states fsm.StateSet) uint32 {
	if k.statesOf(node)&states == 0 {
		return 0
	}
	n := k.linkOf(node)
	if job != 0 && !k.less(order, job, node) {
		return k.after(order, n.right, job, states)
	}
	if found := k.after(order, n.left, job, states); found != 0 {
		return found
	}
	if states.Has(k.store.slots.at(node).State()) {
		return node
	}
	return k.after(order, n.right, 0, states)
}
