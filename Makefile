# Everything a developer does here. `make help` lists it.
#
# The profile `release` serves what runs and is measured, `checked`, with debug assertions, what is tested and linted.
# Both are in a target directory outside of the checkout. RocksDB, which takes minutes to compile, is compiled once,
# beside it.

CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/haypile
CARGO_TARGET_DIR ?= $(CACHE)/target
override CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))
export CARGO_TARGET_DIR
# The version of RocksDB that Cargo.lock asks for.
ROCKSDB := $(CACHE)/rocksdb-$(shell sed -n '/^name = "rust-librocksdb-sys"/{n;s/.*"\(.*\)"/\1/p}' Cargo.lock)
export ROCKSDB_LIB_DIR ?= $(ROCKSDB)
export ROCKSDB_INCLUDE_DIR ?= $(ROCKSDB)/include
export ROCKSDB_STATIC ?= 1
CARGO = cargo
BIN = target/release/haypile
HARNESS = $(CARGO_TARGET_DIR)/release/haypile-harness
CHECKED = HAYPILE_BIN="$(CARGO_TARGET_DIR)/checked/haypile" $(CARGO_TARGET_DIR)/checked/haypile-harness

ARGS ?=
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
CASES ?= 2000
MINUTES ?= 10
TARGET ?= parser
RUNS ?= 1000000

.PHONY: help build run run-raft test lint docs bench diff crash repl psync raft-chaos damage soak fuzz build-tools test-tools harness checked

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 16

build: build-tools ## build the server; the binary is target/release/haypile
	$(CARGO) build --release --locked -p haypile-server
	@mkdir -p target/release
	@[ "$(CARGO_TARGET_DIR)" = "$(CURDIR)/target" ] || cp -f --remove-destination "$(CARGO_TARGET_DIR)/release/haypile" $(BIN)

run: build ## build and start a server on port 6379 with its data in ./data (ARGS='--port 6380')
	@mkdir -p data
	$(BIN) server --dir data $(ARGS)

run-raft: build ## build and start three servers that are a Raft group, on ports 7001 to 7003 (deploy/raft/Procfile)
	scripts/procfile deploy/raft/Procfile

# Cargo builds the binaries that the tests run before it runs the first one.
test: test-tools lint ## format, lints and all tests
	HAYPILE_BIN="$(CARGO_TARGET_DIR)/checked/haypile" scripts/tests
	$(CARGO) test --profile checked --locked -p haypile-engine --features shuttle --lib
	scripts/fuzz all 20000

lint: build-tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile checked --locked --workspace --all-targets -- -D warnings

docs: build-tools ## rewrite the pages that are generated from tables
	$(CARGO) run --release --locked -p haypile-config --example write_configuration
	$(CARGO) run --release --locked -p haypile-commands --example write_compatibility
	$(CARGO) run --release --locked -p haypile-engine --example write_info

harness: build-tools
	$(CARGO) build --release --locked -p haypile-harness

# Of the whole workspace, so that crates have the same features as in the tests, and are compiled once.
checked: build-tools
	$(CARGO) build --profile checked --locked --workspace --bins

bench: test-tools build harness ## compare speed with redis-server, into docs/benchmarks.md (ARGS='--quick')
	HAYPILE_BIN="$(CURDIR)/$(BIN)" $(HARNESS) bench $(ARGS)

diff: test-tools checked ## compare replies with redis-server (SEED=, CASES=)
	$(CHECKED) diff --seed $(SEED) --cases $(CASES) $(ARGS)

crash: checked ## kill and verify (MINUTES=, SEED=)
	$(CHECKED) crash --minutes $(MINUTES) --seed $(SEED) $(ARGS)
	$(CHECKED) crash --short-disk --minutes 2 --seed $(SEED)

repl: checked ## kill, stop, cut off and promote servers that follow each other (MINUTES=, SEED=)
	$(CHECKED) repl --minutes $(MINUTES) --seed $(SEED) $(ARGS)

psync: test-tools checked ## follow a redis-server through kills and cuts, and compare every key (MINUTES=, SEED=)
	$(CHECKED) psync --minutes $(MINUTES) --seed $(SEED) $(ARGS)

raft-chaos: test-tools checked ## disturb a group, check what its clients heard (MINUTES=, SEED=, ARGS='--system etcd')
	$(CHECKED) raft-chaos --minutes $(MINUTES) --seed $(SEED) $(ARGS)

damage: checked ## delete, cut and flip files, and compare what comes up (MINUTES=, SEED=)
	$(CHECKED) damage --minutes $(MINUTES) --seed $(SEED) $(ARGS)

soak: build harness ## mixed load for long (MINUTES=), then attacks beside an innocent client
	HAYPILE_BIN="$(CURDIR)/$(BIN)" $(HARNESS) soak --minutes $(MINUTES) --seed $(SEED) $(ARGS)
	HAYPILE_BIN="$(CURDIR)/$(BIN)" $(HARNESS) hostile
	HAYPILE_BIN="$(CURDIR)/$(BIN)" $(HARNESS) hostile --defaults

fuzz: build-tools ## fuzz what parses bytes (TARGET=parser|...|all, RUNS=)
	scripts/fuzz $(TARGET) $(RUNS)

build-tools:
	@scripts/install build
	@scripts/rocksdb "$(ROCKSDB_LIB_DIR)"

test-tools: build-tools
	@scripts/install test
