# One flag set for everything but race: another one would compile Kubernetes
# again. The first build of the control plane takes 7 to 14 minutes on two
# cores; it is kept outside the clone, in $MILLWRIGHT_CACHE or the user's cache.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false
export GOWORK := off

VERSION ?= 0.1.0-dev
COMMIT ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
P ?= 2
DURATION ?= 10m
FUZZTIME ?= 30s

version_package := millwright.io/millwright/internal/version
ldflags := -s -w -X $(version_package).Version=$(VERSION) -X $(version_package).Commit=$(COMMIT)
commands := $(notdir $(wildcard cmd/*))
modules := $(patsubst %/go.mod,%,$(wildcard go.mod devplane/go.mod hack/crds/go.mod hack/tools/*/go.mod))
race_packages = $(addsuffix /...,$(addprefix ./internal/,$(foreach p,engine host agent kube act memapi,$(if $(wildcard internal/$(p)),$(p)))))
go_files = $(shell git ls-files --cached --others --exclude-standard '*.go')

##@ Main job

demo: need build devplane ## run the main job from nothing, narrated (first time about 15 min)
	@hack/demo

up: build devplane ## start a simulated world and stay
	@bin/millwright up

##@ Build

build: space ## all binaries into bin/ (first time about 4 min)
	@mkdir -p bin
	@for name in $(commands); do \
		started=$$SECONDS; \
		go build -p $(P) -ldflags '$(ldflags)' -o bin/$$name ./cmd/$$name; \
		echo "built bin/$$name in $$((SECONDS - started)) s"; \
	done

devplane: space ## the control plane in one binary (once 7 to 14 min, then cached)
	@go run -p $(P) ./hack/devplane

tools: ## the pinned linters and generators (once about 4 min, then cached)
	@for name in $(notdir $(wildcard hack/tools/*)); do hack/tool $$name; done

##@ Tests

test: need build devplane ## everything that belongs to each change (up to 25 min)
	@started=$$SECONDS; \
	MILLWRIGHT_BIN=$(CURDIR)/bin go test -timeout 25m -p $(P) ./...; \
	go -C devplane test -timeout 10m -p $(P) ./...; \
	go -C hack/crds test -timeout 5m -p $(P) ./...; \
	echo "tests took $$((SECONDS - started)) s"

race: ## engine, host, agent, kube, act, memapi with the race detector (cold about 5 min)
	@command -v gcc >/dev/null || { echo "make race needs a C compiler: install gcc" >&2; exit 2; }
	CGO_ENABLED=1 go test -race -timeout 15m -p $(P) $(race_packages)

e2e: build devplane ## whole walkthroughs against real binaries (up to 40 min)
	@hack/need e2e
	MILLWRIGHT_BIN=$(CURDIR)/bin MILLWRIGHT_E2E=full go test -count=1 -timeout 60m -v ./test/e2e/...

scale: need build devplane ## large sizes, by hand (up to 2 h)
	MILLWRIGHT_BIN=$(CURDIR)/bin go test -count=1 -timeout 2h -v -tags scale ./test/scale/...

soak: ## property and simulation tests with new seeds for DURATION=10m
	@hack/soak $(DURATION)

fuzz: ## every fuzz target for FUZZTIME=30s
	@hack/fuzz $(FUZZTIME)

bench: build devplane ## time to a ready world, then all benchmarks
	hack/ready
	MILLWRIGHT_BIN=$(CURDIR)/bin go test -run '^$$' -bench . -benchmem -timeout 60m -p 1 ./...

##@ Upkeep

generate: ## definitions, roles and import rules from their sources
	go -C hack/crds run -p $(P) .
	hack/rbac
	go generate ./internal/...
	go test ./internal -run TestLinterHasTheSameRules -update

verify: ## generated files, module files and formatting are as they should be
	@test -z "$$(gofmt -l $(go_files))" || { echo "not formatted; run make fmt:"; gofmt -l $(go_files); exit 1; }
	@for module in $(modules); do \
		dir=$$(dirname $$module/go.mod); [[ $$module != go.mod ]] || dir=.; \
		echo "go mod tidy -diff in $$dir"; \
		go -C $$dir mod tidy -diff || { echo "run go mod tidy in $$dir"; exit 1; }; \
	done
	go -C hack/crds run -p $(P) . -check
	hack/rbac -check
	@hack/regenerate
	go test ./internal -run TestLinterHasTheSameRules

lint: ## golangci-lint and the import rules
	@linter=$$(hack/tool golangci-lint); \
	$$linter run ./...; \
	cd hack/crds && $$linter run -c ../../.golangci.yml ./...
	go test ./internal

fmt: ## gofmt, and imports grouped as standard, others, ours
	@$$(hack/tool golangci-lint) fmt

hooks: ## install the commit hooks of hack/hooks
	git config core.hooksPath hack/hooks

clean: ## remove bin/; caches outside the clone stay
	rm -rf bin

need: ## what the tests need from the system, installed when root on Debian
	@hack/need

space: ## free disk for the build caches
	@hack/need space

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile

.PHONY: demo up build devplane tools test race e2e scale soak fuzz bench generate verify lint fmt hooks clean need space help
