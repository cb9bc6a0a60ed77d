/* SPDX-License-Identifier: Apache-2.0 */
/* The paths that a sender uses: some of several between two ENIs, and standby paths only in need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/acks.h"
#include "lib/bring_up.h"
#include "proto/send.h"
#include "wire/record.h"

static struct harp_counters counters;
static struct harp_tx_stream own_stream; /* the stream of a test's own sender */
static uint8_t data[8];
enum {
  FIRST_LINE = 1000,
  FIRST_MESSAGE = 7,
  FIRST_NUMBER = 5,
  STREAM = 2,
  PACKET_LINES = 8, /* the lines of a full packet */
};
static const struct harp_tx_stream_config stream = {
    .id = STREAM, .first_line = FIRST_LINE, .first_message = FIRST_MESSAGE};

/* ---- paths between the same ENIs ---- */

/* Makes a sender of three paths between the same ENIs, one between others, and a standby one. */
static struct harp_sender *start_flows(void) {
  struct harp_sender_config c = {
      .first_number = FIRST_NUMBER - 1,
      .stream_max = STREAM + 1,
      .path_count = 5,
      .paths = {{.lines_max = 8, .local_eni = 1},
                {.lines_max = 8, .local_eni = 2},
                {.lines_max = 8, .local_eni = 1},
                {.lines_max = 8, .local_eni = 1},
                {.lines_max = 8, .local_eni = 1, .remote_eni = 1, .standby = true}},
      .window_bytes = 4 << 20,
      .cc = &harp_cc_target};
  struct harp_sender *own = malloc(harp_sender_bytes(&c));
  assert_non_null(own);
  memset(own, 0xa5, harp_sender_bytes(&c));
  harp_sender_init(own, &c, NULL, &counters, 0);
  harp_sender_open(own, &own_stream, &stream);
  return own;
}

static enum harp_drop feed_to(struct harp_sender *own, struct harp_packet p, harp_ns now) {
  return harp_sender_on_ack(own, &p, harp_sender_ack_number(own, &p), now);
}

/* So many paths of the pair are to be in use: what flows.c would choose. A path that answers after a silence
 * has the pair looked at. */
static void want(struct harp_sender *own, unsigned path, unsigned count) {
  own->pairs.flows[own->paths[path].pair].wanted = count;
  own->paths[path].probe.pto_count = 2;
  harp_path_health_on_answer(own, &own->paths[path], 0);
}

/* Lets time go by, with every probe lost; returns when a path has left the state. */
static harp_ns until_it_leaves(struct harp_sender *own, unsigned path, enum harp_path_state state,
                               harp_ns now, harp_ns most_ns) {
  struct harp_tx_run run;
  for (harp_ns end = now + most_ns; own->paths[path].state == state && now < end; now += HARP_US(100)) {
    harp_sender_on_timeout(own, now);
    while (send_next(own, 1, &run, now)) {
    }
    harp_sender_check(own);
  }
  return now;
}

/* The first path of each pair is used, and needs nothing of the others: they are silent for ever. */
static void test_one_path_between_two_enis_is_used(void **state) {
  (void)state;
  struct harp_sender *own = start_flows();
  struct harp_tx_run run;
  bring_up(own, 0);
  assert_int_equal(own->set.eligible, 3);
  for (unsigned i = 0; i < 5; i++)
    assert_int_equal(own->paths[i].state, i < 2 ? HARP_PATH_UP : HARP_PATH_DORMANT);
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(own->paths[i].cc.window_bytes, HARP_CC_INITIAL_BYTES);
    assert_int_equal(own->paths[i].flight.records, HARP_FLIGHT_RECORDS_TOTAL / 4);
  }
  assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, 0), 0);
  for (harp_ns now = 0; now < HARP_SEC(3); now += HARP_MS(1)) {
    harp_sender_on_timeout(own, now);
    harp_sender_keepalive(own, HARP_MS(100), now);
    while (send_next(own, 1, &run, now)) {
      assert_true(run.path < 2);
      struct harp_packet p =
          make_ack(STREAM, run.path, (uint32_t)run.number, (uint32_t)run.number + 1, FIRST_MESSAGE + 1);
      p.ack.echo_time = harp_ticks_from_ns(now) - 1;
      p.ack.time = harp_ticks_from_ns(now);
      assert_int_equal(feed_to(own, p, now), HARP_DROP_NONE);
    }
  }
  free(own);
}

