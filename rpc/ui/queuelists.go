package ui

import (
	"context"
	"sync"
	"time"
)

const (
	// listFresh is for how long a list of all queues is shown again without another read: several
	// pages that are refreshed cost one read.
	listFresh = time.Second
	// listWait is for how long a page waits for a new list while there is an older one. With some
	// thousands of queues a read takes longer.
	listWait = 50 * time.Millisecond
	// listKept is how old the older one may be.
	listKept = 15 * time.Second
	// listReadMax bounds a read, which ends with no request.
	listReadMax = 10 * time.Second
	// listsMax bounds the lists: one for each token that looks.
	listsMax = 64
)

// queueLists keeps the last list of all queues for each token. Any goroutine may use it.
type queueLists struct {
	mu    sync.Mutex
	lists map[string]*keptList
}

// keptList is the last list for a token.
type keptList struct {
	list *queueList
	err  error
	read time.Time
	// reading is closed when the read that is under way ends; nil if there is none.
	reading chan struct{}
}

// get returns the list for a token: a fresh one, or after listWait the one before. Nobody may change
// it. read is called by another goroutine.
func (q *queueLists) get(ctx context.Context, token string, read func(context.Context) (*queueList, error)) (*queueList,
	error) {
	q.mu.Lock()
	kept := q.of(token)
	age := time.Since(kept.read)
	if kept.list != nil && age < listFresh {
		defer q.mu.Unlock()
		return kept.list, nil
	}
	if kept.reading == nil {
		kept.reading = make(chan struct{})
		go q.fill(context.WithoutCancel(ctx), kept, read)
	}
	reading, before := kept.reading, kept.list
	q.mu.Unlock()
	var soon <-chan time.Time // without an older list, nothing ends the wait but the read
	if before != nil && age < listKept {
		timer := time.NewTimer(listWait)
		defer timer.Stop()
		soon = timer.C
	}
	select {
	case <-reading:
		q.mu.Lock()
		defer q.mu.Unlock()
		return kept.list, kept.err
	case <-soon:
		return before, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// of returns the list for a token. For a new token it forgets another one if there are too many.
// q.mu is held.
func (q *queueLists) of(token string) *keptList {
	if kept := q.lists[token]; kept != nil {
		return kept
	}
	for other, kept := range q.lists {
		if len(q.lists) < listsMax {
			break
		}
		if kept.reading == nil {
			delete(q.lists, other)
		}
	}
	kept := &keptList{}
	q.lists[token] = kept
	return kept
}

// fill reads a list.
func (q *queueLists) fill(ctx context.Context, kept *keptList, read func(context.Context) (*queueList, error)) {
	ctx, cancel := context.WithTimeout(ctx, listReadMax)
	defer cancel()
	list, err := read(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	kept.list, kept.err, kept.read = list, err, time.Now()
	close(kept.reading)
	kept.reading = nil
}
