package deliver

import (
	"errors"
	"testing"
)

// TestRoomForConnections: each limit lets its number in and not one more, a newer connection of a worker that is there
// needs no room, and a closed one makes room.
func TestRoomForConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		limits           Limits
		workspace, group string // of the one too many
		elsewhere        [2]string
		want             error
	}{
		"of a group":     {Limits{MaxConnections: 9, MaxWorkspaceConnections: 8, MaxGroupConnections: 2}, "w", "g", [2]string{"w", "h"}, ErrGroupFull},
		"of a workspace": {Limits{MaxConnections: 9, MaxWorkspaceConnections: 2}, "w", "h", [2]string{"v", "g"}, ErrWorkspaceFull},
		"of the default": {Limits{MaxConnections: 9, MaxWorkspaceConnections: 2}, "default", "h", [2]string{"v", "g"}, ErrWorkspaceFull},
		"of the server":  {Limits{MaxConnections: 2}, "v", "h", [2]string{}, ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.limits)
			home := tc.workspace
			if tc.want == ErrFull {
				home = "w"
			}
			r.connect(home, "g", "a")
			if _, err := r.core.ConnectToGroup(r.nowMs, home, "g", "b"); err != nil {
				t.Fatal(err)
			}
			if _, err := r.core.Connect(r.nowMs, tc.workspace, tc.group, "c"); !errors.Is(err, tc.want) {
				t.Errorf("one too many: %v, want %v", err, tc.want)
			}
			if n := r.core.Stats().Refused; n != 1 {
				t.Errorf("%d refused", n)
			}
			first, err := r.core.Connect(r.nowMs, home, "g", "a")
			if err != nil {
				t.Errorf("the same worker again: %v", err)
			}
			if tc.elsewhere[0] != "" {
				if _, err := r.core.Connect(r.nowMs, tc.elsewhere[0], tc.elsewhere[1], "d"); err != nil {
					t.Errorf("elsewhere: %v", err)
				}
			}
			r.core.Disconnect(r.nowMs, first)
			if _, err := r.core.Connect(r.nowMs, tc.workspace, tc.group, "c"); err != nil {
				t.Errorf("after one has gone: %v", err)
			}
		})
	}
}

// TestCountsOfConnectionsEnd: a workspace without connections is not remembered.
func TestCountsOfConnectionsEnd(t *testing.T) {
	r := newRig(t, Limits{})
	a := r.connect("w", "g", "a")
	b := r.connect("w", "g", "a")
	r.core.Disconnect(r.nowMs, a)
	r.core.Disconnect(r.nowMs, b)
	if len(r.core.perWorkspace) != 0 {
		t.Errorf("left behind: %v", r.core.perWorkspace)
	}
}
