/* SPDX-License-Identifier: Apache-2.0 */
/* What one connection makes of several paths, on the virtual clock: shares of what they carry together, and
 * how long a receiver waits when one of them fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/duo.h"
#include "proto/pairing.h"

static struct duo duo;
enum { GBIT = 125000000 }; /* bytes a second */

struct way {
  uint64_t rate_bytes_s;
  harp_ns delay_ns;
};

static void start(const char *name, const struct way *ways, unsigned paths, uint32_t lines) {
  struct duo_config c = {.seed = 5,
                         .path_count = paths,
                         .first_number = 3,
                         .window_bytes = 4 << 20,
                         .cc = &harp_cc_target,
                         .superframe_packets = 64,
                         .is_one_way = true};
  for (unsigned i = 0; i < paths; i++) {
    c.paths[i] =
        (struct harp_path_config){.lines_max = lines, .local_eni = (uint8_t)i, .remote_eni = (uint8_t)i};
  }
  duo_start(&duo, &c);
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 8});
  snprintf(duo.label, sizeof duo.label, "%s", name);
  for (unsigned i = 0; i < paths; i++) {
    struct simnet_link *l = &duo.net.links[SIMNET_THERE][i];
    l->own.rate_bytes_s = ways[i].rate_bytes_s;
    l->own.queue_bytes = 1 << 20;
    l->delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = ways[i].delay_ns;
  }
}

static void add(uint32_t bytes, uint32_t count) {
  for (uint32_t k = 0; k < count; k++) duo_add(&duo, bytes, bytes, duo.now, duo.now);
}

/* Returns payload bytes a second over `rate_bytes_s`, in permille. */
static uint32_t run(uint64_t rate_bytes_s) {
  harp_ns begin = duo.now;
  uint64_t total = 0;
  assert_true(duo_run(&duo, begin + HARP_SEC(100)));
  duo_check_buffers(&duo);
  for (uint32_t k = 0; k < duo.count; k++) total += duo.messages[k].bytes;
  uint32_t permille = (uint32_t)(total * HARP_MS(1) / (duo.now - begin) * HARP_MS(1) / rate_bytes_s);
  print_message("%-44s %4u permille, %llu lost, %llu duplicates\n", duo.label, permille,
                (unsigned long long)duo.ends[0].counters.lost_packets,
                (unsigned long long)duo.ends[1].counters.drops[HARP_DROP_DUPLICATE]);
  return permille;
}

/* The longest time between two receives that completed. */
static harp_ns longest_gap(void) {
  harp_ns gap = 0, before = duo.messages[0].received_at;
  for (uint32_t k = 1; k < duo.count; k++) {
    gap = HARP_MAX(gap, duo.messages[k].received_at - before);
    before = duo.messages[k].received_at;
  }
  return gap;
}

static void test_equal_paths_add_up(void **state) {
  (void)state;
  struct way ways[8];
  for (unsigned i = 0; i < 8; i++) ways[i] = (struct way){GBIT, HARP_US(50)};
  for (uint32_t bytes = 128 << 10; bytes <= 1 << 20; bytes *= 8) {
    start("1 x 1 Gbit/s", ways, 1, 11);
    add(bytes, (16u << 20) / bytes);
    uint32_t one = run(GBIT);
    start("8 x 1 Gbit/s", ways, 8, 11);
    add(bytes, HARP_MIN((40u << 20) / bytes, 128u));
    assert_true(run(8 * GBIT) >= one * 95 / 100);
  }
}

static void test_unequal_paths_add_up(void **state) {
  (void)state;
  const struct way speeds[] = {{GBIT, HARP_US(50)}, {4 * (uint64_t)GBIT, HARP_US(50)}};
  start("1 + 4 Gbit/s, 1500", speeds, 2, 11);
  add(512 << 10, 80);
  assert_true(run(5 * (uint64_t)GBIT) >= 968 * 93 / 100);
  start("1 + 4 Gbit/s, 9000", speeds, 2, 69);
  add(512 << 10, 80);
  assert_true(run(5 * (uint64_t)GBIT) >= 990 * 93 / 100);
  const struct way delays[] = {{GBIT, HARP_US(50)}, {GBIT, HARP_MS(1)}};
  start("2 x 1 Gbit/s, 50 us and 1 ms away", delays, 2, 11);
  add(512 << 10, 40);
  assert_true(run(2 * (uint64_t)GBIT) >= 850);
}

