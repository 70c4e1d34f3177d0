package metrics

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"abide/internal/deliver"
	"abide/internal/engine"
	"abide/internal/keyspace"
	"abide/internal/push"
	"abide/internal/store"
	"abide/internal/trace"
	"abide/kv/batch"
)

// metric is one metric that is read at a scrape.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

// collector reads the sources at a scrape.
type collector struct {
	sources Sources
	log     *slog.Logger
	groups  *groups
}

// Describe sends every metric that a scrape may hold.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range all {
		to <- m.desc
	}
}

// Collect reads the sources.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := sink{to}
	s.send(buildInfo, 1, c.sources.Version)
	s.send(requestsInFlight, float64(c.sources.InFlight()))
	c.collectStore(s, c.sources.Store())
	c.collectEngine(s, c.sources.Engine())
	c.collectDelivery(s, c.sources.Delivery())
	c.collectPush(s, c.sources.Push())
	if c.sources.Traces != nil {
		c.collectTraces(s, c.sources.Traces())
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout/2)
	defer cancel()
	s.send(ready, truth(c.sources.Ready(ctx) == nil))
	c.collectQueues(ctx, s)
	c.collectWorkspaces(ctx, s)
	c.collectCensus(ctx, s)
}

// sink takes values.
type sink struct{ to chan<- prometheus.Metric }

