# The examples are a module of their own, on the newest client-go; this one stays
# on the oldest that it supports.
GO ?= go
COUNT ?= 10
APISERVER = $(GO) tool -C examples -n github.com/clusternet/syncgate/examples/localcluster/apiserver
WITH_APISERVER = LOCALCLUSTER_APISERVER="$$($(APISERVER))"

.PHONY: demo demo-fleet apiserver test race busy histories model soak lint bench fuzz compat apidiff

demo: ## a pause, against an API server on this machine
	$(GO) run -C examples ./quickstart

demo-fleet: ## pauses in a fleet, by the real deployers
	$(GO) run -C examples ./quickstart -fleet

# Tests start this program. It is built first, so the build time does not count against
# test timeouts.
apiserver: ## the API server of the examples, without the race detector
	$(APISERVER) >/dev/null

test: apiserver ## all tests, also those on an API server
	$(GO) test ./...
	$(WITH_APISERVER) $(GO) test -C examples -timeout 30m ./...

race: apiserver ## the same under the race detector, with fewer random cases
	$(GO) test -race ./...
	$(WITH_APISERVER) $(GO) test -C examples -race -short -timeout 30m ./...

# -count 1: no result comes from the cache. The loops end with the shell, however it ends.
busy: apiserver ## all tests COUNT times, beside a busy loop for each processor
	@trap 'kill $$loops' EXIT; trap 'exit 1' INT TERM HUP; \
	for cpu in $$(seq $$(nproc)); do (while kill -0 $$$$; do :; done) 2>/dev/null & loops="$$loops $$!"; done; \
	failed=0; \
	for run in $$(seq $(COUNT)); do \
		echo "== run $$run of $(COUNT)"; ok=yes; \
		$(GO) test -count 1 ./... || ok=; \
		$(WITH_APISERVER) $(GO) test -C examples -count 1 -timeout 30m ./... || ok=; \
		test $$ok || failed=$$((failed + 1)); \
	done; \
	echo "== $(COUNT) runs beside $$(nproc) busy loops: $$failed failed"; test $$failed = 0

SEED ?= 1
FIRST ?= 0
SHARDS ?= 4
histories: apiserver ## SHARDS times 50 random histories with faults, see TESTING.md
	$(WITH_APISERVER) $(GO) test -C examples -count 1 -timeout 120m -v -run TestHistories ./histories \
		-args -seed $(SEED) -first $(FIRST) -last $$(($(FIRST) + $(SHARDS) - 1))

compat: ## the library's tests on the newest client-go
	$(GO) test -C examples -race $$($(GO) list -C examples github.com/clusternet/syncgate/... | grep -v /syncgate/examples/)

# RAPID_SEED=SEED replays the sequences of a seed.
CHECKS ?= 5000
model: ## CHECKS random sequences against the models
	RAPID_CHECKS=$(CHECKS) $(GO) test -count 1 -timeout 60m -run 'TestModel' ./syncgate ./report

soak: ## minutes of load: memory, goroutines and watches must not grow
	SYNCGATE_SOAK=25 $(GO) test -count 1 -v -timeout 30m -run Soak ./syncgate ./report

lint: ## installs its tools by itself
	$(GO) tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners ./...
	cd examples && $(GO) tool -modfile=../tools/go.mod golangci-lint run --allow-parallel-runners ./...

bench: ## the README has the medians and ratios
	$(GO) test -run '^$$' -bench . -benchtime 300ms -count 7 ./syncgate
	$(GO) test -C examples -run '^$$' -bench . -benchtime 500x -count 7 ./e2e

fuzz: ## a minute of each fuzz target
	$(GO) test -run '^$$' -fuzz FuzzDecision -fuzztime 1m ./syncgate
	$(GO) test -run '^$$' -fuzz FuzzSelection -fuzztime 1m ./informer
	$(GO) test -run '^$$' -fuzz FuzzTrim -fuzztime 1m ./informer
	$(GO) test -run '^$$' -fuzz FuzzKeep -fuzztime 1m ./placement

apidiff: ## the exported API against the last tag
	GO="$(GO)" tools/apidiff.sh
