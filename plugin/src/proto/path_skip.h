/* SPDX-License-Identifier: Apache-2.0 */
/* Packet numbers of one path that are never used, so that a receiver that acknowledges what it did not get is
 * found out (optimistic acknowledgements: RFC 9000, 21.4): it would gain rate over other flows, since its
 * losses and its delay did not show.
 *
 * Owns and alone writes struct harp_path_skip, a part of struct harp_path. Called by the sender. Rules:
 *
 *   1. After SKIP_GAP_MIN packets to three times as many, drawn at random, a few numbers are skipped: 1 to
 *      32, so that a gap of several is not known to be loss.
 *   2. An acknowledgement that names one of the last SKIPS_KEPT gaps is false.
 *   3. A tcp path skips none: the kernel knows what has arrived. */
#ifndef HARP_PATH_SKIP_H
#define HARP_PATH_SKIP_H

#include "base/base.h"

enum {
  HARP_PATH_SKIPS_KEPT = 4,
  HARP_PATH_SKIP_GAP_MIN = 512, /* the least packets between gaps: each costs an acknowledgement */
  HARP_PATH_SKIP_DOUBLINGS = 6, /* a gap is longer than 1 by up to so many doublings */
};

struct harp_path_skip {
  uint64_t random;    /* the state of a generator (xorshift64); 0: no number is skipped */
  uint64_t at_number; /* the next gap begins with this number, or later */
  uint64_t skipped;   /* the numbers skipped so far */
  /* The first number and the length of each of the last gaps, and the place of the oldest. */
  uint64_t begins[HARP_PATH_SKIPS_KEPT];
  uint8_t counts[HARP_PATH_SKIPS_KEPT], oldest;
};

/* `seed` is not to be known to the peer; 0: no number is skipped. */
void harp_path_skip_init(struct harp_path_skip *k, uint64_t first_number, uint64_t seed);

/* Makes a gap before the number and returns the number behind it; harp_path_skip_next alone calls it. */
uint64_t harp_path_skip_gap(struct harp_path_skip *k, uint64_t number);

/* Returns the number of the packet that is sent next: this one, or the one behind a gap. */
static inline uint64_t harp_path_skip_next(struct harp_path_skip *k, uint64_t number) {
  return harp_likely(number < k->at_number) ? number : harp_path_skip_gap(k, number);
}

/* Returns whether an acknowledgement of the numbers [begin, end) is false. */
static inline bool harp_path_skip_is_false(const struct harp_path_skip *k, uint64_t begin, uint64_t end) {
  for (unsigned i = 0; i < HARP_PATH_SKIPS_KEPT; i++)
    if (begin < k->begins[i] + k->counts[i] && k->begins[i] < end) return true;
  return false;
}

#endif
