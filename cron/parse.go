package cron

import (
	"fmt"
	"strconv"
	"strings"
)

// everySecond returns the expression that has all times.
func everySecond() *expression {
	e, wrong := parse("* * * * * *")
	if len(wrong) > 0 {
		panic("cron: the expression of all times has a problem: " + wrong[0])
	}
	return e
}

// parse returns the expression of a text, or its problems: one for each field at most.
func parse(text string) (e *expression, problems []string) {
	words, problem := splitFields(text)
	if problem != "" {
		return nil, []string{problem}
	}
	e = &expression{seconds: len(words) == 6}
	if !e.seconds {
		words = append([]string{"0"}, words...)
	}
	for i, word := range words {
		f := field(i)
		if problem := e.parseField(f, word); problem != "" {
			if f == fieldDayOfWeek && e.seconds && isYear(word) {
				problem += "; six fields are read as seconds first, and there is no field for the year: use start and end"
			}
			problems = append(problems, f.String()+": "+problem)
		}
	}
	return e, problems
}

// splitFields returns the five or six fields of a text, with a descriptor replaced by what it stands
// for.
func splitFields(text string) (words []string, problem string) {
	text = strings.Trim(text, " \t")
	upper := strings.ToUpper(text)
	switch {
	case text == "":
		return nil, "is empty; it has 5 fields, or 6 with seconds first"
	case strings.HasPrefix(upper, "TZ=") || strings.HasPrefix(upper, "CRON_TZ="):
		return nil, fmt.Sprintf("%q begins with a time zone; it belongs into timeZone", text)
	case upper == "@EVERY" || strings.HasPrefix(upper, "@EVERY "):
		return nil, fmt.Sprintf("%q is no cron expression; set every instead of cron", text)
	case upper == "@REBOOT":
		return nil, "@reboot is not known: a schedule has no start of a machine"
	case text[0] == '@':
		fields := descriptor(strings.ToLower(text))
		if fields == "" {
			return nil, fmt.Sprintf("%q is none of @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly", text)
		}
		text = fields
	}
	words = strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == '\t' })
	switch n := len(words); n {
	case 1:
		return nil, fmt.Sprintf("%q is one field; it has 5, or 6 with seconds first", text)
	case 5, 6:
		return words, ""
	case 7:
		return nil, fmt.Sprintf("%q has 7 fields: there is none for the year, use start and end", text)
	default:
		return nil, fmt.Sprintf("%q has %d fields; it has 5, or 6 with seconds first", text, n)
	}
}

// descriptor returns the fields that a descriptor stands for, "" for an unknown one.
func descriptor(name string) string {
	switch name {
	case "@yearly", "@annually":
		return "0 0 1 1 *"
	case "@monthly":
		return "0 0 1 * *"
	case "@weekly":
		return "0 0 * * 0"
	case "@daily", "@midnight":
		return "0 0 * * *"
	case "@hourly":
		return "0 * * * *"
	default:
		return ""
	}
}

// isYear says whether a field begins with four digits.
func isYear(word string) bool {
	if len(word) < 4 {
		return false
	}
	_, ok := number(word[:4])
	return ok
}

// parseField reads a field into e, and returns the first problem of it, or "".
func (e *expression) parseField(f field, word string) (problem string) {
	items := strings.Split(word, ",")
	canonical := make([]string, len(items))
	for i, item := range items {
		if item == "" {
			return fmt.Sprintf("%q has an empty item", word)
		}
		if canonical[i], problem = e.parseItem(f, item); problem != "" {
			return problem
		}
	}
	e.text[f] = strings.Join(canonical, ",")
	star := e.text[f][0] == '*'
	switch {
	case f <= fieldHour && strings.ContainsAny(e.text[f], "*/"):
		e.repeats = true
	case f == fieldDayOfMonth:
		e.days.anyOfMonth = star
	case f == fieldDayOfWeek:
		e.days.anyOfWeek = star
	}
	return ""
}

// parseItem reads one item of a list into e and returns its canonical form.
func (e *expression) parseItem(f field, item string) (canonical, problem string) {
	if item == "H" || strings.HasPrefix(item, "H/") || strings.HasPrefix(item, "H(") {
		return "", fmt.Sprintf("%q is the syntax of Jenkins; set jitter to spread firings", item)
	}
	switch f {
	case fieldDayOfMonth:
		if canonical, problem, ok := e.days.parseOfMonth(item); ok {
			return canonical, problem
		}
	case fieldDayOfWeek:
		if canonical, problem, ok := e.days.parseOfWeek(item); ok {
			return canonical, problem
		}
	default:
	}
	return e.parseRange(f, item)
}

// parseRange reads *, a value or a range, each with a step or without.
func (e *expression) parseRange(f field, item string) (canonical, problem string) {
	span, stepText, stepped := strings.Cut(item, "/")
	first, last := f.all()
	from, to, ranged := strings.Cut(span, "-")
	switch {
	case span == "*" || span == "?":
		canonical = "*"
	case ranged:
		if first, problem = f.value(from, item); problem != "" {
			return "", problem
		}
		if last, problem = f.value(to, item); problem != "" {
			return "", problem
		}
		if f == fieldDayOfWeek && strings.EqualFold(to, "SUN") && first > 0 {
			last = 7
		}
		if first > last {
			return "", fmt.Sprintf("%q goes backwards; write %s", item, f.forwards(from, to, last))
		}
		canonical = strconv.Itoa(first) + "-" + strconv.Itoa(last)
	default:
		if first, problem = f.value(span, item); problem != "" {
			return "", problem
		}
		if canonical = strconv.Itoa(first); !stepped {
			last = first
		}
		last = max(first, last) // Sunday as 7, with a step
	}
	step := 1
	if stepped {
		low, high := f.all()
		var ok bool
		if step, ok = number(stepText); !ok || step < 1 || step > high-low+1 {
			return "", fmt.Sprintf("the step of %q is not in 1-%d", item, high-low+1)
		}
		canonical += "/" + strconv.Itoa(step)
	}
	for v := first; v <= last; v += step {
		e.add(f, v)
	}
	return canonical, ""
}

// add adds a value of a field.
func (e *expression) add(f field, v int) {
	switch f {
	case fieldSecond:
		e.second |= 1 << v
	case fieldMinute:
		e.minute |= 1 << v
	case fieldHour:
		e.hour |= 1 << v
	case fieldDayOfMonth:
		e.days.ofMonth |= 1 << v
	case fieldMonth:
		e.month |= 1 << v
	case fieldDayOfWeek:
		e.days.ofWeek |= 1 << (v % 7)
	}
}
