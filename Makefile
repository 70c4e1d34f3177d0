# One target per step of the continuous integration; `make` alone lists them.

GO ?= go
# Run by its version, so that its own dependencies stay out of go.mod.
STATICCHECK = $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
TARGETS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
# What is concurrent, and so worth the race detector's slowness (SQLite runs five times slower under it).
RACE_PACKAGES ?= ./kv/batch ./kv/memkv ./kv/kvtest ./kv/kvfault ./internal/engine ./internal/children ./internal/loops ./internal/deliver ./internal/push/... ./internal/trace ./internal/api ./internal/auth ./internal/bench ./client ./cmd/abide
BENCH_ARGS ?= --clients 64 --for 10s
# How long the tests of one package may take on a slow machine; a minute is usual.
TEST_TIMEOUT ?= 40m

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: fmt vet staticcheck test ## Everything a change must pass: format, vet, staticcheck, tests

.PHONY: tools
tools: ## Download the modules and the tools that the other targets need
	$(GO) mod download
	$(STATICCHECK) -version

.PHONY: fmt
fmt: ## Fail if a file is not in gofmt's form
	@files=$$(gofmt -l $(wildcard cmd client e2e internal kv protocol)); \
	if [ -n "$$files" ]; then echo "run gofmt -w on:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## Run go vet
	$(GO) vet ./...

.PHONY: staticcheck
staticcheck: ## Run staticcheck, in the version named above
	$(STATICCHECK) ./...

.PHONY: test
test: ## Run all Go tests, the repository's own rules included
	$(GO) test -timeout $(TEST_TIMEOUT) ./...

.PHONY: race
race: ## Run the tests of what is concurrent under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short -timeout $(TEST_TIMEOUT) $(RACE_PACKAGES)

# A failing input is kept in testdata/fuzz of its package. FUZZ keeps to some targets, as in FUZZ='protocol' or FUZZ=FuzzCron.
FUZZTIME ?= 10s
FUZZ ?= .
.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME each
	FUZZTIME=$(FUZZTIME) GO=$(GO) ./.ci/fuzz '$(FUZZ)'

.PHONY: engines
engines: ## Run on every database what must hold on each (needs apt-get, npm, Maven)
	./.ci/engines

# Crashes, kills and losses of power a thousand times each, random histories ten times as long: about an hour, and as
# long again for each database. A test asks for ABIDE_LONG to know that it may. What runs on databases is engines'.
LONG_PACKAGES ?= $(filter-out abide/kv/pgkv abide/kv/mysqlkv,$(shell $(GO) list ./kv/... ./internal/...))
.PHONY: long
long: signal-free mutants ## Run the long variants of the tests, on every database too, all mutants, and everything without signals
	ABIDE_LONG=1 $(GO) test -timeout 3h -skip 'OnDatabases|OnThreeServers|OfADatabase' $(LONG_PACKAGES)
	ABIDE_LONG=1 ./.ci/engines

# Each fault in internal/mutant/mutants is planted and must be found, in about ten seconds. MUTANTS may also be names
# with commas between them, or "rotate": five, which change every hour ("rotate -turn N" for those of a report).
MUTANTS ?= all
.PHONY: mutants
mutants: ## Plant faults and check that a test finds each (MUTANTS=... for some of them)
	$(GO) test ./internal/mutant -run '^TestMutants$$' -v -timeout 3h -mutants $(MUTANTS)

# The suites above the contract, and the server under a real SDK, with a store that never signals. Left out are the
# tests that are about signals themselves and about not having to wait.
SIGNALS_TESTED = ^(TestArmedTimerWakesTheLoop|TestPausedWorkspace|TestPoisonedStepHoldsUpNobody|TestCommitsHintDelivery|TestBenchWithItsOwnServer|TestSignalsSayWhoseTheyAre|TestArmedHereFiresHere|TestDrainGoesOn)$$
.PHONY: signal-free
signal-free: ## Check that everything still happens, later, when every signal is dropped
	$(GO) test -timeout $(TEST_TIMEOUT) -tags dropsignals -skip '$(SIGNALS_TESTED)' ./internal/machine ./internal/store ./internal/engine ./internal/deliver ./internal/api ./internal/crash ./cmd/abide
	CGO_ENABLED=0 $(GO) build -trimpath -tags dropsignals -o bin/abide-signal-free ./cmd/abide
	E2E_PATIENCE=4 E2E_SERVER=$(CURDIR)/bin/abide-signal-free ./e2e/run --suite typescript-0.11.5

.PHONY: e2e
e2e: ## Run the end-to-end suite with the real SDKs (needs npm and Python 3.12)
	./e2e/run

SOAKTIME ?= 30m
.PHONY: soak
soak: ## Run SDK workers under random kills for SOAKTIME and report what grows (needs npm and Linux)
	./e2e/run --suite soak --for $(SOAKTIME)

.PHONY: bench
bench: build ## Measure every mode once against an own server (BENCH_ARGS changes how)
	@for mode in noop create get lifecycle dispatch workflow push push-hang push-unblock; do ./bin/abide bench $$mode $(BENCH_ARGS) || exit 1; done

.PHONY: build
build: ## Build bin/abide, static
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/abide

.PHONY: cross
cross: ## Compile for every supported platform, without cgo
	@for target in $(TARGETS); do \
		echo "$$target"; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build -trimpath -o /dev/null ./cmd/abide || exit 1; \
	done
