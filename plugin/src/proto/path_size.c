/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_size.h"

#include "base/assert.h"
#include "wire/packet.h"

/* Sizes that the search steps through, in lines: IPv6 minimum, Ethernet, single-buffer XDP, jumbo. */
static const uint32_t sizes[] = {HARP_PACKET_MIN_LINES, 11, 26, HARP_PACKET_MAX_LINES};

#define PROBE_FIRST_NS    HARP_MS(100) /* from a shrink to the first probe of a larger size */
#define PROBE_NEXT_NS     HARP_MS(10)  /* from a probe that was acknowledged to the next one */
#define PROBE_AGAIN_NS    HARP_MS(100) /* from the probe of the largest size to the next one */
#define PROBE_INTERVAL_NS HARP_SEC(10) /* from any other probe to the next one */

void harp_path_size_init(struct harp_path_size *z, uint32_t lines_max) {
  *z = (struct harp_path_size){.lines = lines_max, .lines_max = lines_max};
}

void harp_path_size_restart(struct harp_path_size *z) {
  if (z->lines == HARP_PACKET_MIN_LINES && z->try_max) return;
  z->lines = HARP_MIN(z->lines_max, (uint32_t)HARP_PACKET_MIN_LINES);
  z->probe_lines = 0;
  z->try_max = z->lines < z->lines_max;
  z->probe_ns = 0;
}

bool harp_path_size_shrink(struct harp_path_size *z, harp_ns now) {
  for (size_t i = HARP_ARRAY_COUNT(sizes); i-- > 0;) {
    if (sizes[i] < z->lines) {
      z->lines = sizes[i];
      z->probe_lines = 0;
      z->probe_ns = now + PROBE_FIRST_NS;
      return true;
    }
  }
  return false;
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
  z->probe_ns = now + (z->try_max ? PROBE_AGAIN_NS : PROBE_INTERVAL_NS);
  z->try_max = false;
}

void harp_path_size_on_probe_acked(struct harp_path_size *z, harp_ns now) {
  z->lines = HARP_MAX(z->lines, z->probe_lines);
  z->probe_lines = 0;
  z->probe_ns = now + PROBE_NEXT_NS;
}
