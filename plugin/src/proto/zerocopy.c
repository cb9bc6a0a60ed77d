/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/zerocopy.h"

bool harp_zerocopy_wants(const struct harp_zerocopy *z, uint32_t bytes) {
  if (bytes < HARP_ZEROCOPY_MIN_BYTES || z->state == HARP_ZEROCOPY_OFF) return false;
  return z->state == HARP_ZEROCOPY_ON || z->trials % 2 == 0;
}

unsigned harp_zerocopy_percent(const struct harp_zerocopy *z) {
  double with = (double)z->with.ns * (double)z->without.bytes;
  double without = (double)z->without.ns * (double)z->with.bytes;
  return without > 0 ? (unsigned)HARP_MIN(100 * with / without, 1e6) : 100;
}

bool harp_zerocopy_on_sent(struct harp_zerocopy *z, bool used, uint32_t bytes, harp_ns ns) {
  if (z->state != HARP_ZEROCOPY_TRIAL || bytes < HARP_ZEROCOPY_MIN_BYTES) return false;
  if (used)
    z->with.bytes += bytes, z->with.ns += ns;
  else
    z->without.bytes += bytes, z->without.ns += ns;
  if (++z->trials < HARP_ZEROCOPY_TRIALS) return false;
  bool gains = harp_zerocopy_percent(z) <= 100 - HARP_ZEROCOPY_GAIN_PERCENT;
  z->state = gains ? HARP_ZEROCOPY_ON : HARP_ZEROCOPY_OFF;
  z->why = HARP_ZEROCOPY_MEASURED;
  return true;
}

bool harp_zerocopy_on_failure(struct harp_zerocopy *z, enum harp_zerocopy_why why) {
  /* A user who requested it gets it, though the kernel copies. */
  if (z->state == HARP_ZEROCOPY_OFF || (z->state == HARP_ZEROCOPY_ON && why == HARP_ZEROCOPY_COPIED))
    return false;
  z->state = HARP_ZEROCOPY_OFF;
  z->why = why;
  return true;
}
