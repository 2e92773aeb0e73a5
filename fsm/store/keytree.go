package store

import "github.com/belfrydb/belfry/fsm"

// The jobs of a key are a treap: a binary tree in their order, which is a heap by a hash of their
// serials. (R. Seidel, C. Aragon, "Randomized search trees", Algorithmica 1996.) Its nodes are
// the links of the jobs, so it takes no memory of its own. It has the same shape whatever the order
// of the changes. The key of a job must not change while the job is in the tree.

// keyLink is what belongs to a job that has a key.
type keyLink struct {
	group       uint32
	left, right uint32 // jobs
}

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
func (k *Keys) GroupOf(job uint32) uint32 { return k.linkOf(job).group }

// KeyClasses is the number of classes of jobs.
const KeyClasses uint8 = 4

// Class says which jobs of a key come together: first those that wait for their turn, then the
// DELAYED, the RESERVED and the DEAD ones.
func (k *Keys) Class(order KeyOrder, job uint32) uint8 {
	switch k.store.slots.at(job).State() {
	case fsm.Ready:
		return 0
	case fsm.Delayed:
		if order == ByPlace {
			return 0
		}
		return 1
	case fsm.Reserved:
		return 2
	default:
		return 3
	}
}

// less reports whether job a comes before job b.
func (k *Keys) less(order KeyOrder, a, b uint32) bool {
	class, other := k.Class(order, a), k.Class(order, b)
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

// Insert adds a job to the tree of its group.
func (k *Keys) Insert(order KeyOrder, job uint32) {
	n := k.linkOf(job)
	g := k.groups.edit(n.group)
	if g.Head == 0 || k.less(order, job, g.Head) {
		g.Head = job
	}
	at, weight := &g.root, k.weight(job)
	for *at != 0 && k.weight(*at) >= weight {
		at = k.child(order, *at, job)
	}
	rest := *at
	*at = job
	left, right := &n.left, &n.right
	for rest != 0 {
		if k.less(order, rest, job) {
			*left = rest
			left = &k.linkOf(rest).right
			rest = *left
		} else {
			*right = rest
			right = &k.linkOf(rest).left
			rest = *right
		}
	}
	*left, *right = 0, 0
}

// child returns the child of node on whose side the job belongs.
func (k *Keys) child(order KeyOrder, node, job uint32) *uint32 {
	if k.less(order, job, node) {
		return &k.linkOf(node).left
	}
	return &k.linkOf(node).right
}

// Remove removes a job from the tree of its group.
func (k *Keys) Remove(order KeyOrder, job uint32) {
	n := k.linkOf(job)
	g := k.groups.edit(n.group)
	at := &g.root
	for *at != job {
		if *at == 0 {
			panic("fsm: a job is missing from the tree of its key")
		}
		at = k.child(order, *at, job)
	}
	left, right := n.left, n.right
	for left != 0 && right != 0 {
		if k.weight(left) >= k.weight(right) {
			*at = left
			at = &k.linkOf(left).right
			left = *at
		} else {
			*at = right
			at = &k.linkOf(right).left
			right = *at
		}
	}
	*at = left | right // one of them is 0
	n.left, n.right = 0, 0
	if g.Head == job {
		g.Head = k.first(g.root)
	}
}

func (k *Keys) first(node uint32) uint32 {
	for node != 0 {
		left := k.linkOf(node).left
		if left == 0 {
			break
		}
		node = left
	}
	return node
}

// Clear empties the tree of a group, of which the caller then inserts all jobs anew.
func (k *Keys) Clear(group uint32) {
	g := k.groups.edit(group)
	g.root, g.Head = 0, 0
}

// FirstOf returns the first job of a group that is of a class or a later one, 0 if there is none.
func (k *Keys) FirstOf(order KeyOrder, group uint32, class uint8) uint32 {
	node, found := k.groups.at(group).root, uint32(0)
	for node != 0 {
		if k.Class(order, node) < class {
			node = k.linkOf(node).right
			continue
		}
		found, node = node, k.linkOf(node).left
	}
	return found
}

// After returns the job of a group that follows the given one, 0 if there is none; with 0 the first.
func (k *Keys) After(order KeyOrder, group, job uint32) uint32 {
	node, found := k.groups.at(group).root, uint32(0)
	for node != 0 {
		if job != 0 && !k.less(order, job, node) {
			node = k.linkOf(node).right
			continue
		}
		found, node = node, k.linkOf(node).left
	}
	return found
}