/* Beside one that is silent another is used long before it is given up, which becomes dormant when it
 * answers. */
static void test_another_is_used_beside_a_silent_path(void **state) {
  (void)state;
  struct harp_sender *own = start_flows();
  bring_up(own, 0);
  struct harp_packet credit = make_ack(STREAM, 1, 0, 0, FIRST_MESSAGE + 1);
  feed_to(own, credit, 0);
  harp_path_health_down(own, &own->paths[1], 0);
  assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, 0), 0);
  harp_ns now = until_it_leaves(own, 2, HARP_PATH_DORMANT, HARP_US(1), HARP_SEC(1));
  assert_true(now < HARP_MS(60)); /* two timeouts, at the RTT that is assumed until one is known */
  assert_int_equal(own->paths[0].state, HARP_PATH_UP);
  assert_int_equal(own->paths[3].state, HARP_PATH_DORMANT);
  assert_int_equal(own->paths[2].cc.window_bytes, HARP_CC_INITIAL_BYTES / 2);
  uint32_t last = (uint32_t)own->paths[0].next_number;
  assert_int_equal(feed_to(own, make_ack(STREAM, 0, last - 1, last, FIRST_MESSAGE + 1), now), HARP_DROP_NONE);
  assert_int_equal(own->paths[2].state, HARP_PATH_DORMANT);
  assert_int_equal(own->set.eligible & 4, 0);
  harp_sender_check(own);
  free(own);
}
/* Paths between the same ENIs divide one window, and what one gives up the others have. */
static void test_paths_between_the_same_enis_share(void **state) {
  (void)state;
  struct harp_sender *own = start_flows();
  bring_up(own, 0);
  want(own, 0, 3);
  for (unsigned i = 0; i < 4; i++) assert_int_equal(own->paths[i].cc.sharers, i == 1 ? 1 : 3);
  bring_up(own, 0);
  assert_int_equal(own->set.eligible, 15);
  for (unsigned i = 0; i < 4; i++) {
    unsigned sharers = i == 1 ? 1 : 3;
    assert_in_range(own->paths[i].cc.window_bytes, HARP_CC_INITIAL_BYTES / sharers - 4,
                    HARP_CC_INITIAL_BYTES / sharers);
  }
  want(own, 0, 1);
  assert_int_equal(own->set.eligible, 3);
  assert_in_range(own->paths[0].cc.window_bytes, HARP_CC_INITIAL_BYTES - 12, HARP_CC_INITIAL_BYTES);
  assert_int_equal(own->paths[0].cc.sharers, 1);
  harp_sender_check(own);
  free(own);
}

/* ---- standby paths ---- */

enum { CROSS_PRIMARY = 2, CROSS_PATHS = 4 };

/* Makes a sender between two ENIs and two: two primary paths, and two standby ones that cross them. */
static struct harp_sender *start_cross_from(uint32_t first_number) {
  struct harp_sender_config c = {.first_number = first_number,
                                 .stream_max = STREAM + 1,
                                 .path_count = CROSS_PATHS,
                                 .window_bytes = 4 << 20,
                                 .cc = &harp_cc_target};
  for (uint8_t i = 0; i < CROSS_PATHS; i++)
    c.paths[i] = (struct harp_path_config){.lines_max = PACKET_LINES,
                                           .local_eni = i % 2,
                                           .remote_eni = i < CROSS_PRIMARY ? i % 2 : !(i % 2),
                                           .standby = i >= CROSS_PRIMARY};
  struct harp_sender *own = malloc(harp_sender_bytes(&c));
  assert_non_null(own);
  memset(own, 0xa5, harp_sender_bytes(&c));
  harp_sender_init(own, &c, NULL, &counters, 0);
  harp_sender_open(own, &own_stream, &stream);
  bring_up(own, 0);
  return own;
}

static struct harp_sender *start_cross(void) {
  return start_cross_from(FIRST_NUMBER - 1);
}

static bool is_standby_in(const struct harp_sender *own, enum harp_path_state state) {
  return own->paths[2].state == state && own->paths[3].state == state;
}

/* Hundreds of peers with 48 of them each would fill what tracks flows. */
static void test_standby_paths_are_not_probed_at_first(void **state) {
  (void)state;
  struct harp_sender *own = start_cross();
  struct harp_tx_run run;
  assert_true(is_standby_in(own, HARP_PATH_DORMANT));
  assert_false(send_next(own, 1, &run, 0));
  harp_sender_on_timeout(own, HARP_SEC(1));
  assert_false(send_next(own, 1, &run, HARP_SEC(1)));
  assert_int_equal(harp_sender_choose(own, HARP_SEC(1)).deadline_ns, HARP_NEVER);
  free(own);
}

