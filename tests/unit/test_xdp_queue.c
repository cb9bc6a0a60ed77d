/* SPDX-License-Identifier: Apache-2.0 */
/* One NIC queue over plain memory, the test playing the kernel: what it delivers late, in part, twice or as
 * nonsense, and who owns each frame meanwhile. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/xdp/queue.h"
#include "models/rng.h"

enum { RX = 32, RUNS = 4, ENTRIES = 64, FRAMES = RX + RUNS * HARP_XDP_RUN_FRAMES };

/* The kernel's side of one ring. */
struct side {
  uint32_t producer, consumer, flags;
  union {
    uint64_t addresses[ENTRIES];
    struct harp_xdp_descriptor descriptors[ENTRIES];
  } of;
};

static struct harp_xdp_queue q;
static struct side rx, tx, fill, completion;
static uint8_t *umem;
static unsigned tx_wakes, rx_wakes;
static int tx_answer;
static bool takes_at_wake;

static int wake_tx(int fd) {
  (void)fd;
  tx_wakes++;
  if (takes_at_wake) tx.consumer = tx.producer;
  return tx_answer;
}

static int wake_rx(int fd) {
  (void)fd;
  rx_wakes++;
  return 0;
}

static const struct harp_xdp_kernel kernel = {wake_tx, wake_rx};

static struct harp_xdp_ring ring(struct side *side, uint32_t start) {
  memset(side, 0, sizeof *side);
  side->producer = side->consumer = start;
  side->flags = HARP_XDP_RING_NEED_WAKEUP;
  return (struct harp_xdp_ring){&side->producer, &side->consumer, &side->flags, &side->of,
                                ENTRIES,         start,           start,        false};
}

static void open_queue(uint32_t start) {
  harp_xdp_queue_fini(&q);
  free(umem);
  memset(&q, 0, sizeof q);
  umem = aligned_alloc(4096, harp_xdp_queue_umem_bytes(RX, RUNS));
  assert_non_null(umem);
  q.kernel = &kernel;
  q.rx = ring(&rx, start);
  q.tx = ring(&tx, start);
  q.fill = ring(&fill, start);
  q.completion = ring(&completion, start);
  tx_wakes = rx_wakes = 0;
  tx_answer = 0;
  takes_at_wake = true;
  assert_int_equal(harp_xdp_queue_init(&q, umem, RX, RUNS), 0);
  harp_xdp_queue_check(&q);
}

static int setup(void **state) {
  (void)state;
  open_queue(0);
  return 0;
}

/* The kernel takes a frame from the fill ring. */
static uint64_t kernel_fills(void) {
  assert_int_not_equal(fill.consumer, fill.producer);
  return fill.of.addresses[fill.consumer++ % ENTRIES];
}

static void kernel_delivers(uint64_t address, uint32_t bytes, bool more) {
  rx.of.descriptors[rx.producer++ % ENTRIES] =
      (struct harp_xdp_descriptor){address, bytes, more ? HARP_XDP_PACKET_CONTINUES : 0};
}

static void kernel_completes(uint64_t address) {
  completion.of.addresses[completion.producer++ % ENTRIES] = address;
}

static unsigned receive(struct harp_xdp_received *out, unsigned max) {
  unsigned n = harp_xdp_queue_rx(&q, out, max);
  harp_xdp_queue_check(&q);
  return n;
}

static void release(const struct harp_xdp_received *packet) {
  for (uint32_t i = 0; i < packet->piece_count; i++) harp_xdp_queue_rx_release(&q, packet->frames[i]);
  harp_xdp_queue_check(&q);
}

/* ---- receiving ---- */

static void test_a_target_bounds_the_kernels_frames_and_grows_when_used_up(void **state) {
  (void)state;
  struct harp_xdp_received packet;
  q.fill_target = 8;
  harp_xdp_queue_refill(&q);
  assert_int_equal(q.counts[HARP_XDP_FILL], 8);
  for (unsigned used = 1; used <= 6; used++) kernel_delivers(kernel_fills(), 100, false);
  while (receive(&packet, 1)) release(&packet);
  harp_xdp_queue_refill(&q); /* it had a quarter left */
  assert_int_equal(q.fill_target, 8);
  assert_int_equal(q.counts[HARP_XDP_FILL], 8);
  for (unsigned used = 1; used <= 7; used++) kernel_delivers(kernel_fills(), 100, false);
  harp_xdp_queue_refill(&q); /* it has one left, and we have not even looked at the seven */
  assert_int_equal(q.fill_target, 16);
  assert_int_equal(fill.producer - fill.consumer, 9);
  while (fill.consumer != fill.producer) kernel_delivers(kernel_fills(), 100, false);
  harp_xdp_queue_refill(&q);
  assert_int_equal(q.fill_target, RX);
  while (receive(&packet, 1)) release(&packet);
  while (fill.consumer != fill.producer) kernel_delivers(kernel_fills(), 100, false);
  harp_xdp_queue_refill(&q);
  assert_int_equal(q.fill_target, RX);
  harp_xdp_queue_check(&q);
}

