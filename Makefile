# `make help` lists the targets. `make test` is everything that continuous integration runs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Development tools are pinned in .ci/tools/go.mod, a module of its own, so that none enters the product's go.mod.
TOOLS := bin/golangci-lint bin/govulncheck
TOOL_PACKAGES := github.com/golangci/golangci-lint/v2/cmd/golangci-lint golang.org/x/vuln/cmd/govulncheck

# Settings, to be given as `make fuzz FUZZTIME=10m`.
FUZZTIME ?= 60s
FUZZTIME_TEST ?= 3s
MODELTIME ?= 10m
BENCH ?= .
BENCHTIME ?= 1s
PKG ?= ./...
TEST_TIMEOUT ?= 10m

# $(call step,NAME,WHAT) prints the head of a step with the time, so that a log shows what each took.
step = @printf '\n== %s %s: %s\n' "$$(date +%T)" '$(1)' '$(2)'

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Settings: FUZZTIME=$(FUZZTIME) MODELTIME=$(MODELTIME) BENCH=$(BENCH) BENCHTIME=$(BENCHTIME) PKG=$(PKG)'

.PHONY: test
test: requirements compile vet format lint generated race single fuzz-short vuln ## Everything that CI runs
	$(call step,test,every step passed)

.PHONY: requirements
requirements: ## Say what the tests lack and how to get it
	$(call step,requirements,what the steps below use)
	@.ci/requirements

.PHONY: tools
tools: $(TOOLS) ## Build the pinned development tools into bin/

# One rule builds all tools; the first stands for the others.
$(TOOLS) &: .ci/tools/go.mod .ci/tools/go.sum
	$(call step,tools,golangci-lint and govulncheck from .ci/tools/go.mod)
	@mkdir -p bin
	go -C .ci/tools build -buildvcs=false -o '$(CURDIR)/bin/' $(TOOL_PACKAGES)
	@touch $(TOOLS)

.PHONY: build
build: ## Build bin/belfry
	$(call step,build,bin/belfry)
	go build -trimpath -o bin/belfry ./cmd/belfry

.PHONY: compile
compile:
	$(call step,compile,every package$(,) and the module file as go mod tidy would write it)
	go build ./...
	go mod tidy -diff

.PHONY: vet
vet:
	$(call step,vet,go vet)
	go vet ./...

.PHONY: format
format:
	$(call step,format,gofmt)
	@unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -s -l); \
	if [[ -n $$unformatted ]]; then echo "not formatted; run gofmt -s -w on:" >&2; echo "$$unformatted" >&2; exit 1; fi

.PHONY: lint
lint: bin/golangci-lint ## golangci-lint with the rules of .golangci.yml
	$(call step,lint,golangci-lint)
	bin/golangci-lint run $(PKG)

.PHONY: generate
generate: ## Generate the code under rpc/ from its protobuf sources
	@command -v protoc >/dev/null || { echo "missing: protoc; install it with: apt-get install -y protobuf-compiler" >&2; exit 1; }
	rpc/proto/generate

.PHONY: generated
generated:
	$(call step,generated,committed generated code equals what the generator writes now)
	@.ci/generated

.PHONY: race
race:
	$(call step,race,tests with the race detector$(,) shuffled)
	go test -race -shuffle=on -timeout $(TEST_TIMEOUT) ./...

.PHONY: single
single:
	$(call step,single,tests on one processor)
	GOMAXPROCS=1 go test -count=1 -timeout $(TEST_TIMEOUT) ./...

.PHONY: fuzz-short
fuzz-short:
	$(call step,fuzz-short,every fuzz target for $(FUZZTIME_TEST))
	@.ci/fuzz $(FUZZTIME_TEST)

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each
	$(call step,fuzz,every fuzz target for $(FUZZTIME))
	@.ci/fuzz $(FUZZTIME)

.PHONY: vuln
vuln: bin/govulncheck ## govulncheck, or a line that it was not done
	$(call step,vuln,govulncheck)
	@.ci/vuln

.PHONY: bench
bench: ## Go benchmarks matching BENCH in PKG, BENCHTIME each
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 0 $(PKG)

.PHONY: model
model: ## Random commands against the reference model for MODELTIME
	$(call step,model,the state machine against its reference model for $(MODELTIME))
	BELFRY_MODEL_TIME=$(MODELTIME) go test -run Model -count=1 -v -timeout 0 ./fsm/...

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

# A comma inside an argument of $(call) would end the argument.
, := ,
