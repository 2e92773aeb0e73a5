# `make help` lists the targets. `make check` is for each commit, `make test` everything that continuous integration runs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Development tools are pinned in .ci/tools/go.mod, a module of its own, so that none enters the product's go.mod.
TOOLS := bin/golangci-lint bin/govulncheck
# axe-core checks the pages of the dashboard in a browser. .ci/axe pins and fetches it.
AXE := bin/axe.min.js
TOOL_PACKAGES := github.com/golangci/golangci-lint/v2/cmd/golangci-lint golang.org/x/vuln/cmd/govulncheck

# Programs and tests are built without C, as the image is, so that each package is compiled once. Only
# the race detector needs C; the programs that its tests build do not.
export CGO_ENABLED := 0
RACE := CGO_ENABLED=1

# Settings, to be given as `make fuzz FUZZTIME=10m`.
FUZZTIME ?= 60s
FUZZTIME_TEST ?= 2s
MODELTIME ?= 10m
SOAKTIME ?= 10m
SOAKSEED := $(or $(SOAKSEED),$(shell date +%s))
SOAKRUNS ?= 0
FLIPS ?= 10000
FLIPSTRIALS ?= 500
FLIPSSEED := $(or $(FLIPSSEED),$(shell date +%s))
SIMSEEDS ?= 100000
SIMSEED ?= 1
SIMKEYED ?= 1000000
SEQUENCES ?= 100000
CRONZONES ?= 60
CRONSEED ?= 1
JEPSENTIME ?= 40m
JEPSENSEED := $(or $(JEPSENSEED),$(shell date +%s))
BENCH ?= .
BENCHTIME ?= 1s
PKG ?= ./...
TEST_TIMEOUT ?= 20m

# What runs where. Every test runs; most run twice, in two ways that find different faults:
#   race    with the race detector and in shuffled order: what has goroutines that share something
#           (RACED). The state machine has none, but for two tests that write a snapshot beside
#           commands (RACED_MACHINE); nor have the checks of the source text, in the root, and of the
#           planted bugs.
#   single  at one processor, where goroutines meet in another order: all but processes, and the
#           harness of jepsen, which builds programs (SINGLE).
#           Here the checks run in full that only count what one goroutine does, which under the race
#           detector takes ten times as long and shows no more: there they run in part (race_*test.go
#           hold how much; soak's planted_test.go not at all).
#   trials  clusters of processes as users run them: on all processors and without the race detector,
#           which would see the tests' own consumers only (TRIALS), or makes an attack smaller. Once.
# The packages that take longest come first, or the last of them would run alone. Tests wait for
# processes and elections most of the time; hence more of them in parallel than there are processors,
# and more packages (-p).
TRIALS := ./cmd/belfry/clustertrial ./cmd/belfry/crashtest ./cmd/belfry/mirrortrial ./cmd/belfry/browsertest
SLOW := ./node/nodetest/soak ./cluster ./rpc ./node/storage ./node/nodetest ./fsm/machine
MODULE := github.com/belfrydb/belfry
PROCESSES := cmd/belfry/(clustertrial|crashtest|mirrortrial|browsertest)
RACED = ./cmd/belfry $(filter-out ./fsm/%,$(SLOW)) \
	$$(go list ./... | grep -vE '^$(MODULE)(/fsm.*|/jepsen/planted|/$(PROCESSES))?$$')
RACED_MACHINE := SnapshotWhileApplying|ModelRandom
SINGLE = $(SLOW) $$(go list ./... | grep -vE '^$(MODULE)/(cmd/belfry|jepsen|$(PROCESSES))$$')
TEST := go test -vet=off -count=1 -parallel 8 -timeout $(TEST_TIMEOUT)

# GO_BUILD builds the program. Functions of gomponents are not inlined: each place of a page would
# have a copy of the code that renders an element, 1.3 MB of the binary.
GO_BUILD := go build -trimpath -gcflags='maragu.dev/gomponents/...=-l'