/* Lets time go by while every probe is answered; counts those of each path. */
static void count_checks(struct harp_sender *own, harp_ns *now, harp_ns span_ns,
                         unsigned count[CROSS_PATHS]) {
  struct harp_tx_run run;
  for (harp_ns end = *now + span_ns; *now < end; *now += HARP_MS(100)) {
    (void)harp_sender_rest(own, *now);
    harp_sender_on_timeout(own, *now);
    while (send_next(own, 1, &run, *now)) {
      struct harp_packet p =
          make_ack(STREAM, run.path, (uint32_t)run.number, (uint32_t)run.number + 1, FIRST_MESSAGE);
      p.ack.echo_time = harp_ticks_from_ns(*now) - 1;
      count[run.path]++;
      assert_int_equal(feed_to(own, p, *now), HARP_DROP_NONE);
    }
    harp_sender_check(own);
  }
}

static void test_they_are_checked_in_turn(void **state) {
  (void)state;
  struct harp_sender *own = start_cross();
  unsigned count[CROSS_PATHS] = {0};
  harp_ns now = HARP_MS(1);
  count_checks(own, &now, HARP_SEC(2), count);
  assert_int_equal(count[2] + count[3], 0);
  count_checks(own, &now, HARP_SEC(298), count);
  assert_true(is_standby_in(own, HARP_PATH_UP));
  assert_in_range(count[2], 7, 14); /* each 15 s one of the two */
  assert_in_range(count[3], 7, 14);
  assert_int_equal(count[0] + count[1], 0);
  free(own);
}

/* The two sides of a session would else probe the same pair at about the same time, in each round. */
static void test_the_first_one_that_is_checked_is_drawn(void **state) {
  (void)state;
  enum { SENDERS = 64 };
  unsigned first[CROSS_PATHS] = {0};
  for (uint32_t i = 0; i < SENDERS; i++) {
    struct harp_sender *own = start_cross_from(i * 2654435761u);
    while (is_standby_in(own, HARP_PATH_DORMANT)) (void)harp_sender_rest(own, own->pairs.standby_probe_ns);
    for (unsigned path = CROSS_PRIMARY; path < CROSS_PATHS; path++)
      first[path] += own->paths[path].state != HARP_PATH_DORMANT;
    free(own);
  }
  for (unsigned path = CROSS_PRIMARY; path < CROSS_PATHS; path++)
    assert_in_range(first[path], SENDERS / 4, SENDERS * 3 / 4);
}

static void test_one_that_does_not_answer_sleeps_again(void **state) {
  (void)state;
  struct harp_sender *own = start_cross();
  struct harp_tx_run run;
  unsigned sent = 0;
  for (harp_ns now = HARP_MS(1); now < HARP_SEC(300); now += HARP_MS(100)) {
    (void)harp_sender_rest(own, now);
    harp_sender_on_timeout(own, now);
    while (send_next(own, 1, &run, now)) sent++;
  }
  assert_in_range(sent, 20, 20 * 25); /* at most so many each time */
  harp_sender_check(own);
  free(own);
}

/* One of ours goes, and the other one's partner: the standby path between those that are left takes over. */
static void test_they_are_woken_when_a_path_goes_down(void **state) {
  (void)state;
  struct harp_sender *own = start_cross();
  harp_sender_path_down(own, 0, HARP_MS(1));
  assert_true(is_standby_in(own, HARP_PATH_NEW));
  assert_int_equal(own->set.probes_due, 1 | 4 | 8);
  free(own);
}

/* Sooner than the path would be given up for another. */
static void test_they_are_woken_when_all_are_silent(void **state) {
  (void)state;
  struct harp_sender *own = start_cross();
  struct harp_tx_run run;
  feed_to(own, make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + 1), 0);
  for (unsigned i = 0; i < CROSS_PATHS; i++) harp_rtt_on_sample(&own->paths[i].rtt, HARP_US(50));
  assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, 0), 0);
  assert_true(send_next(own, 1, &run, 0));
  harp_ns now = until_it_leaves(own, 2 + run.path, HARP_PATH_DORMANT, HARP_US(1), HARP_SEC(1));
  assert_true(now < HARP_MS(5));
  free(own);
}

