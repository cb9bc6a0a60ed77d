/* SPDX-License-Identifier: Apache-2.0 */
/* The model of networks: wires drop what they should and pass their rate, TCP beside behaves as its formulas
 * say, hosts pause as often as drawn, the clock never goes back, the matrix is sound. A model that is wrong
 * proves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "models/probe.h"
#include "networks/measure.h"
#include "networks/results.h"

/* ---- the clock ---- */

enum { SOURCES = 100, FIRES = 20000 };
static struct agenda agenda;
static struct source sources[SOURCES];
static struct rng rng;
static harp_ns last_ns;
static unsigned fires;

static harp_ns earliest(void) {
  harp_ns at = HARP_NEVER;
  for (unsigned i = 0; i < SOURCES; i++) at = HARP_MIN(at, sources[i].at_ns);
  return at;
}

/* Sets itself and others anew, removes some. */
static void on_fire(struct source *s, harp_ns now) {
  assert_true(now >= last_ns);
  assert_true(now <= earliest());
  last_ns = now;
  if (++fires >= FIRES) return;
  agenda_set(&agenda, s, now + rng_below(&rng, 50));
  struct source *other = &sources[rng_below(&rng, SOURCES)];
  agenda_set(&agenda, other, rng_below(&rng, 4) ? now + rng_below(&rng, 100) : HARP_NEVER);
}

static void test_the_earliest_source_fires_first(void **state) {
  (void)state;
  agenda_init(&agenda, 1);
  rng.state = 1;
  fires = 0;
  last_ns = 0;
  for (unsigned i = 0; i < SOURCES; i++) {
    source_init(&sources[i], on_fire);
    agenda_set(&agenda, &sources[i], 1 + rng_below(&rng, 100));
  }
  while (fires < FIRES && agenda.count) agenda_run(&agenda, agenda.now + 1000);
  assert_true(fires >= FIRES);
  agenda_fini(&agenda);
}

static struct source *fired[4];
static unsigned fired_count;
static void note_fired(struct source *s, harp_ns now) {
  (void)now;
  fired[fired_count++] = s;
}

static void test_sources_of_equal_time_fire_as_they_were_set(void **state) {
  (void)state;
  agenda_init(&agenda, 1);
  fired_count = 0;
  for (unsigned i = 0; i < 4; i++) source_init(&sources[i], note_fired);
  static const unsigned order[] = {2, 0, 3, 1};
  for (unsigned i = 0; i < 4; i++) agenda_set(&agenda, &sources[order[i]], 10);
  agenda_set(&agenda, &sources[3], HARP_NEVER);
  agenda_set(&agenda, &sources[3], 10); /* now the last */
  agenda_run(&agenda, 11);
  assert_int_equal(fired_count, 4);
  assert_ptr_equal(fired[0], &sources[2]);
  assert_ptr_equal(fired[1], &sources[0]);
  assert_ptr_equal(fired[2], &sources[1]);
  assert_ptr_equal(fired[3], &sources[3]);
  agenda_fini(&agenda);
}

static struct lane lane;
static uint64_t arrived[4];
static unsigned arrived_count;
static void on_arrival(struct source *s, harp_ns now) {
  assert_ptr_equal(s, &lane.source);
  for (struct parcel p; lane_take(&lane, &p, now);) {
    assert_int_equal(p.at_ns, now);
    arrived[arrived_count++] = p.number;
  }
}

static void test_a_parcel_on_a_shorter_route_overtakes(void **state) {
  (void)state;
  agenda_init(&agenda, 1);
  lane_init(&lane, &agenda, on_arrival);
  arrived_count = 0;
  static const harp_ns at[] = {100, 200, 50, 200};
  for (unsigned i = 0; i < 4; i++) lane_push(&lane, &(struct parcel){.at_ns = at[i], .number = i});
  agenda_run(&agenda, 1000);
  assert_int_equal(arrived_count, 4);
  static const uint64_t order[] = {2, 0, 1, 3};
  for (unsigned i = 0; i < 4; i++) assert_int_equal(arrived[i], order[i]);
  lane_fini(&lane);
  agenda_fini(&agenda);
}

/* ---- wires ---- */