/* One message at a time, of a size that fits the quick path: the slow ones must not delay it. */
static void test_small_messages_take_the_quick_path(void **state) {
  (void)state;
  const struct way ways[] = {{GBIT / 4, HARP_MS(1)}, {4 * (uint64_t)GBIT, HARP_US(20)}, {GBIT, HARP_US(300)}};
  start("4 KB messages beside slow paths", ways, 3, 11);
  duo.streams[0].config.in_flight_max = 1;
  for (uint32_t k = 0; k < 100; k++) duo_add(&duo, 4096, 4096, duo.now + HARP_US(500) * (k + 1), duo.now);
  assert_true(duo_run(&duo, duo.now + HARP_SEC(1)));
  harp_ns worst = 0;
  for (uint32_t k = 10; k < duo.count; k++) /* the first few find out */
    worst = HARP_MAX(worst, duo.messages[k].received_at - duo.messages[k].posted_at);
  print_message("worst 4 KB message: %llu us\n", (unsigned long long)worst / 1000);
  assert_true(worst <= HARP_US(50));
}

/* One of four paths dies in mid-transfer, in either direction or both, at various times. */
static void test_a_dying_path_costs_little(void **state) {
  (void)state;
  struct way ways[4];
  for (unsigned i = 0; i < 4; i++) ways[i] = (struct way){GBIT, HARP_US(50)};
  harp_ns worst = 0;
  for (unsigned round = 0; round < 12; round++) {
    start("one of 4 x 1 Gbit/s dies", ways, 4, round & 1 ? 69 : 11);
    add(256 << 10, 120);
    harp_ns at = duo.now + HARP_MS(5) + HARP_US(700) * round;
    if (round % 3 != 1) simnet_blackhole(&duo.net.links[SIMNET_THERE][round % 4], at, HARP_NEVER);
    if (round % 3 != 0) simnet_blackhole(&duo.net.links[SIMNET_BACK][round % 4], at, HARP_NEVER);
    assert_true(duo_run(&duo, duo.now + HARP_SEC(10)));
    worst = HARP_MAX(worst, longest_gap());
  }
  print_message("longest wait of the receiver when a path dies: %llu us\n", (unsigned long long)worst / 1000);
  assert_true(worst <= HARP_MS(100));
}

/* The path that died comes back and is used again soon, whatever its outage lasted. */
static void test_a_path_returns(void **state) {
  (void)state;
  struct way ways[2] = {{GBIT, HARP_US(50)}, {GBIT, HARP_US(50)}};
  harp_ns worst = 0;
  for (unsigned round = 0; round < 8; round++) {
    start("one of 2 x 1 Gbit/s flaps", ways, 2, 69);
    add(512 << 10, 90);
    harp_ns from = duo.now + HARP_MS(5), to = from + HARP_MS(10) + HARP_MS(13) * round;
    for (unsigned way = 0; way < SIMNET_WAYS; way++) simnet_blackhole(&duo.net.links[way][1], from, to);
    duo_run(&duo, to);
    uint64_t before = duo.path_packets[1];
    while (duo.path_packets[1] < before + 20) assert_true(duo_step(&duo, to + HARP_SEC(1)));
    worst = HARP_MAX(worst, duo.now - to);
    assert_true(duo_run(&duo, duo.now + HARP_SEC(10)));
    assert_int_equal(duo.ends[0].sender->paths[1].size.lines, 69);
  }
  print_message("a path that returns carries data after %llu us at most\n", (unsigned long long)worst / 1000);
  assert_true(worst <= HARP_MS(60));
}

/* ---- several paths between the same two ENIs ---- */

static struct simnet_wire shared_wire;

/* Each path carries at most `flow_bytes_s` (0: as much as comes), all of them what the NICs do. */
static void start_flows(const char *name, unsigned paths, uint64_t flow_bytes_s, uint64_t nic_bytes_s,
                        uint32_t window_bytes) {
  struct way ways[HARP_PATHS_MAX] = {0};
  for (unsigned i = 0; i < paths; i++) ways[i] = (struct way){flow_bytes_s, HARP_US(50)};
  start(name, ways, paths, 11);
  struct duo_config c = duo.config;
  for (unsigned i = 0; i < paths; i++) c.paths[i].local_eni = c.paths[i].remote_eni = 0;
  c.window_bytes = window_bytes;
  c.hurry = HARP_EXPERIMENT_FLOWS_TIMES; /* runs are short */
  duo_start(&duo, &c);                   /* again, with what is known now */
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 16});
  shared_wire = (struct simnet_wire){.rate_bytes_s = nic_bytes_s, .queue_bytes = 1 << 20};
  for (unsigned i = 0; i < paths; i++) {
    struct simnet_link *l = &duo.net.links[SIMNET_THERE][i];
    if (nic_bytes_s) l->wire = &shared_wire;
    l->own.rate_bytes_s = flow_bytes_s;
    l->own.queue_bytes = 1 << 20;
    l->delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = HARP_US(50);
  }
}

