/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of the xdp driver: how many it has, and how engines and queues share them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "io/io.h"
#include "io/xdp/config.h"
#include "io/xdp/modes.h"

enum {
  PAGE_BYTES = 65536, /* the largest that a kernel has */
  BYTES_PER_MS_AND_MBPS = 125,
};

static unsigned sharer_count; /* the engines that share the memory */

/* The part of the driver's memory that is UMEM: all but what it needs when the conf leaves UMEM the least. */
static size_t umem_bytes(int speed_mbps, int mtu, size_t memory_bytes) {
  struct harp_io_xdp_config xdp = {
      .speed_mbps = speed_mbps, .mtu = mtu, .memory_bytes = memory_bytes, .sharer_count = sharer_count};
  struct harp_io_xdp_config least_xdp = {.memory_bytes = 4 * HARP_XDP_FRAME_BYTES};
  struct harp_io_config config = {.xdp = &xdp}, least = {.xdp = &least_xdp};
  return harp_io_xdp.frames_bytes(&config) - harp_io_xdp.frames_bytes(&least) +
         3 * (size_t)HARP_XDP_FRAME_BYTES;
}

static void test_umem_holds_a_millisecond_within_the_budget(void **state) {
  (void)state;
  const size_t mib = 1 << 20;
  assert_int_equal(umem_bytes(0, 1500, 0), 64 * mib);
  assert_int_equal(umem_bytes(1000, 1500, 0), 16 * mib);
  assert_int_equal(umem_bytes(50000, 1500, 0),
                   2 * (50000 * BYTES_PER_MS_AND_MBPS / 1500) * (size_t)HARP_XDP_FRAME_BYTES);
  assert_int_equal(umem_bytes(50000, 9000, 0),
                   2 * (50000 * BYTES_PER_MS_AND_MBPS / 9000) * (size_t)(3 * HARP_XDP_FRAME_BYTES));
  assert_int_equal(umem_bytes(400000, 1500, 0), 64 * mib);
  assert_int_equal(umem_bytes(400000, 1500, 128 * mib), 96 * mib);
  assert_int_equal(umem_bytes(400000, 1500, 1024 * mib),
                   2 * (400000 * BYTES_PER_MS_AND_MBPS / 1500) * (size_t)HARP_XDP_FRAME_BYTES);
  assert_int_equal(umem_bytes(400000, 1500, 8 * mib), 6 * mib);
  assert_int_equal(umem_bytes(1000, 1500, 8 * mib), 6 * mib);
}

static void test_engines_share_the_umem(void **state) {
  (void)state;
  const size_t mib = 1 << 20;
  sharer_count = 4;
  assert_int_equal(umem_bytes(0, 1500, 0), 16 * mib);
  assert_int_equal(umem_bytes(100000, 1500, 0), 16 * mib);
  assert_int_equal(umem_bytes(400000, 1500, 8 * mib), 6 * mib); /* a part of it is this one's already */
  sharer_count = 16;
  assert_int_equal(umem_bytes(1000, 1500, 0), 4 * mib); /* all together no more than one could have */
  sharer_count = 0;
}

/* Kernels of aarch64 may have pages of 64 KiB, and take a UMEM only where it begins at one. */
static void test_frames_of_each_queue_begin_at_a_page(void **state) {
  (void)state;
  for (unsigned share = 1; share <= HARP_XDP_NIC_QUEUES_MAX; share++) {
    size_t all_bytes = umem_bytes(50000, 1500, 0);
    uint32_t runs = harp_xdp_share_runs(all_bytes, share);
    size_t part_bytes = harp_xdp_queue_umem_bytes(runs * HARP_XDP_RUN_FRAMES, runs);
    assert_int_equal(part_bytes % PAGE_BYTES, 0);
    assert_in_range(all_bytes - share * part_bytes, 0, share * 2 * PAGE_BYTES);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_umem_holds_a_millisecond_within_the_budget),
      cmocka_unit_test(test_engines_share_the_umem),
      cmocka_unit_test(test_frames_of_each_queue_begin_at_a_page),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
