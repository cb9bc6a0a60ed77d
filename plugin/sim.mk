# Instructions of the protocol core, counted by valgrind; the simulation itself is in tests.mk.
PYTHON ?= python3
callgrind: $(B)/sim ## instructions per data packet of a fixed transfer without loss
	$(PYTHON) $(T)/sim/count_instructions.py $(B)/sim
.PHONY: callgrind
