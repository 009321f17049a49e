# For the hand. What is built, and how, is in CMakeLists.txt and CMakePresets.json.
PREFIX ?= /usr/local
DESTDIR ?=
ARCH ?=

.DEFAULT_GOAL := all
.PHONY: all run tour test lint install package image repository bench clean help setup

all: ## build build/belay, build/libbelay.so and build/libbelay.a
	@tools/setup build
	@test -f build/build.ninja || cmake --preset release --log-level=WARNING >/dev/null
	@cmake --build --preset release

run: all ## build, then serve an embedded store on 127.0.0.1:7420 until Ctrl-C
	@tools/run.sh build/belay

tour: all ## build, then a narrated tour of the command line that ends by itself
	@tools/tour.sh build/belay

test: ## install what the tests need, build everything, run every test
	@tools/setup build test
	@tools/test

lint: ## format, static analysis, and the rules of the layers
	@tools/setup build test lint
	@tools/lint

bench: all ## measure beside flock, Redis, PostgreSQL, etcd and ZooKeeper
	@tools/setup bench
	@bench/run

install: ## install under PREFIX (/usr/local) below DESTDIR
	@test -x build/belay || $(MAKE) --no-print-directory all
	@DESTDIR='$(DESTDIR)' cmake --install build --prefix '$(PREFIX)'

$(if $(and $(ARCH),$(filter-out package,$(MAKECMDGOALS))),$(error ARCH is for 'make package' only))
ifeq ($(ARCH),)
package: all ## make build/dist: .deb packages, a tarball, a Lambda layer; ARCH=arm64: build/dist-arm64
	@tools/setup package
	@packaging/package build build/dist
else
package:
	@tools/setup image
	@packaging/cross '$(ARCH)'
endif

image: package ## make build/dist/belay-VERSION-oci.tar, as root, without a registry
	@tools/setup image
	@packaging/image build/dist

repository: package ## make build/repository, an apt repository that any web server can host
	@packaging/repository build/dist build/repository

setup: ## install the Debian packages that building, testing and linting need
	@tools/setup build test lint bench

clean: ## remove what was built
	rm -rf build

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile
