/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the payload of large records goes to the kernel without a copy (MSG_ZEROCOPY): a pure function of
 * what was measured on the connection.
 *
 * Without a copy the kernel pins the pages of each record and reports later that it is done with them, which
 * costs more than the copy on many devices; virtual devices copy all the same. So the first records of a
 * connection are sent alternately with and without, and the one that took clearly less time per byte is kept.
 * If the kernel reports that it copied, or refuses, the copy is kept at once. No clock, no I/O. */
#ifndef HARP_ZEROCOPY_H
#define HARP_ZEROCOPY_H

#include "base/base.h"

enum {
  HARP_ZEROCOPY_MIN_BYTES = 64 << 10, /* payload of a record: below, a copy costs less than to pin pages */
  HARP_ZEROCOPY_TRIALS = 64,          /* records that are measured, half of them without a copy */
  HARP_ZEROCOPY_GAIN_PERCENT = 10,    /* less time for each byte, or the copy stays */
};

enum harp_zerocopy_state {
  HARP_ZEROCOPY_OFF,
  HARP_ZEROCOPY_TRIAL,
  HARP_ZEROCOPY_ON,
};

enum harp_zerocopy_why {
  HARP_ZEROCOPY_CONFIGURED,
  HARP_ZEROCOPY_MEASURED,
  HARP_ZEROCOPY_COPIED,  /* the kernel did, all the same */
  HARP_ZEROCOPY_REFUSED, /* the kernel did: no support, or no more locked memory */
};

struct harp_zerocopy {
  enum harp_zerocopy_state state;
  enum harp_zerocopy_why why;
  unsigned trials;
  struct {
    uint64_t bytes;
    harp_ns ns;
  } with, without;
};

/* Begins with a state: TRIAL decides by itself. */
static inline void harp_zerocopy_init(struct harp_zerocopy *z, enum harp_zerocopy_state state) {
  *z = (struct harp_zerocopy){.state = state};
}

/* Returns whether a record of this payload is to go without a copy. */
bool harp_zerocopy_wants(const struct harp_zerocopy *z, uint32_t bytes);

/* Takes how long the kernel took for a record; `used`: without a copy. Returns whether that ends the
 * trial. */
bool harp_zerocopy_on_sent(struct harp_zerocopy *z, bool used, uint32_t bytes, harp_ns ns);

/* Notes that the kernel copied the payload all the same, or refused it without a copy. Returns whether that
 * is news. */
bool harp_zerocopy_on_failure(struct harp_zerocopy *z, enum harp_zerocopy_why why);

/* Returns the percentage of the copy's time for a byte that zero copy took in the trial. */
unsigned harp_zerocopy_percent(const struct harp_zerocopy *z);

#endif
