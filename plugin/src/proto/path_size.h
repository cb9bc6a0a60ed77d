/* SPDX-License-Identifier: Apache-2.0 */
/* How large the packets of one path are, and the search for a larger size: probes of padding (RFC 8899).
 *
 * Owns and alone writes struct harp_path_size, a part of struct harp_path. Called by the sender, which keeps
 * the list of paths that search (path_set.h). Rules:
 *
 *   1. A path begins with the largest size that its MTU allows.
 *   2. Probe timeouts in a row shrink it, one size at a time.
 *   3. A path that was silent restarts with the smallest size, and its next size probe tries the largest.
 *   4. While the size is below the maximum a probe tries the next larger one now and then; one that is
 *      acknowledged is the new size. A probe that is lost costs its padding only.
 *   5. A tcp path has one size: the kernel cuts its records into segments. */
#ifndef HARP_PATH_SIZE_H
#define HARP_PATH_SIZE_H

#include "base/base.h"

struct harp_path_size {
  uint32_t lines, lines_max; /* per packet: in use, and what the MTU allows */
  bool try_max;              /* the path was silent: its next size probe tries lines_max */
  harp_ns probe_ns;          /* when to try a larger size; of no meaning at the maximum */
  uint32_t probe_lines;      /* size under test, 0 when none */
  uint64_t probe_number;     /* of the packet that tests it */
};

void harp_path_size_init(struct harp_path_size *z, uint32_t lines_max);

/* Returns whether the path searches for a larger size. */
static inline bool harp_path_size_is_searched(const struct harp_path_size *z) {
  return z->lines < z->lines_max;
}

/* Goes down to the smallest packets, and lets the search try the largest as soon as something is
 * acknowledged. */
void harp_path_size_restart(struct harp_path_size *z);

/* Takes the next smaller packet size; returns false at the smallest. */
bool harp_path_size_shrink(struct harp_path_size *z, harp_ns now);

/* Returns the size that the next size probe tries, in lines: the next larger than the current, or
 * lines_max. */
uint32_t harp_path_size_next(const struct harp_path_size *z);

/* Notes that a probe of so many lines is sent as the packet of this number. */
void harp_path_size_on_probe_sent(struct harp_path_size *z, uint32_t lines, uint64_t number, harp_ns now);

/* Notes that the probe under test was acknowledged. */
void harp_path_size_on_probe_acked(struct harp_path_size *z, harp_ns now);

/* Returns whether the probe under test is among the packets `bits`, counted from `number` on. */
static inline bool harp_path_size_is_probe_among(const struct harp_path_size *z, uint64_t number,
                                                 uint64_t bits) {
  uint64_t index = z->probe_number - number;
  return z->probe_lines && index < 64 && bits >> index & 1;
}

#endif