# CHECKED is what `make check` tests at each run, CHECKED_NEVER what takes too long for it. It tests
# another package if that, or one that it imports, changed since the branch left BASE. CHECKSEEDS is
# how many seeds the model of fsm tries; without it, and without the race detector, it tries 2,000.
CHECKED := ./fsm ./fsm/codec ./fsm/backup ./fsm/machine ./fsm/model ./fsm/snapshot ./fsm/store ./rpc
CHECKED_NEVER := ./cmd/belfry $(filter-out $(CHECKED),$(SLOW)) ./mirror ./jepsen/sim ./node/nodetest/flips $(TRIALS)
BASE ?= main
CHECKSEEDS ?= 400

# $(call named,COUNT,PATTERN,PACKAGE) fails unless a pattern names so many tests: one that names none
# would pass.
named = @[[ $$(go test -list '$(2)' $(3) | grep -c '^Test') -eq $(1) ]] || \
	{ echo "'$(2)' does not name $(1) tests of $(3)" >&2; exit 1; }

# $(call step,NAME,WHAT) prints the head of a step with the time, so that a log shows what each took.
step = @printf '\n== %s %s: %s\n' "$$(date +%T)" '$(1)' '$(2)'

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'Settings: FUZZTIME=$(FUZZTIME) MODELTIME=$(MODELTIME) SOAKTIME=$(SOAKTIME) FLIPS=$(FLIPS) SIMSEEDS=$(SIMSEEDS) SIMKEYED=$(SIMKEYED) JEPSENTIME=$(JEPSENTIME) BENCH=$(BENCH) BENCHTIME=$(BENCHTIME) PKG=$(PKG) BASE=$(BASE)'

.PHONY: check
check: requirements compile vet format generated bin/golangci-lint ## What to run before each commit, three minutes at most; tests what changed since BASE
	@BASE=$(BASE) BELFRY_MODEL_SEEDS=$(CHECKSEEDS) .ci/check $(CHECKED) -- $(CHECKED_NEVER)

.PHONY: test
test: requirements compile format lint generated deploy alerts race single trials jepsen-short formats fuzz-short vuln ## Everything that CI runs
	$(call step,test,every step passed)

.PHONY: requirements
requirements: ## Say what the tests lack and how to get it
	$(call step,requirements,what the steps below use)
	@.ci/requirements

.PHONY: tools
tools: $(TOOLS) $(AXE) ## Build and fetch the pinned development tools into bin/

# One rule builds all tools; the first stands for the others.
$(TOOLS) &: .ci/tools/go.mod .ci/tools/go.sum
	$(call step,tools,golangci-lint and govulncheck from .ci/tools/go.mod)
	@mkdir -p bin
	go -C .ci/tools build -buildvcs=false -o '$(CURDIR)/bin/' $(TOOL_PACKAGES)
	@touch $(TOOLS)

$(AXE): .ci/axe
	$(call step,axe,axe-core from the npm registry)
	@.ci/axe $(AXE)

.PHONY: build
build: ## Build bin/belfry
	$(call step,build,bin/belfry)
	$(GO_BUILD) -o bin/belfry ./cmd/belfry

.PHONY: image
image: ## Build the container image belfry around the static binary
	$(call step,image,bin/image/belfry$(,) linked statically$(,) and the image around it)
	@command -v docker >/dev/null || { echo "missing: docker; on Debian: apt-get install -y docker.io docker-compose" >&2; exit 1; }
	@mkdir -p bin/image/volume/data
	GOOS=linux $(GO_BUILD) -o bin/image/belfry ./cmd/belfry
	docker build --quiet --tag belfry --file Dockerfile bin/image

.PHONY: up
up: image ## Start three nodes in containers, clients at 127.0.0.1:7400, 7410 and 7420
	$(call step,up,three nodes)
	deploy/compose up --detach --no-build
	@echo 'ready: http://127.0.0.1:7400 http://127.0.0.1:7410 http://127.0.0.1:7420'

.PHONY: redis-image
redis-image: ## Build the container image belfry-redis around the redis-server of this machine, unless REDIS_IMAGE names another
	$(call step,redis-image,a Redis for the profile mirror)
	deploy/redis-image

