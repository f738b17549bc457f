# laufwerk: build, test, verify. Needs Go; verify-sdk needs Node.

SHELL        := /bin/bash
.SHELLFLAGS  := -eu -o pipefail -c
.DEFAULT_GOAL := build

LINT_VERSION := 2.15.0
DEADCODE     := golang.org/x/tools/cmd/deadcode@v0.52.0
RELEASE      ?=
PLATFORMS    := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
DIST         ?= dist
BUILD_PKG    := github.com/laufwerk/laufwerk/internal/build

# Static, and the same bytes from the same revision wherever it is built. -buildvcs overrides what GOFLAGS may say.
LDFLAGS  := -buildid= -s -w $(if $(RELEASE),-X $(BUILD_PKG).release=$(RELEASE))
# Without gRPC's traces: the templates of their pages would keep every method in the binary, 4.5 MB of them.
TAGS     := grpcnotrace
GO_BUILD := CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -buildvcs=auto -ldflags '$(LDFLAGS)'

# Tests that kill the process at crash points: all that are compiled only with them, and the packages that hold them.
CRASH_FILES    = $(shell grep -rl --include='*_test.go' '^//go:build.*crashpoints' cmd e2e internal)
CRASH_PACKAGES = $(sort $(addprefix ./,$(dir $(CRASH_FILES))))
CRASH_TESTS    = ^($(shell grep -ho '^func Test[A-Za-z0-9]*' $(CRASH_FILES) | sed 's/^func //' | grep -v '^TestMain$$' | sort -u | paste -sd'|' -))$$

# Of one package's tests, against those that hang: one with containers and kills takes minutes on a small machine.
TEST_LIMIT ?= 25m
# Packages whose tests run side by side: they wait for engines and processes much of the time.
TEST_PACKAGES ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
TEST_FLAGS    ?=
GO_TEST       := go test -p $(TEST_PACKAGES) -timeout $(TEST_LIMIT) $(TEST_FLAGS)

.PHONY: build release test test-unit test-crash torture bench demo cover clean
build: ## the binary, bin/laufwerk
	$(GO_BUILD) -o bin/laufwerk ./cmd/laufwerk

