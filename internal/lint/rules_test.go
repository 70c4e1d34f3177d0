package lint

import (
	"strings"
	"testing"
)

// breaches gives each rule a piece of text that breaks it and one that does not.
var breaches = []struct {
	rule       func(*goFile) []finding
	path       string
	good, bad  string
	says       string
	occurrence int // how many findings the bad text has
}{
	{checkImports, "internal/machine/x.go", `import "abide/protocol"`, `import "abide/kv"`, "pure", 1},
	{checkImports, "internal/machine/x.go", `import "sort"`, `import "time"`, "epoch milliseconds", 1},
	{checkImports, "internal/workload/x.go", `import "abide/protocol"`, `import "abide/internal/machine"`, "the oracle shares no rule", 1},
	{checkImports, "internal/conform/x.go", `import "net/http"`, `import "abide/internal/engine"`, "from outside", 1},
	{checkImports, "internal/machine/x.go", `import "strings"`, `import "log/slog"`, "no log", 1},
	{checkImports, "kv/batch/x.go", `import "abide/kv"`, `import "abide/protocol"`, "nothing of promises", 1},
	{checkImports, "kv/x.go", `import "errors"`, `import "abide/kv/batch"`, "none of its engines", 1},
	{checkImports, "internal/engine/x.go", `import "abide/kv"`, `import "abide/kv/sqlitekv"`, "only cmd and tests", 1},
	{checkImports, "cmd/abide/x.go", `import "abide/kv/sqlitekv"`, `import "abide/kv/kvtest"`, "exists for tests", 1},
	{checkImports, "internal/engine/x_test.go", `import "abide/kv/sqlitekv"; import "abide/kv/kvtest"; import "pgregory.net/rapid"`, "", "", 0},
	{checkImports, "client/x.go", `import "abide/protocol"`, `import "abide/internal/engine"`, "knows the protocol only", 1},
	{checkImports, "internal/deliver/x.go", `import "abide/protocol"`, `import ("abide/internal/engine"; "abide/kv")`, "its own interface", 2},
	{checkImports, "kv/sqlitekv/x.go", `import "github.com/ncruces/go-sqlite3/vfs"`, `import "github.com/alecthomas/kong"`, "thirdParty", 1},
	{checkImports, "protocol/x.go", `import "github.com/go-json-experiment/json/jsontext"`, `import "pgregory.net/rapid"`, "thirdParty", 1},

	{checkCalls, "internal/store/x.go", `import "time"; var _ = time.Second`, `import "time"; var _ = time.Now`, "argument", 1},
	{checkCalls, "internal/store/x.go", `import "abide/time"; type t struct{}`, `import clock "time"; var x = clock.Since(clock.Now())`, "argument", 2},
	{checkCalls, "internal/engine/loop.go", `import "time"; var _ = time.Now()`, "", "", 0},
	{checkCalls, "internal/api/x.go", `import "fmt"; var _ = fmt.Sprint(1)`, `import "fmt"; func f() { fmt.Println(1); println(2) }`, "", 2},
	{checkCalls, "internal/api/x.go", `import "os"; var _ = os.Open`, `import "os"; var _ = os.Getenv("X")`, "only reader", 1},
	{checkCalls, "cmd/abide/x.go", `import "os"; var _ = os.Getenv("X")`, `import "log"; func f() { log.Print(1) }`, "slog", 1},
	{checkCalls, "internal/machine/x.go", `func f() { g() }`, `func f() { go g() }`, "no goroutines", 1},
	{checkCalls, "internal/store/x_test.go", `import "time"; var _ = time.Now()`, "", "", 0},

	{checkDocumentation, "kv/x.go", "// F is.\nfunc F() {}\nfunc G() {}\n", "// F is.\nfunc F() {}\n\nfunc G() {}\n", "exported G", 1},
	{checkDocumentation, "kv/x.go", "// A and B are.\nconst (\nA = 1\nB = 2\n)", "const (\nA = 1 // is\nB = 2\n)", "exported B", 1},
	{checkDocumentation, "kv/x.go", "// Types.\ntype (\n// T is.\nT int\n)", "// Types.\ntype (\nT int\n)", "exported T", 1},
	{checkDocumentation, "kv/x.go", "type t int\nfunc (t) F() {}", "// T is.\ntype T int\n\nfunc (*T) F() {}", "exported F", 1},
	{checkDocumentation, "kv/x.go", "// E is.\ntype E int\n\nfunc (E) Error() string { return \"\" }", "var V int", "exported V", 1},

	{checkFunctionLength, "kv/x.go", "func f() {" + strings.Repeat("\n", 69) + "}", "func f() {" + strings.Repeat("\n", 70) + "}", "71 lines", 1},
	{checkFunctionLength, "kv/x.go", "func f(k int) int { switch k {" + strings.Repeat("\ncase 1:\nreturn 2", 50) + "}; return 0 }",
		"func f(k int) int { switch k {" + strings.Repeat("\ncase 1:\na()\nb()\nreturn 2", 50) + "}; return 0 }", "201 lines", 1},
	{checkFileLength, "kv/x.go", strings.Repeat("\n", 400), strings.Repeat("\n", 600), "split the file", 1},
	{checkFileLength, "kv/x_test.go", strings.Repeat("\n", 900), strings.Repeat("\n", 1001), "split the file", 1},
}

func TestRules(t *testing.T) {
	for _, b := range breaches {
		for _, text := range []struct {
			code string
			want int
		}{{b.good, 0}, {b.bad, b.occurrence}} {
			f, err := parse(b.path, []byte("package x\n"+text.code))
			if err != nil {
				t.Fatalf("%v in:\n%s", err, text.code)
			}
			found := b.rule(f)
			if len(found) != text.want {
				t.Errorf("%s: %d findings %v, want %d, in:\n%.200s", b.path, len(found), found, text.want, text.code)
			}
			for _, finding := range found {
				if !strings.Contains(finding.text, b.says) {
					t.Errorf("%v does not say %q", finding, b.says)
				}
			}
		}
	}
}

func TestNameRules(t *testing.T) {
	for _, name := range []string{"kv/utils/x.go", "kv/common.go", "internal/api/helpers_test.go", "Manager.go", "e2e/util.ts"} {
		if len(checkNames(name)) == 0 {
			t.Errorf("%s passes", name)
		}
	}
	for _, name := range []string{"kv/batch/queue.go", "README.md", "internal/types/promise.go", "examples/typescript/transfer.ts"} {
		if found := checkNames(name); len(found) != 0 {
			t.Errorf("%v", found)
		}
	}
}

func TestTextRules(t *testing.T) {
	for _, bad := range []string{
		"// TO" + "DO: later", "x := 1 // FIX" + "ME", `path := "/ho` + `me/anna/x"`, "cd /wo" + "rk/main", `"resolved": "https://npm.example.org/x.tgz"`,
		"http://10.1" + ".2.3:8001/", "https://git.inter" + "nal/x", "`/ro" + "ot/go`",
	} {
		if len(checkText("x", []byte("\n"+bad+"\n"))) != 1 {
			t.Errorf("%q passes", bad)
		}
	}
	for _, good := range []string{
		"the root is /", "a todo list", "GET /work", "http://localhost:8001", "http://127.0.0.1:1/", `"resolved": "https://registry.npmjs.org/x.tgz"`,
		"https://abide.example/home/x", "/healthy", "tmp/work/x",
	} {
		if found := checkText("x", []byte(good)); len(found) != 0 {
			t.Errorf("%v in %q", found, good)
		}
	}
}