func (s sink) send(m metric, value float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

// histogram sends counts of classes by their upper bounds; the last class has none.
func (s sink) histogram(m metric, sum float64, bounds []float64, classes []uint64) {
	cumulative := make(map[float64]uint64, len(bounds))
	var count uint64
	for i, n := range classes {
		count += n
		if i < len(bounds) {
			cumulative[bounds[i]] = count
		}
	}
	s.to <- prometheus.MustNewConstHistogram(m.desc, count, sum, cumulative)
}

func (c *collector) collectStore(s sink, st Store) {
	durable := "false"
	if st.Durable {
		durable = "true"
	}
	b := st.Batch
	s.send(storeInfo, 1, st.Engine, durable)
	s.send(commits, float64(b.Commits))
	var seconds []float64
	for _, bound := range batch.CommitBounds() {
		seconds = append(seconds, bound.Seconds())
	}
	s.histogram(commitDuration, b.CommitTime.Seconds(), seconds, b.CommitTimes[:])
	var sizes []float64
	for i := range batch.BatchSizes {
		sizes = append(sizes, float64(uint64(1)<<i))
	}
	s.histogram(batchTransactions, float64(b.Closures), sizes, b.Batches[:])
	s.send(transactions, float64(b.Closures))
	s.send(transactionsFailed, float64(b.Conflicts), "conflict")
	s.send(transactionsFailed, float64(b.Unavailable), "unavailable")
	s.send(transactionsFailed, float64(b.Unknown), "unknown")
	s.send(transactionsFailed, float64(b.Corrupt), "corrupt")
	s.send(transactionsFailed, float64(b.Refused), "overloaded")
	s.send(writeQueue, float64(b.Queued))
	if st.FileBytes >= 0 {
		s.send(databaseBytes, float64(st.FileBytes))
	}
	if st.LogBytes >= 0 {
		s.send(logBytes, float64(st.LogBytes))
	}
	if st.DiskFreeBytes >= 0 {
		s.send(diskFree, float64(st.DiskFreeBytes))
	}
	s.send(storeWritable, truth(st.Writable))
	if r := st.Remote; r != nil {
		s.send(roundTrips, float64(r.WriteTrips), "write")
		s.send(roundTrips, float64(r.ReadTrips), "read")
		s.send(reruns, float64(b.Reruns))
		for cause, n := range r.Failures {
			s.send(storeFailures, float64(n), cause)
		}
		s.send(lockWaits, float64(r.LockWaits))
		s.send(lockWait, r.LockWait.Seconds())
		s.send(connects, float64(r.Connects))
		s.send(resolved, float64(r.Resolved))
		s.send(pool, float64(r.Reading))
		s.send(poolMax, float64(r.Readers))
		s.send(poolWaits, float64(r.ReaderWaits))
		s.send(storeHints, float64(r.Hints))
		s.send(listening, truth(r.Listening))
	}
}

func (c *collector) collectTraces(s sink, t trace.Stats) {
	s.send(spans, float64(t.Exported), "exported")
	s.send(spans, float64(t.Failed), "failed")
	s.send(spans, float64(t.Dropped), "dropped")
	s.send(spansQueued, float64(t.Queued))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// timerNames are the kinds of timers as labels.
var timerNames = map[keyspace.TimerKind]string{
	keyspace.TimerDrain: "drain", keyspace.TimerPromise: "promise", keyspace.TimerRetry: "retry",
	keyspace.TimerLease: "lease", keyspace.TimerSchedule: "schedule",
}

func (c *collector) collectEngine(s sink, n engine.Counts) {
	s.send(schedulePromises, float64(n.StepsOf[keyspace.TimerSchedule]))
	for kind, name := range timerNames {
		s.send(steps, float64(n.StepsOf[kind]), name)
	}
	s.send(passFailures, float64(n.Failures))
	s.send(setAside, float64(n.Quarantined))
	s.send(swept, float64(n.Swept))
	s.send(unblocksExpired, float64(n.ExpiredUnblocks))
	s.send(compacted, float64(n.Compacted))
}

// messageNames are the kinds of messages as labels, in the order of deliver.Stats.
var messageNames = [...]string{"execute", "unblock"}

func (c *collector) collectDelivery(s sink, d deliver.Stats) {
	for i, name := range messageNames {
		m := d.Messages[i]
		s.send(messagesSent, float64(m.Sent), name)
		s.send(messageOutcomes, float64(m.Delivered), name, "delivered")
		s.send(messageOutcomes, float64(m.Resent), name, "resent")
		s.send(messageOutcomes, float64(m.GivenUp), name, "given_up")
		if name == "execute" {
			s.send(messageOutcomes, float64(m.Claimed), name, "claimed")
			s.send(messageOutcomes, float64(m.Late), name, "claimed_late")
			s.send(messageOutcomes, float64(m.Expired), name, "expired")
			s.send(messagesHeld, float64(m.Held))
		}
		s.send(messagesInFlight, float64(m.InFlight), name)
	}
	for name, n := range c.groups.workers(d.Groups) {
		s.send(workers, float64(n), name.workspace, name.group)
	}
	s.send(connections, float64(d.Connections))
	s.send(connectionsMax, float64(c.sources.MaxConnections))
	s.send(connectionsRefused, float64(d.Refused))
	s.send(connectionsReplaced, float64(d.Replaced))
	s.send(hintsDropped, float64(d.HintsDropped))
	for class := range deliver.Classes {
		s.send(outboxFailures, float64(d.Errors[class]), class.String())
	}
}

func (c *collector) collectPush(s sink, p push.Stats) {
	var accepted, failed, dropped uint64
	for _, t := range p.Transports {
		accepted, failed, dropped = accepted+t.Accepted, failed+t.Failed+t.Refused, dropped+t.Dropped
		s.send(pushOutcomes, float64(t.Accepted), t.Name, "accepted")
		s.send(pushOutcomes, float64(t.Failed), t.Name, "failed")
		s.send(pushOutcomes, float64(t.Refused), t.Name, "refused")
		s.send(pushOutcomes, float64(t.Dropped), t.Name, "dropped")
		s.send(pushMessages, float64(t.Sending), t.Name, "sending")
		s.send(pushMessages, float64(t.Ready), t.Name, "ready")
		s.send(pushMessages, float64(t.Resting), t.Name, "resting")
		s.send(pushOldest, float64(t.OldestMs)/1000, t.Name)
		s.send(pushDestinations, float64(t.Lanes-t.Failing), t.Name, "good")
		s.send(pushDestinations, float64(t.Failing), t.Name, "failing")
	}
	s.send(deliveries, float64(accepted), "success")
	s.send(deliveries, float64(failed), "error")
	s.send(deliveries, float64(dropped), "dropped")
	s.send(pushOutstanding, float64(p.Outstanding))
	s.send(pushOutstandingMax, float64(c.sources.MaxPushes))
	for i, name := range messageNames {
		s.send(pushUnserved, float64(p.Unserved[i]), name)
	}
	s.send(pushHintsDropped, float64(p.HintsDropped))
	s.send(pushTakenOver, float64(p.TakenOver))
	s.send(pushGivenUp, float64(p.GivenUp))
	for class := range push.Classes {
		s.send(pushFailures, float64(p.Errors[class]), class.String())
	}
}

func (c *collector) collectQueues(ctx context.Context, s sink) {
	q, err := c.sources.Queues(ctx)
	if err != nil {
		c.log.Warn("metrics: the store's queues cannot be looked at", "error", err)
		return
	}
	for kind, name := range timerNames {
		s.send(timerOverdue, float64(q.OverdueMs[kind])/1000, name)
	}
	for i, queue := range []store.Queue{q.Executes, q.Unblocks} {
		s.send(undelivered, float64(queue.Messages), messageNames[i])
		s.send(undeliveredAge, float64(queue.OldestMs)/1000, messageNames[i])
	}
	s.send(journalLag, float64(q.JournalLagMs)/1000)
	s.send(quarantined, float64(q.Quarantined))
}

func (c *collector) collectWorkspaces(ctx context.Context, s sink) {
	n, limit, err := c.sources.Workspaces(ctx)
	if err != nil {
		c.log.Warn("metrics: the store's workspaces cannot be counted", "error", err)
		return
	}
	s.send(workspaces, float64(n))
	s.send(workspacesMax, float64(limit))
}

func (c *collector) collectCensus(ctx context.Context, s sink) {
	census, err := c.sources.Census(ctx)
	if err != nil {
		c.log.Warn("metrics: the servers of the store cannot be read", "error", err)
		return
	}
	var live, silent int
	for _, of := range census.Servers {
		if of.Live {
			live++
		} else {
			silent++
		}
		if of.ID == census.Server {
			s.send(clockOffset, float64(of.OffsetMs)/1000)
		}
	}
	s.send(servers, float64(live), "live")
	s.send(servers, float64(silent), "silent")
	for _, duty := range census.Duties {
		s.send(duties, truth(duty.Server == census.Server), duty.Name)
	}
}