# Each binary of a release carries the plain Linux builds that it is not itself, for containers of another platform than its own.
release: ## the binaries of all platforms and their checksums, in dist; RELEASE=v1.2.3 names the version
	@mkdir -p '$(DIST)'; tmp=$$(mktemp -d -p '$(DIST)' .new-XXXXXX); trap 'rm -rf "$$tmp"' EXIT; \
	for arch in amd64 arm64; do GOOS=linux GOARCH=$$arch $(GO_BUILD) -o "$$tmp/linux-$$arch" ./cmd/laufwerk; done; \
	go run ./release "$$tmp"; \
	for p in $(PLATFORMS); do \
		name=$${p/\//-}; echo "release $$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} $(GO_BUILD) -tags $(TAGS),release -overlay "$$tmp/$$name.json" -o "$$tmp/out/laufwerk-$$name" ./cmd/laufwerk; \
	done; \
	(cd "$$tmp/out" && sha256sum laufwerk-* >SHA256SUMS); \
	mv -f "$$tmp"/out/* '$(DIST)'

test: test-unit test-crash

test-unit:
	$(GO_TEST) ./...

test-crash: ## builds with crash points: SIGKILL at each of them, and calls to the system that fail
	$(GO_TEST) -tags crashpoints -run '$(CRASH_TESTS)' $(CRASH_PACKAGES)

# What `make test` takes samples of (internal/testkit/samples.go), and two builds of which the second begins with an empty cache.
torture: ## all faults, crash points, moments and schedules that tests take samples of: hours
	LAUFWERK_TEST_ALL=1 $(MAKE) test TEST_LIMIT=6h
	$(MAKE) verify-reproducible EMPTY_CACHE=1

.PHONY: test-openshell
# Not as root. LAUFWERK_OPENSHELL_GATEWAY names a registered and provisioned gateway, _PROVIDER the login there, _IMAGE_CACHE the
# cache with the prepared image; with _AGENT=command no model is called, and _MODEL_URL is a model server of one's own.
test-openshell: ## holds an OpenShell gateway to what laufwerk relies on
	go test -count=1 -v -timeout 4h -run '^TestOpenShellGateway$$' ./e2e/openshell

update-scripts: ## rewrites the expected output in testdata/script
	go test ./e2e/scripts -run TestScript -update

update-docs: ## rewrites what the binary says of itself in README.md and docs/
	go test ./e2e/docs -run TestMadeParts -update

# On a busy machine: make bench BENCH_WITH='nice -n -15' (as root). Not with real-time priority: it makes waking slower.
bench: build ## the numbers to hold, beside yardsticks; bench/main.go says how
	@.ci/parts node22 restate || echo "make bench: without a Restate server; its published number is used"
	go build -o .tools/bench ./bench
	CGO_ENABLED=0 go build -o .tools/ ./internal/testkit/gateway/serve ./internal/testkit/gateway/supervisor
	$(BENCH_WITH) .tools/bench -binary bin/laufwerk $(BENCH_ARGS)

demo:
	go run ./cmd/laufwerk demo --yes

cover: ## cover.out, and the total
	go test -coverpkg=./internal/... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -1

.PHONY: verify verify-format update-format verify-vet verify-lint verify-modules update-modules verify-platforms verify-reproducible verify-sdk
verify: verify-format verify-modules verify-vet verify-lint verify-commands verify-wire verify-names verify-words verify-layers verify-deadcode verify-sdk verify-platforms verify-reproducible

verify-format:
	@out=$$(gofmt -l bench cmd e2e internal release sdk templates); if [ -n "$$out" ]; then echo "not formatted (make update-format):"; echo "$$out"; exit 1; fi

update-format:
	gofmt -w bench cmd e2e internal release sdk templates

verify-modules:
	@go mod tidy -diff || { echo "go.mod or go.sum is not tidy (make update-modules)"; exit 1; }
	go mod verify

update-modules:
	go mod tidy

verify-vet:
	go vet ./...
	go vet -tags crashpoints ./...

verify-lint:
	lint=$$(.ci/lint $(LINT_VERSION)); $$lint run ./...

verify-platforms:
	@for p in $(PLATFORMS); do echo "build $$p"; CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build -tags $(TAGS) -trimpath -o /dev/null ./cmd/laufwerk; done

# Two builds, the second from a copy in another directory. With LAUFWERK_CI=1 our own packages are compiled anew for it, with
# EMPTY_CACHE=1 all packages.
verify-reproducible:
	@tmp=$$(mktemp -d); trap 'chmod -R u+w "$$tmp"; rm -rf "$$tmp"' EXIT; mkdir "$$tmp/copy"; \
	git ls-files -z --cached --others --exclude-standard | xargs -0 -I{} sh -c '[ ! -e "$$1" ] || cp -P --parents "$$1" "$$2"' _ {} "$$tmp/copy"; \
	CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o "$$tmp/one" ./cmd/laufwerk; \
	if [ "$(EMPTY_CACHE)" = 1 ]; then export GOCACHE="$$tmp/cache"; \
	elif [ "$${LAUFWERK_CI:-}" = 1 ]; then \
		CGO_ENABLED=0 go list -deps -export -tags $(TAGS) -trimpath -f '{{if and .Module .Module.Main}}{{.Export}}{{end}}' ./cmd/laufwerk | xargs rm -f; \
	fi; \
	(cd "$$tmp/copy" && CGO_ENABLED=0 go build -tags $(TAGS) -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o "$$tmp/two" ./cmd/laufwerk); \
	cmp "$$tmp/one" "$$tmp/two"; echo "two builds are identical"

.PHONY: verify-release
verify-release: ## two releases are identical, and each carries what its containers need
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(MAKE) --no-print-directory release DIST="$$tmp/one"; $(MAKE) --no-print-directory release DIST="$$tmp/two" >/dev/null; \
	diff -r "$$tmp/one" "$$tmp/two"; echo "two releases are identical"; \
	LAUFWERK_RELEASE="$$tmp/one" go test -count=1 -run TestRelease ./internal/guest/carried

verify-sdk: ## the TypeScript half, and what init writes, against real tsc
	sdk/verify.sh
	for config in templates/tsconfig*.json; do sdk/node_modules/.bin/tsc -p "$$config"; done

.PHONY: verify-commands update-commands
verify-commands: ## docs/commands and docs/man are what the command tree says
	go test -count=1 -run 'TestCommandPages|TestManualPages' ./e2e/docs

update-commands:
	go test -count=1 -run TestCommandPages ./e2e/docs -update

.PHONY: update-sdk
update-sdk: ## the declarations, and the SDK and the prelude as the isolate loads them
	sdk/update.sh
	go test ./internal/script -run TestBuiltIsCurrent -update

.PHONY: verify-wire update-wire
verify-wire: ## the Go code of the gateway's protocol is what its .proto files say
	go test -count=1 -run TestGeneratedIsCurrent ./internal/openshell/wire

update-wire:
	go test -count=1 -run TestGeneratedIsCurrent ./internal/openshell/wire -update

.PHONY: verify-names update-names
verify-names: ## no name that is stored or printed has changed: JSON fields, values, files, labels, variables, crash points
	go test -count=1 -run TestNames ./internal/compat

update-names: ## records added ones; what is gone is deleted from internal/compat/testdata by hand
	go test -count=1 -run TestNames ./internal/compat -update

.PHONY: verify-layers update-layers
verify-layers: ## imports point down by the table in internal/layers, and CONTRIBUTING's map is that table
	go test -count=1 ./internal/layers

update-layers:
	go test -count=1 -run TestMapIsCurrent ./internal/layers -update

.PHONY: verify-words
verify-words: ## no name of the code has a word that the code does not use
	go test -count=1 ./internal/vocabulary

.PHONY: verify-deadcode
# Methods of what is handed to reflection count as reached, and what only another platform needs is a file of that platform.
verify-deadcode: ## no function of the program that only tests reach, on Linux, with crash points, on macOS
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; GOBIN="$$tmp" go install $(DEADCODE); \
	for set in linux/$(TAGS) linux/$(TAGS),crashpoints darwin/$(TAGS); do \
		out=$$(GOOS=$${set%/*} CGO_ENABLED=0 "$$tmp/deadcode" -tags "$${set#*/}" ./cmd/...); \
		if [ -n "$$out" ]; then echo "reached by nothing but tests ($$set):"; echo "$$out"; exit 1; fi; \
	done

clean:
	rm -rf bin dist cover.out