static void test_frames_circulate(void **state) {
  (void)state;
  struct harp_xdp_received packet;
  harp_xdp_queue_refill(&q);
  assert_int_equal(q.counts[HARP_XDP_FILL], RX);
  assert_int_equal(rx_wakes, 1);
  uint64_t address = kernel_fills();
  memset(umem + address, 'x', 100);
  kernel_delivers(address + 32, 68, false);
  assert_int_equal(receive(&packet, 1), 1);
  assert_int_equal(packet.bytes, 68);
  assert_ptr_equal(packet.data[0], umem + address + 32);
  assert_int_equal(q.counts[HARP_XDP_RX_HELD], 1);
  assert_int_equal(rx.consumer, 1);
  release(&packet);
  harp_xdp_queue_refill(&q);
  assert_int_equal(q.counts[HARP_XDP_FILL], RX);
}

static void test_no_wakeup_where_none_is_needed(void **state) {
  (void)state;
  fill.flags = tx.flags = 0;
  harp_xdp_queue_refill(&q);
  assert_int_equal(rx_wakes, 0);
  uint32_t run, bytes = 60;
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  assert_true(harp_xdp_queue_tx_put(&q, run, 1, HARP_XDP_FRAME_BYTES, 0, &bytes));
  assert_int_equal(harp_xdp_queue_tx_flush(&q), 0);
  assert_int_equal(tx_wakes, 0);
  assert_int_equal(tx.producer, 1);
}

/* It looked at the ring before there was anything in it, and sets its flag after we have read it. */
static void test_a_flag_that_is_set_late_is_seen(void **state) {
  (void)state;
  uint32_t run, bytes = 60;
  harp_xdp_queue_wake(&q); /* there is nothing to wake it for */
  assert_int_equal(rx_wakes + tx_wakes, 0);
  fill.flags = tx.flags = 0;
  harp_xdp_queue_refill(&q);
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  assert_true(harp_xdp_queue_tx_put(&q, run, 1, HARP_XDP_FRAME_BYTES, 0, &bytes));
  assert_int_equal(harp_xdp_queue_tx_flush(&q), 0);
  harp_xdp_queue_wake(&q);
  assert_int_equal(rx_wakes + tx_wakes, 0);
  fill.flags = tx.flags = HARP_XDP_RING_NEED_WAKEUP;
  harp_xdp_queue_wake(&q);
  assert_int_equal(rx_wakes, 1);
  assert_int_equal(tx_wakes, 1);
  harp_xdp_queue_check(&q);
}

static void test_a_packet_of_several_frames(void **state) {
  (void)state;
  struct harp_xdp_received packet[2];
  harp_xdp_queue_refill(&q);
  for (int i = 0; i < 3; i++) kernel_delivers(kernel_fills(), i < 2 ? 3000 : 1000, i < 2);
  kernel_delivers(kernel_fills(), 60, false);
  assert_int_equal(receive(packet, 2), 2);
  assert_int_equal(packet[0].piece_count, 3);
  assert_int_equal(packet[0].bytes, 7000);
  assert_int_equal(packet[1].bytes, 60);
  release(&packet[0]);
  release(&packet[1]);
}

static void test_a_packet_in_too_many_frames_is_dropped_whole(void **state) {
  (void)state;
  struct harp_xdp_received packet;
  harp_xdp_queue_refill(&q);
  for (int i = 0; i < 20; i++) kernel_delivers(kernel_fills(), 100, i < 19);
  kernel_delivers(kernel_fills(), 60, false);
  assert_int_equal(receive(&packet, 1), 1);
  assert_int_equal(packet.bytes, 60);
  assert_int_equal(q.counts[HARP_XDP_RX_HELD], 1);
  assert_null(q.broken);
}

