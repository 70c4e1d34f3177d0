package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"abide/internal/engine"
)

// clusterCommand shows the servers that share a store. It asks one of them, on the port of its metrics: a data file is
// its server's alone while that runs.
type clusterCommand struct {
	URL  string `name:"url" default:"http://localhost:9090" placeholder:"URL" help:"The metrics port of any server on the store."`
	JSON bool   `name:"json" help:"Print one JSON object."`
}

const (
	// clusterPath is where a server tells who runs on its store.
	clusterPath = "/cluster"
	// clusterTimeout bounds the question, and the answer's reading of the store.
	clusterTimeout = 10 * time.Second
	// clusterBytes is more than an answer about engine.MaxServers servers has.
	clusterBytes = 1 << 20
)

// Validate checks the values; kong calls it.
func (c *clusterCommand) Validate() error {
	u, err := url.Parse(c.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("--url %q is not an address such as http://localhost:9090", c.URL)
	}
	return nil
}

// Run asks and prints.
func (c *clusterCommand) Run(in surroundings) error {
	ctx, stop := in.untilSignal()
	defer stop()
	census, err := askCluster(ctx, c.URL)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(in.stdout).Encode(census)
	}
	zone := in.zone
	if zone == nil {
		zone = time.Local
	}
	return printCluster(in.stdout, census, zone)
}

func askCluster(ctx context.Context, base string) (census engine.Census, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+clusterPath, nil)
	if err != nil {
		return census, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return census, fmt.Errorf("no server answers; is this the port of its metrics (--observability-metrics-port)? %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, clusterBytes))
	if err != nil {
		return census, fmt.Errorf("the answer breaks off: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return census, fmt.Errorf("%s answers %s; is this the port of a server's metrics (--observability-metrics-port)? %s", base, resp.Status, strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, &census); err != nil {
		return census, fmt.Errorf("%s is not the metrics port of a server that can tell: %w", base, err)
	}
	return census, nil
}

// printCluster shows a census to a person.
func printCluster(out io.Writer, census engine.Census, zone *time.Location) error {
	var b strings.Builder
	now := time.UnixMilli(census.NowMs)
	fmt.Fprintf(&b, "%s, by the clock of %s\n", bothZones(now, zone), census.Server)
	if !census.Shared {
		b.WriteString("The store is this server's alone.\n")
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVER\tLEASE\tCLOCK\tWORKERS\tVERSION\tURL\tPROCESS\tSTARTED\tUTC")
	for _, s := range census.Servers {
		fmt.Fprintf(t, "%s\t%s\t%+d ms\t%d\t%s\t%s\t%d on %s\t%s\t%s\n", s.ID, leaseOf(census, s), s.OffsetMs, s.Connections, s.Version, s.URL,
			s.ProcessID, s.Host, time.UnixMilli(s.StartedMs).In(zone).Format(time.DateTime), time.UnixMilli(s.StartedMs).UTC().Format(time.DateTime))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, d := range census.Duties {
		who := d.Server
		if who == "" {
			who = "nobody, until a lease has ended"
		}
		fmt.Fprintf(&b, "%s: %s\n", d.Name, who)
	}
	if census.LostMs > 0 {
		fmt.Fprintf(&b, "A server was last found dead at %s.\n", bothZones(time.UnixMilli(census.LostMs), zone))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// bothZones is an instant in a person's zone and in UTC, once if they read the same.
func bothZones(at time.Time, zone *time.Location) string {
	here, utc := at.In(zone).Format(time.DateTime+" MST"), at.UTC().Format(time.DateTime+" MST")
	if here == utc {
		return utc
	}
	return here + " (" + utc + ")"
}

// leaseOf says whether a server's lease holds, and when it ends unless it is renewed.
func leaseOf(census engine.Census, s engine.CensusServer) string {
	left := time.Duration(s.RenewedMs+s.LeaseMs-census.NowMs) * time.Millisecond
	switch {
	case !s.Live:
		return "ended"
	case !census.Shared:
		return "none needed"
	default:
		return fmt.Sprintf("%s left", left.Round(100*time.Millisecond))
	}
}

// withCluster answers who runs on the store beside what another handler serves.
func withCluster(logger *slog.Logger, e *engine.Engine, others http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", others)
	mux.HandleFunc("GET "+clusterPath, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), clusterTimeout)
		defer cancel()
		census, err := e.Census(ctx)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				logger.Warn("who runs on the store could not be read", "error", err)
			}
			http.Error(w, "the store could not be read; the server's log says why", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(census)
	})
	return mux
}
