/* SPDX-License-Identifier: Apache-2.0 */
/* What engines write into the statistics file, while messages move between two of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "engine/pass.h"
#include "engine/peer_life.h"
#include "engine/watch/stats_write.h"
#include "host/stats_file.h"
#include "lib/sides.h"

enum { MESSAGES = 16, BYTES = 100000 };

static char dirs[2][HARP_STATS_DIR_BYTES];

static int setup(void **state) {
  (void)state;
  snprintf(dirs[0], sizeof dirs[0], "/proc/harp"); /* cannot be: the next one is taken */
  snprintf(dirs[1], sizeof dirs[1], "/tmp/harp-stats-XXXXXX");
  sides_now_ns = HARP_SEC(1);
  return mkdtemp(dirs[1]) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  harp_stats_set_dirs(dirs, 0);
  return rmdir(dirs[1]); /* nothing is left in it */
}

static void open_both(struct side *a, struct side *b) {
  harp_stats_set_dirs(dirs, 2);
  side_open(a, b, false, 1000, 30);
  side_open(b, a, false, 2000, 30);
  harp_stats_join(a->engine);
  harp_stats_join(b->engine);
  sides_connect(a, b, 0);
}

static void step(struct side *a, struct side *b, harp_ns for_ns) {
  for (harp_ns end = sides_now_ns + for_ns; sides_now_ns < end; sides_now_ns += HARP_US(20)) {
    harp_engine_pass(a->engine);
    harp_engine_pass(b->engine);
  }
}

static void move(struct side *a, struct side *b) {
  static uint8_t from[BYTES], to[MESSAGES][BYTES];
  for (unsigned m = 0; m < MESSAGES; m++) {
    side_submit(a->link, m, from, BYTES);
    side_submit(b->link, m, to[m], BYTES);
  }
  step(a, b, HARP_MS(500));
  assert_int_equal(atomic_load(&b->link->requests[MESSAGES - 1].state), HARP_REQUEST_DONE);
}

#define ENTRY(side, type, TABLE, index)                                                                      \
  ((const struct harp_stats_##type *)harp_stats_entry((side)->engine->stats.file, HARP_STATS_##TABLE##S,     \
                                                      index))

static void test_what_moved(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  move(&a, &b);
  const struct harp_peer *peer = a.link->peer;
  const struct harp_stats_engine *e = ENTRY(&a, engine, ENGINE, a.engine->stats.entry);
  assert_string_equal(e->name, "sim0");
  assert_string_equal(e->mode, "inline");
  assert_int_equal(e->messages_sent, MESSAGES);
  assert_int_equal(e->lost_packets, a.engine->counters.lost_packets);
  assert_int_equal(e->drop_DUPLICATE, a.engine->counters.drops[HARP_DROP_DUPLICATE]);
  const struct harp_stats_session *s = ENTRY(&a, session, SESSION, peer->stats.entry);
  assert_string_equal(s->host, "host");
  assert_string_equal(s->state, "open");
  assert_int_equal(s->peer_pid, 7);
  assert_int_equal(s->engine, a.engine->stats.entry);
  assert_int_equal(s->sent_messages, MESSAGES);
  assert_int_equal(s->sent_bytes, MESSAGES * BYTES);
  assert_int_equal(s->stream_count, 1);
  assert_true(s->lost_packets > 0 && s->resent_packets > 0);
  const struct harp_stats_stream *out = ENTRY(&a, stream, STREAM, a.link->stats_entry);
  assert_string_equal(out->direction, "send");
  assert_int_equal(out->bytes, MESSAGES * BYTES);
  const struct harp_stats_stream *in = ENTRY(&b, stream, STREAM, b.link->stats_entry);
  assert_string_equal(in->direction, "receive");
  assert_int_equal(in->messages, MESSAGES);
  side_close(&a);
  side_close(&b);
}

/* The paths of a session add up to it, and to their interface. */
static void test_sums(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  move(&a, &b);
  const struct harp_peer *peer = a.link->peer;
  const struct harp_stats_session *s = ENTRY(&a, session, SESSION, peer->stats.entry);
  const struct harp_stats_eni *eni = ENTRY(&a, eni, ENI, a.engine->stats.eni_first);
  int64_t lost = 0, resent = 0, tx_bytes = 0, tx_packets = 0;
  for (int i = 0; i < s->path_count; i++) {
    const struct harp_stats_path *p = ENTRY(&a, path, PATH, (int)s->path_first + i);
    assert_int_equal(p->session, peer->stats.entry);
    assert_int_equal(p->eni, a.engine->stats.eni_first);
    lost += p->lost_packets, resent += p->resent_packets;
    tx_bytes += p->tx_bytes, tx_packets += p->tx_packets;
  }
  assert_int_equal(s->lost_packets, lost);
  assert_int_equal(s->resent_packets, resent);
  assert_int_equal(eni->lost_packets, lost);
  assert_int_equal(eni->tx_bytes, tx_bytes);
  assert_int_equal(eni->tx_packets, tx_packets);
  assert_true(tx_bytes > MESSAGES * BYTES);
  assert_true(ENTRY(&b, eni, ENI, b.engine->stats.eni_first)->rx_bytes >= MESSAGES * BYTES);
  side_close(&a);
  side_close(&b);
}

