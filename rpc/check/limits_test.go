package check

import "testing"

func TestLimitsValidate(t *testing.T) {
	if err := DefaultLimits().Validate(); err != nil {
		t.Error(err)
	}
	if err := (Limits{}).Validate(); err == nil {
		t.Error("limits of zero pass")
	}
	for name, change := range map[string]func(*Limits){
		"TTRMax":          func(l *Limits) { l.TTRMax = l.TTRMin - 1 },
		"QueueBytesMax":   func(l *Limits) { l.QueueBytesMax = 257 },
		"MessageBytesMax": func(l *Limits) { l.MessageBytesMax = l.BodyBytesMax - 1 },
		"WaitMax":         func(l *Limits) { l.WaitMax = -1 },
	} {
		l := DefaultLimits()
		change(&l)
		if err := l.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
