# C tests: each tests/<kind>/test_*.c is one cmocka program linked with every layer below nccl/ and io/sim.c.
# (tests/unit, tests/script, tests/golden, tests/sim; the fuzz targets are in tests/fuzz.)
T := ../tests
CORE_OBJ  := $(call obj,$(BASE) $(WIRE) $(PROTO) $(IO) $(wildcard src/io/sim.c) $(HOST) $(ENGINE))
TEST_SRC  := $(sort $(wildcard $(T)/unit/test_*.c $(T)/script/test_*.c $(T)/golden/test_*.c))
TEST_LIB  := $(sort $(wildcard $(T)/lib/*.c))
TEST_BIN  := $(patsubst $(T)/%.c,$(B)/tests/%,$(TEST_SRC))
TEST_LIB_OBJ := $(patsubst $(T)/%.c,$(B)/tests/%.o,$(TEST_LIB))

$(B)/tests/%.o: $(T)/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -I$(T) -c -o $@ $<
$(B)/tests/%: $(B)/tests/%.o $(CORE_OBJ) $(TEST_LIB_OBJ)
	$(CC) $(SAN) -o $@ $^ $(LDFLAGS) -lcmocka -lpthread -lm

check: $(TEST_BIN) ## build and run the C unit, script and golden tests
	@set -e; for t in $(TEST_BIN); do echo "== $$t"; $$t; done
asan ubsan tsan: ## run `check` in a sanitizer build
	$(MAKE) VARIANT=$@ check
.PRECIOUS: $(B)/tests/%.o
