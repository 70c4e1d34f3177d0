package cli

import (
	"strconv"
	"strings"

	"abide/protocol"
)

// Promise is one promise.
func (s Screen) Promise(p protocol.Promise) string {
	f := fields{screen: s}
	f.add("id", Printable(p.ID))
	f.add("state", s.paint(stateColour(string(p.State)), string(p.State)))
	f.add("created", s.Instant(p.CreatedAt))
	f.add("timeout", s.Instant(p.TimeoutAt))
	if p.State != protocol.Pending {
		f.add("settled", s.Instant(p.SettledAt))
	}
	f.add("param", Text(p.Param))
	f.add("value", Text(p.Value))
	f.add("tags", tagLines(p.Tags))
	return f.String()
}

func tagLines(tags protocol.Tags) string {
	lines := make([]string, len(tags))
	for i, t := range tags {
		lines[i] = Printable(t.Name) + " = " + Printable(t.Value)
	}
	return strings.Join(lines, "\n")
}

// Promises are promises as a table.
func (s Screen) Promises(all []protocol.Promise) string {
	rows := make([][]cell, len(all))
	for i, p := range all {
		target, _ := p.Tags.Get(protocol.TagTarget)
		rows[i] = []cell{{p.ID, plain}, {string(p.State), stateColour(string(p.State))}, {function(p.Param), plain}, {target, plain}, {s.short(p.CreatedAt), dim}, {s.until(p), plain}}
	}
	return s.table([]string{"ID", "STATE", "FUNC", "TARGET", "CREATED", "ENDS"}, rows)
}

// until says when a promise ended, or will.
func (s Screen) until(p protocol.Promise) string {
	at := p.TimeoutAt
	if p.State != protocol.Pending {
		at = p.SettledAt
	}
	if at > lastShownMs {
		return "never"
	}
	return s.distance(at)
}

// Task is one task.
func (s Screen) Task(t protocol.Task) string {
	f := fields{screen: s}
	f.add("id", Printable(t.ID))
	f.add("state", s.paint(stateColour(string(t.State)), string(t.State)))
	f.add("version", strconv.FormatInt(t.Version, 10))
	f.add("resumes", strconv.FormatInt(t.Resumes, 10))
	if t.State == protocol.TaskAcquired {
		f.add("held by", Printable(t.PID))
		f.add("lease", Span(t.TTL)+" at a time")
	}
	return f.String()
}

// Tasks are tasks as a table.
func (s Screen) Tasks(all []protocol.Task) string {
	rows := make([][]cell, len(all))
	for i, t := range all {
		rows[i] = []cell{{t.ID, plain}, {string(t.State), stateColour(string(t.State))}, {strconv.FormatInt(t.Version, 10), plain}, {strconv.FormatInt(t.Resumes, 10), plain}, {t.PID, plain}}
	}
	return s.table([]string{"ID", "STATE", "VERSION", "RESUMES", "HELD BY"}, rows)
}

// Claim is the answer of a claim: a task, its promise, and how much the worker was given with them.
func (s Screen) Claim(b protocol.ClaimBody) string {
	text := s.Task(b.Task) + "\n" + s.Promise(b.Promise)
	if n := len(b.Preload); n > 0 {
		text += "\n" + s.paint(bold, "preload") + " (" + count(n, "promise") + ")\n" + s.Promises(b.Preload)
	}
	return text
}

// Schedule is one schedule.
func (s Screen) Schedule(c protocol.Schedule) string {
	f := fields{screen: s}
	f.add("id", Printable(c.ID))
	f.add("cron", Printable(c.Cron)+"  (UTC)")
	f.add("next run", s.Instant(c.NextRunAt))
	if c.HasRun {
		f.add("last run", s.Instant(c.LastRunAt))
	}
	f.add("created", s.Instant(c.CreatedAt))
	f.add("promise", Printable(c.PromiseID))
	f.add("timeout", span(c.PromiseTimeout))
	f.add("param", Text(c.PromiseParam))
	f.add("tags", tagLines(c.PromiseTags))
	return f.String()
}

// span is Span, with a name for the lengths that SDKs mean as endless.
func span(ms int64) string {
	if ms > lastShownMs {
		return "never"
	}
	return Span(ms)
}

// Schedules are schedules as a table.
func (s Screen) Schedules(all []protocol.Schedule) string {
	rows := make([][]cell, len(all))
	for i, c := range all {
		last := ""
		if c.HasRun {
			last = s.distance(c.LastRunAt)
		}
		rows[i] = []cell{{c.ID, plain}, {c.Cron, plain}, {s.short(c.NextRunAt), plain}, {s.distance(c.NextRunAt), dim}, {last, dim}, {c.PromiseID, plain}}
	}
	return s.table([]string{"ID", "CRON (UTC)", "NEXT RUN", "", "LAST RUN", "PROMISE"}, rows)
}

// More says under a page of a search that there is another one.
func More(rows int, cursor string) string {
	switch {
	case cursor != "" && rows == 0:
		return "Nothing on this page, but the search is not at its end: go on with --cursor " + shellQuote(cursor) + "\n"
	case cursor != "":
		return "There is more: go on with --cursor " + shellQuote(cursor) + "\n"
	case rows == 0:
		return "Nothing found.\n"
	}
	return ""
}

// shellQuote is a word of a shell's command line.
func shellQuote(word string) string {
	word = Printable(word)
	if word != "" && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=.,:/+@%") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
