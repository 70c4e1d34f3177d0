package metrics

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const alertsFile = "../../deploy/prometheus/alerts.yml"

// alert is one rule of the file.
type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func readAlerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []alert
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("%d groups, want one with rules", len(file.Groups))
	}
	return file.Groups[0].Rules
}

// served is what a scrape may hold: metrics with their labels, and the values of those labels that have few.
type served struct {
	labels map[string][]string
	values map[string]bool // name{label="value" as in the scrape of the sample
}

var (
	nameLine   = regexp.MustCompile(`^([a-z_]+) ([a-z]+) \{([a-z_,]*)\}$`)
	seriesPair = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// readServed reads the golden files, which other tests hold against the code.
func readServed(t *testing.T) served {
	t.Helper()
	s := served{labels: map[string][]string{
		"up": nil, "process_open_fds": nil, "process_max_fds": nil, "process_resident_memory_bytes": nil, "process_cpu_seconds_total": nil,
		"process_start_time_seconds": nil, "go_goroutines": nil, "go_memstats_heap_inuse_bytes": nil,
	}, values: map[string]bool{}}
	names, err := os.ReadFile("testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(names)) {
		m := nameLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })
		if m[2] != "histogram" {
			s.labels[m[1]] = labels
			continue
		}
		s.labels[m[1]+"_sum"], s.labels[m[1]+"_count"], s.labels[m[1]+"_bucket"] = labels, labels, append(labels, "le")
	}
	scrape, err := os.ReadFile("testdata/scrape.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(scrape)) {
		name, rest, _ := strings.Cut(line, "{")
		for _, m := range seriesPair.FindAllStringSubmatch(rest, -1) {
			s.values[name+"/"+m[1]+"/"+m[2]] = true
		}
	}
	return s
}

var (
	selector  = regexp.MustCompile(`([a-z][a-z_]+)(\{[^}]*\})?`)
	matcher   = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)
	grouping  = regexp.MustCompile(`\b(by|on|ignoring|without)\s*\(([^)]*)\)`)
	ofTarget  = []string{"job", "instance"} // what Prometheus itself adds
	few       = []string{"kind", "cause", "state", "durable", "outcome", "duty", "of", "call"}
	functions = []string{
		"sum", "max", "min", "count", "rate", "increase", "abs", "histogram_quantile", "predict_linear", "max_over_time", "clamp_min",
		"or", "and", "unless", "offset", "label_values", "time", "avg", "topk",
	}
)

