package mysqlkv

import (
	"errors"
	"sync"

	"abide/kv"
)

// health knows whether the store can write. What fails for another reason than a conflict makes it unhealthy; a commit
// or a probe that succeeds makes it healthy again.
type health struct {
	mu      sync.Mutex
	failure error
}

// note takes the outcome of a batch.
func (h *health) note(err error) {
	if errors.Is(err, kv.ErrConflict) {
		return
	}
	h.settle(err)
}

// settle takes what is known now.
func (h *health) settle(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = err
}

func (h *health) get() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}