static void test_a_queue_drops_what_exceeds_it(void **state) {
  (void)state;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(8), .queue_bytes = 4000}; /* a byte a ns */
  harp_ns now = 1000;
  for (unsigned i = 1; i <= 4; i++) assert_int_equal(wire_pass(&w, 1000, now), now + 1000 * i);
  assert_int_equal(wire_queue_ns(&w, now), 4000);
  assert_int_equal(wire_pass(&w, 1, now), HARP_NEVER);
  assert_int_equal(wire_pass(&w, 1000, now + 999), HARP_NEVER);
  assert_int_equal(wire_pass(&w, 1000, now + 1000), now + 5000);
  assert_int_equal(w.drops, 2);
  assert_int_equal(w.packets, 7);
  assert_int_equal(w.queue_max_ns, 4000);
  assert_int_equal(wire_queue_ns(&w, now + 9000), 0);
}

/* Sends a packet each `gap_ns` for 10 ms; returns the bytes that passed. */
static uint64_t pass_for_10_ms(struct wire *w, uint32_t bytes, harp_ns gap_ns) {
  uint64_t passed = 0;
  for (harp_ns now = 1; now < HARP_MS(10); now += gap_ns)
    passed += wire_pass(w, bytes, now) == HARP_NEVER ? 0 : bytes;
  return passed;
}

static void test_a_policer_passes_its_rate_and_one_bucket(void **state) {
  (void)state;
  static const double rates[] = {1, 10, 25, 100};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(rates); i++) {
    struct wire w = {.ps_per_byte = wire_ps_per_byte(rates[i]), .bucket_bytes = 65536};
    harp_ns gap_ns = (harp_ns)(1500 * 8 / rates[i] / 2); /* twice the rate */
    double passed = (double)pass_for_10_ms(&w, 1500, gap_ns), rate = rates[i] * 1.25e6 + 65536;
    assert_true(fabs(passed - rate) < 2 * 1500);
    assert_int_equal(wire_queue_ns(&w, HARP_MS(10)), 0);
    assert_int_equal(w.queue_max_ns, 0);
  }
}

static void test_a_policer_passes_all_below_its_rate(void **state) {
  (void)state;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(10), .bucket_bytes = 9000};
  pass_for_10_ms(&w, 9000, 7200);
  assert_int_equal(w.drops, 0);
  struct wire burst = {.ps_per_byte = wire_ps_per_byte(10), .bucket_bytes = 9000};
  assert_int_equal(wire_pass(&burst, 4500, 1), 1);
  assert_int_equal(wire_pass(&burst, 4500, 1), 1);
  assert_int_equal(wire_pass(&burst, 1, 1), HARP_NEVER);
}

static void test_a_shaper_passes_its_bucket_at_once(void **state) {
  (void)state;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(8), .queue_bytes = 2000, .bucket_bytes = 3000};
  harp_ns now = 1000000;
  for (unsigned i = 0; i < 3; i++) assert_int_equal(wire_pass(&w, 1000, now), now);
  assert_int_equal(wire_queue_ns(&w, now), 0);
  for (unsigned i = 1; i <= 2; i++) assert_int_equal(wire_pass(&w, 1000, now), now + 1000 * i);
  assert_int_equal(wire_queue_ns(&w, now), 2000);
  assert_int_equal(w.queue_max_ns, 2000);
  assert_int_equal(wire_pass(&w, 1, now), HARP_NEVER);
  assert_int_equal(wire_pass(&w, 1000, now + 2500), now + 3000); /* half a packet of the queue is left */
  assert_int_equal(wire_pass(&w, 1000, now + 6000), now + 6000); /* the bucket holds three again */
}

static void test_a_queue_passes_its_rate(void **state) {
  (void)state;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(100), .queue_bytes = 100000};
  double passed = (double)pass_for_10_ms(&w, 1500, 60); /* twice the rate */
  assert_true(fabs(passed - (125e6 + 100000)) < 2 * 1500);
}

/* ---- TCP beside ---- */

struct tcp {
  struct cubic cubic;
  struct wire wire;
  double rate, lost; /* share of the wire's rate, share of segments */
  double window;     /* mean, in segments */
};