// check reports what of an expression no scrape would ever answer.
func (s served) check(t *testing.T, where, expr string) {
	t.Helper()
	var all []string
	bare := grouping.ReplaceAllString(expr, " ")
	for _, m := range selector.FindAllStringSubmatch(bare, -1) {
		if slices.Contains(functions, m[1]) || m[2] == "" && len(m[1]) < 3 {
			continue
		}
		if inLabels(bare, m[1]) {
			continue
		}
		labels, known := s.labels[m[1]]
		if !known {
			t.Errorf("%s: no scrape has %s, in %s", where, m[1], expr)
		}
		all = append(all, labels...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) && !slices.Contains(ofTarget, l[1]) {
				t.Errorf("%s: %s has no label %s, in %s", where, m[1], l[1], expr)
			}
			if slices.Contains(few, l[1]) && !strings.HasPrefix(m[1], "resonate_request") && !strings.HasSuffix(l[2], "~") && !s.values[m[1]+"/"+l[1]+"/"+l[3]] {
				t.Errorf("%s: %s never has %s, in %s", where, m[1], l[0], expr)
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(g[2], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(all, label) && !slices.Contains(ofTarget, label) {
				t.Errorf("%s: nothing in it has a label %s, in %s", where, label, expr)
			}
		}
	}
}

// inLabels reports whether a word stands nowhere but within braces and brackets.
func inLabels(expr, word string) bool {
	for _, b := range []*regexp.Regexp{regexp.MustCompile(`\{[^}]*\}`), regexp.MustCompile(`\[[^\]]*\]`)} {
		expr = b.ReplaceAllString(expr, " ")
	}
	return !regexp.MustCompile(`\b` + word + `\b`).MatchString(expr)
}

// TestAlerts holds every alert against what a scrape holds, and against its section in docs/operations.md.
func TestAlerts(t *testing.T) {
	s := readServed(t)
	guide, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, a := range readAlerts(t) {
		s.check(t, a.Alert, a.Expr)
		if named[a.Alert] {
			t.Errorf("%s is there twice", a.Alert)
		}
		named[a.Alert] = true
		if severity := a.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity %q", a.Alert, severity)
		}
		if a.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", a.Alert)
		}
		if want := "docs/operations.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("%s: its runbook is %q, want %q", a.Alert, a.Annotations["runbook"], want)
		}
		if !strings.Contains(string(guide), "\n### "+a.Alert+"\n") {
			t.Errorf("docs/operations.md has no section ### %s", a.Alert)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (Abide\w+)$`).FindAllStringSubmatch(string(guide), -1) {
		if !named[heading[1]] {
			t.Errorf("docs/operations.md has a section %s, and there is no such alert", heading[1])
		}
	}
}

const (
	target  = `job="abide",instance="a:9090"`
	minutes = "x90" // of every world
)

// healthy is an hour and a half of a world in which no alert fires.
var healthy = map[string]string{
	`up`: "1", `abide_ready`: "1", `abide_store_writable`: "1", `abide_store_info{engine="postgres",durable="true"}`: "1",
	`abide_disk_free_bytes`: "200e9-1e6", `abide_database_log_bytes`: "64e6",
	`abide_timer_overdue_seconds{kind="lease"}`:                  "0",
	`abide_undelivered_oldest_seconds{kind="unblock"}`:           "2",
	`abide_undelivered_oldest_seconds{kind="execute"}`:           "20",
	`abide_undelivered_messages{kind="execute"}`:                 "5",
	`abide_connections`:                                          "500",
	`abide_connections_max`:                                      "1000",
	`abide_connections_refused_total`:                            "3",
	`resonate_request_total{status="200"}`:                       "0+6000",
	`resonate_request_total{status="503"}`:                       "0+1",
	`resonate_request_total{status="500"}`:                       "2",
	`resonate_request_duration_seconds_bucket{le="0.01"}`:        "0+6000",
	`resonate_request_duration_seconds_bucket{le="+Inf"}`:        "0+6000",
	`abide_commit_duration_seconds_bucket{le="0.01"}`:            "0+6000",
	`abide_commit_duration_seconds_bucket{le="+Inf"}`:            "0+6000",
	`abide_transactions_total`:                                   "0+6000",
	`abide_transactions_failed_total{cause="conflict"}`:          "0+60",
	`abide_transactions_failed_total{cause="unknown"}`:           "4",
	`abide_background_failures_total`:                            "4",
	`abide_delivery_failures_total{call="roster"}`:               "0",
	`abide_push_failures_total{call="check executes"}`:           "0",
	`abide_push_destinations{transport="http",state="failing"}`:  "0",
	`abide_push_oldest_seconds{transport="http"}`:                "3",
	`abide_push_sends_total{transport="http",outcome="refused"}`: "7",
	`abide_push_unserved_queues{kind="execute"}`:                 "0",
	`abide_push_outstanding`:                                     "300",
	`abide_push_outstanding_max`:                                 "1024",
	`abide_workspaces`:                                           "40",
	`abide_workspaces_max`:                                       "10000",
	`abide_quarantined_rows`:                                     "0",
	`abide_journal_lag_seconds`:                                  "0",
	`abide_servers{state="live"}`:                                "3",
	`abide_server_duty{duty="sweep"}`:                            "1",
	`abide_clock_offset_seconds`:                                 "-0.02",
	`abide_store_pool_waits_total`:                               "0+2",
	`abide_store_listening`:                                      "1",
	`process_open_fds`:                                           "100",
	`process_max_fds`:                                            "1024",
}

// ills are the worlds in which an alert fires, and it alone: what is different from the healthy one. Empty: the series is not there.
var ills = map[string]map[string]string{
	"AbideDown":                {`up`: "0"},
	"AbideNotReady":            {`abide_ready`: "0"},
	"AbideStoreNotWritable":    {`abide_store_writable`: "0"},
	"AbideMayLoseData":         {`abide_store_info{engine="postgres",durable="true"}`: "", `abide_store_info{engine="postgres",durable="false"}`: "1"},
	"AbideDiskFillsUp":         {`abide_disk_free_bytes`: "20e9-50e6"},
	"AbideLogGrows":            {`abide_database_log_bytes`: "600e6"},
	"AbideTimersLate":          {`abide_timer_overdue_seconds{kind="lease"}`: "11"},
	"AbideMessagesUndelivered": {`abide_undelivered_oldest_seconds{kind="unblock"}`: "121"},
	"AbideTaskWithoutWorker":   {`abide_undelivered_oldest_seconds{kind="execute"}`: "301"},
	"AbideNoWorkers":           {`abide_connections`: "0"},
	"AbidePushFails":           {`abide_push_destinations{transport="http",state="failing"}`: "2"},
	"AbidePushBehind":          {`abide_push_oldest_seconds{transport="http"}`: "601"},
	"AbidePushRefused":         {`abide_push_sends_total{transport="http",outcome="refused"}`: "0+1"},
	"AbidePushUnserved":        {`abide_push_unserved_queues{kind="execute"}`: "1"},
	"AbidePushAtCapacity":      {`abide_push_outstanding`: "1000"},
	"AbideWorkspacesRunOut":    {`abide_workspaces`: "9000"},
	"AbideStreamsAtCapacity":   {`abide_connections`: "950"},
	"AbideRequestsFail":        {`resonate_request_total{status="500"}`: "0+10"},
	"AbideRequestsRefused":     {`resonate_request_total{status="503"}`: "0+100"},
	"AbideRequestsSlow": {
		`resonate_request_duration_seconds_bucket{le="0.01"}`: "0+5000", `resonate_request_duration_seconds_bucket{le="2.5"}`: "0+6000",
	},
	"AbideCommitsSlow":         {`abide_commit_duration_seconds_bucket{le="0.01"}`: "0+5000", `abide_commit_duration_seconds_bucket{le="0.5"}`: "0+6000"},
	"AbideConflicts":           {`abide_transactions_failed_total{cause="conflict"}`: "0+1500"},
	"AbideTransactionsFail":    {`abide_transactions_failed_total{cause="unknown"}`: "0+12"},
	"AbideBackgroundWorkFails": {`abide_push_failures_total{call="check executes"}`: "0+12"},
	"AbideRowsQuarantined":     {`abide_quarantined_rows`: "1"},
	"AbideJournalBehind":       {`abide_journal_lag_seconds`: "4000"},
	"AbideServerMissing":       {`abide_servers{state="live"}`: "3x50 2"},
	"AbideDutyUnowned":         {`abide_server_duty{duty="sweep"}`: "0"},
	"AbideClockOff":            {`abide_clock_offset_seconds`: "-1.5"},
	"AbidePoolExhausted":       {`abide_store_pool_waits_total`: "0+120"},
	"AbideNotListening":        {`abide_store_listening`: "0"},
	"AbideFilesRunOut":         {`process_open_fds`: "900"},
}

// world writes one test of rules: what there is, and which alert fires in the end.
func world(fires string) string {
	series := maps.Clone(healthy)
	maps.Copy(series, ills[fires])
	var out strings.Builder
	fmt.Fprintf(&out, "  - name: %q\n    interval: 1m\n    input_series:\n", fires)
	for _, name := range slices.Sorted(maps.Keys(series)) {
		if series[name] != "" {
			metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			fmt.Fprintf(&out, "      - {series: '%s{%s}', values: '%s'}\n", metric, strings.TrimSuffix(target+","+labels, ","), series[name]+minutes)
		}
	}
	out.WriteString("    promql_expr_test:\n      - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n        eval_time: 90m\n        exp_samples: [")
	if fires != "" {
		fmt.Fprintf(&out, `{labels: '{alertname=%q}', value: 1}`, fires)
	}
	out.WriteString("]\n")
	return out.String()
}

// TestAlertsFire has Prometheus' own tool check the file, and evaluate it in worlds that are ill in one way each.
func TestAlertsFire(t *testing.T) {
	for _, a := range readAlerts(t) {
		if ills[a.Alert] == nil {
			t.Errorf("there is no world for %s", a.Alert)
		}
	}
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool, which comes with Prometheus (Debian's package prometheus), is not installed")
	}
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := "rule_files: [" + rules + "]\nevaluation_interval: 1m\ntests:\n" + world("")
	for _, name := range slices.Sorted(maps.Keys(ills)) {
		tests += world(name)
	}
	file := filepath.Join(t.TempDir(), "worlds.yml")
	if err := os.WriteFile(file, []byte(tests), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", file}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
