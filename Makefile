# The examples are a module of their own, on the newest client-go; this one stays
# on the oldest that it supports.
GO ?= go

.PHONY: demo demo-fleet test race lint bench fuzz compat apidiff

demo: ## a pause, watched against a real API server
	$(GO) run -C examples ./quickstart

demo-fleet: ## pauses in a fleet, by the real deployers
	$(GO) run -C examples ./quickstart -fleet

test: ## all tests, those on a real API server too
	$(GO) test ./...
	$(GO) test -C examples ./...

race: ## the same under the race detector, with less chance
	$(GO) test -race ./...
	$(GO) test -C examples -race -short ./...

compat: ## the library's tests on the newest client-go
	$(GO) test -C examples -race github.com/clusternet/syncgate/...

lint: ## installs its tools by itself
	$(GO) tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners ./...
	cd examples && $(GO) tool -modfile=../tools/go.mod golangci-lint run --allow-parallel-runners ./...

bench: ## medians and ratios, see the package documentation
	$(GO) test -run '^$$' -bench . -benchtime 300ms -count 7 ./syncgate
	$(GO) test -C examples -run '^$$' -bench . -benchtime 500x -count 7 ./e2e

fuzz: ## a minute of each fuzz target
	$(GO) test -run '^$$' -fuzz FuzzDecision -fuzztime 1m ./syncgate
	$(GO) test -run '^$$' -fuzz FuzzTrim -fuzztime 1m ./informer
	$(GO) test -run '^$$' -fuzz FuzzKeep -fuzztime 1m ./placement

apidiff: ## the exported API against the last tag
	GO="$(GO)" tools/apidiff.sh
