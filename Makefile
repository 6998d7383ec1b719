# SPDX-License-Identifier: Apache-2.0
# The documented commands. Each is a thin cover over CMake and ctest; `make help` lists them.
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
CTEST_ARGS ?=
MINUTES ?= 2
COMMA := ,
# Compilers for the ordinary build come from CC, as usual.
CMAKE_ARGS ?=
VERSION = $(shell awk '$$2 == "VERSION" { print $$3; exit }' CMakeLists.txt)
COMMIT = $(shell git rev-parse --short=12 HEAD 2>/dev/null)
# Warnings that depend on optimisation differ in instrumented builds: errors only in the ordinary ones.
CONFIGURE = cmake -S . $(if $(wildcard $(1)/CMakeCache.txt),,$$(command -v ninja >/dev/null 2>&1 && echo -G Ninja)) -B $(1) $(2) $(CMAKE_ARGS) -Wno-dev --log-level=WARNING >/dev/null
BUILD = nice cmake --build $(1) -j $(JOBS)
CTEST = nice tools/ctest.py $(1) -j $(2) --output-on-failure $(CTEST_ARGS)
# Most tests wait most of the time: four slots for each processor, and tests/weights.txt says who takes how many.
SLOTS = $$(( $(JOBS) * 4 ))

.DEFAULT_GOAL := help
.PHONY: help deps deps-core deps-dev build core demo test check asan tsan fuzz soak bench bench-sim bench-placement \
	coverage lint format docs install uninstall clean picture image e2e examples package test-package \
	test-release release

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

deps: ## install what building and testing need (Debian 12, Ubuntu 24.04); silent when all is there
	@tools/deps.sh core screen test agent

deps-core:
	@tools/deps.sh core

deps-install:
	@tools/deps.sh core screen

deps-dev:
	@tools/deps.sh core screen test agent dev

build: deps ## build everything into build/
	@$(call CONFIGURE,build,)
	@$(call BUILD,build)

core: deps-core ## build libsluice, sluice and the GPU tests with only a C compiler and CMake (build-core/)
	@$(call CONFIGURE,build-core,-DSLUICE_CORE=ON)
	@$(call BUILD,build-core)

demo: ## three tenants share one GPU: the real one if there is one, else a simulated one
	@mkdir -p build-core && flock build-core $(MAKE) core # two demos at once build once
	@demo/demo.sh build-core

picture: core ## run the demo and `sluice top`, and draw what they show into docs/img
	@tools/picture.sh build-core
	@tools/picture-top.sh build-core

test: build ## everything that needs no GPU and no Kubernetes
	@$(call CTEST,build,$(SLOTS))

docs: ## write docs/errors.md from the tables of messages, and wrap Markdown at 120 columns
	@tools/errors.py
	@tools/page.py
	@tools/mdwrap.py

check: build ## only the checks on the tree itself: layers, headers, exports, licences, both compilers
	@$(call CTEST,build,$(SLOTS)) -L check

asan: deps ## the tests under AddressSanitizer and UBSan
	@$(call CONFIGURE,build-asan,-DSLUICE_SANITIZE=address -DSLUICE_WERROR=OFF)
	@$(call BUILD,build-asan)
	@tools/sanitizer.sh build-asan $(call CTEST,build-asan,$(JOBS)) -LE check

tsan: deps ## the tests under ThreadSanitizer
	@$(call CONFIGURE,build-tsan,-DSLUICE_SANITIZE=thread -DSLUICE_WERROR=OFF)
	@$(call BUILD,build-tsan)
	@tools/sanitizer.sh build-tsan $(call CTEST,build-tsan,$(JOBS)) -LE check

fuzz: deps ## libFuzzer on every parser and on hostile pages, about a minute in all
	@CC=clang; export CC; $(call CONFIGURE,build-fuzz,-DCMAKE_C_COMPILER=clang -DSLUICE_FUZZ=ON -DSLUICE_WERROR=OFF)
	@nice cmake --build build-fuzz -j $(JOBS) --target fuzzers
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

soak: build ## random tenants with a checker: MINUTES=30, SEED=… repeats a run
	@python3 tests/soak/soak.py build --seconds $$(( $(MINUTES) * 60 )) $(if $(SEED),--seed $(SEED)) $(SOAK_ARGS)

bench: deps-dev ## figures: instructions per hook, attach times (printed, and kept as JSON)
	@$(call CONFIGURE,build,)
	@$(call BUILD,build)
	@if [ -x bench/run.sh ]; then bench/run.sh build; else echo "bench: nothing to measure yet (no bench/run.sh)"; exit 1; fi

bench-sim: build ## compute shares and their bars, on the simulated GPU
	@if [ -x bench/sim/run.sh ]; then bench/sim/run.sh build; else echo "bench-sim: nothing to measure yet (no bench/sim/run.sh)"; exit 1; fi

