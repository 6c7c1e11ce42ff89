# make lists the targets. Only race needs a C compiler.

GO       ?= go
# ARGS goes to headstart demo: make demo ARGS=-json
ARGS     ?=
# FUZZTIME is how long each fuzz target runs.
FUZZTIME ?= 10s
# SEEDS is how many worlds make sim runs, from FIRST on.
SEEDS    ?= 1000
FIRST    ?= 1
# REF is what make bench-compare compares with.
REF      ?= main
# keep keeps what a bench prints in bench/RESULTS.md, when it is run as it comes.
keep      = $(if $(ARGS),,$(GO) run ./bench/results -section "$(1)" -command "make $@" --)

export CGO_ENABLED ?= 0

# The packages that people wrote.
OURS      = $$($(GO) list ./... | grep -v /kitex_gen)
OUR_FILES = $$(find . -name '*.go' -not -path './rpc/kitex_gen/*')

.DEFAULT_GOAL := help
.PHONY: help build demo test check race raceall bench bench-compare bench-cold rivals limits flames fuzz sim chaos clients s3clients feclients gen clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 24

build: ## build bin/headstart
	$(GO) build -trimpath -o bin/headstart ./cmd/headstart

demo: build ## run a cluster on this machine and compare it with object storage only
	bin/headstart demo $(ARGS)

test: ## run the tests
	$(GO) test -timeout 10m ./...

check: ## gofmt, vet, staticcheck, go fix, house rules, conformance
	@bad=$$(gofmt -l $(OUR_FILES)); test -z "$$bad" || { echo "gofmt -w these:"; echo "$$bad"; exit 1; }
	$(GO) vet $(OURS)
	$(GO) tool staticcheck $(OURS)
	$(GO) fix -diff $(OURS)
	$(GO) run ./cmd/tidy
	$(GO) run ./cmd/tidy -conformance

# Benchmarks that are tests measure, and mean nothing under the race detector. In
# a bubble of virtual time two goroutines that meet timers at once can crash the
# detector itself (golang/go#78156): -cpu 1 keeps them apart, and it finds races
# without parallel threads as well.
race: ## run the tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short -cpu 1 -timeout 20m $$($(GO) list ./... | grep -E '/(engine|shards|blockcache|fuzz)(/|$$)')
	CGO_ENABLED=1 $(GO) test -race -short -timeout 12m $$($(GO) list ./... | grep -vE '/(engine|shards|blockcache|fuzz|bench/[a-z]+)(/|$$)')

raceall: ## the same with the longest ones, for an idle machine and an hour
	CGO_ENABLED=1 $(GO) test -race -short -cpu 1 -timeout 60m ./...

bench: ## measure the hot paths: make bench ARGS='-packages ./blockcache -bench Get'
	$(call keep,Hot paths) $(GO) run ./bench/micro $(ARGS)

bench-compare: ## measure them beside those of a commit: make bench-compare REF=main
	$(GO) run ./bench/micro -ref $(REF) $(ARGS)

# 5190 reads against a store that is as slow as the real one: a round takes 80 s.
bench-cold: build ## measure reads of cold data: time, GETs and money with and without peers, and as a cluster grows
	$(call keep,Cold reads) bin/headstart demo -cold $(ARGS)
	$(call keep,Cold reads as a cluster grows) env GROW=10 $(GO) test -count 1 -timeout 12m -run ClusterGrows -v ./bench/grow

# RIVALS is where make rivals builds Cachey, once; that takes longer than all the
# rest and does not count. Debian has nginx where not everybody looks.
RIVALS ?= /tmp/headstart-rivals
rivals: export PATH := $(PATH):/usr/sbin
rivals: build ## measure rivals beside ours: look-up, peer hop, HTTP hits, cold and warm reads (a module of its own)
	bench/rivals/install.sh $(RIVALS)
	$(call keep,Rivals: look-up) $(GO) -C bench/rivals run ./caches
	$(call keep,Rivals: peer hop) $(GO) -C bench/rivals run ./peers
	$(call keep,Rivals: HTTP hits) $(GO) -C bench/rivals run ./hits -cachey $(RIVALS)/bin/server
	$(call keep,Rivals: cold and warm reads) $(GO) -C bench/rivals run ./reads -cachey $(RIVALS)/bin/server

limits: ## measure what this machine can do at most: memory, loopback, disk
	$(call keep,Limits of the machine) $(GO) run ./bench/limits $(ARGS)