/* Runs one flow alone and measures it from the middle on. */
static void run_tcp(struct tcp *t, struct wire wire, harp_ns rtt_ns, bool is_reno, harp_ns time_ns) {
  agenda_init(&agenda, 1);
  t->wire = wire;
  cubic_init(&t->cubic, &agenda, &t->wire, rtt_ns / 2, 1448, is_reno, 1);
  agenda_run(&agenda, time_ns / 2);
  uint64_t acked = t->cubic.acked_bytes, sent = t->cubic.sent_segments, lost = t->cubic.lost_segments;
  agenda_run(&agenda, time_ns);
  double bytes = (double)(t->cubic.acked_bytes - acked), seconds = (double)time_ns / 2e9;
  t->rate = bytes / 1448 * 1500 / seconds * (double)wire.ps_per_byte / 1e12;
  t->lost = (double)(t->cubic.lost_segments - lost) / (double)(t->cubic.sent_segments - sent);
  t->window = bytes / 1448 / seconds * (double)rtt_ns / 1e9;
  cubic_fini(&t->cubic);
  agenda_fini(&agenda);
}

static void test_a_wire_holds_back_what_comes(void **state) {
  (void)state;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(8), .queue_bytes = UINT32_MAX}; /* a byte a ns */
  harp_ns now = 1000;
  assert_int_equal(wire_pass(&w, 100, now), now + 100);
  wire_hold(&w, 5000, now);
  assert_int_equal(wire_pass(&w, 100, now), now + 5200);
  wire_clear(&w);
  assert_int_equal(wire_pass(&w, 100, now), now + 100);
}

static void test_tcp_alone_fills_a_link_with_a_queue_of_its_bdp(void **state) {
  (void)state;
  for (unsigned is_reno = 0; is_reno < 2; is_reno++) {
    struct tcp t;
    struct wire w = {.ps_per_byte = wire_ps_per_byte(1), .queue_bytes = 125000}; /* 1 ms */
    run_tcp(&t, w, HARP_MS(1), is_reno, HARP_SEC(4));
    assert_true(t.rate > 0.97 && t.rate <= 1.001);
    assert_true(t.lost > 0 && t.lost < 0.002);
  }
}

/* RFC 9438, section 5.1: where the RTT is constant and the window grows by the cubic function, the mean
 * window is (C * (3 + beta) / (4 * (1 - beta)))^(1/4) * RTT^(3/4) / p^(3/4). Here its bursts meet a policer.
 */
static void test_cubic_loses_as_its_formula_says(void **state) {
  (void)state;
  struct tcp t;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(1), .bucket_bytes = 300000};
  run_tcp(&t, w, HARP_MS(40), false, HARP_SEC(120));
  double window = pow(0.4 * 3.7 / (4 * 0.3) * pow(0.040 / t.lost, 3), 0.25);
  assert_true(window > 0.8 * t.window && window < 1.2 * t.window);
}

/* ---- hosts ---- */

static void test_hosts_pause_as_often_as_drawn(void **state) {
  (void)state;
  struct host h;
  host_init(&h, HARP_MS(1), HARP_US(20), HARP_US(300), 1);
  harp_ns paused = 0, until = HARP_SEC(2);
  for (harp_ns now = 1; now < until;) {
    harp_ns wakes = host_wakes_ns(&h, now);
    if (!wakes) {
      now += HARP_US(1);
      continue;
    }
    assert_true(wakes > now && wakes - now <= HARP_US(300));
    assert_int_equal(host_wakes_ns(&h, wakes - 1), wakes);
    paused += wakes - now;
    now = wakes;
  }
  double share = (double)paused / (double)until; /* 160 us of 1160 */
  assert_true(share > 0.12 && share < 0.155);
  host_init(&h, 0, 0, 0, 1);
  assert_int_equal(host_wakes_ns(&h, 5), 0);
}

static void test_training_steps_pause(void **state) {
  (void)state;
  struct traffic t = {.message_bytes = 1000, .depth = 2, .start_ns = 100, .step_messages = 3, .pause_ns = 50};
  traffic_init(&t);
  t.is_measured = true;
  assert_int_equal(traffic_next_ns(&t), 100);
  void *a = traffic_post(&t, 100), *b = traffic_post(&t, 100);
  assert_int_equal(traffic_next_ns(&t), HARP_NEVER); /* two are under way */
  traffic_on_done(&t, a, 110);
  assert_int_equal(traffic_next_ns(&t), 100);
  a = traffic_post(&t, 110);
  traffic_on_done(&t, b, 120);
  assert_int_equal(traffic_next_ns(&t), HARP_NEVER); /* all of the step were posted */
  traffic_on_done(&t, a, 130);
  assert_int_equal(traffic_next_ns(&t), 180);
  assert_int_equal(t.steps, 1);
  assert_int_equal(t.steps_ns, 30);
  assert_int_equal(t.took_count, 3);
  traffic_fini(&t);
}

