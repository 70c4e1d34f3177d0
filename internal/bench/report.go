package bench

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what a run has measured; its JSON is the output of abide bench. Members are only ever added.
// What could not be measured is null, and the reason is in Missing.
type Report struct {
	// The parameters.
	Mode      Mode   `json:"mode"`
	URL       string `json:"url"`
	OwnServer bool   `json:"ownServer"`
	Clients   int    `json:"clients"`
	ForMs     int64  `json:"forMs"`
	WarmupMs  int64  `json:"warmupMs"`
	SizeBytes int    `json:"sizeBytes"`
	Seed      uint64 `json:"seed"`
	Preload   int    `json:"preload"`

	// Where it ran.
	Version string `json:"version"` // of the runner, and of an own server
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	CPUs    int    `json:"cpus"` // shared by server and runner if the server is an own one

	// Run begins every id that the run has made, after "bench-".
	Run string `json:"run"`
	// MeasuredMs is the time that was measured in fact.
	MeasuredMs int64 `json:"measuredMs"`
	// Operations is how many ended well within it, Requests how many requests they and unfinished ones took.
	Operations          int64    `json:"operations"`
	OperationsPerSecond float64  `json:"operationsPerSecond"`
	Requests            int64    `json:"requests"`
	RequestsPerSecond   float64  `json:"requestsPerSecond"`
	Latency             *Latency `json:"latencyMs"`
	// Errors counts what did not end well: by status, or timeout, connection, stream.
	Errors map[string]int64 `json:"errors"`

	// ServerCPUUsPerRequest is the server's CPU time, in user and system, over the requests.
	ServerCPUUsPerRequest   *float64 `json:"serverCpuUsPerRequest"`
	ServerCPUUsPerOperation *float64 `json:"serverCpuUsPerOperation"`
	// ServerCPUs is how many CPUs the server kept busy.
	ServerCPUs *float64 `json:"serverCpus"`
	// RunnerCPUs is how many the runner did.
	RunnerCPUs *float64 `json:"runnerCpus"`
	// PeakMemoryBytes is the most that the server had resident, the preload included.
	PeakMemoryBytes *int64 `json:"peakMemoryBytes"`
	// PhysicalTransactions is how many the server's store has committed in the measured time, RoundTrips how many
	// it made to its database; null for an engine in the server's process. They are those of the whole server.
	PhysicalTransactions           *int64   `json:"physicalTransactions"`
	PhysicalTransactionsPerRequest *float64 `json:"physicalTransactionsPerRequest"`
	RoundTrips                     *int64   `json:"roundTrips"`
	RoundTripsPerRequest           *float64 `json:"roundTripsPerRequest"`
	// EngineCommit is what the storage engine takes to commit one row without the server, one after the other, before
	// the run and after it; LatencyPerEngineCommit is the median of Latency over its median.
	EngineCommit           *Latency `json:"engineCommitMs"`
	LatencyPerEngineCommit *float64 `json:"latencyPerEngineCommit"`
	// DatabaseBytes is the size of the data files after the server has been stopped.
	DatabaseBytes *int64 `json:"databaseBytes"`
	// Objects is how many promises the run has made, those of the preload and the warmup included.
	Objects                int64    `json:"objects"`
	DatabaseBytesPerObject *float64 `json:"databaseBytesPerObject"`
	// Preloading tells how the preload went; null if there was none.
	Preloading *Preloading `json:"preloading"`

	// Missing says why a member is null, by its name.
	Missing map[string]string `json:"missing"`
}

// Latency is a distribution of latencies in milliseconds, with a resolution of three digits.
type Latency struct {
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Preloading is how a preload went.
type Preloading struct {
	Ms              int64   `json:"ms"`
	ObjectsPerSec   float64 `json:"objectsPerSecond"`
	PeakMemoryBytes *int64  `json:"peakMemoryBytes"` // when it had ended
}

// summarize turns a histogram of microseconds into a Latency; nil if nothing was recorded.
func summarize(h *hdrhistogram.Histogram) *Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return &Latency{
		P50:  ms(h.ValueAtPercentile(50)),
		P95:  ms(h.ValueAtPercentile(95)),
		P99:  ms(h.ValueAtPercentile(99)),
		P999: ms(h.ValueAtPercentile(99.9)),
		Max:  ms(h.Max()),
		Mean: shown(h.Mean() / 1000),
	}
}

// perSecond is a rate; 0 over no time.
func perSecond(n int64, ms int64) float64 {
	if ms == 0 {
		return 0
	}
	return shown(float64(n) * 1000 / float64(ms))
}

// shown keeps three decimals, which is more than any figure here deserves.
func shown(x float64) float64 { return math.Round(x*1000) / 1000 }
