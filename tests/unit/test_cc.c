/* SPDX-License-Identifier: Apache-2.0 */
/* Congestion control: rounds fed by hand, for what one response does. tests/networks closes the loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/cc.h"
#include "wire/packet.h"

enum { PACKET = HARP_DATA_HEADER_BYTES + 11 * HARP_LINE_BYTES, WINDOW_MAX = 8 << 20 };
#define BASE_NS   HARP_US(50)
#define PERIOD_NS HARP_MS(128)

static struct harp_cc cc;
static harp_ns now;

static void start(const struct harp_cc_ops *ops) {
  memset(&cc, 0, sizeof cc);
  now = PERIOD_NS / 2;
  harp_cc_init(&cc, ops, PACKET, WINDOW_MAX, 1);
}

/* Gives the window a size, with slow start over and no drain due. */
static unsigned cuts; /* decreases since start_at */

static void start_at(uint32_t bytes) {
  start(&harp_cc_target);
  harp_cc_set_window(&cc, bytes);
  cc.slow_start = false;
  cc.target.ceiling_bytes = bytes;
  cuts = 0;
}

static void feed(harp_ns rtt_ns, harp_ns base_ns, uint32_t acked, uint32_t lost, uint32_t inflight,
                 bool end) {
  struct harp_cc_sample s = {.now = now,
                             .rtt_ns = rtt_ns,
                             .rtt_min_ns = base_ns,
                             .acked_bytes = acked,
                             .lost_bytes = lost,
                             .lost_sent_ns = now,
                             .inflight_bytes = inflight,
                             .round_end = end};
  uint32_t before_bytes = cc.window_bytes;
  cc.ops->on_ack(&cc, &s);
  cuts += cc.window_bytes < before_bytes;
}

/* One round trip in which the whole window was used. */
static void feed_round(harp_ns rtt_ns, uint32_t lost_bytes) {
  now += rtt_ns;
  feed(rtt_ns, BASE_NS, cc.window_bytes - lost_bytes, lost_bytes, cc.window_bytes, true);
}

/* Feeds rounds for so long. */
static void feed_for(harp_ns span_ns, harp_ns rtt_ns) {
  for (harp_ns end = now + span_ns; now < end;) feed_round(rtt_ns, 0);
}

/* Goes to the next period of drains and feeds the round that begins one. */
static void begin_closing(harp_ns rtt_ns) {
  harp_ns into = (now + cc.target.clock.offset_ns) % PERIOD_NS;
  now += PERIOD_NS - into;
  feed_round(rtt_ns, 0);
}

/* ---- both ---- */

static void test_names_are_found(void **state) {
  (void)state;
  assert_ptr_equal(harp_cc_find("target"), &harp_cc_target);
  assert_ptr_equal(harp_cc_find("reno"), &harp_cc_reno);
  assert_null(harp_cc_find("cubic"));
  assert_null(harp_cc_find(""));
  assert_null(harp_cc_find("tar"));
  assert_null(harp_cc_find("targeted"));
}

static void test_the_window_keeps_its_bounds(void **state) {
  (void)state;
  start(&harp_cc_target);
  harp_cc_set_window(&cc, 0);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET);
  harp_cc_set_window(&cc, UINT64_MAX);
  assert_int_equal(cc.window_bytes, WINDOW_MAX);
  /* A bound below the least window gives the least one: the path must be able to send. */
  harp_cc_init(&cc, &harp_cc_reno, PACKET, 1000, 1);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET);
}

static void test_both_start_by_doubling(void **state) {
  (void)state;
  const struct harp_cc_ops *const all[] = {&harp_cc_target, &harp_cc_reno};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(all); i++) {
    start(all[i]);
    assert_int_equal(cc.window_bytes, HARP_CC_INITIAL_BYTES);
    feed_round(BASE_NS, 0);
    assert_int_equal(cc.window_bytes, 2 * HARP_CC_INITIAL_BYTES);
    for (int k = 0; k < 20; k++) feed_round(BASE_NS, 0);
    assert_int_equal(cc.window_bytes, WINDOW_MAX);
  }
}

static void test_an_idle_window_does_not_grow(void **state) {
  (void)state;
  const struct harp_cc_ops *const all[] = {&harp_cc_target, &harp_cc_reno};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(all); i++) {
    start(all[i]);
    for (int k = 0; k < 20; k++, now += BASE_NS) feed(BASE_NS, BASE_NS, PACKET, 0, PACKET, true);
    assert_int_equal(cc.window_bytes, HARP_CC_INITIAL_BYTES);
  }
}