/* ---- whole networks ---- */

static struct measured measure(const char *params) {
  struct scenario s = scenario_default();
  assert_true(scenario_set_all(&s, params));
  return measure_network(&s);
}

static void test_equal_seeds_make_equal_runs(void **state) {
  (void)state;
  static const char params[] = "flows=4 loss=0.5 jitter_us=100 queue_us=50 rate=1 seconds=0.3 seed=";
  char text[2][128];
  struct measured m[3];
  for (unsigned i = 0; i < 3; i++) {
    snprintf(text[0], sizeof text[0], "%s%u", params, i / 2);
    m[i] = measure(text[0]);
    m[i].cpu_s = 0;
  }
  assert_memory_equal(&m[0], &m[1], sizeof m[0]);
  assert_true(m[2].packets != m[0].packets);
}

static void test_random_loss_is_what_was_set(void **state) {
  (void)state;
  struct measured m =
      measure("loss=5 rate=1 queue_us=2000 depth=1 message_kb=16 seconds=2"); /* the queue holds all */
  assert_true(m.lost > 4 && m.lost < 6);
  m = measure("rate=1 queue_us=2000 depth=1 message_kb=16 seconds=0.2");
  assert_true(m.lost == 0);
  assert_true(m.rate > 0.3 && m.rate <= 1.001);
}

/* Where a path of datagrams is beside it its connection ends at each silence: after 60 ms it waits for 40 ms.
 * Alone it waits for 200 ms after 200. What was given up, and timeouts, take some more. */
static void test_a_tcp_path_is_silent_as_often_as_was_set(void **state) {
  (void)state;
  static const char params[] = "rate=0.01 tcp=1 tcp_rate=1 seconds=4 warm=1";
  static const char often[] = "rate=0.01 tcp=1 tcp_rate=1 tcp_silent_ms=60 seconds=4 warm=1";
  static const char alone[] = "paths=0 tcp=1 tcp_rate=1 tcp_silent_ms=200 seconds=4 warm=1";
  double never = measure(params).rate, share = measure(often).rate / never;
  assert_true(never > 0);
  assert_true(share > 0.2 && share < 0.8);
  share = measure(alone).rate / measure("paths=0 tcp=1 tcp_rate=1 seconds=4 warm=1").rate;
  assert_true(share > 0.2 && share < 0.7);
}

static void test_no_network_passes_more_than_its_rate(void **state) {
  (void)state;
  static const char *const networks[] = {
      "queue_us=50 rate=1 flows=4 seconds=0.5",
      "bucket_kb=64 rate=1 flows=4 seconds=0.5",
      "cap=0.25 cap_kb=16 paths=2 rate=10 depth=16 seconds=0.5",
      "interfaces=2 rate=1 depth=16 seconds=0.5",
      "both=1 flows=2 rate=1 seconds=0.5",
      "cubic=1 rate=1 seconds=0.5",
  };
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(networks); i++) {
    struct measured m = measure(networks[i]);
    assert_true(m.rate > 0.05);
    assert_true(m.rate + m.tcp < 1.03); /* a message that began before counts when it ends */
    assert_true(m.lost < 100);
  }
}

static double capacity(const char *params) {
  static struct network n;
  struct scenario s = scenario_default();
  assert_true(scenario_set_all(&s, params));
  network_init(&n, &s);
  double bytes_ns = n.capacity_bytes_ns;
  network_fini(&n);
  return bytes_ns;
}