enum { MESH_ENIS = 4, MESH_PATHS = MESH_ENIS * MESH_ENIS, MESH_STANDBY = MESH_PATHS - MESH_ENIS, FEW = 2 };

/* Makes a sender between four ENIs and four, whose primary paths have worked. */
static struct harp_sender *start_mesh(void) {
  struct harp_sender_config c = {
      .stream_max = 1, .path_count = MESH_PATHS, .window_bytes = 4 << 20, .cc = &harp_cc_target};
  for (uint8_t i = 0; i < MESH_PATHS; i++)
    c.paths[i] = (struct harp_path_config){.lines_max = PACKET_LINES,
                                           .local_eni = i % MESH_ENIS,
                                           .remote_eni = (i % MESH_ENIS + i / MESH_ENIS) % MESH_ENIS,
                                           .standby = i >= MESH_ENIS};
  struct harp_sender *own = malloc(harp_sender_bytes(&c));
  assert_non_null(own);
  harp_sender_init(own, &c, NULL, &counters, 0);
  bring_up(own, 0);
  return own;
}

/* Nothing is answered from one time to another. Returns the most standby paths that were in use at once. */
static unsigned count_woken(struct harp_sender *own, harp_ns from, harp_ns to) {
  struct harp_tx_run run;
  unsigned most = 0;
  for (harp_ns now = from; now < to; now += HARP_US(100)) {
    unsigned woken = 0;
    harp_sender_on_timeout(own, now);
    while (send_next(own, 1, &run, now)) {
    }
    for (unsigned i = MESH_ENIS; i < MESH_PATHS; i++) woken += own->paths[i].state != HARP_PATH_DORMANT;
    most = HARP_MAX(most, woken);
  }
  return most;
}

/* All are silent and nothing is under way: a few at a time, or idle peers would have flows without number
 * while their hosts lack a core. */
static void test_few_are_woken_while_nothing_is_under_way(void **state) {
  (void)state;
  struct harp_sender *own = start_mesh();
  harp_sender_keepalive(own, 0, HARP_MS(1));
  assert_int_equal(count_woken(own, HARP_MS(1), HARP_SEC(2)), FEW);
  harp_sender_check(own);
  free(own);
}

/* A process that lacks a core for some milliseconds is silent, too. */
static void test_all_are_woken_after_a_long_silence(void **state) {
  (void)state;
  struct harp_sender *own = start_mesh();
  for (unsigned i = 0; i < MESH_PATHS; i++) harp_rtt_on_sample(&own->paths[i].rtt, HARP_US(50));
  feed_to(own, make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + 1), HARP_MS(1));
  assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, HARP_MS(1)), 0);
  assert_int_equal(count_woken(own, HARP_MS(1), HARP_MS(30)), FEW);
  assert_int_equal(count_woken(own, HARP_MS(30), HARP_MS(60)), MESH_STANDBY);
  free(own);
}

/* When a path times out, all idle paths that may carry data are probed: most of them may be dead. */
static void test_a_timeout_probes_all_idle_paths(void **state) {
  (void)state;
  enum { ENIS = 4, STANDBY = ENIS, PATHS };
  struct harp_sender_config c = {
      .stream_max = 1, .path_count = PATHS, .window_bytes = 4 << 20, .cc = &harp_cc_target};
  for (uint8_t i = 0; i < ENIS; i++)
    c.paths[i] = (struct harp_path_config){.lines_max = PACKET_LINES, .local_eni = i, .remote_eni = i};
  c.paths[STANDBY] =
      (struct harp_path_config){.lines_max = PACKET_LINES, .local_eni = 0, .remote_eni = 1, .standby = true};
  struct harp_sender *own = malloc(harp_sender_bytes(&c));
  struct harp_tx_run run;
  assert_non_null(own);
  harp_sender_init(own, &c, NULL, &counters, 0);
  harp_sender_open(own, &own_stream, &(struct harp_tx_stream_config){.id = 0});
  bring_up(own, 0);
  assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, 0), 0);
  assert_true(send_next(own, 1, &run, 0));
  harp_sender_on_timeout(own, harp_path_pto_ns(&own->paths[run.path]));
  assert_int_equal(own->paths[run.path].probe.pto_count, 1);
  assert_int_equal(own->set.probes_due, (1u << ENIS) - 1); /* the one that timed out, too */
  assert_int_equal(own->paths[STANDBY].state, HARP_PATH_DORMANT);
  harp_sender_check(own);
  free(own);
}

