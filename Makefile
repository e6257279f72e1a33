# Everything a person types here is listed by `make help`, from the ## comments.
GO      ?= go
TAGS    := osusergo,netgo
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STATIC  := -linkmode external -extldflags "-static" -X github.com/mojoup/mojoup-node/internal/cli.version=$(VERSION)
CHILD   := pkg/sandbox/native/child
FORWARDER := pkg/sandbox/openshell/forwarder
SOAK    ?= 1h
FUZZ    ?= 1m

.DEFAULT_GOAL := build
.PHONY: help build try test test-go test-tools test-vm soak lint fmt generate proto check-generated cross fuzz bench deps install clean ci

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install the Debian packages that building and testing need, or print the line to run
	@packaging/deps.sh build

helper: ## build what is embedded: the static sandbox helper, the forwarder, the program that benchmarks start
	@$(MAKE) -s -C $(CHILD)
	@$(MAKE) -s -C $(FORWARDER)
	@$(MAKE) -s -C internal/bench/stamp

build: helper ## build ./mojoup-node, statically linked
	@packaging/deps.sh check
	CGO_ENABLED=1 $(GO) build -tags $(TAGS) -ldflags '$(STATIC)' -o mojoup-node ./cmd/mojoup-node

try: deps build ## run a session in a sandbox in a demo repository and show what it could and could not do
	@packaging/try.sh ./mojoup-node

test: ## everything that proves this tree, on a fresh machine: installs, builds, tests
	@.ci/test.sh

test-go: helper ## only the quick Go tests, installing nothing; names what it skipped
	@$(GO) test -json ./... | $(GO) run .ci/summary.go

lint: helper ## vet, formatting, module files, shell scripts, lengths, what is banned
	@.ci/lint.sh

fmt: ## format the Go files
	gofmt -w cmd internal pkg

generate: helper ## write anew what is made from the code: docs/cli.md, docs/settings.md, docs/policy.schema.json, the keys in docs/tools.md
	$(GO) test ./internal/cli ./internal/config ./pkg/policy ./pkg/secrets/signin/profile -run 'TestDocs|TestSchema|Golden|UpToDate' -update

proto: ## write anew the Go files of pkg/sandbox/openshell/wire, with protoc and protoc-gen-go
	@$(GO) test ./pkg/sandbox/openshell/wire -run TestGeneratedGoIsCurrent -update

check-generated: ## fail where generate would change something
	$(GO) test ./internal/cli ./internal/config ./pkg/policy ./pkg/secrets/signin/profile -run 'TestDocs|TestSchema|Golden|UpToDate'

cross: ## show that the tree builds where sandboxes cannot run
	GOOS=darwin CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/...
	GOOS=windows CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/...

fuzz: helper ## fuzz each parser of foreign bytes for FUZZ (default 1m)
	@.ci/fuzz.sh $(FUZZ)

bench: build ## start and proxy costs beside bare floors, as docs/benchmarks.md shows them
	./mojoup-node bench

test-tools: helper ## real agent tools from npm in real sessions (half an hour, 1.6 GB of the disk)
	MOJOUP_TEST_LONG=1 MOJOUP_TEST_TOOLS=1 $(GO) test -count=1 -timeout 60m -v -run 'Tools|Codex' ./internal/realtest

test-vm: ## control groups v2, a reboot, a sleep, a clock that is set and an old kernel, in a virtual machine (root, twenty minutes)
	@.ci/vm/run.sh

soak: helper ## many sessions, many kills, for SOAK (default 1h)
	MOJOUP_SOAK=$(SOAK) MOJOUP_TEST_LONG=1 $(GO) test -count=1 -timeout 0 -v -run 'Soak|KilledAtEveryStep' ./internal/realtest ./internal/node

install: build ## install to PREFIX (default /usr/local)
	install -D -m 0755 mojoup-node $(DESTDIR)$(or $(PREFIX),/usr/local)/bin/mojoup-node

clean: ## remove what was built
	rm -rf mojoup-node $(CHILD)/bin/helper-* $(FORWARDER)/bin/forwarder-* internal/bench/stamp/bin/stamp-*

ci: ## what the continuous integration runs
	bash .ci/run
