/* SPDX-License-Identifier: Apache-2.0 */
/* engine/runner.c with its system calls replaced by those of prove_doorbell.c. */
#include "proofs/doorbell.h"

#define ppoll doorbell_ppoll
#define read  doorbell_read
#define write doorbell_write
#include "engine/runner.c"

void doorbell_sleep(struct harp_engine *e) {
  struct sleep_fds fds = {.count = 1, .at = {{.fd = e->wake_fd}}};
  unlock_after_pass(e, true);
  sleep_idle(e, &fds, HARP_NEVER);
}