.PHONY: up-mirror
up-mirror: image redis-image ## The same with a Redis and a mirror of the queue MIRROR_QUEUE, orders, in it
	$(call step,up-mirror,three nodes$(,) a Redis and a mirror)
	COMPOSE_PROFILES=mirror deploy/compose up --detach --no-build
	@echo 'ready: http://127.0.0.1:7400 http://127.0.0.1:7410 http://127.0.0.1:7420; COMPOSE_PROFILES=mirror deploy/compose exec redis redis-cli'

.PHONY: down
down: ## Stop them; with VOLUMES=1 remove their data too
	$(call step,down,three nodes)
	COMPOSE_PROFILES=mirror deploy/compose down $(if $(VOLUMES),--volumes)

# The containers and volumes are not those of `make up`, though their ports are.
SECURED := COMPOSE_PROJECT_NAME=$${COMPOSE_PROJECT_NAME:-belfry-secured} COMPOSE_FILE=docker-compose.yml:docker-compose.secured.yml deploy/compose

.PHONY: up-secured
up-secured: image ## Three nodes with TLS, gossip keys and tokens; bin/secured gets what clients need of that
	$(call step,up-secured,three nodes with certificates$(,) gossip keys and tokens)
	$(SECURED) up --detach --no-build
	@mkdir -p bin/secured
	@n1=$$($(SECURED) ps -q n1); for file in ca.pem root.token; do docker cp "$$n1:/secrets/$$file" bin/secured/; done
	@echo 'ready: https://127.0.0.1:7400 https://127.0.0.1:7410 https://127.0.0.1:7420 for bin/secured/ca.pem and bin/secured/root.token'

.PHONY: down-secured
down-secured: ## Stop them; with VOLUMES=1 remove their data and secrets too
	$(call step,down-secured,three nodes)
	$(SECURED) down $(if $(VOLUMES),--volumes)

# The containers are not those of `make up`, though their ports are.
.PHONY: tour-mirror
tour-mirror: image redis-image ## A migration from Redisson and back, played in containers and checked
	$(call step,tour-mirror,from Redis to Belfry$(,) back$(,) and side by side)
	deploy/tour-mirror

.PHONY: tour-secured
tour-secured: image ## Three nodes that a network may see, in containers: used, attacked, certificates and a token replaced
	$(call step,tour-secured,TLS$(,) gossip keys and tokens)
	deploy/tour-secured

.PHONY: compile
compile:
	$(call step,compile,every package$(,) and the module file as go mod tidy would write it)
	go build ./...
	go mod tidy -diff

.PHONY: vet
vet: # a part of lint
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
	bin/golangci-lint run --allow-parallel-runners $(PKG)

.PHONY: generate
generate: ## Generate the code under rpc/ from its protobuf sources
	@command -v protoc >/dev/null || { echo "missing: protoc; install it with: apt-get install -y protobuf-compiler libprotobuf-dev" >&2; exit 1; }
	rpc/proto/generate

.PHONY: generated
generated:
	$(call step,generated,committed generated code equals what the generator writes now)
	@.ci/generated

.PHONY: deploy
deploy:
	$(call step,deploy,compose and systemd read what is theirs)
	@.ci/deploy

.PHONY: alerts
alerts: ## Have promtool judge the alert rules, make each of them fire, and lint a server's metrics
	$(call step,alerts,alert rules and metrics as promtool takes them)
	@.ci/alerts

.PHONY: race
race:
	$(call step,race,tests with the race detector$(,) shuffled)
	$(RACE) .ci/race $(TEST) -p 3 -race -shuffle=on -exec 'env CGO_ENABLED=0' -- $(RACED)
	$(call named,2,$(RACED_MACHINE),./fsm/machine)
	$(RACE) .ci/race $(TEST) -race -run '$(RACED_MACHINE)' -- ./fsm/machine

.PHONY: single
single:
	$(call step,single,tests at one processor)
	$(TEST) -p 4 -exec 'env GOMAXPROCS=1' $(SINGLE)

.PHONY: trials
trials: $(AXE)
	$(call step,trials,clusters of processes$(,) which are stopped and killed under load; the dashboard in a browser)
	$(TEST) $(TRIALS)
	$(call named,1,^TestAttacks$$,./cmd/belfry)
	$(TEST) -run '^TestAttacks$$' ./cmd/belfry

