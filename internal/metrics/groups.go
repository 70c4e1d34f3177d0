package metrics

import (
	"sync"

	"abide/internal/deliver"
)

// MaxGroups is how many groups of workers have a series of their own: those that connected first since the server's
// start. Groups are named by users, so there may be any number; the others are counted together.
const MaxGroups = 100

// otherGroups stands for the rest in the labels workspace and group.
const otherGroups = "other"

// groups remembers which groups have a series of their own, so that it is the same ones in every scrape.
type groups struct {
	mu    sync.Mutex
	named map[groupName]bool
}

type groupName struct{ workspace, group string }

func newGroups() *groups { return &groups{named: map[groupName]bool{}} }

// workers counts connections by group. A group that had connections and has none is counted as 0.
func (g *groups) workers(stats []deliver.GroupStats) map[groupName]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := make(map[groupName]int, len(g.named)+1)
	for name := range g.named {
		counts[name] = 0
	}
	for _, s := range stats {
		name := groupName{s.Workspace, s.Group}
		if !g.named[name] {
			if len(g.named) < MaxGroups {
				g.named[name] = true
			} else {
				name = groupName{otherGroups, otherGroups}
			}
		}
		counts[name] += s.Connections
	}
	return counts
}
