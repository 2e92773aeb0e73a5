package beanstalkd

import (
	"sync"
)

// tubeRefs counts which tubes the connections of this node refer to. A tube exists while it has jobs
// or is referred to.
type tubeRefs struct {
	mu   sync.Mutex
	refs map[string]*tubeRef
}

// tubeRef counts the connections that use a tube, watch it, and wait for its jobs, and the pause-tube
// commands for it.
type tubeRef struct {
	using, watching, waiting int
	pauses                   uint64
}

func (t *tubeRefs) change(tube string, change func(*tubeRef)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refs == nil {
		t.refs = map[string]*tubeRef{}
	}
	r := t.refs[tube]
	if r == nil {
		r = &tubeRef{}
		t.refs[tube] = r
	}
	if change(r); r.using == 0 && r.watching == 0 {
		delete(t.refs, tube)
	}
}

// use counts n more connections that use a tube.
func (t *tubeRefs) use(tube string, n int) { t.change(tube, func(r *tubeRef) { r.using += n }) }

// watch counts n more connections that watch a tube.
func (t *tubeRefs) watch(tube string, n int) { t.change(tube, func(r *tubeRef) { r.watching += n }) }

// wait counts n more connections that wait for jobs of the tubes that they watch.
func (t *tubeRefs) wait(tubes []string, n int) {
	for _, tube := range tubes {
		t.change(tube, func(r *tubeRef) { r.waiting += n })
	}
}

// paused counts a pause of a tube that is referred to.
func (t *tubeRefs) paused(tube string) { t.change(tube, func(r *tubeRef) { r.pauses++ }) }

// of returns what is known of a tube.
func (t *tubeRefs) of(tube string) (r tubeRef, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ref := t.refs[tube]; ref != nil {
		return *ref, true
	}
	return r, false
}

// names returns the tubes that are referred to.
func (t *tubeRefs) names() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make(map[string]bool, len(t.refs))
	for tube := range t.refs {
		names[tube] = true
	}
	return names
}
