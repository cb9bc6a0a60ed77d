/* SPDX-License-Identifier: Apache-2.0 */
/* What the protocol makes of a network, on the virtual clock: shares of the rate that the links would carry.
 *
 * Nothing here depends on the machine. The bounds are those of the design (loss at a rate cap; several capped
 * ENIs) and a few that keep an algorithm from rotting unseen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo.h"

static struct duo duo;
enum { MESSAGES_MAX = 128 };

struct net {
  const char *name;
  unsigned paths;
  uint32_t lines;
  uint64_t rate_bytes_s;
  harp_ns delay_ns;
  uint32_t queue_bytes, loss_ppm, bytes;
  const struct harp_cc_ops *cc;
  harp_ns jitter_ns; /* reorders */
};

/* Returns payload bytes a second over all paths' rate, in permille. */
static uint32_t goodput(const struct net *n) {
  struct duo_config c = {.seed = 5,
                         .path_count = n->paths,
                         .window_bytes = 4 << 20,
                         .cc = n->cc,
                         .superframe_packets = 64,
                         .is_one_way = true};
  for (unsigned i = 0; i < n->paths; i++)
    c.paths[i] =
        (struct harp_path_config){.lines_max = n->lines, .local_eni = (uint8_t)i, .remote_eni = (uint8_t)i};
  duo_start(&duo, &c);
  strcpy(duo.label, n->name);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 16});
  for (unsigned i = 0; i < n->paths; i++) {
    struct simnet_link *l = &duo.net.links[SIMNET_THERE][i];
    l->own.rate_bytes_s = n->rate_bytes_s;
    l->own.queue_bytes = n->queue_bytes;
    l->loss_ppm = n->loss_ppm;
    l->jitter_ns = n->jitter_ns;
    l->delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = n->delay_ns;
  }
  uint64_t total = 0;
  for (; total < (40u << 20); total += n->bytes) {
    if (duo.count == MESSAGES_MAX) break;
    duo_add(&duo, n->bytes, n->bytes, duo.now, duo.now);
  }
  harp_ns start = duo.now;
  assert_true(duo_run(&duo, start + HARP_SEC(100)));
  duo_check_buffers(&duo);
  uint32_t permille =
      (uint32_t)(total * HARP_MS(1) / (duo.now - start) * HARP_MS(1) / (n->rate_bytes_s * n->paths));
  print_message(
      "%-40s %4u permille, %llu lost, %llu probe timeouts, %llu superframes, %llu acknowledgements\n",
      n->name, permille, (unsigned long long)duo.ends[0].counters.lost_packets,
      (unsigned long long)duo.ends[0].counters.probe_timeouts, (unsigned long long)duo.ends[0].superframes,
      (unsigned long long)duo.ack_packets);
  return permille;
}

static void test_links_are_filled(void **state) {
  (void)state;
  static const struct net nets[] = {
      {"2 Gbit/s, 50 us, 1500", 1, 11, 250000000, HARP_US(25), 1 << 20, 0, 1 << 20, &harp_cc_target, 0},
      {"2 Gbit/s, 50 us, 9000", 1, 69, 250000000, HARP_US(25), 1 << 20, 0, 1 << 20, &harp_cc_target, 0},
      {"2 Gbit/s, 1 ms, 1500", 1, 11, 250000000, HARP_US(500), 1 << 20, 0, 1 << 20, &harp_cc_target, 0},
      {"25 Gbit/s, 100 us, 9000", 1, 69, 3125000000, HARP_US(50), 2 << 20, 0, 1 << 20, &harp_cc_target, 0},
      {"2 Gbit/s, small queue", 1, 11, 250000000, HARP_US(25), 100000, 0, 1 << 20, &harp_cc_target, 0},
      {"2 Gbit/s, 50 us, reno", 1, 11, 250000000, HARP_US(25), 1 << 20, 0, 1 << 20, &harp_cc_reno, 0},
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(nets); i++) {
    uint32_t permille = goodput(&nets[i]);
    assert_true(permille >= 800);
  }
}

static void test_random_loss_costs_little(void **state) {
  (void)state;
  struct net n = {"2 Gbit/s, no loss", 1, 11, 250000000, HARP_US(50), 1 << 20, 0, 1 << 20,
                  &harp_cc_target,     0};
  uint32_t clean = goodput(&n);
  n.name = "2 Gbit/s, 0.1 % loss", n.loss_ppm = 1000;
  assert_true(goodput(&n) >= clean * 90 / 100);
  n.name = "2 Gbit/s, 1 % loss", n.loss_ppm = 10000;
  assert_true(goodput(&n) >= clean * 70 / 100);
}

static void test_reordering_costs_little(void **state) {
  (void)state;
  struct net n = {"2 Gbit/s, up to 50 us of jitter",
                  1,
                  11,
                  250000000,
                  HARP_US(50),
                  1 << 20,
                  0,
                  1 << 20,
                  &harp_cc_target,
                  HARP_US(50)};
  assert_true(goodput(&n) >= 900);
  n.name = "2 Gbit/s, up to 500 us of jitter", n.jitter_ns = HARP_US(500);
  assert_true(goodput(&n) >= 800);
}

static void test_heavy_loss_is_survived(void **state) {
  (void)state;
  struct net n = {"2 Gbit/s, 10 % loss", 1, 11, 250000000, HARP_US(50), 1 << 20, 100000, 1 << 20,
                  &harp_cc_target,       0};
  assert_true(goodput(&n) >= 20);
}

static void test_paths_add_up(void **state) {
  (void)state;
  struct net n = {"1 x 1 Gbit/s", 1, 11, 125000000, HARP_US(50), 1 << 20, 0, 1 << 20, &harp_cc_target, 0};
  uint32_t one = goodput(&n);
  n.name = "4 x 1 Gbit/s", n.paths = 4;
  assert_true(goodput(&n) >= one * 90 / 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_links_are_filled),
      cmocka_unit_test(test_random_loss_costs_little),
      cmocka_unit_test(test_reordering_costs_little),
      cmocka_unit_test(test_heavy_loss_is_survived),
      cmocka_unit_test(test_paths_add_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