# Faults that need no right and no device, so that it runs everywhere; the directory stays until the next time. The server that it builds has a tag of its
# own, and so have that part's tests.
.PHONY: jepsen-short
jepsen-short:
	$(call step,jepsen-short,a cluster of processes that is broken on purpose$(,) seed $(JEPSENSEED))
	$(TEST) -tags jepsen -run 'Clock|Instrument' ./cmd/belfry/server
	rm -rf bin/jepsen-short bin/jepsen-access
	go run ./jepsen run --nodes 3 --time 10s --calm 1s --hold 2s --network loopback --nemesis kill-leader,isolate-leader,pause-one,restart \
		--seed $(JEPSENSEED) --dir bin/jepsen-short & all=$$!; \
	go run ./jepsen run --workload access --nodes 3 --time 20s --once --calm 1s --hold 2s --network loopback --nemesis rotate-tokens \
		--seed $(JEPSENSEED) --dir bin/jepsen-access 2>&1 | sed -u 's/^/access: /' || failed=1; \
	wait $$all || failed=1; exit $${failed:-0}

# The targets that follow take namespaces (root, iproute2, iptables, nsenter), /dev/fuse and docker, and say which of them is missing. Runs are kept in jepsen-runs.
.PHONY: jepsen
jepsen: ## A cluster in containers, then clusters under rotating faults for JEPSENTIME from JEPSENSEED on; at most an hour
	$(call step,jepsen,the containers of docker-compose.yml)
	go run ./jepsen run --compose --time 2m --seed $(JEPSENSEED)
	$(call step,jepsen,faults that rotate for $(JEPSENTIME) from seed $(JEPSENSEED))
	go run ./jepsen suite --budget $(JEPSENTIME) --seed $(JEPSENSEED)

.PHONY: jepsen-full
jepsen-full: ## Every kind of fault, every pair of the core kinds and the composites, from JEPSENSEED; takes hours
	$(call step,jepsen-full,all faults and their pairs from seed $(JEPSENSEED))
	go run ./jepsen suite --full --seed $(JEPSENSEED)

.PHONY: jepsen-prove
jepsen-prove: ## Servers with planted bugs, each of which the checks that claim it must find
	$(call step,jepsen-prove,planted bugs from seed $(JEPSENSEED))
	go run ./jepsen prove --beside 3 --seed $(JEPSENSEED)

.PHONY: namespaces
namespaces: ## Test the suite's network in namespaces of the kernel; needs root, iproute2, iptables and nsenter
	$(call step,namespaces,nodes in network namespaces$(,) and packets that the kernel drops)
	$(RACE) $(TEST) -race -tags netns ./jepsen/network

.PHONY: formats
formats:
	$(call step,formats,the rules of formats in a program that has one more)
	@.ci/formats

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

.PHONY: as-beanstalkd
as-beanstalkd: ## Send SEQUENCES random sequences of commands to the front door for beanstalkd and to beanstalkd, and compare the answers
	$(call named,1,^TestAsBeanstalkd$$,./rpc/beanstalkd)
	BELFRY_BEANSTALKD_SEQUENCES=$(SEQUENCES) $(TEST) -timeout 0 -v -run '^TestAsBeanstalkd$$' ./rpc/beanstalkd

.PHONY: compare
compare: ## Measure Belfry beside Redis, Redisson's queue, beanstalkd and NATS; COMPARE has its flags
	go run ./cmd/compare $(COMPARE)

.PHONY: bench
bench: ## Go benchmarks matching BENCH in PKG, BENCHTIME each; fails if a path costs 20 % more than recorded in cmd/belfry/bench/guard
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 0 $(PKG)

.PHONY: bench-record
bench-record: ## Record what the paths cost now, for make bench to compare with; nothing else should run on the machine
	go test -run '^$$' -bench '^BenchmarkGuard$$' -benchtime 1x -timeout 0 ./cmd/belfry/bench/guard -guard.record