static void test_a_packet_without_its_end_is_dropped(void **state) {
  (void)state;
  struct harp_xdp_received packet;
  harp_xdp_queue_refill(&q);
  kernel_delivers(kernel_fills(), 3000, true);
  assert_int_equal(receive(&packet, 1), 0);
  assert_int_equal(q.counts[HARP_XDP_RX_HELD], 0);
}

static void test_a_starved_fill_ring_is_filled_from_what_is_released(void **state) {
  (void)state;
  struct harp_xdp_received packets[RX];
  harp_xdp_queue_refill(&q);
  for (int i = 0; i < RX; i++) kernel_delivers(kernel_fills(), 60, false);
  assert_int_equal(receive(packets, RX), RX);
  harp_xdp_queue_refill(&q); /* nothing to give: all are held */
  assert_int_equal(q.counts[HARP_XDP_FILL], 0);
  for (int i = 0; i < RX; i++) release(&packets[i]);
  harp_xdp_queue_refill(&q);
  assert_int_equal(q.counts[HARP_XDP_FILL], RX);
}

/* ---- nonsense ---- */

static void expect_broken(const char *part) {
  assert_non_null(q.broken);
  assert_non_null(strstr(q.broken, part));
  harp_xdp_queue_check(&q);
  uint32_t run;
  struct harp_xdp_received packet;
  assert_false(harp_xdp_queue_tx_take(&q, &run));
  assert_int_equal(harp_xdp_queue_rx(&q, &packet, 1), 0);
  assert_int_equal(harp_xdp_queue_reap(&q), 0);
  assert_int_equal(harp_xdp_queue_tx_flush(&q), -EPIPE);
}

static void test_a_frame_delivered_twice_breaks_the_queue(void **state) {
  (void)state;
  struct harp_xdp_received packets[2];
  harp_xdp_queue_refill(&q);
  uint64_t address = kernel_fills();
  kernel_delivers(address, 60, false);
  kernel_delivers(address, 60, false);
  assert_int_equal(receive(packets, 2), 1);
  expect_broken("delivered a frame that it does not have");
}

static void test_garbled_descriptors_break_the_queue(void **state) {
  (void)state;
  static const struct {
    uint64_t address;
    uint32_t bytes;
  } rows[] = {
      {(uint64_t)RX * HARP_XDP_FRAME_BYTES, 60}, /* a frame for sending */
      {UINT64_MAX, 60},
      {0, HARP_XDP_FRAME_BYTES + 1},
      {4000, 200},
      {0, UINT32_MAX},
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    struct harp_xdp_received packet;
    open_queue(0);
    harp_xdp_queue_refill(&q);
    kernel_delivers(rows[i].address, rows[i].bytes, false);
    assert_int_equal(receive(&packet, 1), 0);
    expect_broken("delivered a frame");
  }
}

static void test_counters_out_of_range_break_the_queue(void **state) {
  (void)state;
  struct harp_xdp_received packet;
  rx.producer = ENTRIES + 1;
  assert_int_equal(receive(&packet, 1), 0);
  expect_broken("rx ring");
  open_queue(0);
  completion.producer = UINT32_MAX;
  assert_int_equal(harp_xdp_queue_reap(&q), 0);
  expect_broken("completion ring");
  open_queue(0);
  fill.consumer = 1000;
  q.fill.theirs = q.fill.ours - ENTRIES; /* it seems full, so the kernel's counter is looked at */
  harp_xdp_queue_refill(&q);
  expect_broken("fill ring");
}

/* ---- sending ---- */

static void test_a_run_comes_back_when_its_last_frame_is_completed(void **state) {
  (void)state;
  uint32_t run, bytes[3] = {1500, 1500, 700};
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  assert_int_equal(q.counts[HARP_XDP_TX_BUILD], HARP_XDP_RUN_FRAMES);
  assert_true(harp_xdp_queue_tx_put(&q, run, 3, HARP_XDP_FRAME_BYTES, 42, bytes));
  harp_xdp_queue_check(&q);
  assert_int_equal(q.counts[HARP_XDP_TX_RING], 3);
  assert_int_equal(tx.producer, 0); /* not before the flush */
  assert_int_equal(harp_xdp_queue_tx_flush(&q), 0);
  assert_int_equal(tx.producer, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(tx.of.descriptors[i].bytes, bytes[i]);
    assert_int_equal(tx.of.descriptors[i].address % HARP_XDP_FRAME_BYTES, 42);
  }
  uint32_t free_runs = q.run_pool_count;
  kernel_completes(tx.of.descriptors[2].address); /* in any order */
  kernel_completes(tx.of.descriptors[0].address);
  assert_int_equal(harp_xdp_queue_reap(&q), 2);
  assert_int_equal(q.run_pool_count, free_runs);
  kernel_completes(tx.of.descriptors[1].address + 42); /* an offset within the frame counts as the frame */
  assert_int_equal(harp_xdp_queue_reap(&q), 1);
  assert_int_equal(q.run_pool_count, free_runs + 1);
  assert_int_equal(q.counts[HARP_XDP_POOL], FRAMES);
  harp_xdp_queue_check(&q);
}

