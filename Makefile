# SPDX-License-Identifier: Apache-2.0
# `make dist` builds dist/harp_setup.sh, and `make` the plugin; the plugin's other targets: make -C plugin help.

.PHONY: build dist test
build dist test:
	./harp_setup $@
