package batch

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"abide/kv"
)

// naive is the queue as simply as it can be said: per urgency a list of lanes in the order of their turns,
// each with its jobs.
type naive struct{ requests, background []naiveLane }

type naiveLane struct {
	name string
	jobs []*job
}

func (n *naive) list(background bool) *[]naiveLane {
	if background {
		return &n.background
	}
	return &n.requests
}

func (n *naive) push(j *job, h kv.Hints) {
	list := n.list(h.Background)
	for i := range *list {
		if (*list)[i].name == h.Lane {
			(*list)[i].jobs = append((*list)[i].jobs, j)
			return
		}
	}
	*list = append(*list, naiveLane{h.Lane, []*job{j}})
}

func (n *naive) pop(requests, background int) *job {
	list := &n.requests
	if len(n.requests) == 0 || len(n.background) > 0 && background < requests {
		list = &n.background
	}
	if len(*list) == 0 {
		return nil
	}
	l := (*list)[0]
	*list = (*list)[1:]
	if len(l.jobs) > 1 {
		*list = append(*list, naiveLane{l.name, l.jobs[1:]})
	}
	return l.jobs[0]
}

func (n *naive) slice() int {
	if len(n.requests) < 2 {
		return 0
	}
	fewest := slices.MinFunc(n.requests, func(a, b naiveLane) int { return len(a.jobs) - len(b.jobs) })
	return len(n.requests) * len(fewest.jobs)
}

func (n *naive) remove(j *job) {
	for _, list := range []*[]naiveLane{&n.requests, &n.background} {
		for i := range *list {
			if k := slices.Index((*list)[i].jobs, j); k >= 0 {
				(*list)[i].jobs = slices.Delete(slices.Clone((*list)[i].jobs), k, k+1)
				if len((*list)[i].jobs) == 0 {
					*list = slices.Delete(slices.Clone(*list), i, i+1)
				}
				return
			}
		}
	}
}

func TestQueueAgreesWithTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 12
		q, n := newQueue(limit), &naive{}
		var waiting []*job
		requests, background := 0, 0
		for range rapid.IntRange(1, 80).Draw(t, "operations") {
			switch rapid.SampledFrom([]string{"push", "push", "push", "pop", "pop", "remove", "next batch"}).Draw(t, "operation") {
			case "push":
				h := kv.Hints{
					Lane:       fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "lane")),
					Background: rapid.Bool().Draw(t, "background"),
				}
				j := &job{}
				err := q.push(j, h)
				if full := len(waiting) == limit; full != (err == kv.ErrOverloaded) {
					t.Fatalf("%d waiting: %v", len(waiting), err)
				}
				if err == nil {
					n.push(j, h)
					waiting = append(waiting, j)
				}
			case "pop":
				want := n.pop(requests, background)
				got, isBackground := q.pop(requests, background)
				if got != want {
					t.Fatalf("popped another job than the naive queue")
				}
				if got == nil {
					break
				}
				if isBackground {
					background++
				} else {
					requests++
				}
				waiting = slices.DeleteFunc(waiting, func(j *job) bool { return j == got })
				if q.remove(got) {
					t.Fatal("a job that was popped could be removed")
				}
			case "remove":
				if len(waiting) == 0 {
					break
				}
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "which")
				if !q.remove(waiting[i]) {
					t.Fatal("a waiting job could not be removed")
				}
				n.remove(waiting[i])
				waiting = slices.Delete(waiting, i, i+1)
			case "next batch":
				requests, background = 0, 0
			}
			if got, want := q.slice(), n.slice(); got != want {
				t.Fatalf("a slice of %d, the naive queue has %d", got, want)
			}
			if q.length != len(waiting) {
				t.Fatalf("the queue counts %d jobs, %d are waiting", q.length, len(waiting))
			}
		}
	})
}
