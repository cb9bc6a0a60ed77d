# The instruction count of the protocol core: make callgrind (the simulation itself is in tests.mk).
