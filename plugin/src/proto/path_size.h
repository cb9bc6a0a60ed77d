/* SPDX-License-Identifier: Apache-2.0 */
/* The size of one path's packets, and the search for a larger one: probes of padding (RFC 8899).
 *
 * Owns and alone writes struct harp_path_size, a part of struct harp_path. Called by the sender, which keeps
 * the list of paths that search (path_set.h). Rules:
 *
 *   1. A path begins with the largest size that its MTU allows.
 *   2. Probe timeouts in a row shrink it, one size at a time; so do HOLE_PACKETS lost packets larger than the
 *      next smaller size, with none as large acknowledged that was sent since (black hole detection).
 *   3. Lost packets that are larger than the size in use are the path's, and no congestion (RFC 8899, 3; RFC
 *      4821, 7.2). Whether those that rule 2 counts are is known later: they count as congestion once a
 *      packet of their size arrives after all; at once where one did that was sent within an RTT before.
 *   4. A path that was silent restarts with the smallest size.
 *   5. While the size is below the maximum probes try the largest and the next larger one in turn, at
 *      intervals that double; one that is acknowledged is the new size. Mere random loss shrinks a size, and
 *      the first probe takes it back. A probe that is lost costs its padding only.
 *   6. A size below the maximum is limited by the path, which is reported, when rule 2 found that larger
 *      packets alone are lost, or a probe was lost.
 *   7. A tcp path has one size: the kernel cuts its records into segments. */
#ifndef HARP_PATH_SIZE_H
#define HARP_PATH_SIZE_H

#include "proto/flight.h"

struct harp_path_size {
  uint32_t lines;     /* the size in use: the lines of a packet */
  uint32_t lines_max; /* the size that the MTU allows */
  uint32_t smaller;   /* the next smaller size; 0: there is none */
  bool is_limited;    /* larger packets do not arrive, as far as is known (rule 6) */
  bool is_news;       /* is_limited, or the size of a limited path, has changed since it was reported */

  /* the search for a larger size (rule 5) */
  bool try_max;          /* the next size probe tries lines_max, else the next larger size */
  harp_ns probe_ns;      /* the time of the next size probe; it has no meaning at the maximum */
  harp_ns again_ns;      /* the interval from that probe to the one after it */
  uint32_t probe_lines;  /* the size under test; 0: none is */
  uint64_t probe_number; /* the number of the packet that tests it */

  /* The black hole (rules 2 and 3): lost packets that are larger than `smaller`, since one as large was
   * acknowledged. */
  uint32_t hole_packets; /* the number of these packets */
  uint32_t hole_bytes;   /* the bytes of those that do not count as congestion so far */
  uint32_t hole_lines;   /* the size of the smallest */
  harp_ns hole_sent_ns;  /* the time when the youngest was sent */
  uint32_t acked_lines;  /* the size of the largest packet that was acknowledged */
  harp_ns acked_ns;      /* the time when the youngest packet of that size was sent */
};

/* RFC 8899 leaves the number open; random loss of so many large packets, and no small one, is rare. */
enum { HARP_PATH_HOLE_PACKETS = 6 };

void harp_path_size_init(struct harp_path_size *z, uint32_t lines_max);

/* Returns whether the path searches for a larger size. */
static inline bool harp_path_size_is_searched(const struct harp_path_size *z) {
  return z->lines < z->lines_max;
}

/* Goes down to the smallest packets, and lets the search try the largest as soon as something is
 * acknowledged. */
void harp_path_size_restart(struct harp_path_size *z);

/* Takes the next smaller packet size, since nothing is acknowledged or `is_hole`: large packets alone are
 * lost. Returns false at the smallest. */
bool harp_path_size_shrink(struct harp_path_size *z, bool is_hole, harp_ns now);

/* Returns the size that the next size probe tries, in lines: the next larger than the current, or
 * lines_max. */
uint32_t harp_path_size_next(const struct harp_path_size *z);

/* Learns that a probe of so many lines is sent as the packet of this number. */
void harp_path_size_on_probe_sent(struct harp_path_size *z, uint32_t lines, uint64_t number, harp_ns now);

/* Learns that the probe under test was acknowledged. */
void harp_path_size_on_probe_acked(struct harp_path_size *z, harp_ns now);

/* Learns that packets of a burst, a bit each, were acknowledged. Returns the bytes of earlier lost packets
 * that were not of a black hole after all. */
static inline uint32_t harp_path_size_on_acked(struct harp_path_size *z, const struct harp_burst *b,
                                               uint64_t bits) {
  if (!z->smaller || b->is_padding || b->lines_per_packet <= z->smaller) return 0;
  uint64_t last = 1ull << (b->count - 1);
  uint32_t lines = bits & ~last ? b->lines_per_packet : b->last_lines;
  if (lines > z->acked_lines || (lines == z->acked_lines && b->sent_ns > z->acked_ns)) {
    z->acked_lines = lines;
    z->acked_ns = b->sent_ns;
  }
  if (harp_likely(!z->hole_packets) || lines < z->hole_lines || b->sent_ns < z->hole_sent_ns) return 0;
  uint32_t bytes = z->hole_bytes;
  z->hole_packets = z->hole_bytes = 0;
  return bytes;
}

/* Learns that packets of a burst were lost. Returns how many of their bytes do not count as congestion, at
 * least for now. */
uint32_t harp_path_size_on_lost(struct harp_path_size *z, const struct harp_burst *b, uint64_t bits,
                                harp_ns rtt_ns);

/* Returns whether what limits the size has changed since the last call. */
static inline bool harp_path_size_take_news(struct harp_path_size *z) {
  bool is_news = z->is_news;
  z->is_news = false;
  return is_news;
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
