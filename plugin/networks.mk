# SPDX-License-Identifier: Apache-2.0
# Networks in virtual time around the protocol's core: tests/networks, docs/networks.md.
NETWORK_SRC := $(filter-out %/main.c,$(sort $(wildcard $(T)/networks/*.c)))
NETWORK_OBJ := $(patsubst $(T)/%.c,$(B)/tests/%.o,$(NETWORK_SRC))
$(B)/networks: $(B)/tests/networks/main.o $(NETWORK_OBJ) $(call obj,$(BASE) $(WIRE) $(PROTO))
	$(CC) $(SAN) $(LTO:%=% -O2) $(TUNE) -o $@ $^ $(LDFLAGS) -lpthread -lm