/* It may do so while timers run, after its own was looked at: it must not be due then. */
static void test_a_path_that_becomes_dormant_gives_up_an_overdue_probe(void **state) {
  (void)state;
  struct harp_sender *own = start_flows();
  const struct harp_path *other = &own->paths[2];
  bring_up(own, 0);
  feed_to(own, make_ack(STREAM, 1, 0, 0, FIRST_MESSAGE + 1), 0);
  harp_path_health_down(own, &own->paths[1], 0);
  assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, 0), 0);
  harp_ns now = until_it_leaves(own, 3, HARP_PATH_DORMANT, HARP_US(1), HARP_SEC(1));
  assert_true(other->inflight_bytes);
  now = harp_path_pto_ns(other);
  uint32_t last = (uint32_t)own->paths[0].next_number;
  assert_int_equal(feed_to(own, make_ack(STREAM, 0, last - 1, last, FIRST_MESSAGE + 1), now), HARP_DROP_NONE);
  assert_int_equal(other->state, HARP_PATH_DORMANT);
  assert_int_equal(other->inflight_bytes, 0);
  harp_sender_check(own);
  free(own);
}

/* A connection that has never answered, whose probe is under way, is no better known for having been out of
 * use meanwhile. */
static void test_a_new_tcp_path_is_new_again_after_it_was_dormant(void **state) {
  (void)state;
  enum { PATHS = 2 };
  struct harp_sender_config c = {.stream_max = 1,
                                 .path_count = PATHS,
                                 .paths = {{.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true},
                                           {.lines_max = HARP_RECORD_MAX_LINES, .is_tcp = true}},
                                 .window_bytes = 4 << 20,
                                 .cc = &harp_cc_target};
  struct harp_sender *own = malloc(harp_sender_bytes(&c));
  const struct harp_path *first = &own->paths[0], *second = &own->paths[1];
  struct harp_tx_run run;
  assert_non_null(own);
  harp_sender_init(own, &c, NULL, &counters, 0);
  for (unsigned i = 0; i < PATHS; i++) harp_sender_unblock(own, i, 0);
  bring_up(own, 0);
  harp_path_health_down(own, &own->paths[0], 0);
  harp_sender_on_timeout(own, until_it_leaves(own, 1, HARP_PATH_DORMANT, HARP_US(1), HARP_SEC(1)));
  assert_true(second->state == HARP_PATH_NEW);
  while (send_next(own, 1, &run, HARP_SEC(1))) {
  }
  assert_true(second->inflight_bytes);
  uint32_t last = (uint32_t)first->next_number;
  assert_int_equal(feed_to(own, make_ack(STREAM, 0, last - 1, last, 0), HARP_SEC(1)), HARP_DROP_NONE);
  assert_int_equal(first->state, HARP_PATH_UP);
  assert_int_equal(second->state, HARP_PATH_DORMANT);
  harp_path_health_down(own, &own->paths[0], HARP_SEC(1));
  assert_int_equal(second->state, HARP_PATH_NEW);
  harp_sender_check(own);
  free(own);
}

/* A first path that never answers is replaced by the second, that by the third. */
static void test_another_is_used_for_one_that_never_answers(void **state) {
  (void)state;
  struct harp_sender *own = start_flows();
  assert_true(until_it_leaves(own, 2, HARP_PATH_DORMANT, 0, HARP_MS(20)) < HARP_MS(20));
  assert_int_equal(own->paths[3].state, HARP_PATH_DORMANT);
  harp_ns now = until_it_leaves(own, 3, HARP_PATH_DORMANT, HARP_MS(20), HARP_MS(40));
  assert_true(now < HARP_MS(60));
  uint32_t last = (uint32_t)own->paths[3].next_number;
  if (!(own->set.probes_due >> 3 & 1))
    assert_int_equal(feed_to(own, make_ack(STREAM, 3, last - 1, last, 0), now), HARP_DROP_NONE);
  free(own);
}

/* None is taken down for less than 30 ms of silence while another between the same ENIs answers, though that
 * carries nothing, and a standby path waits. */
