# Trackway's commands. `make help` lists them.

CARGO ?= cargo
CC ?= cc
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# Where systemd looks for units of packages, and below /usr/local; for users beside it.
UNITDIR ?= $(PREFIX)/lib/systemd
UNIT := trackway-session@.service
BUILD := target/release
CFLAGS_PRELOAD := -O2 -g -std=c11 -Wall -Wextra -Wpedantic -Werror -fPIC -fvisibility=hidden \
	-ftls-model=initial-exec -Iinclude
# An object without control-flow marks would take them away from every program that it is linked to.
CFLAGS_LINK_x86_64 := -fcf-protection=full
CFLAGS_LINK_aarch64 := -mbranch-protection=standard
CFLAGS_LINK := -O2 -std=c11 -Wall -Wextra -Wpedantic -Werror -fPIC \
	$(CFLAGS_LINK_$(firstword $(subst -, ,$(shell $(CC) -dumpmachine))))
# What `-ltrackway` finds: a linker script, because programs refer to the library weakly, and
# --as-needed drops such a library. Nothing loads this file at run time: see packaging/link.c.
LINK_OBJECT := trackway-link.o
LINK_SCRIPT := /* GNU ld script: never loaded at run time */ INPUT($(LINK_OBJECT) libtrackway.so.1)
LDFLAGS_PRELOAD := -shared -Wl,-z,now -Wl,-z,relro
HEADERS := $(wildcard include/trackway/*.h include/trackway/*.hpp include/trackway/abi/*.h)
HELPERS := libc pthread dl fd fork
HELPER_LIBRARIES := $(HELPERS:%=$(BUILD)/libtrackway-%.so)
VERSION := 0.1.0
# The page trackway(3), made of the headers' comments, and the names that it is found under.
MAN3 := awk -v version=$(VERSION) -f packaging/man3.awk
MAN3_HEADERS := include/trackway/trackway.h include/trackway/context.h include/trackway/dynamic.h

.PHONY: help build programs helpers demo test test-kernels test-as-root systemd fuzz torture ways \
	sanitize models kill arch bench asm install uninstall clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: programs $(BUILD)/libtrackway.so.1 $(BUILD)/link/libtrackway.so $(HELPER_LIBRARIES) ## build everything in release mode

helpers: $(HELPER_LIBRARIES)

programs:
	$(CARGO) build --release --locked -p trackway-capi
	$(CARGO) build --profile command --locked -p trackway-cli -p trackway-bench
	ln -f $(dir $(BUILD))command/trackway $(BUILD)/trackway
	ln -f $(dir $(BUILD))command/trackway-bench $(BUILD)/trackway-bench

$(BUILD)/libtrackway.so.1: programs
	ln -sf libtrackway.so $@

# In a folder of its own, because cargo writes the library itself as $(BUILD)/libtrackway.so.
$(BUILD)/link/libtrackway.so: $(BUILD)/link/$(LINK_OBJECT) Makefile
	ln -sf ../libtrackway.so $(BUILD)/link/libtrackway.so.1
	echo '$(LINK_SCRIPT)' > $@

$(BUILD)/link/$(LINK_OBJECT): packaging/link.c Makefile
	@mkdir -p $(BUILD)/link
	$(CC) $(CFLAGS_LINK) -c -o $@ $<

$(BUILD)/libtrackway-%.so: preload/%.c preload/helper.h $(HEADERS) Makefile
	@mkdir -p $(BUILD)
	$(CC) $(CFLAGS_PRELOAD) $(LDFLAGS_PRELOAD) -Wl,-soname,$(notdir $@) -o $@ $<

demo: ## record a real program and look at the trace
	@scripts/packages demo
	@$(MAKE) --no-print-directory build
	@scripts/demo

test: ## run all tests
	@scripts/packages test
	@scripts/test

test-kernels: ## another kernel, on a machine of its own (a part of make test): [KERNEL=vmlinuz]
	@scripts/packages test
	@$(MAKE) --no-print-directory build
	@$(if $(KERNEL),true,scripts/kernel amd64)
	$(KERNEL:%=TRACKWAY_TEST_KERNEL=%) \
		$(CARGO) test --locked --quiet -p trackway-tests --test machines -- kernels:: --nocapture

systemd: ## the unit under a real systemd, in machines of its own (a part of make test; root only)
	@scripts/packages test
	@$(MAKE) --no-print-directory build
	$(CARGO) test --locked --quiet -p trackway-tests --test machines -- systemd:: --nocapture

test-as-root: ## all tests that record, as root (a part of make test: those that need it)
	@scripts/packages test
	@$(MAKE) --no-print-directory build
	@scripts/suite as-root

fuzz: ## look for inputs that break reader or recorder: make fuzz [SECONDS=60] [TARGET=name]
	@scripts/packages test
	@scripts/fuzz "$(or $(SECONDS),60)" $(TARGET)

torture: ## the long torture test: make torture [HOURS=n, default: ten minutes] [SEED=n]
	@scripts/packages test
	@$(MAKE) --no-print-directory build
	@scripts/torture $(HOURS) $(SEED:%=from %)

ways: ## the end-to-end tests with records reserved by claim, and by the paper's algorithm
	@scripts/packages test
	@$(MAKE) --no-print-directory build
	@scripts/ways $(WAY)

sanitize: ## Miri and the sanitizers: make sanitize [KIND=undefined|address|thread|miri]
	@scripts/packages test
	@$(MAKE) --no-print-directory build
	@scripts/sanitize full $(KIND)

models: ## check the Promela models of the buffer with Spin (docs/models.md)
	@scripts/packages test
	@scripts/models full

kill: ## kill a writer after every instruction, the long form: make kill [BYTES=16]
	@scripts/packages test
	@$(MAKE) --no-print-directory build
	@scripts/kill $(BYTES)

arch: ## other processors: AArch64 under emulators, RISC-V compiled, the long form
	@scripts/packages arch
	@$(MAKE) --no-print-directory build
	@scripts/arch full

bench: ## what tracing and reading cost on this machine, beside other programs
	@scripts/packages bench
	@$(MAKE) --no-print-directory build
	$(BUILD)/trackway-bench --out results
	$(BUILD)/trackway-bench spans preload sessions --out results-more

asm: programs ## the machine code of the recording path
	@objdump -d --no-show-raw-insn -M intel $(BUILD)/libtrackway.so \
		| awk '/^[0-9a-f]+ <.*fast_path4emit.*>:/ {on=1} on {print} on && /^$$/ {exit}'

install: build ## install below $(DESTDIR)$(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig \
		$(DESTDIR)$(PREFIX)/include/trackway/abi $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/man/man3 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(UNITDIR)/system $(DESTDIR)$(UNITDIR)/user
	install -m 755 $(BUILD)/trackway $(BUILD)/trackway-bench $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BUILD)/libtrackway.so $(DESTDIR)$(LIBDIR)/libtrackway.so.$(VERSION)
	ln -sf libtrackway.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libtrackway.so.1
	install -m 644 $(BUILD)/link/$(LINK_OBJECT) $(DESTDIR)$(LIBDIR)/$(LINK_OBJECT)
	rm -f $(DESTDIR)$(LIBDIR)/libtrackway.so
	install -m 644 $(BUILD)/link/libtrackway.so $(DESTDIR)$(LIBDIR)/libtrackway.so
	install -m 755 $(HELPER_LIBRARIES) $(DESTDIR)$(LIBDIR)
	for header in $(HEADERS:include/%=%); do \
		install -m 644 include/$$header $(DESTDIR)$(PREFIX)/include/$$header || exit 1; \
	done
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' \
		packaging/trackway.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/trackway.pc
	for manager in system user; do \
		sed -e 's|@PREFIX@|$(PREFIX)|' packaging/systemd/$(UNIT) \
			> $(DESTDIR)$(UNITDIR)/$$manager/$(UNIT) || exit 1; \
	done
	$(BUILD)/trackway man --output $(DESTDIR)$(PREFIX)/share/man/man1
	$(BUILD)/trackway-bench man --output $(DESTDIR)$(PREFIX)/share/man/man1
	for name in $$($(MAN3) -v list=1 $(MAN3_HEADERS)); do \
		echo ".so man3/trackway.3" > $(DESTDIR)$(PREFIX)/share/man/man3/$$name.3 || exit 1; \
	done
	$(MAN3) $(MAN3_HEADERS) > $(DESTDIR)$(PREFIX)/share/man/man3/trackway.3
	for program in trackway trackway-bench; do \
		$(BUILD)/$$program completions bash \
			> $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$program || exit 1; \
	done

uninstall: ## remove what install installed
	rm -f $(DESTDIR)$(PREFIX)/bin/trackway $(DESTDIR)$(PREFIX)/bin/trackway-bench \
		$(DESTDIR)$(LIBDIR)/libtrackway.so $(DESTDIR)$(LIBDIR)/libtrackway.so.1 \
		$(DESTDIR)$(LIBDIR)/libtrackway.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(LINK_OBJECT) \
		$(HELPERS:%=$(DESTDIR)$(LIBDIR)/libtrackway-%.so) \
		$(DESTDIR)$(LIBDIR)/pkgconfig/trackway.pc \
		$(DESTDIR)$(UNITDIR)/system/$(UNIT) $(DESTDIR)$(UNITDIR)/user/$(UNIT) \
		$(HEADERS:%=$(DESTDIR)$(PREFIX)/%) \
		$(DESTDIR)$(PREFIX)/share/man/man1/trackway*.1 \
		$(DESTDIR)$(PREFIX)/share/man/man3/trackway*.3 \
		$(DESTDIR)$(PREFIX)/share/man/man3/TRACKWAY_*.3 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/trackway \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/trackway-bench
	-rmdir $(DESTDIR)$(PREFIX)/include/trackway/abi $(DESTDIR)$(PREFIX)/include/trackway

clean: ## remove what was built
	$(CARGO) clean
