package lint

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// edge forbids an import. A name that ends in "/..." stands for all below it.
type edge struct {
	from, to []string
	why      string
}

var (
	backends = []string{"abide/kv/sqlitekv", "abide/kv/memkv", "abide/kv/pgkv", "abide/kv/mysqlkv", "abide/kv/fdbkv", "abide/kv/natskv", "abide/kv/cqlkv"}
	// forTests are packages that exist to check the others.
	forTests = []string{
		"abide/kv/kvtest/...", "abide/kv/kvfault/...", "abide/internal/workload/...", "abide/internal/sim/...",
		"abide/internal/testenv/...", "abide/internal/testserver", "abide/internal/lint",
	}
	core = []string{"internal/machine", "internal/cron"}
)

// tools are the subcommands that are tests to begin with, each a file of its own, and what they may import of forTests.
var tools = map[string]string{
	"cmd/abide/simulate.go": "abide/internal/sim",
	"cmd/abide/verify.go":   "abide/internal/conform",
}

// forbidden is the lattice of imports, as the edges that must not be. It binds shipped code; tests may reach
// for whatever they check.
var forbidden = []edge{
	{[]string{"kv/..."}, []string{"abide/protocol", "abide/client", "abide/internal/..."},
		"the storage contract knows nothing of promises; hand it keys and values"},
	{[]string{"kv"}, []string{"abide/kv/..."}, "the contract knows none of its engines"},
	{[]string{"protocol"}, []string{"abide/kv/...", "abide/client", "abide/internal/machine", "abide/internal/keyspace", "abide/internal/store", "abide/internal/engine", "abide/internal/deliver", "abide/internal/api", "abide/internal/bench"},
		"the wire knows nothing of what is behind it"},
	{[]string{"client"}, []string{"abide/kv/...", "abide/internal/..."}, "the client knows the protocol only, as anybody's would"},
	{core, []string{"abide/kv/...", "abide/internal/keyspace", "abide/internal/store", "abide/internal/engine", "abide/internal/deliver", "abide/internal/api", "abide/client"},
		"the machine is pure: it gets state and time as arguments and returns effects"},
	{[]string{"internal/machine"}, []string{"time"}, "the machine has no clock; pass epoch milliseconds in"},
	{core, []string{"log", "log/slog", "os", "net", "net/http", "context", "sync", "math/rand", "math/rand/v2", "crypto/rand"},
		"the machine has no log, no goroutine and no chance"},
	{[]string{"internal/keyspace", "internal/store"}, []string{"abide/internal/engine", "abide/internal/deliver", "abide/internal/api", "log", "log/slog", "os", "net/http", "math/rand", "math/rand/v2"},
		"records and keys are below the engine"},
	{[]string{"internal/deliver"}, []string{"abide/kv/...", "abide/internal/engine", "abide/internal/store", "abide/internal/machine", "abide/internal/keyspace", "abide/internal/api"},
		"delivery sees the outbox through its own interface, which the engine implements"},
	{[]string{"internal/push/..."}, []string{"abide/kv/...", "abide/internal/engine", "abide/internal/store", "abide/internal/machine", "abide/internal/keyspace", "abide/internal/api"},
		"push sees the outbox through its own interface, which the engine implements"},
	{[]string{"internal/api"}, []string{"abide/kv/...", "abide/internal/store", "abide/internal/machine", "abide/internal/keyspace"},
		"handlers are thin: they speak to the engine"},
	{[]string{"internal/engine"}, []string{"abide/internal/api", "net/http"}, "the engine does not know who asks"},
	{[]string{"internal/workload"}, []string{"abide/kv/...", "abide/internal/..."}, "the oracle shares no rule with what it judges: write it again from docs/machine.md"},
	{[]string{"internal/conform"}, []string{"abide/kv/...", "abide/internal/...", "abide/client"}, "conform sees a server from outside, as anybody does"},
	{[]string{"internal/auth"}, []string{"abide/kv/...", "abide/client", "abide/internal/..."}, "who may do what is decided from the token and the request, before any state is looked at"},
	{[]string{"internal/bench"}, []string{"abide/kv/...", "abide/internal/..."}, "the load runner measures any server from outside"},
	{[]string{"protocol", "client", "kv/...", "internal/..."}, []string{"abide/cmd/..."}, "cmd is the top"},
}