/* Runs for so long; returns what arrived since, in permille of `rate_bytes_s`. */
static uint32_t run_after(harp_ns after_ns, uint64_t rate_bytes_s) {
  harp_ns from = duo.now + after_ns;
  uint64_t bytes = 0;
  assert_true(duo_run(&duo, duo.now + HARP_SEC(100)));
  duo_check_buffers(&duo);
  for (uint32_t k = 0; k < duo.count; k++)
    if (duo.messages[k].received_at > from) bytes += duo.messages[k].bytes;
  assert_true(duo.now > from + HARP_MS(100));
  uint32_t permille = (uint32_t)(bytes * HARP_MS(1) / (duo.now - from) * HARP_MS(1) / rate_bytes_s);
  print_message("%-44s %4u permille after %u ms, %u in use\n", duo.label, permille,
                (unsigned)(after_ns / 1000000), duo.ends[0].sender->pairs.flows[0].wanted);
  return permille;
}

/* Where the network caps each flow, all paths are in use before long, and carry what they can together. */
static void test_flows_that_are_capped_add_up(void **state) {
  (void)state;
  start_flows("8 flows of 100 Mbit/s each", 8, GBIT / 10, 0, 128 << 10);
  add(128 << 10, 300);
  assert_true(run_after(HARP_MS(380), 8 * GBIT / 10) >= 968 * 95 / 100);
  start_flows("5 flows of 100 Mbit/s each", 5, GBIT / 10, 0, 128 << 10);
  add(128 << 10, 300);
  assert_true(run_after(HARP_MS(380), 5 * GBIT / 10) >= 968 * 95 / 100);
  start_flows("2 flows of 1 Gbit/s each", 2, GBIT, 0, 4 << 20);
  add(256 << 10, 160);
  assert_true(run_after(HARP_MS(100), 2 * (uint64_t)GBIT) >= 968 * 95 / 100);
}

/* Where only the NIC limits, one path carries it all, and several are as good as one. */
static void test_flows_that_are_not_capped_stay_one(void **state) {
  (void)state;
  uint32_t one = 0;
  for (unsigned paths = 1; paths <= 16; paths = paths == 1 ? 5 : paths + 3) {
    start_flows("one NIC of 1 Gbit/s", paths, 0, GBIT, 4 << 20);
    add(256 << 10, 160);
    uint32_t permille = run_after(HARP_MS(40), GBIT);
    if (paths == 1) one = permille;
    assert_true(permille >= one * 99 / 100);
    uint64_t others = 0;
    for (unsigned i = 1; i < paths; i++) others += duo.path_packets[i];
    assert_true(others <= duo.path_packets[0] / 6);
  }
}

/* The flow that carries all is lost, in one direction or both; another takes its place. */
static void test_a_lost_flow_is_replaced(void **state) {
  (void)state;
  harp_ns worst = 0;
  for (unsigned round = 0; round < 12; round++) {
    start_flows("the flow in use is lost", 4, 0, GBIT, 4 << 20);
    add(256 << 10, 120);
    harp_ns at = duo.now + HARP_MS(5) + HARP_US(700) * round;
    if (round % 3 != 1) simnet_blackhole(&duo.net.links[SIMNET_THERE][0], at, HARP_NEVER);
    if (round % 3 != 0) simnet_blackhole(&duo.net.links[SIMNET_BACK][0], at, HARP_NEVER);
    assert_true(duo_run(&duo, duo.now + HARP_SEC(10)));
    duo_check_buffers(&duo);
    worst = HARP_MAX(worst, longest_gap());
  }
  print_message("longest wait of the receiver when a flow is lost: %llu us\n",
                (unsigned long long)worst / 1000);
  assert_true(worst <= HARP_MS(60));
}

/* ---- hosts with several ENIs ---- */

static struct simnet_wire out_wires[8];