static void test_sharers_divide_the_start(void **state) {
  (void)state;
  start(&harp_cc_target);
  harp_cc_init(&cc, &harp_cc_target, PACKET, WINDOW_MAX, 4);
  assert_int_equal(cc.window_bytes, HARP_CC_INITIAL_BYTES / 4);
  harp_cc_init(&cc, &harp_cc_target, PACKET, WINDOW_MAX, 64);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET);
}

static void test_a_burst_is_a_part_of_the_window_and_a_packet_at_least(void **state) {
  (void)state;
  start(&harp_cc_target);
  assert_int_equal(harp_cc_burst_bytes(&cc), HARP_CC_INITIAL_BYTES / HARP_CC_BURSTS_MIN);
  harp_cc_set_window(&cc, WINDOW_MAX);
  assert_int_equal(harp_cc_burst_bytes(&cc), HARP_CC_BURST_MAX_BYTES);
  harp_cc_set_window(&cc, 0);
  assert_int_equal(harp_cc_burst_bytes(&cc), PACKET);
}

/* ---- growth ---- */

static void test_growth_is_additive(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  assert_in_range(cc.window_bytes - 400000, PACKET / 4 - 1, WINDOW_MAX / 1024);
  start_at(100000);
  cc.target.ceiling_bytes = 400000; /* well below the last decrease it returns faster */
  feed_round(BASE_NS, 0);
  assert_in_range(cc.window_bytes - 100000, 100000 / 64, 100000 / 60);
}

static void test_equal_growth_for_all_rtts(void **state) {
  (void)state;
  uint64_t grown[2];
  for (unsigned i = 0; i < 2; i++) {
    harp_ns rtt_ns = i ? HARP_MS(1) : HARP_US(250);
    start_at(400000);
    for (harp_ns end = now + HARP_MS(8); now < end; now += rtt_ns)
      feed(rtt_ns, rtt_ns, cc.window_bytes, 0, cc.window_bytes, true);
    grown[i] = cc.window_bytes - 400000;
  }
  assert_in_range(grown[1], grown[0] * 8 / 10, grown[0] * 12 / 10);
}

/* Drains take three rounds: with a period of 128 ms few of 33 ms would be left to grow in. */
static void test_a_long_rtt_grows_within_seconds(void **state) {
  (void)state;
  enum { START = 100 * PACKET };
  harp_ns rtt_ns = HARP_MS(33);
  start_at(START);
  for (harp_ns end = now + HARP_SEC(4); now < end; now += rtt_ns)
    feed(rtt_ns, rtt_ns, cc.window_bytes, 0, cc.window_bytes, true);
  assert_in_range(cc.window_bytes, 8 * START, 32 * START);
}

/* Each period is a multiple of all shorter ones, and holds 16 round trips. */
static void test_a_long_rtt_drains_more_rarely(void **state) {
  (void)state;
  const struct {
    harp_ns rtt_ns, every_ns;
  } cases[] = {{HARP_MS(8), HARP_MS(128)}, {HARP_MS(16), HARP_MS(256)}, {HARP_MS(40), HARP_MS(1024)}};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    harp_ns rtt_ns = cases[i].rtt_ns;
    start_at(100 * PACKET);
    for (harp_ns end = now + HARP_SEC(2); now < end; now += rtt_ns)
      feed(rtt_ns, rtt_ns, cc.window_bytes, 0, cc.window_bytes, true);
    assert_int_equal(cc.drain_every_ns, cases[i].every_ns);
  }
}

/* ---- delay ---- */

static void test_a_queue_ends_slow_start_and_shrinks_the_window(void **state) {
  (void)state;
  start(&harp_cc_target);
  for (int k = 0; k < 5; k++) feed_round(BASE_NS, 0);
  uint32_t before = cc.window_bytes;
  feed_for(HARP_MS(3), HARP_MS(1));
  assert_false(cc.slow_start);
  assert_true(cc.window_bytes < before);
  assert_true(cc.window_bytes >= before / 4);
}

static void test_one_slow_round_is_not_a_queue(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  for (unsigned k = 0; k < 20; k++) {
    uint32_t before = cc.window_bytes;
    feed_round(HARP_US(300), 0); /* a host paused */
    for (unsigned i = 0; i < 5; i++) feed_round(BASE_NS, 0);
    assert_true(cc.window_bytes > before);
  }
}

