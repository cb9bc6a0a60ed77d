/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_size.h"

#include "base/assert.h"
#include "wire/packet.h"

/* Sizes that the search steps through, in lines: IPv6 minimum, Ethernet, single-buffer XDP, jumbo. */
static const uint32_t sizes[] = {HARP_PACKET_MIN_LINES, 11, 26, HARP_PACKET_MAX_LINES};

/* Between two probes of a larger size: after a shrink, and after a probe that was acknowledged; it doubles.
 */
#define PROBE_FIRST_NS HARP_MS(20)
#define PROBE_MOST_NS  HARP_SEC(10)

/* Lets the search begin: the next probe is sent at `probe_ns`. */
static void restart_search(struct harp_path_size *z, harp_ns probe_ns) {
  z->probe_lines = 0;
  z->try_max = z->lines < z->lines_max;
  z->probe_ns = probe_ns;
  z->again_ns = 2 * PROBE_FIRST_NS;
}

/* Takes a size; what was lost of another says nothing about it. */
static void set_size(struct harp_path_size *z, uint32_t lines) {
  z->lines = lines;
  z->smaller = 0;
  z->hole_packets = z->hole_bytes = 0;
  z->acked_lines = 0;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(sizes) && sizes[i] < lines; i++) z->smaller = sizes[i];
}

void harp_path_size_init(struct harp_path_size *z, uint32_t lines_max) {
  *z = (struct harp_path_size){.lines_max = lines_max};
  set_size(z, lines_max);
}

void harp_path_size_restart(struct harp_path_size *z) {
  if (z->lines == HARP_PACKET_MIN_LINES && z->try_max) return;
  set_size(z, HARP_MIN(z->lines_max, (uint32_t)HARP_PACKET_MIN_LINES));
  restart_search(z, 0);
  z->is_limited = false;
}

bool harp_path_size_shrink(struct harp_path_size *z, bool is_hole, harp_ns now) {
  if (!z->smaller) return false;
  z->is_limited |= is_hole;
  z->is_news = z->is_limited;
  set_size(z, z->smaller);
  restart_search(z, now + PROBE_FIRST_NS);
  return true;
}

uint32_t harp_path_size_next(const struct harp_path_size *z) {
  if (z->try_max) return z->lines_max;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(sizes); i++) {
    if (sizes[i] > z->lines) return HARP_MIN(sizes[i], z->lines_max);
  }
  return z->lines_max;
}

void harp_path_size_on_probe_sent(struct harp_path_size *z, uint32_t lines, uint64_t number, harp_ns now) {
  HARP_ASSERT(harp_path_size_is_searched(z));
  z->probe_lines = lines;
  z->probe_number = number;
  z->probe_ns = now + z->again_ns;
  z->again_ns = HARP_MIN(2 * z->again_ns, PROBE_MOST_NS);
  z->try_max = !z->try_max;
}

void harp_path_size_on_probe_acked(struct harp_path_size *z, harp_ns now) {
  set_size(z, HARP_MAX(z->lines, z->probe_lines));
  z->is_news = z->is_limited;
  z->is_limited &= harp_path_size_is_searched(z);
  restart_search(z, now + PROBE_FIRST_NS);
}

/* Counts lost packets of so many lines. Returns how many of their bytes are no sign of congestion: those of
 * packets larger than the size in use, and of those that may be lost for their size. */
static uint32_t packets_are_lost(struct harp_path_size *z, const struct harp_burst *b, uint32_t lines,
                                 uint32_t packets, harp_ns rtt_ns) {
  uint32_t bytes = packets * b->packet_bytes;
  if (!packets || lines > z->lines) return bytes;
  if (!z->smaller || lines <= z->smaller) return 0;
  if (lines <= z->acked_lines && b->sent_ns <= z->acked_ns) return 0;
  z->hole_lines = z->hole_packets ? HARP_MIN(z->hole_lines, lines) : lines;
  z->hole_packets += packets;
  z->hole_sent_ns = HARP_MAX(z->hole_sent_ns, b->sent_ns);
  if (lines <= z->acked_lines && b->sent_ns <= z->acked_ns + rtt_ns) return 0;
  z->hole_bytes += bytes;
  return bytes;
}

uint32_t harp_path_size_on_lost(struct harp_path_size *z, const struct harp_burst *b, uint64_t bits,
                                harp_ns rtt_ns) {
  if (b->is_padding) {
    bool is_larger = harp_path_size_is_searched(z) && z->probe_lines && b->number == z->probe_number;
    z->is_news |= is_larger && !z->is_limited;
    z->is_limited |= is_larger;
    return b->packet_bytes;
  }
  uint64_t last = 1ull << (b->count - 1);
  uint32_t excused = packets_are_lost(z, b, b->lines_per_packet, harp_popcount(bits & ~last), rtt_ns);
  return excused + packets_are_lost(z, b, b->last_lines, (bits & last) != 0, rtt_ns);
}