/* The carrier that large messages take, and why: here there is one. */
static void test_the_carrier_of_large_messages(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  struct harp_peer *peer = a.link->peer;
  struct harp_sender *sender = peer->session.sender;
  sender->carriers.by_class[HARP_TX_LARGE] = 1;
  harp_stats_write_peer(peer, 0);
  const struct harp_stats_session *s = ENTRY(&a, session, SESSION, peer->stats.entry);
  assert_string_equal(s->large, "datagrams");
  assert_string_equal(s->large_why, "no other carrier");
  assert_int_equal(s->experiment_time, 0);
  sender->experiments.has_choice = true;
  sender->paths[0].is_tcp = true;
  harp_stats_write_peer(peer, 0);
  assert_string_equal(s->large, "tcp");
  assert_string_equal(s->large_why, "no experiment yet");
  sender->experiments.carrier_report = (struct harp_trial_report){1, HARP_VERDICT_LOST, 150, 120};
  harp_stats_write_peer(peer, 0);
  assert_string_equal(s->large_why, "experiments");
  assert_int_equal(s->experiment_time, 150);
  assert_int_equal(s->experiment_cpu, 120);
  sender->experiments.has_choice = false;
  sender->paths[0].is_tcp = false;
  sender->carriers.by_class[HARP_TX_LARGE] = 0;
  side_close(&a);
  side_close(&b);
}

/* The kind says how a path carries data, and whether it does so only while others fail. */
static void test_kinds_of_paths(void **state) {
  (void)state;
  static const char *const kinds[2][2] = {{"udp", "udp standby"}, {"tcp", "tcp standby"}};
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  struct harp_peer *peer = a.link->peer;
  struct harp_path *path = &peer->session.sender->paths[1], before = *path;
  const struct harp_endpoint endpoint = {.name = "host"};
  const struct harp_peer_config config = {.peer = &endpoint};
  for (unsigned is_tcp = 0; is_tcp < 2; is_tcp++) {
    for (unsigned standby = 0; standby < 2; standby++) {
      path->is_tcp = is_tcp, path->standby = standby;
      harp_stats_name_peer(peer, &config);
      assert_string_equal(ENTRY(&a, path, PATH, peer->stats.path_first + 1)->kind, kinds[is_tcp][standby]);
    }
  }
  *path = before;
  side_close(&a);
  side_close(&b);
}

/* A session that ends takes its entries along; what it counted stays with its interface. */
static void test_end_of_a_session(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  move(&a, &b);
  int session = a.link->peer->stats.entry, path = a.link->peer->stats.path_first,
      stream = a.link->stats_entry;
  const struct harp_stats_eni *eni = ENTRY(&a, eni, ENI, a.engine->stats.eni_first);
  int64_t before = eni->tx_bytes;
  harp_link_destroy(a.link);
  assert_int_equal(ENTRY(&a, stream, STREAM, stream)->head.id, 0);
  if (a.engine->peers[0]) harp_peer_destroy(a.engine->peers[0]);
  assert_int_equal(ENTRY(&a, session, SESSION, session)->head.id, 0);
  assert_int_equal(ENTRY(&a, path, PATH, path)->head.id, 0);
  assert_true(eni->tx_bytes >= before);
  harp_engine_close(a.engine);
  side_close(&b);
}

/* A pass writes a bounded number of entries, and all of them in a round. */
static void test_rounds(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  open_both(&a, &b);
  step(&a, &b, HARP_MS(100));
  const struct harp_stats_engine *e = ENTRY(&a, engine, ENGINE, a.engine->stats.entry);
  int64_t first = e->updated_ns;
  step(&a, &b, HARP_SEC(2));
  int64_t later_ns = e->updated_ns - first;
  assert_true(later_ns >= (int64_t)HARP_MS(1600) && later_ns <= (int64_t)HARP_SEC(2));
  side_close(&a);
  side_close(&b);
}

/* Without a directory that works all goes on. */
static void test_without_a_file(void **state) {
  (void)state;
  struct side a = {0}, b = {0};
  snprintf(dirs[0], sizeof dirs[0], "%s", "/proc/harp");
  harp_stats_set_dirs(dirs, 1);
  side_open(&a, &b, false, 1000, 0);
  side_open(&b, &a, false, 2000, 0);
  harp_stats_join(a.engine);
  assert_null(a.engine->stats.file);
  sides_connect(&a, &b, 0);
  move(&a, &b);
  side_close(&a);
  side_close(&b);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_what_moved),       TEST(test_sums),
      TEST(test_kinds_of_paths),   cmocka_unit_test(test_the_carrier_of_large_messages),
      TEST(test_end_of_a_session), TEST(test_rounds),
      TEST(test_without_a_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