enum { FEW = 6 * PACKET, QUEUE_US = 1000 };

/* Feeds a round of few packets: the first is late, the rest as given. */
static void feed_few(harp_ns first_ns, harp_ns rest_ns) {
  now += rest_ns;
  feed(first_ns, BASE_NS, PACKET, 0, FEW, false);
  for (unsigned i = 0; i < 3; i++) feed(rest_ns, BASE_NS, PACKET, 0, FEW, i == 2);
}

/* Two rounds of few packets are needed for a decision, however long they take. */
static void test_few_round_trips_decide_nothing(void **state) {
  (void)state;
  start_at(FEW);
  feed_few(BASE_NS, BASE_NS);
  feed_few(BASE_NS, BASE_NS);
  uint32_t before = cc.window_bytes;
  now += HARP_MS(2);
  feed_few(HARP_US(QUEUE_US), HARP_US(QUEUE_US)); /* a host paused */
  feed_few(BASE_NS, BASE_NS);
  assert_true(cc.window_bytes >= before);
  for (unsigned i = 0; i < 2; i++) feed_few(HARP_US(QUEUE_US), HARP_US(QUEUE_US));
  assert_true(cc.window_bytes < before);
}

/* Feeds few packets behind a queue of QUEUE_US after a longer one was seen; returns what is left of them. */
static uint32_t left_of_few(harp_ns seen_ns) {
  start_at(FEW);
  feed_few(seen_ns, BASE_NS);
  for (unsigned i = 0; i < 8; i++) feed_few(HARP_US(QUEUE_US), HARP_US(QUEUE_US));
  return cc.window_bytes;
}

static void test_few_packets_fill_a_long_queue_more(void **state) {
  (void)state;
  assert_true(left_of_few(HARP_MS(3)) < FEW);
  assert_true(left_of_few(HARP_MS(10)) >= FEW);
}

/* Between two drains delay takes three quarters at most, though the queue stays. */
static void test_delay_is_bounded_between_drains(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  begin_closing(BASE_NS);
  feed_for(HARP_MS(6), BASE_NS);
  uint32_t before = cc.window_bytes;
  feed_for(HARP_MS(50), HARP_MS(1));
  assert_in_range(cc.window_bytes, before / 5, before * 3 / 10);
  assert_true(cc.target.is_futile);
}

/* A drain, in which every round takes so long. */
static void drain(harp_ns rtt_ns) {
  begin_closing(HARP_MS(1));
  assert_true(cc.target.drain_from_ns);
  feed_for(HARP_MS(6), rtt_ns);
  assert_false(cc.target.drain_from_ns);
}

/* Others fill the queue: two drains do not empty it. Delay does not count then, until COMPETE_PERIODS end. */
static void test_a_queue_of_others_is_competed_for(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  feed_for(HARP_MS(50), HARP_MS(1));
  drain(HARP_MS(1)); /* this may be a pause of a host */
  assert_int_equal(cc.target.compete_periods, 0);
  drain(HARP_MS(1));
  assert_int_equal(cc.target.compete_periods, 16);
  uint32_t before = cc.window_bytes;
  feed_for(HARP_MS(20), HARP_MS(1));
  assert_true(cc.window_bytes > before);
  for (unsigned i = 0; i < 16; i++) {
    assert_true(cc.target.compete_periods);
    begin_closing(BASE_NS);
    feed_for(HARP_MS(6), BASE_NS);
  }
  assert_int_equal(cc.target.compete_periods, 0);
}

/* A drain that hosts delay a little leaves most of the queue empty. */
static void test_a_queue_of_ones_own_is_not_competed_for(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  for (unsigned i = 0; i < 4; i++) {
    feed_for(HARP_MS(50), HARP_MS(1));
    drain(BASE_NS + HARP_US(100));
  }
  assert_int_equal(cc.target.compete_periods, 0);
}

/* ---- drains ---- */

