package bulk

import (
	"errors"
	"reflect"
	"testing"

	"github.com/belfrydb/belfry/fsm"
)

// TestCheck: an act is possible for jobs of some states only.
func TestCheck(t *testing.T) {
	task := func(state fsm.State, act Act, change func(*Task)) *Task {
		v := &Task{ID: "1", Queue: "q", State: state, Act: act}
		if change != nil {
			change(v)
		}
		return v
	}
	force, due := func(t *Task) { t.Force = true }, func(t *Task) { t.Due = 5 }
	for _, v := range []*Task{
		task(fsm.Reserved, Count, nil), task(fsm.Dead, Redrive, nil), task(fsm.Delayed, Cancel, nil),
		task(fsm.Reserved, Cancel, force), task(fsm.Delayed, Reschedule, nil), task(fsm.Ready, Reschedule, due),
	} {
		if err := v.Check(); err != nil {
			t.Errorf("%s in state %d: %v", v.Act, v.State, err)
		}
	}
	for _, v := range []*Task{
		task(fsm.Delayed, Redrive, nil), task(fsm.Reserved, Cancel, nil), task(fsm.Ready, Reschedule, nil),
		task(fsm.Dead, Reschedule, due), task(fsm.Reserved, Reschedule, due),
	} {
		if err := v.Check(); !errors.Is(err, ErrState) {
			t.Errorf("%s in state %d: %v", v.Act, v.State, err)
		}
	}
	for _, v := range []*Task{
		{}, task(fsm.Acked, Count, nil), task(fsm.Dead, Redrive, force), task(fsm.Dead, Cancel, due),
		task(fsm.Dead, "keep", nil), task(fsm.Dead, Redrive, func(t *Task) { t.Queue = "" }),
	} {
		if err := v.Check(); err == nil || errors.Is(err, ErrState) {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

// TestSame: what was asked for counts, each field of it.
func TestSame(t *testing.T) {
	a := Task{ID: "1", Queue: "q", By: "x", Created: 1}
	b := Task{ID: "1", Queue: "q", By: "y", Created: 2, Stop: true, Progress: Progress{Matched: 3}}
	if !a.Same(&b) {
		t.Error("who asked, when, and what came of it make a difference")
	}
	later, latest := a, a
	later.Delay, latest.Delay, later.Due, latest.Due = 7, 7, 8, 9
	if !later.Same(&latest) {
		t.Error("the same delay, asked for again, makes a difference")
	}
	for i := range reflect.TypeFor[Task]().NumField() {
		name := reflect.TypeFor[Task]().Field(i).Name
		other := a
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("other")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int64:
			f.SetInt(77)
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			f.SetUint(7)
		case reflect.Struct:
			continue // Progress
		default:
			t.Fatalf("field %s is of kind %v", name, f.Kind())
		}
		if same := a.Same(&other); same != (name == "By" || name == "Created" || name == "Stop") {
			t.Errorf("with another %s it is the same: %v", name, same)
		}
	}
}
