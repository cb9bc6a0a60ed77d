# SPDX-License-Identifier: Apache-2.0
# Replays every fuzz corpus in an ordinary program under AddressSanitizer; tests.mk has the rules and the search itself.
fuzz-replay: ## run every fuzz target over its corpus, without libFuzzer
	$(MAKE) VARIANT=asan fuzz-replay-run
fuzz-replay-run: $(FUZZ:%=$(B)/fuzz/replay_%)
	@set -e; for f in $(FUZZ); do echo "== $$f"; find $(T)/fuzz/corpus/$$f -type f -exec $(B)/fuzz/replay_$$f {} +; done
.PHONY: fuzz-replay fuzz-replay-run