static void test_drains_follow_the_shared_clock(void **state) {
  (void)state;
  start_at(400000);
  harp_cc_set_clock(&cc, PERIOD_NS / 4, false);
  feed_round(BASE_NS, 0);
  now = PERIOD_NS * 3 / 4 - 2 * BASE_NS;
  feed_round(BASE_NS, 0);
  feed_for(HARP_MS(6), BASE_NS);
  cc.target.period = (now + PERIOD_NS / 4) / PERIOD_NS;
  now = PERIOD_NS * 7 / 4 - 2 * BASE_NS; /* ours plus a quarter: nearly two periods */
  feed_round(BASE_NS, 0);
  assert_false(cc.target.drain_from_ns);
  uint32_t before = cc.window_bytes;
  feed_round(BASE_NS, 0);
  assert_true(cc.target.drain_from_ns);
  assert_in_range(cc.window_bytes, before * 74ull / 100, before * 76ull / 100);
  feed_for(HARP_MS(4) - 2 * BASE_NS, BASE_NS);
  assert_true(cc.target.drain_from_ns);
  feed_for(4 * BASE_NS, BASE_NS);
  assert_false(cc.target.drain_from_ns);
  assert_in_range(cc.window_bytes, before, before + 10000); /* the queue was empty: all of it is back */
}

/* A flow that was idle when the period began, and that is not for its long RTT. */
static void test_no_drain_begins_when_that_of_others_is_over(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  now += PERIOD_NS - now % PERIOD_NS + HARP_MS(5);
  feed_round(BASE_NS, 0);
  assert_int_equal(cc.target.drain_from_ns, 0);
  begin_closing(BASE_NS);
  assert_true(cc.target.drain_from_ns);
  start_at(400000);
  feed_round(HARP_MS(33), 0);
  now += PERIOD_NS - now % PERIOD_NS + HARP_MS(30) - HARP_MS(33);
  feed_round(HARP_MS(33), 0);
  assert_true(cc.target.drain_from_ns);
}

static void test_a_stepped_clock_costs_one_drain(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  feed_for(HARP_MS(6), BASE_NS);
  unsigned drains = 0;
  harp_cc_set_clock(&cc, HARP_SEC(3600), false);
  for (harp_ns end = now + HARP_MS(40); now < end;) {
    bool was = cc.target.drain_from_ns;
    feed_round(BASE_NS, 0);
    drains += !was && cc.target.drain_from_ns;
  }
  assert_true(drains <= 1);
}

static void test_a_longer_route_shows_in_drains(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  begin_closing(BASE_NS);
  feed_for(HARP_MS(6), BASE_NS);
  assert_false(cc.slow_start);
  now += PERIOD_NS - now % PERIOD_NS;
  for (harp_ns end = now + HARP_MS(8); now < end; now += HARP_US(500))
    feed(HARP_US(500), HARP_US(500), cc.window_bytes, 0, cc.window_bytes, true);
  assert_true(cc.slow_start);
  assert_int_equal(cc.target.compete_periods, 0);
}

/* ---- loss ---- */

/* Feeds packets one by one, one of `every` is lost. */
static void feed_packets(unsigned count, unsigned every) {
  unsigned round = cc.window_bytes / PACKET + 1;
  for (unsigned i = 1; i <= count; i++) {
    bool is_lost = i % every == 0, end = i % round == 0;
    now += BASE_NS / round;
    feed(BASE_NS, BASE_NS, is_lost ? 0 : PACKET, is_lost ? PACKET : 0, cc.window_bytes, end);
  }
}

static void test_a_little_loss_is_tolerated(void **state) {
  (void)state;
  start_at(400000);
  feed_packets(20000, 400);
  assert_int_equal(cuts, 0);
  feed_packets(20000, 50);
  assert_true(cuts > 0);
  assert_true(cc.window_bytes < 400000);
}

static void test_loss_counts_once_for_what_was_sent_before(void **state) {
  (void)state;
  start_at(400000);
  now += BASE_NS;
  feed(BASE_NS, BASE_NS, 200000, 5 * PACKET, 400000, false);
  assert_int_equal(cuts, 1);
  assert_in_range(cc.window_bytes, 319000, 321000); /* 80 % */
  for (unsigned i = 0; i < 5; i++) feed(BASE_NS, BASE_NS, 0, 5 * PACKET, 400000, false);
  assert_int_equal(cuts, 1);
}

static bool is_held_back(uint32_t inflight_bytes) {
  struct harp_cc_sample s = {.now = now,
                             .rtt_ns = BASE_NS,
                             .rtt_min_ns = BASE_NS,
                             .inflight_bytes = inflight_bytes,
                             .round_end = true};
  return harp_cc_is_held_back(&cc, &s);
}