/* Two hosts, joined as a connection would join them; each sending ENI carries `rates[i]`. */
static void start_hosts(const char *name, unsigned client_enis, unsigned server_enis, const uint64_t *rates,
                        unsigned ports) {
  struct harp_pairing pairings[HARP_PATHS_MAX];
  struct harp_endpoint e[2] = {{.path_count = (uint16_t)ports, .eni_count = (uint16_t)client_enis},
                               {.path_count = (uint16_t)ports, .eni_count = (uint16_t)server_enis}};
  for (unsigned k = 0; k < 2; k++)
    for (unsigned i = 0; i < e[k].eni_count; i++)
      e[k].enis[i] = (struct harp_endpoint_eni){.family = 4, .port_count = 16};
  for (unsigned i = 0; i < client_enis; i++) e[0].enis[i].speed_mbps = (uint32_t)(rates[i] / 125000);
  unsigned count = harp_pairing_make(&e[0], &e[1], pairings);
  struct way ways[HARP_PATHS_MAX] = {0};
  for (unsigned i = 0; i < count; i++) ways[i] = (struct way){0, HARP_US(50)};
  start(name, ways, count, 11);
  for (unsigned i = 0; i < client_enis; i++)
    out_wires[i] = (struct simnet_wire){.rate_bytes_s = rates[i], .queue_bytes = 1 << 20};
  for (unsigned i = 0; i < count; i++) {
    duo.config.paths[i].local_eni = pairings[i].client_eni;
    duo.config.paths[i].remote_eni = pairings[i].server_eni;
    duo.config.paths[i].standby = pairings[i].standby;
    duo.config.paths[i].lines_max = 11;
  }
  struct duo_config c = duo.config;
  duo_start(&duo, &c); /* again, with what is known now */
  duo_open(&duo, &(struct duo_stream_config){.in_flight_max = 16});
  for (unsigned i = 0; i < count; i++) {
    duo.net.links[SIMNET_THERE][i].wire = &out_wires[pairings[i].client_eni];
    duo.net.links[SIMNET_THERE][i].delay_ns = duo.net.links[SIMNET_BACK][i].delay_ns = HARP_US(50);
  }
}

static void blackhole_eni(bool local, unsigned eni, harp_ns from, harp_ns to) {
  for (unsigned i = 0; i < duo.config.path_count; i++) {
    const struct harp_path_config *p = &duo.config.paths[i];
    if ((local ? p->local_eni : p->remote_eni) != eni) continue;
    for (unsigned way = 0; way < SIMNET_WAYS; way++) simnet_blackhole(&duo.net.links[way][i], from, to);
  }
}

static void test_unequal_hosts_are_used_up(void **state) {
  (void)state;
  const uint64_t four_to_one[] = {4 * (uint64_t)GBIT, GBIT},
                 eight[] = {GBIT, GBIT, GBIT, GBIT, GBIT, GBIT, GBIT, GBIT};
  start_hosts("2 ENIs of 1 and 4 Gbit/s to 8", 2, 8, four_to_one, 2);
  add(512 << 10, 80);
  assert_true(run(5 * (uint64_t)GBIT) >= 930 * 968 / 1000);
  start_hosts("8 ENIs of 1 Gbit/s to 8, 64 paths", 8, 8, eight, 1);
  add(512 << 10, 80);
  assert_true(run(8 * (uint64_t)GBIT) >= 950 * 968 / 1000);
}

static void orders(unsigned n, unsigned *order, unsigned index) { /* the index-th permutation */
  for (unsigned i = 0; i < n; i++) order[i] = i;
  for (unsigned i = n; i > 1; i--) {
    unsigned k = index % i, swap = order[i - 1];
    index /= i;
    order[i - 1] = order[k], order[k] = swap;
  }
}

/* Three of four ENIs are lost on each side, in every order, others on the one side than on the other; and
 * come back. The receiver never waits for long. */
static void test_all_but_one_eni_may_fail(void **state) {
  (void)state;
  const uint64_t rates[] = {GBIT / 2, GBIT / 2, GBIT / 2, GBIT / 2};
  harp_ns worst = 0;
  for (unsigned round = 0; round < 24; round++) {
    unsigned local[4], remote[4];
    start_hosts("3 of 4 ENIs lost on each side", 4, 4, rates, 1);
    orders(4, local, round);
    orders(4, remote, (round * 7 + 5) % 24);
    add(256 << 10, 120);
    harp_ns at = duo.now + HARP_MS(3), back = at + HARP_MS(200);
    for (unsigned k = 0; k < 3; k++) {
      blackhole_eni(true, local[k], at + HARP_MS(40) * k, back + HARP_MS(5) * k);
      blackhole_eni(false, remote[k], at + HARP_MS(40) * k + (round & 1 ? HARP_MS(20) : 0), back);
    }
    assert_true(duo_run(&duo, duo.now + HARP_SEC(10)));
    duo_check_buffers(&duo);
    worst = HARP_MAX(worst, longest_gap());
  }
  print_message("longest wait while 3 of 4 ENIs fail on each side: %llu us\n",
                (unsigned long long)worst / 1000);
  assert_true(worst <= HARP_MS(100));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equal_paths_add_up),
      cmocka_unit_test(test_unequal_paths_add_up),
      cmocka_unit_test(test_small_messages_take_the_quick_path),
      cmocka_unit_test(test_a_dying_path_costs_little),
      cmocka_unit_test(test_a_path_returns),
      cmocka_unit_test(test_flows_that_are_capped_add_up),
      cmocka_unit_test(test_flows_that_are_not_capped_stay_one),
      cmocka_unit_test(test_a_lost_flow_is_replaced),
      cmocka_unit_test(test_unequal_hosts_are_used_up),
      cmocka_unit_test(test_all_but_one_eni_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