bench-placement: build ## placement against the published table and its bars, a few minutes; TRACES=DIR (docs/placement.md)
	@[ -n "$(TRACES)" ] || { echo "bench-placement: say where the openb files are: make bench-placement TRACES=DIR"; exit 2; }
	@bench/placement.py "$(TRACES)" build

image: build ## the agent's OCI image, build/sluice-image.tar, for `ctr images import`; no registry needed
	@tools/image.sh build $(VERSION) build/sluice-image.tar

examples: build ## the files of examples/ with Jupyter, supervisord and Slurm, on a simulated GPU
	@tools/deps.sh examples
	@/usr/bin/python3 tests/examples/examples.py build

e2e: image ## real Kubernetes with simulated GPUs: needs root and Kubernetes' programs (docs/testing.md)
	@tools/deps.sh e2e
	@python3 tests/e2e/run.py $(E2E_ARGS)
	@$(if $(E2E_ARGS),,python3 tests/e2e/run.py --gpus h200x4)
	@$(if $(E2E_ARGS),,python3 tests/e2e/run.py --gpus a100-80g$(COMMA)h200)
	@$(if $(E2E_ARGS),,python3 tests/e2e/run.py --gpus a100-40gx8)

coverage: deps-dev ## branch coverage of src/policy, src/shm and src/preload; fails under 85 %
	@$(call CONFIGURE,build-coverage,-DSLUICE_COVERAGE=ON -DSLUICE_WERROR=OFF)
	@$(call BUILD,build-coverage)
	@tools/coverage.sh build-coverage $(JOBS)

lint: deps-dev ## clang-format (check only), shellcheck, clang-tidy on what changed since main; BASE=COMMIT, or ALL=1
	@$(call CONFIGURE,build-lint,-DCMAKE_C_COMPILER=clang)
	@nice cmake --build build-lint --target sl_proto sluice_commit >/dev/null # the headers it generates
	@ALL="$(ALL)" BASE="$(BASE)" tools/lint.sh build-lint

format: deps-dev ## clang-format the sources in place, and lay out the tables of messages
	@tools/lint.sh --format
	@tools/errors.py --format

# The flags are those of the build that is tested and measured; another compiler's warnings stop nobody here.
install: deps-install ## install sluice into $(DESTDIR)$(PREFIX), by default /usr/local; needs only a C compiler and CMake
	@$(call CONFIGURE,build-install,-DSLUICE_CORE=ON -DSLUICE_WERROR=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX))
	@$(call BUILD,build-install)
	@DESTDIR=$(DESTDIR) cmake --install build-install --strip

# Built twice, the same bytes: without debug information and names, the linker's build-id says only what is in the file.
PACKAGE_FLAGS = -DSLUICE_TESTS=OFF -DSLUICE_WERROR=OFF -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib \
	-DSLUICE_COMMIT=$(COMMIT) -DCMAKE_C_FLAGS=-ffile-prefix-map=$(CURDIR)=. \
	'-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -DNDEBUG' -DCMAKE_EXE_LINKER_FLAGS=-s -DCMAKE_SHARED_LINKER_FLAGS=-s
# The flags are those of `make install`, with agent and controller; no path of this tree is in a file.
package: ## Debian packages and a relocatable tarball with SHA256SUMS, into build-package/packages (docs/packages.md)
	@tools/deps.sh core screen agent package
	@$(call CONFIGURE,build-package,$(PACKAGE_FLAGS))
	@$(call BUILD,build-package)
	@rm -rf build-package/stage && DESTDIR=build-package/stage cmake --install build-package --strip >/dev/null
	@tools/package.py build-package/stage $(VERSION) build-package/packages

test-package: build package ## install, upgrade and purge the packages in a bare Debian 12; lintian; needs root (docs/packages.md)
	@tools/deps.sh package bare
	@tests/package/bare.sh build build-package/stage $(VERSION)

release: ## tarballs, packages, image, chart, SBOM and SHA256SUMS of this commit, into build-release (docs/release.md)
	@tools/release.py check $(VERSION)
	@$(MAKE) package
	@tools/image.sh build-package $(VERSION) build-package/sluice-image-$(VERSION).tar
	@tools/release.py make $(VERSION) build-package build-release

test-release: ## two builds of a release in two folders are the same bytes (docs/release.md)
	@tests/package/release.sh . build/release-twice twice

uninstall: ## remove what `make install` put there (with the same DESTDIR)
	@DESTDIR="$(DESTDIR)" tools/uninstall.sh build-install/install_manifest.txt

clean: ## remove every build directory
	@rm -rf build build-core build-asan build-tsan build-fuzz build-coverage build-lint build-install build-package \
		build-release