/* A policer drops in one of many rounds, and limits the path in all of them. */
static void test_a_loss_that_counted_holds_back_until_the_path_is_clean(void **state) {
  (void)state;
  start_at(400000);
  feed_round(BASE_NS, 0);
  assert_false(is_held_back(400000));
  feed(BASE_NS, BASE_NS, 200000, 5 * PACKET, 400000, false);
  assert_int_equal(cuts, 1);
  feed_round(BASE_NS, 0);
  assert_true(is_held_back(cc.window_bytes));
  assert_false(is_held_back(cc.window_bytes / 4)); /* the application limits it */
  now += HARP_CC_CLEAN_NS;
  assert_false(is_held_back(cc.window_bytes));
}

static void test_great_loss_leaves_what_came_through(void **state) {
  (void)state;
  start_at(400000);
  now += BASE_NS;
  feed(BASE_NS, BASE_NS, 200000, 200000, 400000, true);
  assert_in_range(cc.window_bytes, 199000, 201000);
  start_at(400000);
  now += BASE_NS;
  feed(BASE_NS, BASE_NS, 4000, 396000, 400000, true);
  assert_in_range(cc.window_bytes, 99000, 101000);
}

/* The path is known to lose this share by itself, times 2^16. */
static void know_loss(uint32_t share_q16) {
  cc.target.base_loss.share_q16 = share_q16;
  cc.target.base_loss.is_known = share_q16 != 0;
}

static void test_known_loss_is_tolerated_where_hosts_share_a_clock(void **state) {
  (void)state;
  start_at(400000);
  know_loss(65536 * 3 / 100);
  feed_packets(20000, 33);
  assert_int_equal(cuts, 0);
  assert_true(cc.window_bytes >= 400000);
  feed_packets(2000, 4);
  assert_true(cuts > 0);
  start_at(400000);
  harp_cc_set_clock(&cc, 0, true); /* without one no more than 1 % is */
  know_loss(65536 * 3 / 100);
  feed_packets(5000, 33);
  assert_true(cuts > 0);
}

/* A single packet that is lost in each round in which the window is below a packet leaves the pace. */
static void test_the_window_goes_below_a_packet(void **state) {
  (void)state;
  start_at(2 * PACKET);
  for (unsigned i = 0; i < 100; i++, now += BASE_NS) feed(BASE_NS, BASE_NS, 0, PACKET, PACKET, true);
  assert_true(cc.window_bytes < PACKET / 2);
  assert_true(cc.window_q8 >= (uint64_t)PACKET * 256 * BASE_NS / HARP_MS(4)); /* a packet each 4 ms */
  assert_int_equal(harp_cc_burst_bytes(&cc), PACKET);
}

/* The least window is a packet each 4 ms: of an RTT that holds a pause of a host it is many packets. */
static void test_a_pause_of_a_host_does_not_raise_the_window(void **state) {
  (void)state;
  start_at(2 * PACKET);
  for (unsigned i = 0; i < 100; i++, now += BASE_NS) feed(BASE_NS, BASE_NS, 0, PACKET, PACKET, true);
  uint64_t before_q8 = cc.window_q8;
  now += HARP_MS(500);
  feed(HARP_MS(500), BASE_NS, 0, PACKET, PACKET, true);
  assert_true(cc.window_q8 > 16 * before_q8);
  now += BASE_NS;
  feed(BASE_NS, BASE_NS, PACKET, 0, PACKET, false);
  assert_true(cc.window_q8 <= before_q8);
}

/* What is sent in a drain counts as its own when its acknowledgement or loss comes after the end. */
static void test_the_last_packets_of_a_drain_count(void **state) {
  (void)state;
  start_at(100 * PACKET);
  feed_round(BASE_NS, 0);
  begin_closing(BASE_NS);
  while (cc.target.drain_from_ns) feed_round(BASE_NS, 0);
  uint32_t before = cc.target.base_loss.interval.bytes, lost = cc.target.base_loss.interval.lost_bytes;
  assert_true(before);
  struct harp_cc_sample s = {.now = now + BASE_NS / 2,
                             .rtt_ns = BASE_NS,
                             .rtt_min_ns = BASE_NS,
                             .acked_bytes = PACKET,
                             .lost_bytes = PACKET,
                             .lost_sent_ns = now - BASE_NS / 2};
  cc.ops->on_ack(&cc, &s);
  assert_int_equal(cc.target.base_loss.interval.bytes, before + 2 * PACKET);
  assert_int_equal(cc.target.base_loss.interval.lost_bytes, lost + PACKET);
  s.now = s.lost_sent_ns = now + 2 * BASE_NS; /* was sent after it */
  cc.ops->on_ack(&cc, &s);
  assert_int_equal(cc.target.base_loss.interval.lost_bytes, lost + PACKET);
}

