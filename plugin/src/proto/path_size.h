/* SPDX-License-Identifier: Apache-2.0 */
/* How large the packets of one path are, and the search for a larger size: probes of padding (RFC 8899).
 *
 * Owns and alone writes struct harp_path_size, a part of struct harp_path. Called by the sender, which keeps
 * the list of paths that search (path_set.h). Rules:
 *
 *   1. A path begins with the largest size that its MTU allows.
 *   2. Probe timeouts in a row shrink it, one size at a time; so do HOLE_PACKETS lost packets larger than the
 *      next smaller size, with none of that size acknowledged that was sent since (black hole detection).
 *   3. A path that was silent restarts with the smallest size.
 *   4. While the size is below the maximum probes try the largest and the next larger one in turn, at
 *      intervals that double; one that is acknowledged is the new size. Mere random loss shrinks a size, and
 *      the first probe takes it back. A probe that is lost costs its padding only.
 *   5. A tcp path has one size: the kernel cuts its records into segments. */
#ifndef HARP_PATH_SIZE_H
#define HARP_PATH_SIZE_H

#include "proto/flight.h"

struct harp_path_size {
  uint32_t lines, lines_max; /* per packet: in use, and what the MTU allows */
  bool try_max;              /* the next size probe tries lines_max, else the next larger size */
  harp_ns probe_ns;          /* when to try a larger size; of no meaning at the maximum */
  harp_ns again_ns;          /* from that probe to the one after it */
  uint32_t probe_lines;      /* size under test, 0 when none */
  uint64_t probe_number;     /* of the packet that tests it */
  uint32_t smaller;          /* the next smaller size, in lines; 0: there is none */
  uint32_t hole_packets;     /* lost ones larger than that, sent after the last one acknowledged */
  harp_ns large_acked_ns;    /* when that one was sent */
};

enum { HARP_PATH_HOLE_PACKETS = 6 }; /* RFC 8899 leaves the number open: lost at random so often is rare */

/* Returns how many of these packets of a burst are larger than the next smaller size. */
static inline uint32_t harp_path_size_larger(const struct harp_path_size *z, const struct harp_burst *b,
                                             uint64_t bits) {
  if (!z->smaller || b->is_padding || b->lines_per_packet <= z->smaller) return 0;
  if (b->last_lines <= z->smaller) bits &= ~(1ull << (b->count - 1));
  return harp_popcount(bits);
}

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

/* Note that packets of a burst, a bit each, were acknowledged or lost. */
static inline void harp_path_size_on_acked(struct harp_path_size *z, const struct harp_burst *b,
                                           uint64_t bits) {
  if (b->sent_ns <= z->large_acked_ns || !harp_path_size_larger(z, b, bits)) return;
  z->large_acked_ns = b->sent_ns;
  z->hole_packets = 0;
}
static inline void harp_path_size_on_lost(struct harp_path_size *z, const struct harp_burst *b,
                                          uint64_t bits) {
  if (b->sent_ns > z->large_acked_ns) z->hole_packets += harp_path_size_larger(z, b, bits);
}

/* Returns whether packets of the size in use do not arrive, though smaller ones may. */
static inline bool harp_path_size_is_hole(const struct harp_path_size *z) {
  return z->hole_packets >= HARP_PATH_HOLE_PACKETS;
}

/* Returns whether the probe under test is among the packets `bits`, counted from `number` on. */
static inline bool harp_path_size_is_probe_among(const struct harp_path_size *z, uint64_t number,
                                                 uint64_t bits) {
  uint64_t index = z->probe_number - number;
  return z->probe_lines && index < 64 && bits >> index & 1;
}

#endif
