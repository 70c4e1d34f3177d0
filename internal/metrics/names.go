package metrics

// Every metric that is read at a scrape.
var (
	buildInfo        = gauge("abide_build_info", "1; the label is the version of the binary.", "version")
	ready            = gauge("abide_ready", "Whether requests can be served now, which is what /ready answers; 0 or 1.")
	requestsInFlight = gauge("abide_requests_in_flight", "Requests that are in the engine now.")

	storeInfo          = gauge("abide_store_info", "1; the labels are the storage engine and whether it keeps acknowledged writes in a crash.", "engine", "durable")
	commits            = counter("abide_commits_total", "Physical transactions that committed: each is one sync.")
	commitDuration     = gauge("abide_commit_duration_seconds", "Time that the storage engine took to apply and commit a batch.")
	batchTransactions  = gauge("abide_batch_transactions", "Transactions that shared a physical transaction.")
	transactions       = counter("abide_transactions_total", "Read-write transactions answered, whatever the answer.")
	transactionsFailed = counter("abide_transactions_failed_total", "Read-write transactions that the store did not commit, by cause. Most are tried again.", "cause")
	writeQueue         = gauge("abide_write_queue_length", "Transactions that wait for the writer now.")
	databaseBytes      = gauge("abide_database_bytes", "Size of the SQLite database file.")
	diskFree           = gauge("abide_disk_free_bytes", "Free space where the SQLite database file lies.")
	storeWritable      = gauge("abide_store_writable", "Whether the store takes writes now; 0 or 1.")
	logBytes           = gauge("abide_database_log_bytes", "Size of the SQLite write-ahead log.")

	roundTrips    = counter("abide_store_round_trips_total", "Round trips to the database, of physical transactions and of snapshots.", "of")
	reruns        = counter("abide_store_reruns_total", "Times that a transaction ran again because a read of it had yet to be fetched.")
	storeFailures = counter("abide_store_failures_total", "Calls to the database that failed, by cause: a code of the database, timeout or connection. Most are tried again.", "cause")
	lockWaits     = counter("abide_store_lock_waits_total", "Times that the writer has taken the store's lock, which the servers of a store take in turn.")
	lockWait      = counter("abide_store_lock_wait_seconds_total", "Time that it took, one round trip each included.")
	connects      = counter("abide_store_connects_total", "Connections made to the database.")
	resolved      = counter("abide_store_commits_resolved_total", "Commits whose answer was lost and whose outcome was found out.")
	pool          = gauge("abide_store_pool_connections", "Connections of the pool for snapshots that are in use now.")
	poolMax       = gauge("abide_store_pool_connections_max", "Connections that the pool for snapshots may have.")
	poolWaits     = counter("abide_store_pool_waits_total", "Snapshots that waited for a connection of the pool.")
	storeHints    = counter("abide_store_hints_total", "Notifications of other servers' commits.")
	listening     = gauge("abide_store_listening", "Whether notifications of other servers' commits arrive now; 0 or 1.")

	schedulePromises = counter("resonate_schedule_promises_total", "Firings of schedules, also when the promise was there already.")
	steps            = counter("abide_internal_steps_total", "Internal steps done, by the kind of their timer.", "kind")
	passFailures     = counter("abide_background_failures_total", "Background work that failed and is tried again.")
	setAside         = counter("abide_rows_quarantined_total", "Rows set aside since the start because they do not decode or break an invariant.")
	swept            = counter("abide_promises_swept_total", "Promises past their deadline that the sweep has settled.")
	unblocksExpired  = counter("abide_unblocks_expired_total", "Unblock messages given up because nobody took them in time.")
	compacted        = counter("abide_journal_entries_compacted_total", "Journal entries removed by retention.")

	messagesSent     = counter("resonate_messages_total", "Messages sent, by kind; one that is sent again counts again.", "kind")
	messageOutcomes  = counter("abide_messages_total", "What became of messages that were sent, by kind.", "kind", "outcome")
	messagesHeld     = gauge("abide_messages_unclaimed", "Executes that were delivered and are not claimed now.")
	messagesInFlight = gauge("abide_messages_in_flight", "Messages that were sent and are not yet known to have arrived, by kind.", "kind")

	workers             = gauge("abide_workers", "Connected workers by group. The first 100 groups since the start have a series of their own, the rest is other.", "workspace", "group")
	connections         = gauge("abide_connections", "Streams to workers that are open now.")
	connectionsMax      = gauge("abide_connections_max", "Streams that may be open at once.")
	connectionsRefused  = counter("abide_connections_refused_total", "Streams refused because too many were open.")
	connectionsReplaced = counter("abide_connections_replaced_total", "Streams ended because their worker had opened a newer one.")
	hintsDropped        = counter("abide_hints_dropped_total", "Hints of new messages dropped because too many were waiting; the messages are found by looking.")
	outboxFailures      = counter("abide_delivery_failures_total", "Calls of delivery to the store that failed, by call.", "call")

	deliveries         = counter("resonate_deliveries_total", "Sends to addresses that are no poll address, by how they ended.", "status")
	pushOutcomes       = counter("abide_push_sends_total", "The same by transport, with refusals by rules or for want of a credential apart.", "transport", "outcome")
	pushMessages       = gauge("abide_push_messages", "Messages in memory by transport: being sent, in line, or in a pause after a failure. The rest is in the store.", "transport", "state")
	pushOldest         = gauge("abide_push_oldest_seconds", "How long the oldest of them is known.", "transport")
	pushDestinations   = gauge("abide_push_destinations", "Destinations with messages in memory, and those of them that pause because their last sends have all failed.", "transport", "state")
	pushOutstanding    = gauge("abide_push_outstanding", "Messages that are on their way now.")
	pushOutstandingMax = gauge("abide_push_outstanding_max", "Messages that may be on their way at once, which is transports.http_push.max_outstanding; more wait in the store.")
	pushUnserved       = gauge("abide_push_unserved_queues", "Addresses with messages that this server sends nothing to, as the last walk over all has met them.", "kind")
	pushHintsDropped   = counter("abide_push_hints_dropped_total", "Hints of new messages for which there was no room; the messages are found by looking.")
	pushTakenOver      = counter("abide_push_taken_over_total", "Destinations of other servers that this one has served for a while, because their messages lay there.")
	pushGivenUp        = counter("abide_push_given_up_total", "Messages that were accepted and could not be taken out of the outbox: they are sent again.")
	pushFailures       = counter("abide_push_failures_total", "Calls of push to the store that failed, by call.", "call")

	timerOverdue   = gauge("abide_timer_overdue_seconds", "How long the oldest due timer is due, by kind; 0 if none is.", "kind")
	undelivered    = gauge("abide_undelivered_messages", "Messages that wait in the store for a worker, by kind. Long queues are counted in several scrapes.", "kind")
	undeliveredAge = gauge("abide_undelivered_oldest_seconds", "Age of the oldest message that waits in the store, by kind: of an execute, how long a task has had no worker.", "kind")
	journalLag     = gauge("abide_journal_lag_seconds", "How much older than its retention age the oldest entry of a journal is; 0 if retention is up to date.")
	workspaces     = gauge("abide_workspaces", "Workspaces that the store has.")
	workspacesMax  = gauge("abide_workspaces_max", "Workspaces that it may have, which is limits.workspaces; a request that would make one more is refused.")
	quarantined    = gauge("abide_quarantined_rows", "Rows that are set aside now, at most 1000.")

	spans       = counter("abide_trace_spans_total", "Spans that ended, by outcome: exported to the collector, failed to be, or dropped because too many were waiting.", "outcome")
	spansQueued = gauge("abide_trace_spans_queued", "Spans that wait to be sent now.")

	servers     = gauge("abide_servers", "Servers with a row in the store: live ones, and those whose lease has ended.", "state")
	duties      = gauge("abide_server_duty", "1 for what this server does for all servers of the store, else 0.", "duty")
	clockOffset = gauge("abide_clock_offset_seconds", "How far this server's clock is ahead of the median of the live servers; negative if it is behind.")
)

// all lists them.
var all = []metric{
	buildInfo, ready, requestsInFlight, storeInfo, storeWritable, commits, commitDuration, batchTransactions, transactions, transactionsFailed,
	writeQueue, databaseBytes, logBytes, diskFree, roundTrips, reruns, storeFailures, lockWaits, lockWait, connects, resolved, pool,
	poolMax, poolWaits, storeHints, listening,
	schedulePromises, steps, passFailures, setAside, swept, unblocksExpired, compacted, messagesSent, messageOutcomes, messagesHeld,
	messagesInFlight, workers, connections, connectionsMax, connectionsRefused, connectionsReplaced, hintsDropped, outboxFailures, timerOverdue,
	deliveries, pushOutcomes, pushMessages, pushOldest, pushDestinations, pushOutstanding, pushOutstandingMax, pushUnserved, pushHintsDropped, pushTakenOver, pushGivenUp, pushFailures,
	undelivered, undeliveredAge, journalLag, workspaces, workspacesMax, quarantined, spans, spansQueued, servers, duties, clockOffset,
}