flames: ## draw flame graphs of the hot paths into docs/flames
	@set -e; d=$$(mktemp -d); trap 'rm -rf '$$d EXIT; mkdir -p docs/flames; draw() { $(GO) run ./bench/flame -o docs/flames/$$1 -title "$$2" $$3 $$4; }; \
	$(GO) test -run '^$$' -bench '^BenchmarkHit$$' -benchtime 5s -cpuprofile $$d/hit -o $$d/t ./engine >/dev/null; \
	draw hit.svg 'a hit of 64 bytes, in the engine' -focus='headstart/engine.(*Engine).Read' $$d/hit; \
	$(GO) test -run '^$$' -bench 'Race/one' -benchtime 3s -cpuprofile $$d/race -o $$d/t ./engine/race >/dev/null; \
	draw race.svg 'a race that the peer wins at once' -- $$d/race; \
	$(GO) test -run '^$$' -bench 'Hit/short' -benchtime 3s -cpuprofile $$d/s3 -o $$d/t ./rpc/s3 >/dev/null; \
	draw s3-hit.svg 'a hit of 1 KiB at the S3 front, without the socket' -focus='headstart/rpc/s3.(*Front).answerShort' $$d/s3; \
	$(GO) run ./bench/peerhop -sizes 65536 -ways hop -rounds 3 -profiles $$d >/dev/null; \
	draw hop-client.svg 'the peer hop, 64 KiB, the side that asks' -- $$d/client.pprof; \
	draw hop-server.svg 'the peer hop, 64 KiB, the side that serves' -- $$d/server-65536.pprof

fuzz: ## run each fuzz target for FUZZTIME
	@set -e; \
	for file in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | sort); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
			echo "$$target in $$(dirname $$file)"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$(dirname $$file); \
		done; \
	done

sim: ## run SEEDS simulated clusters with every fault there is
	SIM_SEED=$(FIRST) SIM_SEEDS=$(SEEDS) $(GO) test -count 1 -timeout 2h ./fuzz/sim

chaos: build ## cut a BE of a real cluster off, or kill its FE: ARGS="-lose fe" (needs ip, and the right to make network namespaces)
	$(GO) build -trimpath -o bin/chaos ./fuzz/chaos
	unshare -rn bin/chaos $(ARGS)

# CLIENTS is where make clients installs what it runs; TPCH has generate.py,
# queries.py and requirements.txt, SF is the scale factor of the data.
CLIENTS ?= /tmp/headstart-clients
TPCH    ?= ../shared/data/tpch
SF      ?= 1

clients: s3clients feclients ## run the clients that people have against real nodes

s3clients: build ## run S3 clients, unchanged, through a BE (installs them below CLIENTS)
	@for f in generate.py queries.py requirements.txt; do test -f $(TPCH)/$$f || \
		{ echo "there is no $$f in TPCH=$(TPCH); make s3clients TPCH=DIR says where the TPC-H scripts are"; exit 1; }; done
	test -x $(CLIENTS)/v/bin/pip || python3 -m venv $(CLIENTS)/v
	$(CLIENTS)/v/bin/pip -q install -r $(TPCH)/requirements.txt boto3 awscli s3cmd
	test -d $(CLIENTS)/node_modules || { cd $(CLIENTS) && npm install --silent @aws-sdk/client-s3; }
	cd bench/clients/miniogo && $(GO) build -o $(CLIENTS)/miniogo .
	mkdir -p $(CLIENTS)/tpch && cp $(TPCH)/*.py $(CLIENTS)/tpch
	test -d $(CLIENTS)/tpch/data || $(CLIENTS)/v/bin/python $(CLIENTS)/tpch/generate.py $(SF) $(CLIENTS)/tpch/data
	$(GO) run ./bench/clients -dir $(CLIENTS) -tpch $(CLIENTS)/tpch $(ARGS)

feclients: build ## run an FE's statements with the MySQL clients that people have (fetches them)
	bench/feclients/run.sh bin/headstart

gen: ## renew generated code and documents
	$(GO) run -mod=mod github.com/cloudwego/kitex/tool/cmd/kitex -module headstart -gen-path rpc/kitex_gen -thrift no_default_serdes rpc/idl/headstart.thrift
	$(GO) run ./cmd/config/gen >docs/CONFIG.md
	$(GO) run ./cmd/tidy -write

clean: ## remove what was built
	rm -rf bin