/* A window of thousands of packets loses some by chance. */
static void test_a_very_large_window_bears_more_losses(void **state) {
  (void)state;
  for (uint32_t packets = 1000; packets <= 5000; packets *= 5) {
    start_at(packets * PACKET);
    for (int k = 0; k < 5; k++) feed(BASE_NS, BASE_NS, 0, PACKET, packets * PACKET, false);
    assert_int_equal(cuts, packets == 1000);
  }
}

static void test_a_restart_keeps_the_clock_and_the_base_loss(void **state) {
  (void)state;
  start_at(400000);
  harp_cc_set_clock(&cc, 4711, true);
  know_loss(2000);
  cc.target.compete_periods = 3;
  harp_cc_init(&cc, &harp_cc_target, PACKET, WINDOW_MAX, 1);
  assert_int_equal(cc.target.clock.offset_ns, 4711);
  assert_true(cc.target.clock.is_own);
  assert_int_equal(cc.target.base_loss.share_q16, 2000);
  assert_true(cc.target.base_loss.is_presumed);
  assert_int_equal(cc.target.compete_periods, 0);
  assert_true(cc.slow_start);
}

/* ---- timeouts, reno ---- */

static void test_timeouts_shrink(void **state) {
  (void)state;
  start(&harp_cc_target);
  cc.ops->on_timeout(&cc);
  assert_int_equal(cc.window_bytes, HARP_CC_INITIAL_BYTES / 2);
  assert_false(cc.slow_start);
  start(&harp_cc_reno);
  cc.ops->on_timeout(&cc);
  assert_int_equal(cc.window_bytes, HARP_CC_MIN_PACKETS * PACKET);
}

/* Two thirds of the window are settled in each round. */
static void test_a_window_that_losses_do_not_shrink_grows_in_full_use_only(void **state) {
  (void)state;
  enum { BYTES = 400000 };
  for (unsigned percent = 0; percent <= 10; percent += 10) {
    start_at(BYTES);
    know_loss(65536 * percent / 100);
    now += BASE_NS;
    feed(BASE_NS, BASE_NS, BYTES * 2 / 3, 0, BYTES, true);
    assert_int_equal(cc.window_bytes > BYTES, !percent);
    feed_round(BASE_NS, 0);
    assert_true(cc.window_bytes > BYTES);
  }
}

static void test_timeouts_do_not_count_where_much_is_lost_at_random(void **state) {
  (void)state;
  for (unsigned percent = 5; percent <= 40; percent += 35) {
    start(&harp_cc_target);
    know_loss(65536 * percent / 100);
    cc.ops->on_timeout(&cc);
    assert_int_equal(cc.slow_start, percent == 40);
    assert_int_equal(cc.window_bytes, HARP_CC_INITIAL_BYTES / (percent == 40 ? 1 : 2));
  }
}

static void test_reno_halves_once_a_round(void **state) {
  (void)state;
  start(&harp_cc_reno);
  for (int k = 0; k < 3; k++) feed_round(BASE_NS, 0);
  uint32_t before = cc.window_bytes;
  for (int k = 0; k < 5; k++) feed(0, BASE_NS, 0, PACKET, before, false);
  assert_int_equal(cc.window_bytes, before);
  feed_round(BASE_NS, 0);
  assert_int_equal(cc.window_bytes, before / 2);
  feed_round(BASE_NS, 0);
  assert_int_equal(cc.window_bytes, before / 2 + PACKET); /* and grows by a packet from here on */
}

/* ---- marks ---- */

static void feed_marked_round(uint32_t marked_bytes) {
  now += BASE_NS;
  struct harp_cc_sample s = {.now = now,
                             .rtt_ns = BASE_NS,
                             .rtt_min_ns = BASE_NS,
                             .acked_bytes = cc.window_bytes,
                             .ce_bytes = marked_bytes,
                             .inflight_bytes = cc.window_bytes,
                             .round_end = true};
  cc.ops->on_ack(&cc, &s);
}