static void test_no_path_goes_down_early_beside_its_like(void **state) {
  (void)state;
  struct harp_sender *own = start_flows();
  struct harp_tx_run run;
  harp_ns silent_ns[5] = {0}, now = 0;
  bring_up(own, 0);
  want(own, 0, 3);
  struct harp_packet p = make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE + 9);
  p.flags = HARP_FLAG_DETOUR;
  feed_to(own, p, 0);
  bring_up(own, 0);
  harp_sender_path_down(own, 1, 0);
  for (unsigned i = 0; i < 5; i++) harp_rtt_on_sample(&own->paths[i].rtt, HARP_US(50));
  assert_int_equal(own->set.eligible, 4 | 8);
  for (; now < HARP_MS(200) && own->paths[2].state == HARP_PATH_UP && own->paths[3].state == HARP_PATH_UP;
       now += HARP_US(50)) {
    if (own->load.messages < 4)
      assert_int_equal(harp_sender_post(own, &own_stream, data, 8, NULL, true, now), 0);
    harp_sender_on_timeout(own, now);
    harp_path_set_request_probe(own, &own->paths[0]);
    while (send_next(own, 1, &run, now)) {
      if (!silent_ns[run.path]) silent_ns[run.path] = now;
      if (run.path != 0) continue;
      struct harp_packet q =
          make_ack(STREAM, 0, (uint32_t)run.number, (uint32_t)run.number + 1, FIRST_MESSAGE + 9);
      q.flags = HARP_FLAG_DETOUR;
      q.ack.echo_time = harp_ticks_from_ns(now) - 1;
      q.ack.time = harp_ticks_from_ns(now);
      feed_to(own, q, now);
    }
  }
  unsigned gone = own->paths[2].state == HARP_PATH_UP ? 3 : 2;
  assert_int_equal(own->paths[gone].state, HARP_PATH_DOWN);
  assert_in_range(now - silent_ns[gone], HARP_MS(30), HARP_MS(60));
  free(own);
}

/* A path that makes a detour at the receiver is replaced by one that does not, where there is any. */
static void test_detours_are_avoided(void **state) {
  (void)state;
  struct harp_sender *own = start_flows();
  bring_up(own, 0);
  struct harp_packet p = make_ack(STREAM, 0, 0, 0, FIRST_MESSAGE);
  p.flags = HARP_FLAG_DETOUR;
  assert_int_equal(feed_to(own, p, 0), HARP_DROP_NONE);
  assert_int_equal(own->set.eligible, 3); /* until another is known to work */
  assert_int_equal(own->paths[2].state, HARP_PATH_NEW);
  bring_up_one(own, HARP_US(1));
  assert_int_equal(own->set.eligible, 2 | 4);
  assert_int_equal(own->paths[0].state, HARP_PATH_DORMANT);
  p.path = 2;
  assert_int_equal(feed_to(own, p, HARP_US(2)), HARP_DROP_NONE);
  assert_int_equal(own->paths[3].state, HARP_PATH_NEW);
  bring_up_one(own, HARP_US(3));
  p.path = 3;
  assert_int_equal(feed_to(own, p, HARP_US(4)), HARP_DROP_NONE);
  assert_int_equal(harp_popcount(own->set.eligible), 2); /* all do: one of them carries on */
  assert_int_equal(harp_popcount(own->set.eligible & 13), 1);
  harp_sender_check(own);
  free(own);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_path_between_two_enis_is_used),
      cmocka_unit_test(test_a_timeout_probes_all_idle_paths),
      cmocka_unit_test(test_another_is_used_beside_a_silent_path),
      cmocka_unit_test(test_standby_paths_are_not_probed_at_first),
      cmocka_unit_test(test_they_are_checked_in_turn),
      cmocka_unit_test(test_the_first_one_that_is_checked_is_drawn),
      cmocka_unit_test(test_one_that_does_not_answer_sleeps_again),
      cmocka_unit_test(test_they_are_woken_when_a_path_goes_down),
      cmocka_unit_test(test_they_are_woken_when_all_are_silent),
      cmocka_unit_test(test_few_are_woken_while_nothing_is_under_way),
      cmocka_unit_test(test_all_are_woken_after_a_long_silence),
      cmocka_unit_test(test_a_path_that_becomes_dormant_gives_up_an_overdue_probe),
      cmocka_unit_test(test_a_new_tcp_path_is_new_again_after_it_was_dormant),
      cmocka_unit_test(test_another_is_used_for_one_that_never_answers),
      cmocka_unit_test(test_no_path_goes_down_early_beside_its_like),
      cmocka_unit_test(test_detours_are_avoided),
      cmocka_unit_test(test_paths_between_the_same_enis_share),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
