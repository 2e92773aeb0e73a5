package ui

import (
	"context"
	"fmt"
	"strconv"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/ui/keys"
	"github.com/belfrydb/belfry/rpc/ui/markup"
	"github.com/belfrydb/belfry/rpc/ui/schedules"
)

// routeRooms names the pages and acts of the rooms that have pages of their own.
func (p *Pages) routeRooms() {
	p.get("schedules", p.listSchedules)
	p.get("schedule", ofSchedules((*schedules.Visit).Show))
	p.get("backfill", ofSchedules((*schedules.Visit).ShowBackfill))
	schedule := ofSchedules((*schedules.Visit).Show)
	p.post("pause-schedule", onSchedules((*schedules.Visit).Pause), schedule)
	p.post("resume-schedule", onSchedules((*schedules.Visit).Resume), schedule)
	p.post("trigger-schedule", onSchedules((*schedules.Visit).Trigger), schedule)
	p.post("delete-schedule", onSchedules((*schedules.Visit).Delete), schedule)
	p.post("backfill-schedule", onSchedules((*schedules.Visit).Backfill), ofSchedules((*schedules.Visit).ShowBackfill))
	p.post("pause-schedules", onSchedules((*schedules.Visit).PauseShown), p.listSchedules)
	p.post("resume-schedules", onSchedules((*schedules.Visit).ResumeShown), p.listSchedules)
	p.get("keys", ofKeys((*keys.Visit).List))
	key := ofKeys((*keys.Visit).Show)
	p.get("key", key)
	p.post("pause-key", onKeys((*keys.Visit).Pause), key)
	p.post("resume-key", onKeys((*keys.Visit).Resume), key)
	p.post("purge-key", onKeys((*keys.Visit).Purge), key)
}

// schedules is the visit of a page about schedules.
func (v *visit) schedules() *schedules.Visit {
	return &schedules.Visit{Forms: &v.Forms, API: v.pages.schedules, In: v.param, Clock: v.clock,
		ReadOnly: v.pages.cfg.ReadOnly, HidesBodies: v.look.HidesBodies}
}

// keys is the visit of a page about keys.
func (v *visit) keys() *keys.Visit {
	return &keys.Visit{Forms: &v.Forms, API: v.pages.admin, In: v.param, Clock: v.clock, ReadOnly: v.pages.cfg.ReadOnly}
}

// pageOf is the page of a room under an entry of the navigation.
func pageOf(entry string, page markup.Page, err error) (content, error) {
	return content{title: page.Title, entry: entry, body: page.Body, live: page.Live}, err
}

func ofSchedules(show func(*schedules.Visit, context.Context) (markup.Page, error)) func(*visit) (content, error) {
	return func(v *visit) (content, error) {
		page, err := show(v.schedules(), v.ctx)
		return pageOf("Schedules", page, err)
	}
}

func onSchedules(act func(*schedules.Visit, context.Context) (string, error)) func(*visit) (string, error) {
	return func(v *visit) (string, error) { return act(v.schedules(), v.ctx) }
}

func ofKeys(show func(*keys.Visit, context.Context) (markup.Page, error)) func(*visit) (content, error) {
	return func(v *visit) (content, error) {
		page, err := show(v.keys(), v.ctx)
		return pageOf("Queues", page, err)
	}
}

func onKeys(act func(*keys.Visit, context.Context) (string, error)) func(*visit) (string, error) {
	return func(v *visit) (string, error) { return act(v.keys(), v.ctx) }
}

// listSchedules shows the schedules of a queue, or of all if it is not named.
func (p *Pages) listSchedules(v *visit) (content, error) {
	if v.param("queue") != "" {
		return ofSchedules((*schedules.Visit).List)(v)
	}
	all, err := v.allQueues()
	if err != nil {
		return content{}, err
	}
	page, err := v.schedules().ListAll(v.ctx, all.queues)
	return pageOf("Schedules", page, err)
}

// versionText writes which content a job has, and whether another one follows it; nothing if it has
// ended.
func versionText(j *belfryv1.Job) string {
	if j.Version == 0 {
		return ""
	}
	text := strconv.FormatUint(j.Version, 10)
	if j.Next != nil {
		text += fmt.Sprintf("; version %d follows when this one ends", j.Next.Version)
	}
	return text
}
