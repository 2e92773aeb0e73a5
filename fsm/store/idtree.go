package store

import "cmp"

// In a queue with several partitions an id is unique for each key only. The table of ids has one
// entry for all jobs of an id that have a key. It is the root of a treap: a binary tree by the hash
// of the key that is a heap by serial, so its root has the lowest serial. The hash depends on the
// seed of the store, so nobody can choose keys that make a deep tree. An id has a tree for each
// class.

// idClass says in which tree of its id a job or a tombstone is.
type idClass uint32

const (
	liveIDs  idClass = iota // held jobs that are not DEAD
	deadIDs                 // DEAD jobs
	endedIDs                // tombstones
	idClasses
)

// idTrees are the trees. Their jobs and tombstones are tagged as in the table of ids. Only one that
// has met another one in its tree has a node, so an id of one key takes no memory here.
type idTrees struct {
	store *Store
	count [idClasses]int // trees
	pages [2][]idPage    // of the nodes of jobs and of tombstones
}

type idPage struct {
	nodes *[idPageNodes]idNode // nil if none is in use
	used  int
}

type idNode struct {
	hash        uint32 // see keyHash; 0 if the node is not in use
	left, right uint32
}

const idPageNodes = 512

// node returns the node of a job or a tombstone, nil if it has none.
func (x *idTrees) node(tagged uint32) *idNode {
	pages, page := x.pages[tagged&1], tagged>>1/idPageNodes
	if int(page) < len(pages) && pages[page].nodes != nil {
		if n := &pages[page].nodes[tagged>>1%idPageNodes]; n.hash != 0 {
			return n
		}
	}
	return nil
}

// addNode returns the node of a job or a tombstone. It creates the node if there is none.
func (x *idTrees) addNode(tagged uint32) *idNode {
	if n := x.node(tagged); n != nil {
		return n
	}
	pages, page := &x.pages[tagged&1], tagged>>1/idPageNodes
	for int(page) >= len(*pages) {
		*pages = append(*pages, idPage{})
	}
	p := &(*pages)[page]
	if p.nodes == nil {
		p.nodes = new([idPageNodes]idNode)
	}
	p.used++
	n, of := &p.nodes[tagged>>1%idPageNodes], x.store.holder(tagged)
	n.hash = x.keyHash(of.queue, of.payload.KeyName())
	return n
}

func (x *idTrees) dropNode(tagged uint32) {
	p := &x.pages[tagged&1][tagged>>1/idPageNodes]
	p.nodes[tagged>>1%idPageNodes] = idNode{}
	if p.used--; p.used == 0 {
		p.nodes = nil
	}
}

func (x *idTrees) keyHash(queue uint32, key string) uint32 { return x.store.idHash(queue, key) | 1 }

// rootHash is the hash in the table of ids of the root of a tree; hash is that of the id.
func (c idClass) rootHash(hash uint32) uint32 { return hash + uint32(c)*0x9e3779b9 }

// root returns the root of the tree of an id, 0 if there is none.
func (x *idTrees) root(class idClass, name idName) uint32 {
	if x.count[class] == 0 {
		return 0
	}
	return x.store.ids.Find(class.rootHash(name.hash), func(tagged uint32) bool {
		of := x.store.holder(tagged)
		return of.queue == name.queue && string(of.payload.ID()) == name.id && of.payload.hasKey()
	})
}

// find returns the job or the tombstone of a key in the tree of an id, 0 if there is none.
func (x *idTrees) find(class idClass, name idName, key string) uint32 {
	at, hash := x.root(class, name), x.keyHash(name.queue, key)
	for at != 0 {
		n, side := x.node(at), 0
		if n != nil {
			side = cmp.Compare(hash, n.hash)
		}
		if side == 0 {
			side = cmp.Compare(key, x.store.holder(at).payload.KeyName())
		}
		switch {
		case side == 0:
			return at
		case n == nil:
			return 0
		case side < 0:
			at = n.left
		default:
			at = n.right
		}
	}
	return 0
}

// less is the order of a tree: by the hash of the key, by the key, and by serial, lest a damaged
// snapshot that has a pair of id and key twice makes a tree in which one of them is not found.
func (x *idTrees) less(a, b uint32) bool {
	if hash, other := x.node(a).hash, x.node(b).hash; hash != other {
		return hash < other
	}
	of, other := x.store.holder(a), x.store.holder(b)
	if key, otherKey := of.payload.KeyName(), other.payload.KeyName(); key != otherKey {
		return key < otherKey
	}
	return of.serial < other.serial
}

// insert adds a job or a tombstone that has a key to the tree of its id.
func (x *idTrees) insert(class idClass, tagged uint32) {
	own := x.store.holder(tagged)
	root := x.root(class, own.name())
	hash := class.rootHash(own.payload.idHash())
	if root == 0 {
		x.count[class]++
		x.store.ids.Insert(hash, tagged)
		return
	}
	x.addNode(root)
	n, top := x.addNode(tagged), root
	at := &top
	for *at != 0 && x.store.holder(*at).serial < own.serial {
		at = x.child(*at, tagged)
	}
	rest, left, right := *at, &n.left, &n.right
	*at = tagged
	for rest != 0 {
		if x.less(rest, tagged) {
			*left = rest
			left = &x.node(rest).right
			rest = *left
		} else {
			*right = rest
			right = &x.node(rest).left
			rest = *right
		}
	}
	*left, *right = 0, 0
	x.store.ids.Replace(hash, root, top)
}

// child returns the child of a node on whose side another one belongs.
func (x *idTrees) child(node, tagged uint32) *uint32 {
	if x.less(tagged, node) {
		return &x.node(node).left
	}
	return &x.node(node).right
}

// remove removes a job or a tombstone from the tree of its id.
func (x *idTrees) remove(class idClass, tagged uint32) {
	own, n := x.store.holder(tagged), x.node(tagged)
	hash := class.rootHash(own.payload.idHash())
	if n == nil { // it is alone
		x.count[class]--
		x.store.ids.Remove(hash, tagged)
		return
	}
	root := x.root(class, own.name())
	top := root
	at := &top
	for *at != tagged {
		if *at == 0 {
			panic("fsm: a job is missing from the tree of its id")
		}
		at = x.child(*at, tagged)
	}
	left, right := n.left, n.right
	for left != 0 && right != 0 {
		if x.store.older(left, right) == left {
			*at = left
			at = &x.node(left).right
			left = *at
		} else {
			*at = right
			at = &x.node(right).left
			right = *at
		}
	}
	*at = left | right // one of them is 0
	x.dropNode(tagged)
	if top == 0 {
		x.count[class]--
		x.store.ids.Remove(hash, tagged)
	} else {
		x.store.ids.Replace(hash, root, top)
	}
}

func (x *idTrees) memory() (bytes uint64) {
	for _, pages := range x.pages {
		bytes += uint64(cap(pages) * 16)
		for _, p := range pages {
			if p.nodes != nil {
				bytes += idPageNodes * idNodeBytes
			}
		}
	}
	return bytes
}