.PHONY: dashboard-pictures
dashboard-pictures: ## Take the pictures of docs/dashboard, of made-up data
	go test -count=1 -run '^TestPictures$$' -timeout $(TEST_TIMEOUT) ./cmd/belfry/browsertest -pictures

.PHONY: model
model: ## Random commands against the reference model for MODELTIME
	$(call step,model,the state machine against its reference model for $(MODELTIME))
	BELFRY_MODEL_TIME=$(MODELTIME) go test -run Model -count=1 -v -timeout 0 ./fsm/...

# The trials print a table, and what it was measured against; see cmd/belfry/clustertrial. Nothing else should run on the machine.
MEMORYGROUP := /sys/fs/cgroup/memory/belfry-trial
TRIAL := go test -count=1 -v -timeout 60m ./cmd/belfry/clustertrial -trial.shards 6

.PHONY: trial-failover
trial-failover: ## 1,000 jobs over a minute, and the node that leads most is killed
	$(TRIAL) -run '^TestFailover$$' -trial.jobs 1000 -trial.span 60s

# The containers are not those of `make up`, though their ports are: what is in its volumes stays.
.PHONY: trial-compose
trial-compose: image ## The same in containers, which are removed afterwards
	@export COMPOSE_PROJECT_NAME=belfry-trial; trap 'deploy/compose down --volumes' EXIT; \
	deploy/compose up --detach --no-build; \
	$(TRIAL) -run '^TestFailover$$' -trial.jobs 1000 -trial.span 60s -trial.compose

.PHONY: trial-growth
trial-growth: ## One node to three to five and back to three, under 2,000 jobs a second
	$(TRIAL) -run '^TestGrowth$$' -trial.rate 2000 -trial.phase 15s

.PHONY: trial-founding
trial-founding: ## Clusters of three are founded; 200 founders are killed in the first 15 seconds, 50 more lose their disk, too
	$(TRIAL) -run '^TestFounding$$' -parallel 4 -trial.foundings-calm 30 -trial.foundings-killed 200 -trial.foundings-wiped 50

.PHONY: trial-kill
trial-kill: ## 50 leaders killed, one after the other
	$(TRIAL) -run '^TestKill$$' -trial.kills 50

.PHONY: trial-restart
trial-restart: ## 20 leaders stopped and started, one after the other
	$(TRIAL) -run '^TestRestart$$' -trial.restarts 20

.PHONY: trial-hang
trial-hang: ## The disk of a leader stops; needs root and loop devices
	$(TRIAL) -run '^TestHang$$' -trial.freeze

.PHONY: trial-undialable
trial-undialable: ## Nobody can connect to a node that leads; needs root and iptables
	$(TRIAL) -tags firewall -run '^TestUndialable$$'

.PHONY: trial-advertise
trial-advertise: ## A node starts again with the address of nobody as its own, under load
	$(TRIAL) -tags firewall -run '^TestAdvertise$$'

.PHONY: trial-partial
trial-partial: ## Two nodes of three cannot reach each other, under load; needs root and iptables
	$(TRIAL) -tags firewall -run '^TestPartial$$'

.PHONY: trial-disk-full
trial-disk-full: ## The disk of one node of three fills under load; needs root, for a tmpfs
	$(TRIAL) -tags tmpfs -run '^TestDiskFull$$'

.PHONY: trial-idle
trial-idle: ## Processor time of three nodes that nobody uses, over a minute
	$(TRIAL) -run '^TestIdle$$' -trial.idle 60s

.PHONY: trial-memory
trial-memory: ## Servers with 300 MiB and 2 GiB are filled, drained, filled, killed and started; needs root and the memory controller of version 1
	@mkdir -p $(MEMORYGROUP)
	$(TRIAL) -run '^TestMemory$$' -trial.memory 300 -trial.memory-group $(MEMORYGROUP)
	$(TRIAL) -run '^TestMemory$$' -trial.memory 2048 -trial.memory-group $(MEMORYGROUP)
	$(TRIAL) -run '^TestMemory$$' -trial.memory 2048 -trial.memory-nodes 3 -trial.memory-group $(MEMORYGROUP)
	@rmdir $(MEMORYGROUP)