static void test_a_mark_ends_slow_start_and_takes_half_of_the_share(void **state) {
  (void)state;
  start(&harp_cc_target);
  uint32_t before = cc.window_bytes;
  feed_marked_round(before); /* the first one counts in full: alpha is 1 */
  assert_false(cc.slow_start);
  assert_in_range(cc.window_bytes, before / 2 - 1, before / 2 + 1);
}

static void test_few_marks_take_little(void **state) {
  (void)state;
  start_at(100 * PACKET);
  for (int k = 0; k < 400; k++) feed_round(BASE_NS, 0); /* alpha forgets */
  uint32_t before = cc.window_bytes;
  feed_marked_round(before / 16);
  assert_in_range(cc.window_bytes, before - before / 64, before - 1);
}

/* A network that marks all that passes leaves two packets, and lets a smaller window grow to them. */
static void test_marks_leave_two_packets(void **state) {
  (void)state;
  start_at(100 * PACKET);
  for (int k = 0; k < 2000; k++) feed_marked_round(cc.window_bytes);
  assert_in_range(cc.window_bytes, 2 * PACKET, 3 * PACKET); /* and what a round adds */
  for (int k = 0; k < 12; k++) cc.ops->on_timeout(&cc);
  assert_true(cc.window_bytes < PACKET / 2);
  for (int k = 0; k < 20000; k++) feed_marked_round(cc.window_bytes);
  assert_in_range(cc.window_bytes, 2 * PACKET, 3 * PACKET);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_are_found),
      cmocka_unit_test(test_the_window_keeps_its_bounds),
      cmocka_unit_test(test_both_start_by_doubling),
      cmocka_unit_test(test_an_idle_window_does_not_grow),
      cmocka_unit_test(test_sharers_divide_the_start),
      cmocka_unit_test(test_a_burst_is_a_part_of_the_window_and_a_packet_at_least),
      cmocka_unit_test(test_growth_is_additive),
      cmocka_unit_test(test_equal_growth_for_all_rtts),
      cmocka_unit_test(test_a_long_rtt_grows_within_seconds),
      cmocka_unit_test(test_a_long_rtt_drains_more_rarely),
      cmocka_unit_test(test_a_queue_ends_slow_start_and_shrinks_the_window),
      cmocka_unit_test(test_one_slow_round_is_not_a_queue),
      cmocka_unit_test(test_few_round_trips_decide_nothing),
      cmocka_unit_test(test_few_packets_fill_a_long_queue_more),
      cmocka_unit_test(test_delay_is_bounded_between_drains),
      cmocka_unit_test(test_a_queue_of_others_is_competed_for),
      cmocka_unit_test(test_a_queue_of_ones_own_is_not_competed_for),
      cmocka_unit_test(test_drains_follow_the_shared_clock),
      cmocka_unit_test(test_no_drain_begins_when_that_of_others_is_over),
      cmocka_unit_test(test_a_stepped_clock_costs_one_drain),
      cmocka_unit_test(test_a_longer_route_shows_in_drains),
      cmocka_unit_test(test_a_little_loss_is_tolerated),
      cmocka_unit_test(test_loss_counts_once_for_what_was_sent_before),
      cmocka_unit_test(test_a_loss_that_counted_holds_back_until_the_path_is_clean),
      cmocka_unit_test(test_great_loss_leaves_what_came_through),
      cmocka_unit_test(test_known_loss_is_tolerated_where_hosts_share_a_clock),
      cmocka_unit_test(test_the_window_goes_below_a_packet),
      cmocka_unit_test(test_a_pause_of_a_host_does_not_raise_the_window),
      cmocka_unit_test(test_the_last_packets_of_a_drain_count),
      cmocka_unit_test(test_a_very_large_window_bears_more_losses),
      cmocka_unit_test(test_a_restart_keeps_the_clock_and_the_base_loss),
      cmocka_unit_test(test_a_mark_ends_slow_start_and_takes_half_of_the_share),
      cmocka_unit_test(test_few_marks_take_little),
      cmocka_unit_test(test_marks_leave_two_packets),
      cmocka_unit_test(test_timeouts_shrink),
      cmocka_unit_test(test_a_window_that_losses_do_not_shrink_grows_in_full_use_only),
      cmocka_unit_test(test_timeouts_do_not_count_where_much_is_lost_at_random),
      cmocka_unit_test(test_reno_halves_once_a_round),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