// thirdParty is every module that shipped code may import, who may, and what for. A new line needs a decision
// record in docs/decisions.
var thirdParty = map[string][]string{
	"cloud.google.com/go/auth":                      {"internal/push/webhook"},
	"cloud.google.com/go/pubsub/v2/apiv1":           {"internal/push/pubsub"},
	"github.com/HdrHistogram/hdrhistogram-go":       {"internal/bench", "kv/kvbench"},
	"github.com/alecthomas/kong":                    {"cmd/abide"},
	"github.com/go-json-experiment/json":            {"protocol", "internal/api", "internal/auth", "internal/cli"},
	"github.com/go-sql-driver/mysql":                {"kv/mysqlkv", "e2e/database"},
	"github.com/golang-jwt/jwt/v5":                  {"internal/auth"},
	"github.com/jackc/pgx/v5":                       {"kv/pgkv", "e2e/database"},
	"github.com/modelcontextprotocol/go-sdk":        {"internal/mcp"},
	"github.com/ncruces/go-sqlite3":                 {"kv/sqlitekv"},
	"github.com/netresearch/go-cron":                {"internal/cron"},
	"github.com/pelletier/go-toml/v2":               {"internal/config"},
	"github.com/prometheus/client_golang":           {"internal/metrics"},
	"github.com/tidwall/btree":                      {"kv/batch", "kv/memkv"},
	"go.opentelemetry.io/otel":                      {"internal/trace"},
	"golang.org/x/net/idna":                         {"internal/push/webhook"},
	"golang.org/x/sys":                              {"kv/sqlitekv"},
	"google.golang.org/api/option":                  {"internal/push/pubsub"},
	"google.golang.org/grpc":                        {"internal/push/pubsub"},
	"google.golang.org/protobuf/encoding/protowire": {"internal/keyspace"},
}

// covers tells whether pattern, which may end in "/...", is name or above it.
func covers(pattern, name string) bool {
	base, tree := strings.CutSuffix(pattern, "/...")
	return name == base || (tree && strings.HasPrefix(name, base+"/"))
}

func coveredBy(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return covers(p, name) })
}

// checkImports is the rule of the lattice.
func checkImports(f *goFile) []finding {
	if f.test {
		return nil
	}
	var found []finding
	self := module + "/" + f.dir
	for _, spec := range f.tree.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		for _, e := range forbidden {
			if coveredBy(e.from, f.dir) && coveredBy(e.to, name) {
				found = append(found, f.at(spec.Pos(), "%s must not import %s: %s", f.dir, name, e.why))
			}
		}
		if coveredBy(backends, name) && !strings.HasPrefix(f.dir, "cmd/") && !coveredBy(forTests, self) {
			found = append(found, f.at(spec.Pos(), "only cmd and tests choose a backend: take a kv.Store instead of importing %s", name))
		}
		if coveredBy(forTests, name) && !coveredBy(forTests, self) && tools[f.path] != name {
			found = append(found, f.at(spec.Pos(), "%s exists for tests; shipped code must not import it", name))
		}
		if strings.Contains(strings.Split(name, "/")[0], ".") && !mayImport(f.dir, name) {
			found = append(found, f.at(spec.Pos(), "%s may not import %s: use what is there, or add a line to thirdParty in internal/lint and a record in docs/decisions", f.dir, name))
		}
	}
	return found
}

func mayImport(dir, name string) bool {
	for base, users := range thirdParty {
		if (name == base || strings.HasPrefix(name, base+"/")) && slices.Contains(users, dir) {
			return true
		}
	}
	return coveredBy(forTests, module+"/"+dir)
}

func TestImports(t *testing.T) { everyFile(t, checkImports) }
