# The seeded simulation of the protocol core, and its instruction count. Both link base, wire and proto only.
#   make sim [SEEDS=n] [SEED0=n] [JOBS=n]      build/sim --seed N --trace replays one
#   make callgrind                             instructions per data packet of a fixed lossless transfer
SEEDS ?= 10000
SEED0 ?= 1
JOBS  ?= 2
SIM_LIB  := $(T)/lib/simnet.c $(T)/lib/duo.c
SIM_CORE := $(call obj,$(BASE) $(WIRE) $(PROTO))
SIM_OBJ  := $(patsubst $(T)/%.c,$(B)/tests/%.o,$(SIM_LIB))

$(B)/sim: $(B)/tests/sim/sim.o $(SIM_OBJ) $(SIM_CORE)
	$(CC) $(SAN) -o $@ $^ $(LDFLAGS)

sim: $(B)/sim ## run the simulation: SEEDS=10000 SEED0=1 JOBS=2
	$(B)/sim --seeds $(SEEDS) --seed0 $(SEED0) --jobs $(JOBS)
