# SPDX-License-Identifier: Apache-2.0
# `make dist` builds the packages into dist/out, and `make` the plugin; the plugin's other targets: make -C plugin help.

.PHONY: build dist test
build dist test:
	./harp_setup $@
