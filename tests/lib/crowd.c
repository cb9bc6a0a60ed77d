/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/crowd.h"

bool crowd_run(struct duo *duos, unsigned count, harp_ns until_ns) {
  for (;;) {
    struct duo *first = NULL;
    harp_ns at = HARP_NEVER;
    bool complete = true;
    for (unsigned i = 0; i < count; i++) {
      harp_ns next = duo_next_ns(&duos[i]);
      complete &= duo_complete(&duos[i]);
      if (!first || next < at) first = &duos[i], at = next;
    }
    if (complete) return true;
    if (!duo_step(first, until_ns)) return false;
  }
}

uint64_t crowd_received_bytes(const struct duo *d) {
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < d->count; k++) bytes += d->messages[k].received ? d->messages[k].bytes : 0;
  return bytes;
}

uint32_t crowd_jain_permille(const uint64_t *numbers, unsigned count) {
  double sum = 0, squares = 0;
  for (unsigned i = 0; i < count; i++) {
    sum += (double)numbers[i];
    squares += (double)numbers[i] * (double)numbers[i];
  }
  return squares > 0 ? (uint32_t)(1000 * sum * sum / (count * squares)) : 0;
}
