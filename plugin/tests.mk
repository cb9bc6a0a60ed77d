# SPDX-License-Identifier: Apache-2.0
# C tests: each tests/<kind>/test_*.c is one cmocka program linked with every layer below nccl/ and io/sim.c.
# (tests/unit, tests/script, tests/golden, tests/sim; the fuzz targets are in tests/fuzz.)
T := ../tests
CORE_OBJ  := $(call obj,$(BASE) $(WIRE) $(PROTO) $(IO) $(wildcard src/io/sim.c) $(HOST) $(ENGINE) $(NET))
TEST_SRC  := $(sort $(wildcard $(T)/unit/test_*.c $(T)/script/test_*.c $(T)/golden/test_*.c))
ifeq ($(filter x86_64%,$(TARGET)),)
TEST_SRC  := $(filter-out %/test_box.c,$(TEST_SRC))
endif
TEST_LIB  := $(sort $(wildcard $(T)/lib/*.c))
TEST_BIN  := $(patsubst $(T)/%.c,$(B)/tests/%,$(TEST_SRC))
TEST_LIB_OBJ := $(patsubst $(T)/%.c,$(B)/tests/%.o,$(TEST_LIB))

$(B)/tests/%.o: $(T)/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -I$(T) -I. -I.. -c -o $@ $<
$(B)/tests/unit/test_box: $(filter-out %/main.o,$(BOX_OBJ))
$(B)/tests/%: $(B)/tests/%.o $(CORE_OBJ) $(TEST_LIB_OBJ)
	$(CC) $(SAN) -o $@ $^ $(LDFLAGS) -Wl,--build-id=0x0123456789abcdef -lcmocka -lpthread -lm
check: $(TEST_BIN) ## build and run the C unit, script and golden tests
	@set -e; for t in $(TEST_BIN); do echo "== $$t"; $$t; done
asan tsan: ## run `check` in a sanitizer build
	$(MAKE) VARIANT=$@ check
.PRECIOUS: $(B)/tests/%.o

# The seeded simulation: `make sim SEEDS=N`.
SEEDS ?= 10000
$(B)/sim: $(patsubst $(T)/%.c,$(B)/tests/%.o,$(sort $(wildcard $(T)/sim/*.c))) $(call obj,$(BASE) $(WIRE) $(PROTO)) $(filter-out %/control_scene.o %/netns.o %/sides.o %/loopback.o,$(TEST_LIB_OBJ))
	$(CC) $(SAN) $(LTO:%=% -O2) $(TUNE) -o $@ $^ $(LDFLAGS) -lpthread -lm
sim: $(B)/sim ## run SEEDS seeds of the simulation
	$(B)/sim --seeds $(SEEDS)

# Fuzz targets: tests/fuzz/fuzz_<what>.c with LLVMFuzzerTestOneInput, corpus in tests/fuzz/corpus/<what>.
# replay_<what> runs the files named on its command line, in any build; fuzz_<what> is libFuzzer's (VARIANT=fuzz CC=clang).
FUZZ := $(patsubst $(T)/fuzz/fuzz_%.c,%,$(sort $(wildcard $(T)/fuzz/fuzz_*.c)))
SECONDS ?= 10
$(B)/fuzz/replay_%: $(T)/fuzz/fuzz_%.c $(CORE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -I$(T) -DHARP_FUZZ_MAIN -o $@ $(filter %.c %.o,$^) $(LDFLAGS) -lpthread -lm
$(B)/fuzz/fuzz_%: $(T)/fuzz/fuzz_%.c $(CORE_OBJ)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -I$(T) -fsanitize=fuzzer -o $@ $(filter %.c %.o,$^) $(LDFLAGS) -lpthread -lm
fuzz-run: $(FUZZ:%=$(B)/fuzz/fuzz_%)
	@set -e; for f in $(FUZZ); do mkdir -p $(B)/fuzz/corpus/$$f; \
	  $(B)/fuzz/fuzz_$$f -max_total_time=$(SECONDS) $(B)/fuzz/corpus/$$f $(T)/fuzz/corpus/$$f; done
fuzz: ## fuzz every decoder for SECONDS each (clang); what it finds new stays in build/fuzz
	$(MAKE) VARIANT=fuzz CC=clang fuzz-run
.PHONY: fuzz-run

# The plugin with another wire version, as an earlier or a later release may have: tests/versions.
OTHER     := $(B)/other_wire
OTHER_OBJ := $(OTHER)/packet.o $(OTHER)/record.o $(OTHER)/pending_peer.o
$(OTHER)/wire/packet.%: src/wire/packet.%
	@mkdir -p $(@D)
	sed -E 's/(HARP_WIRE_VERSION(_MIN)?) (==?) [0-9]+/\1 \3 9/g; s/HARP-WIRE [0-9]+-[0-9]+/HARP-WIRE 9-9/' $< >$@
$(OTHER)/packet.o: $(OTHER)/wire/packet.c $(OTHER)/wire/packet.h
$(OTHER)/record.o: src/wire/record.c $(OTHER)/wire/packet.h
$(OTHER)/pending_peer.o: src/engine/control/pending_peer.c $(OTHER)/wire/packet.h
$(OTHER_OBJ):
	$(CC) -I$(OTHER) $(ALL_CFLAGS) -c -o $@ $<
$(OTHER)/libnccl-net.so: $(OTHER_OBJ) $(filter-out $(addprefix %/,$(notdir $(OTHER_OBJ))),$(call obj,$(PLUGIN_SRC))) src/nccl/exports.map
	$(link_plugin)