static void test_a_jumbo_packet_takes_several_descriptors(void **state) {
  (void)state;
  uint32_t run, bytes[2] = {8942, 5000};
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  assert_true(harp_xdp_queue_tx_put(&q, run, 2, 3 * HARP_XDP_FRAME_BYTES, 42, bytes));
  harp_xdp_queue_check(&q);
  assert_int_equal(harp_xdp_queue_tx_flush(&q), 0);
  assert_int_equal(tx.producer, 5);
  const struct harp_xdp_descriptor *d = tx.of.descriptors;
  assert_int_equal(d[0].bytes + d[1].bytes + d[2].bytes, 8942);
  assert_int_equal(d[0].bytes, HARP_XDP_FRAME_BYTES - 42);
  assert_int_equal(d[1].address, d[0].address - 42 + HARP_XDP_FRAME_BYTES);
  assert_int_equal(d[0].options, HARP_XDP_PACKET_CONTINUES);
  assert_int_equal(d[2].options, 0);
  assert_int_equal(d[3].address, d[0].address + 3 * HARP_XDP_FRAME_BYTES);
  assert_int_equal(d[4].options, 0);
}

static void test_completed_twice_breaks_the_queue(void **state) {
  (void)state;
  uint32_t run, bytes = 60;
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  assert_true(harp_xdp_queue_tx_put(&q, run, 1, HARP_XDP_FRAME_BYTES, 0, &bytes));
  assert_int_equal(harp_xdp_queue_tx_flush(&q), 0);
  kernel_completes(tx.of.descriptors[0].address);
  kernel_completes(tx.of.descriptors[0].address);
  assert_int_equal(harp_xdp_queue_reap(&q), 1);
  expect_broken("completed a frame that it does not have");
}

static void test_withheld_completions_only_cost_their_runs(void **state) {
  (void)state;
  uint32_t run, bytes = 60;
  for (int i = 0; i < RUNS; i++) {
    assert_true(harp_xdp_queue_tx_take(&q, &run));
    assert_true(harp_xdp_queue_tx_put(&q, run, 1, HARP_XDP_FRAME_BYTES, 0, &bytes));
  }
  assert_false(harp_xdp_queue_tx_take(&q, &run));
  assert_int_equal(harp_xdp_queue_tx_flush(&q), 0);
  assert_int_equal(harp_xdp_queue_reap(&q), 0);
  assert_true(q.tx_frames > q.tx_completed); /* what the driver's deadline looks at */
  kernel_completes(tx.of.descriptors[3].address);
  assert_int_equal(harp_xdp_queue_reap(&q), 1);
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  harp_xdp_queue_tx_give_back(&q, run);
  harp_xdp_queue_check(&q);
}

static void test_a_full_tx_ring_gives_the_run_back(void **state) {
  (void)state;
  uint32_t run, bytes[HARP_XDP_RUN_FRAMES];
  for (int i = 0; i < HARP_XDP_RUN_FRAMES; i++) bytes[i] = 60;
  takes_at_wake = false;
  tx.consumer = (uint32_t)-40; /* the kernel is 40 entries behind */
  q.tx.theirs = tx.consumer;
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  assert_true(harp_xdp_queue_tx_put(&q, run, HARP_XDP_RUN_FRAMES, HARP_XDP_FRAME_BYTES, 0, bytes));
  assert_true(harp_xdp_queue_tx_take(&q, &run));
  assert_false(harp_xdp_queue_tx_put(&q, run, HARP_XDP_RUN_FRAMES, HARP_XDP_FRAME_BYTES, 0, bytes));
  assert_int_equal(q.tx_busy, 1);
  assert_int_equal(q.run_pool_count, RUNS - 1);
  harp_xdp_queue_check(&q);
}

