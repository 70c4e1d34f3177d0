package sqlitekv

import (
	"errors"
	"sync"
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
// for it. It never blocks readers or the writer (PASSIVE), and a failure of it loses nothing: the log stays.
//
// SQLite syncs the file only when a checkpoint has moved the last frame of the log. When that sync fails, a page
// cache may have dropped what earlier checkpoints had moved, which SQLite goes on to count as moved: it would start
// the log over although the disk has not got all of it. So after a failure nothing is moved any more, and the log
// stays as it is, until the writer has closed every connection and opened the file anew: then SQLite reads the log
// from its beginning and moves all of it again (see writer.rereadLog).
type checkpointer struct {
	// turn is held during every checkpoint, whoever makes it, and guards conn.
	turn sync.Mutex
	// conn is nil while recovery could not open another one.
	conn *conn
	// lost is set by a failure after which what is in the file may not be on the disk.
	lost atomic.Bool
	// report hears of failures that are no matter of waiting.
	report func(error)
	nudge  chan struct{}
	stop   chan struct{}
	ended  chan struct{}
	// pages is the length of the log, moved how much of it is in the file.
	pages, moved atomic.Int64
}

func startCheckpointer(c *conn, report func(error)) *checkpointer {
	p := &checkpointer{
		conn:   c,
		report: report,
		nudge:  make(chan struct{}, 1),
		stop:   make(chan struct{}),
		ended:  make(chan struct{}),
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
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.conn == nil || p.lost.Load() {
		return
	}
	if moved, err := p.run(p.conn, sqlite3.CHECKPOINT_PASSIVE); err == nil {
		p.moved.Store(int64(moved))
	}
}

// run makes one checkpoint through c and returns how many frames of the log are in the file. The caller holds turn,
// and nothing is lost. Only a failed sync of the file loses something: after a failed write, what was written before
// is still there for a later sync, and the log is synced before anything is moved.
func (p *checkpointer) run(c *conn, mode sqlite3.CheckpointMode) (moved int, err error) {
	before := c.logSyncs.Load()
	_, moved, err = c.db.WALCheckpoint("main", mode)
	if err != nil && !isBusy(err) {
		if errors.Is(err, sqlite3.IOERR_FSYNC) && c.logSyncs.Load() == before {
			p.lost.Store(true)
		}
		p.report(failure("checkpoint", err))
	}
	return moved, err
}

// close stops the checkpointer and releases its connection.
func (p *checkpointer) close() error {
	close(p.stop)
	<-p.ended
	if p.conn == nil {
		return nil
	}
	return p.conn.abandon()
}