static void test_a_direction_has_the_caps_of_its_own_flows(void **state) {
  (void)state;
  double one = capacity("rate=1");
  assert_true(fabs(capacity("rate=10 cap=0.5 paths=8") / one - 4) < 1e-6);
  assert_true(fabs(capacity("rate=10 cap=0.5 paths=8 flows=2") / one - 8) < 1e-6);
  assert_true(fabs(capacity("rate=10 cap=0.5 paths=8 flows=2 both=1") / one - 8) < 1e-6);
  assert_true(fabs(capacity("rate=6 cap=0.5 paths=8 flows=3 both=1") / one - 10) < 1e-6); /* two and one */
  assert_true(fabs(capacity("rate=5 own=1 paths=2 flows=2 both=1") / one - 20) < 1e-6);
  assert_true(fabs(capacity("rate=10 both=1") / one - 10) < 1e-6);
  assert_true(fabs(capacity("rate=10 cap=0.5 paths=8 rate2=2") / one - 2) < 1e-6);
}

static void test_an_empty_network_has_its_rtt(void **state) {
  (void)state;
  static struct network n;
  struct scenario s = scenario_default();
  assert_true(scenario_set_all(&s, "rtt_us=400 depth=1 message_kb=1 rate=100 rtt2_us=900 at_s=0.05"));
  network_init(&n, &s);
  network_run(&n, HARP_MS(40));
  struct harp_path_report r = probe_path(n.flows[0].sender, n.flows[0].receiver, 1, 0);
  assert_true(r.rtt_ns >= HARP_US(400) && r.rtt_ns < HARP_US(402));
  network_run(&n, HARP_MS(200));
  r = probe_path(n.flows[0].sender, n.flows[0].receiver, 1, 0);
  assert_true(r.rtt_ns >= HARP_US(890) && r.rtt_ns < HARP_US(902));
  network_fini(&n);
}

static void test_packets_above_the_mtu_of_the_path_vanish(void **state) {
  (void)state;
  static struct network n;
  struct scenario s = scenario_default();
  assert_true(scenario_set_all(&s, "mtu=9000 path_mtu=8000 depth=1 message_kb=64"));
  network_init(&n, &s);
  network_run(&n, HARP_MS(1));
  assert_true(n.flows[0].paths[0].lost > 0);
  assert_int_equal(n.wires[0][0].bytes < 8000 * n.wires[0][0].packets, true);
  network_fini(&n);
}

static void test_wrong_parameters_are_refused(void **state) {
  (void)state;
  struct scenario s = scenario_default();
  assert_true(scenario_set(&s, "rate=2.5"));
  assert_true(s.rate == 2.5);
  assert_true(scenario_set(&s, "cc=reno"));
  assert_string_equal(s.cc, "reno");
  assert_false(scenario_set(&s, "rate"));
  assert_false(scenario_set(&s, "rate="));
  assert_false(scenario_set(&s, "rate=fast"));
  assert_false(scenario_set(&s, "rate=-1"));
  assert_false(scenario_set(&s, "rates=1"));
  assert_false(scenario_set(&s, "cc=a_name_that_is_longer_than_any_congestion_control"));
  assert_false(scenario_set_all(&s, "rate=1 nothing=2"));
}

/* ---- the matrix ---- */

static bool has_bound(const struct bounds *b) {
  static const struct bounds none;
  return memcmp(b, &none, sizeof none) != 0;
}

static void test_every_row_is_a_network_with_bounds(void **state) {
  (void)state;
  unsigned count, quick = 0;
  const struct row *rows = rows_all(&count);
  assert_true(count > 1000);
  for (unsigned i = 0; i < count; i++) {
    struct scenario s = scenario_default();
    assert_true(scenario_set_all(&s, rows[i].params));
    assert_true(!rows[i].reference || scenario_set_all(&s, rows[i].reference));
    assert_true(s.flows <= NETWORK_FLOWS_MAX && s.cubic + s.reno <= NETWORK_CUBICS_MAX);
    assert_true(s.interfaces * (s.paths + s.tcp) <= FLOW_PATHS_MAX);
    assert_true(has_bound(&rows[i].bounds));
    assert_int_equal(rows[i].bounds.of_rate_min != 0, rows[i].reference != NULL);
    for (unsigned k = 0; k < i; k++) assert_string_not_equal(rows[i].params, rows[k].params);
    quick += rows[i].is_quick;
  }
  assert_true(quick >= 40 && quick <= 75);
}