static void test_results_of_a_wakeup(void **state) {
  (void)state;
  uint32_t run, bytes = 60;
  static const int later[] = {-EAGAIN, -EBUSY, -ENOBUFS};
  takes_at_wake = false;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(later); i++) {
    tx_answer = later[i];
    assert_true(harp_xdp_queue_tx_take(&q, &run));
    assert_true(harp_xdp_queue_tx_put(&q, run, 1, HARP_XDP_FRAME_BYTES, 0, &bytes));
    tx_wakes = 0;
    assert_int_equal(harp_xdp_queue_tx_flush(&q), later[i]);
    assert_true(tx_wakes >= 1 && tx_wakes <= 8); /* bounded */
    assert_null(q.broken);
  }
  tx_answer = -ENETDOWN;
  assert_int_equal(harp_xdp_queue_tx_flush(&q), -ENETDOWN);
}

/* ---- everything at once, near the end of the counters' range ---- */

static void test_random_steps_keep_the_owners(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    struct rng rng = {seed};
    struct harp_xdp_received held[RX];
    uint64_t out[FRAMES];
    unsigned held_count = 0, out_count = 0;
    open_queue(seed % 2 ? UINT32_MAX - 40 : 0);
    for (int step = 0; step < 400; step++) {
      uint32_t run, bytes[HARP_XDP_RUN_FRAMES];
      switch (rng_below(&rng, 7)) {
      case 0:
        harp_xdp_queue_refill(&q);
        break;
      case 1:
        if (fill.consumer != fill.producer && rx.producer - rx.consumer < ENTRIES)
          kernel_delivers(kernel_fills(), 60 + (uint32_t)rng_below(&rng, 1000), false);
        break;
      case 2:
        held_count += harp_xdp_queue_rx(&q, held + held_count, RX - held_count);
        break;
      case 3:
        if (held_count) release(&held[--held_count]);
        break;
      case 4:
        if (harp_xdp_queue_tx_take(&q, &run)) {
          uint32_t count = 1 + (uint32_t)rng_below(&rng, HARP_XDP_RUN_FRAMES);
          for (uint32_t i = 0; i < count; i++) bytes[i] = 60 + (uint32_t)rng_below(&rng, 1400);
          (void)harp_xdp_queue_tx_put(&q, run, count, HARP_XDP_FRAME_BYTES, 42, bytes);
        }
        break;
      case 5: {
        uint32_t from = tx.producer;
        takes_at_wake = false;
        (void)harp_xdp_queue_tx_flush(&q);
        while (tx.consumer != tx.producer)
          out[out_count++] = tx.of.descriptors[tx.consumer++ % ENTRIES].address;
        assert_true(tx.producer - from <= ENTRIES);
        break;
      }
      default:
        if (out_count && completion.producer - completion.consumer < ENTRIES) {
          unsigned pick = (unsigned)rng_below(&rng, out_count);
          kernel_completes(out[pick]);
          out[pick] = out[--out_count];
        }
        (void)harp_xdp_queue_reap(&q);
      }
      harp_xdp_queue_check(&q);
      assert_null(q.broken);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_a_target_bounds_the_kernels_frames_and_grows_when_used_up, setup),
      cmocka_unit_test_setup(test_frames_circulate, setup),
      cmocka_unit_test_setup(test_no_wakeup_where_none_is_needed, setup),
      cmocka_unit_test_setup(test_a_flag_that_is_set_late_is_seen, setup),
      cmocka_unit_test_setup(test_a_packet_of_several_frames, setup),
      cmocka_unit_test_setup(test_a_packet_in_too_many_frames_is_dropped_whole, setup),
      cmocka_unit_test_setup(test_a_packet_without_its_end_is_dropped, setup),
      cmocka_unit_test_setup(test_a_starved_fill_ring_is_filled_from_what_is_released, setup),
      cmocka_unit_test_setup(test_a_frame_delivered_twice_breaks_the_queue, setup),
      cmocka_unit_test_setup(test_garbled_descriptors_break_the_queue, setup),
      cmocka_unit_test_setup(test_counters_out_of_range_break_the_queue, setup),
      cmocka_unit_test_setup(test_a_run_comes_back_when_its_last_frame_is_completed, setup),
      cmocka_unit_test_setup(test_a_jumbo_packet_takes_several_descriptors, setup),
      cmocka_unit_test_setup(test_completed_twice_breaks_the_queue, setup),
      cmocka_unit_test_setup(test_withheld_completions_only_cost_their_runs, setup),
      cmocka_unit_test_setup(test_a_full_tx_ring_gives_the_run_back, setup),
      cmocka_unit_test_setup(test_results_of_a_wakeup, setup),
      cmocka_unit_test_setup(test_random_steps_keep_the_owners, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