.PHONY: trial-fairness
trial-fairness: ## Ten jobs a second beside a tenant with a million due jobs, on one node and on three
	$(TRIAL) -run '^TestFairness$$' -trial.due 1000000 -trial.quiet 30s -trial.rounds 3
	$(TRIAL) -run '^TestFairness$$' -trial.due 1000000 -trial.quiet 30s -trial.rounds 3 -trial.nodes 3

MIRRORTRIAL := go test -count=1 -v -timeout 120m ./cmd/belfry/mirrortrial

.PHONY: trial-mirror
trial-mirror: ## A million entries come from Redis while its producers and workers go on
	$(MIRRORTRIAL) -run '^TestSize$$' -trial.entries 1000000

.PHONY: trial-mirror-kill
trial-mirror-kill: ## Each command between Redis and Belfry killed 500 times, alone and in sequences
	$(MIRRORTRIAL) -run '^TestKill' -parallel 1 -trial.kills 500

.PHONY: soak
soak: ## Clusters in virtual time through faults for SOAKTIME, from SOAKSEED on, or SOAKRUNS schedules
	$(call step,soak,clusters in virtual time for $(SOAKTIME) from seed $(SOAKSEED))
	BELFRY_SOAK_TIME=$(SOAKTIME) BELFRY_SOAK_SEED=$(SOAKSEED) BELFRY_SOAK_RUNS=$(SOAKRUNS) GOGC=400 \
		go test -run TestSoak -count=1 -v -timeout 0 ./node/nodetest/soak

# Not a part of `make test`: it takes /dev/fuse, and root or fusermount3, and fails where they are missing.
.PHONY: jepsen-disk
jepsen-disk: ## Servers whose disks lose power at every step; needs root and /dev/fuse
	$(call step,jepsen-disk,disks that fail on purpose$(,) and servers on them)
	$(TEST) -tags fuse -v ./jepsen/disk

.PHONY: flips
flips: ## FLIPS bits flipped in files of single groups, and FLIPSTRIALS damaged disks of clusters, from FLIPSSEED
	$(call step,flips,$(FLIPS) bits flipped and $(FLIPSTRIALS) disks of clusters damaged from seed $(FLIPSSEED))
	BELFRY_FLIPS=$(FLIPS) BELFRY_FLIPS_TRIALS=$(FLIPSTRIALS) BELFRY_FLIPS_SEED=$(FLIPSSEED) \
		go test -run '^TestFlips' -count=1 -v -timeout 0 ./node/nodetest/flips

# A world is small and machines are made for large ones, so that most of what is allocated is thrown away unused: hence GOGC.
.PHONY: sim
sim: ## SIMSEEDS bit-exact worlds of machines, clocks, leases and routing, from SIMSEED on
	$(call step,sim,$(SIMSEEDS) simulated worlds from seed $(SIMSEED))
	BELFRY_SIM_SEEDS=$(SIMSEEDS) BELFRY_SIM_SEED=$(SIMSEED) GOGC=800 go test -run 'TestCorpus|TestSim' -count=1 -v -timeout 0 ./jepsen/sim

.PHONY: sim-keys
sim-keys: ## simulated worlds from SIMSEED on, until SIMKEYED operations on jobs with a key were checked
	$(call step,sim-keys,simulated worlds from seed $(SIMSEED)$(,) $(SIMKEYED) operations on jobs with a key)
	BELFRY_SIM_KEYED=$(SIMKEYED) BELFRY_SIM_SEED=$(SIMSEED) GOGC=800 go test -run 'TestSim' -count=1 -v -timeout 0 ./jepsen/sim

# 20 minutes of processor time for 60 zones. TestWalk has the zones and the years.
.PHONY: cron-walk
cron-walk: ## CRONZONES zones, 500 expressions each and 20 years, against a walk through every minute, from CRONSEED
	$(call step,cron-walk,$(CRONZONES) zones against a walk through every minute from seed $(CRONSEED))
	BELFRY_CRON_WALK=$(CRONZONES) BELFRY_CRON_SEED=$(CRONSEED) go test -run '^TestWalk$$' -count=1 -v -timeout 0 ./cron

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

# A comma inside an argument of $(call) would end the argument.
, := ,