static void test_each_bound_is_judged(void **state) {
  (void)state;
  static const struct measured good = {.rate = 0.9,
                                       .lost = 1,
                                       .jain = 0.9,
                                       .queue_us = 100,
                                       .p99 = 1.5,
                                       .tcp = 0.2,
                                       .steps = 3,
                                       .step_share = 1.1,
                                       .paths = 2};
  static const struct row row = {.bounds = {.rate_min = 0.9,
                                            .lost_max = 1,
                                            .jain_min = 0.9,
                                            .queue_max_us = 100,
                                            .p99_max = 1.5,
                                            .tcp_min = 0.2,
                                            .step_max = 1.1,
                                            .paths_max = 2,
                                            .of_rate_min = 0.9,
                                            .more_lost_max = 0.5}};
  static const struct measured reference = {.rate = 1, .lost = 0.5};
  char text[ROW_TEXT_BYTES];
  row_judge(&row, &good, &reference, text, sizeof text);
  assert_string_equal(text, "");
  struct measured bad[9];
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(bad); i++) bad[i] = good;
  bad[0].rate = 0.89;
  bad[1].lost = 1.01;
  bad[2].jain = 0.89;
  bad[3].queue_us = 101;
  bad[4].p99 = 1.6;
  bad[5].tcp = 0.19;
  bad[6].step_share = 1.2;
  bad[7].steps = 0;
  bad[8].paths = 2.1;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(bad); i++) {
    row_judge(&row, &bad[i], &reference, text, sizeof text);
    assert_true(text[0] != 0);
  }
}

static void test_results_are_read_as_they_were_written(void **state) {
  (void)state;
  char name[] = "/tmp/networks-XXXXXX";
  int file = mkstemp(name);
  assert_true(file >= 0);
  struct result written[] = {
      {.group = "late", .params = "flows=2 rate=1", .measured = {.rate = 0.5, .lost = 1.5}},
      {.group = "long", .params = "flows=3", .broken = "lost 3 > 1", .measured = {.jain = 1}}};
  for (unsigned i = 0; i < 2; i++) assert_true(result_append(file, &written[i]));
  assert_int_equal(write(file, "broken off", 10), 10);
  close(file);
  struct results rs = results_read(name);
  assert_int_equal(rs.count, 2);
  assert_ptr_equal(results_find(&rs, "flows=2 rate=1"), &rs.all[0]);
  assert_null(results_find(&rs, "flows=2"));
  assert_true(rs.all[0].measured.rate == 0.5 && rs.all[0].measured.lost == 1.5);
  assert_string_equal(rs.all[0].broken, "");
  assert_string_equal(rs.all[1].broken, "lost 3 > 1");
  free(rs.all);
  unlink(name);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_earliest_source_fires_first),
      cmocka_unit_test(test_sources_of_equal_time_fire_as_they_were_set),
      cmocka_unit_test(test_a_parcel_on_a_shorter_route_overtakes),
      cmocka_unit_test(test_a_queue_drops_what_exceeds_it),
      cmocka_unit_test(test_a_policer_passes_its_rate_and_one_bucket),
      cmocka_unit_test(test_a_policer_passes_all_below_its_rate),
      cmocka_unit_test(test_a_shaper_passes_its_bucket_at_once),
      cmocka_unit_test(test_a_queue_passes_its_rate),
      cmocka_unit_test(test_a_wire_holds_back_what_comes),
      cmocka_unit_test(test_tcp_alone_fills_a_link_with_a_queue_of_its_bdp),
      cmocka_unit_test(test_cubic_loses_as_its_formula_says),
      cmocka_unit_test(test_hosts_pause_as_often_as_drawn),
      cmocka_unit_test(test_training_steps_pause),
      cmocka_unit_test(test_equal_seeds_make_equal_runs),
      cmocka_unit_test(test_random_loss_is_what_was_set),
      cmocka_unit_test(test_a_tcp_path_is_silent_as_often_as_was_set),
      cmocka_unit_test(test_no_network_passes_more_than_its_rate),
      cmocka_unit_test(test_a_direction_has_the_caps_of_its_own_flows),
      cmocka_unit_test(test_an_empty_network_has_its_rtt),
      cmocka_unit_test(test_packets_above_the_mtu_of_the_path_vanish),
      cmocka_unit_test(test_wrong_parameters_are_refused),
      cmocka_unit_test(test_every_row_is_a_network_with_bounds),
      cmocka_unit_test(test_each_bound_is_judged),
      cmocka_unit_test(test_results_are_read_as_they_were_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
