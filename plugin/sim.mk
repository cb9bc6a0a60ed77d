# SPDX-License-Identifier: Apache-2.0
# Instructions of the protocol core, counted by valgrind; the simulation itself is in tests.mk.
PYTHON ?= python3
callgrind: $(B)/sim $(B)/xdp_cost ## instructions per data packet: a fixed transfer without loss, the xdp driver
	$(PYTHON) $(T)/sim/count_instructions.py $(B)/sim
	$(PYTHON) $(T)/bench/count_xdp.py $(B)/xdp_cost
$(B)/xdp_cost: $(B)/tests/bench/xdp_cost.o $(call obj,src/base/address.c src/base/assert.c src/io/xdp/queue.c src/io/xdp/header.c)
	$(CC) $(SAN) -o $@ $^ $(LDFLAGS)
.PHONY: callgrind
# Damaged packets into the protocol core, for the release run (tests/release).
$(B)/damage: $(B)/tests/release/damage.o $(call obj,$(BASE) $(WIRE) $(PROTO))
	$(CC) $(SAN) $(LTO:%=% -O2) $(TUNE) -o $@ $^ $(LDFLAGS)
