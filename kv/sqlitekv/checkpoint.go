package sqlitekv

import (
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
)

const (
	// maxWALBytes is the length of the write-ahead log at which the writer starts it over. A longer log
	// makes opening after a crash slower; a shorter one moves the same hot pages more often.
	maxWALBytes = 64 << 20
	maxWALPages = maxWALBytes / pageBytes
	// walStop times that length is where the writer waits for the readers that keep the log from starting over:
	// 192 MiB. None of them lives longer than kv.MaxTxSeconds.
	walStop = 3
	// restartWait is how long the writer waits for readers at the bound itself.
	restartWait = 10 * time.Millisecond
	// checkpointPages is how much the log grows before the checkpointer moves it into the file.
	checkpointPages = 4096
	// restartLagPages is how much of the log may be left to move when the writer starts it over, because the
	// writer then moves it while everybody waits.
	restartLagPages = 256
	// checkpointInterval is how long a short log waits for the checkpointer.
	checkpointInterval = 2 * time.Second
)

// checkpointer moves the write-ahead log into the file from a connection of its own, so that no commit waits
// for it. It never blocks readers or the writer (PASSIVE), and a failure of it loses nothing: the log
// stays, and the writer's own restart reports what is wrong.
type checkpointer struct {
	conn  *conn
	nudge chan struct{}
	stop  chan struct{}
	ended chan struct{}
	// pages is the length of the log, moved how much of it is in the file.
	pages, moved atomic.Int64
}

func startCheckpointer(c *conn) *checkpointer {
	p := &checkpointer{
		conn:  c,
		nudge: make(chan struct{}, 1),
		stop:  make(chan struct{}),
		ended: make(chan struct{}),
	}
	go p.loop()
	return p
}

// wrote tells the checkpointer how long the log is after a commit.
func (p *checkpointer) wrote(pages int64) {
	p.pages.Store(pages)
	moved := p.moved.Load()
	if pages < moved { // SQLite has started the log over by itself
		p.moved.Store(0)
		moved = 0
	}
	if pages-moved >= checkpointPages {
		p.hurry()
	}
}

// hurry starts a checkpoint soon.
func (p *checkpointer) hurry() {
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}

// restarted tells the checkpointer that the log begins anew.
func (p *checkpointer) restarted() {
	p.pages.Store(0)
	p.moved.Store(0)
}

func (p *checkpointer) loop() {
	defer close(p.ended)
	tick := time.NewTicker(checkpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.nudge:
		case <-tick.C:
		}
		if pages := p.pages.Load(); pages != p.moved.Load() {
			p.checkpoint()
		}
	}
}

func (p *checkpointer) checkpoint() {
	if _, moved, err := p.conn.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE); err == nil {
		p.moved.Store(int64(moved))
	}
}

// close stops the checkpointer and releases its connection.
func (p *checkpointer) close() error {
	close(p.stop)
	<-p.ended
	return p.conn.close()
}
