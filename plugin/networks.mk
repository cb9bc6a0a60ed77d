# SPDX-License-Identifier: Apache-2.0
# Networks in virtual time around the protocol's core: tests/networks, docs/reference/networks.md.
NETWORK_SRC := $(filter-out %/main.c,$(sort $(wildcard $(T)/networks/*.c)))
NETWORK_OBJ := $(patsubst $(T)/%.c,$(B)/tests/%.o,$(NETWORK_SRC)) $(MODEL_OBJ)
$(B)/networks: $(B)/tests/networks/main.o $(NETWORK_OBJ) $(call obj,$(BASE) $(WIRE) $(PROTO))
	$(CC) $(SAN) $(LTO:%=% -O2) $(TUNE) -o $@ $^ $(LDFLAGS) -lpthread -lm
$(B)/tests/unit/test_networks: $(NETWORK_OBJ)

# Results are kept as long as the program is the same, so that a run that was broken off goes on.
ONLY ?=
AGAIN ?=
JOBS ?= 2
SUITE = $(if $(ONLY),--only '$(ONLY)') $(if $(AGAIN),--again '$(AGAIN)') --jobs $(JOBS) --out $(B)/networks.txt
fresh = @[ $(B)/networks.txt -nt $(B)/networks ] || rm -f $(B)/networks.txt
networks: $(B)/networks ## run the matrix of networks, hours: ONLY=TEXT, AGAIN='key=value', JOBS=N
	$(fresh)
	$(B)/networks --all $(SUITE)
networks-quick: $(B)/networks ## run its most telling networks, a minute
	$(fresh)
	$(B)/networks --quick $(SUITE)
networks-table: $(B)/networks ## run the matrix, print its results as Markdown
	$(fresh)
	@$(B)/networks --all $(SUITE) --markdown
.PHONY: networks networks-quick networks-table
