package conform

import (
	"fmt"
	"slices"
)

// searched is how many promises a search has to find.
const searched = 5

func checkSearches(p *probe) {
	tags := object{"verify": p.config.Prefix}
	var want []string
	for n := range searched {
		id := p.id(fmt.Sprintf("find-%d", n))
		want = append(want, id)
		p.ask("promise.create", object{"id": id, "timeoutAt": p.later(), "tags": tags})
	}
	p.ask("promise.settle", object{"id": want[0], "state": "resolved"})
	p.expect("by tag", "promise.search", object{"tags": tags}, 200, finds(want), lacks("cursor"))
	p.expect("by tag and state", "promise.search", object{"tags": tags, "state": "pending"}, 200, finds(want[1:]))
	p.expect("by another state", "promise.search", object{"tags": tags, "state": "rejected"}, 200, is("promises", []any{}))
	p.expect("by a tag that none has", "promise.search", object{"tags": object{"verify": p.config.Prefix + "-none"}}, 200, is("promises", []any{}), lacks("cursor"))
	p.walk(tags, want)
	p.expect("a limit of 0", "promise.search", object{"limit": 0}, 400)
	p.expect("a limit beyond 1000", "promise.search", object{"limit": 1001}, 400)
	p.expect("a state that there is not", "promise.search", object{"state": "done"}, 400)
	p.queued("find-task")
	p.expect("tasks", "task.search", object{"limit": 1}, 200, that("at most one task", func(a answer) bool {
		list, is := a.at("tasks").([]any)
		return is && len(list) <= 1
	}))
	p.expect("tasks of a state", "task.search", object{"state": "pending", "limit": 1000}, 200, that("only pending ones", func(a answer) bool {
		list, _ := a.at("tasks").([]any)
		return len(list) > 0 && !slices.ContainsFunc(list, func(t any) bool { return member(t, "state") != "pending" })
	}))
	p.expect("tasks in a state that there is not", "task.search", object{"state": "resolved"}, 400)
}

// finds wants a search to have found those promises in that order.
func finds(want []string) fact {
	return that(fmt.Sprintf("the %d promises in the order of their ids", len(want)), func(a answer) bool {
		return slices.Equal(found(a), want)
	})
}

func found(a answer) []string {
	list, _ := a.at("promises").([]any)
	var out []string
	for _, promise := range list {
		id, _ := member(promise, "id").(string)
		out = append(out, id)
	}
	return out
}

// walk pages through a search.
func (p *probe) walk(tags object, want []string) {
	var got []string
	cursor := ""
	for pages := 0; pages < 100; pages++ {
		request := object{"tags": tags, "limit": 2}
		if cursor != "" {
			request["cursor"] = cursor
		}
		a := p.ask("promise.search", request)
		page := found(a)
		got = append(got, page...)
		if len(page) > 2 {
			break
		}
		if cursor, _ = a.at("cursor").(string); cursor == "" {
			break
		}
	}
	p.row("page by page", fmt.Sprintf("the %d promises, once each, in pages of at most 2", len(want)), slices.Equal(got, want), fmt.Sprint(got))
}
