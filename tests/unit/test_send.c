/* The sending half: posting, bounds, numbering, and acknowledgements that make no sense. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/bring_up.h"
#include "proto/send.h"

static struct harp_sender *s;
static struct harp_counters counters;
static uint8_t data[1 << 20];
enum { FIRST_LINE = 1000, FIRST_MESSAGE = 7, FIRST_NUMBER = 5 };

static int init(void **state) {
  (void)state;
  struct harp_sender_config c = {.first_line = FIRST_LINE,
                                 .first_message = FIRST_MESSAGE,
                                 .first_number = FIRST_NUMBER - 1,
                                 .path_count = 2,
                                 .paths = {{.lines_max = 8}, {.lines_max = 8}},
                                 .window_max_bytes = 4 << 20,
                                 .cc = &harp_cc_delay};
  s = malloc(harp_sender_bytes(2));
  assert_non_null(s);
  memset(&counters, 0, sizeof counters);
  harp_sender_init(s, &c, NULL, &counters, 0);
  bring_up(s, 0);
  return 0;
}

static int fini(void **state) {
  (void)state;
  harp_sender_check(s);
  free(s);
  return 0;
}

/* Takes what there is to send, within the time that small messages may wait for company. */
static bool take(struct harp_tx_run *run, uint32_t max) {
  for (harp_ns now = HARP_US(1); now <= HARP_US(50); now += HARP_US(1)) {
    struct harp_path *p = harp_sender_pick(s, now);
    if (p) return harp_sender_poll(s, p, max, run, now);
  }
  return false;
}

static struct harp_packet ack(uint8_t path, uint32_t begin, uint32_t end, uint32_t delivered,
                              uint32_t posted) {
  struct harp_packet p = {.type = HARP_PACKET_ACK, .path = path};
  p.ack.delivered = delivered;
  p.ack.posted = posted;
  p.ack.range_count = begin != end;
  p.ack.ranges[0].begin = begin;
  p.ack.ranges[0].end = end;
  return p;
}

static enum harp_drop feed(struct harp_packet p) {
  return harp_sender_on_ack(s, &p, harp_sender_ack_number(s, &p), HARP_US(100));
}

static void posting_is_bounded(void **state) {
  (void)state;
  for (int i = 0; i < HARP_MESSAGES_MAX; i++) assert_int_equal(harp_sender_post(s, data, 1, NULL, 0), 0);
  assert_int_equal(harp_sender_post(s, data, 1, NULL, 0), -EAGAIN);
}

static void a_message_is_cut_into_packets(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, data, 2500, NULL, 0), 0); /* 20 lines: 8 + 8 + 4 */
  assert_true(take(&run, 64));
  assert_int_equal(run.type, HARP_PACKET_DATA);
  assert_int_equal(run.count, 3);
  assert_int_equal(run.number, FIRST_NUMBER);
  assert_int_equal(run.message, FIRST_MESSAGE);
  assert_int_equal(run.line, FIRST_LINE);
  assert_int_equal(run.lines_per_packet, 8);
  assert_int_equal(run.last_bytes, 2500 - 2048);
  assert_int_equal(run.size, 2500);
  assert_ptr_equal(run.data, data);
  assert_true(run.ack_soon);
  assert_false(take(&run, 64));
}

static void a_superframe_takes_no_more_than_asked(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, data, 2500, NULL, 0), 0);
  assert_true(take(&run, 2));
  assert_int_equal(run.count, 2);
  assert_int_equal(run.last_bytes, 1024);
  assert_true(take(&run, 2));
  assert_int_equal(run.count, 1);
  assert_int_equal(run.offset, 2048);
  assert_int_equal(run.line, FIRST_LINE + 16);
  assert_ptr_equal(run.data, data + 2048);
}

static void an_empty_message_takes_one_line_and_no_bytes(void **state) {
  (void)state;
  struct harp_tx_run run;
  void *cookie;
  assert_int_equal(harp_sender_post(s, NULL, 0, data, 0), 0);
  assert_true(take(&run, 64));
  assert_int_equal(run.count, 1);
  assert_int_equal(run.last_bytes, 0);
  assert_false(harp_sender_poll_done(s, &cookie));
  assert_int_equal(feed(ack(run.path, FIRST_NUMBER, FIRST_NUMBER + 1, FIRST_LINE + 1, FIRST_MESSAGE)),
                   HARP_DROP_NONE);
  assert_true(harp_sender_poll_done(s, &cookie));
  assert_ptr_equal(cookie, data);
}

static void early_messages_are_small_and_few(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, data, HARP_EARLY_MAX_BYTES + 1, NULL, 0), 0);
  assert_false(take(&run, 64)); /* too large without credit */
  assert_int_equal(feed(ack(0, 0, 0, FIRST_LINE, FIRST_MESSAGE + 1)), HARP_DROP_NONE);
  while (take(&run, 64)) assert_int_equal(run.message, FIRST_MESSAGE);
  for (int i = 0; i < 12; i++) assert_int_equal(harp_sender_post(s, data, 8, NULL, 0), 0);
  uint32_t sent = 0;
  for (; take(&run, 64); sent++) {
  }
  assert_int_equal(sent, HARP_EARLY_MESSAGES);
}

static void nonsense_is_dropped_and_changes_nothing(void **state) {
  (void)state;
  struct harp_tx_run run;
  void *cookie;
  assert_int_equal(harp_sender_post(s, data, 2500, NULL, 0), 0);
  assert_true(take(&run, 64));
  uint32_t n = FIRST_NUMBER;
  assert_int_equal(feed(ack(run.path, n, n + 4, FIRST_LINE, FIRST_MESSAGE)), HARP_DROP_STALE_ACK);
  assert_int_equal(feed(ack(run.path, n + 1, n, FIRST_LINE, FIRST_MESSAGE)), HARP_DROP_FIELD);
  assert_int_equal(feed(ack(run.path, n, n + 1, FIRST_LINE + 21, FIRST_MESSAGE)), HARP_DROP_STALE_ACK);
  /* Ranges that reach below zero, where packet numbers are still small. */
  assert_int_equal(feed(ack(run.path, 0xFFFFFFF0, n + 1, FIRST_LINE, FIRST_MESSAGE)), HARP_DROP_STALE_ACK);
  assert_int_equal(feed(ack(run.path, 0xFFFFFFF0, 0xFFFFFFF8, FIRST_LINE, FIRST_MESSAGE)),
                   HARP_DROP_STALE_ACK);
  assert_int_equal(feed(ack(run.path, 0x80000010, n + 1, FIRST_LINE, FIRST_MESSAGE)), HARP_DROP_STALE_ACK);
  assert_int_equal(s->delivered, FIRST_LINE);
  assert_int_equal(s->paths[run.path].inflight_bytes, 3 * (HARP_DATA_HEADER_BYTES + 1024));
  assert_false(harp_sender_poll_done(s, &cookie));
  /* Numbers below the first: never sent, harmless. */
  assert_int_equal(feed(ack(run.path, 1, 3, FIRST_LINE, FIRST_MESSAGE)), HARP_DROP_NONE);
  assert_int_equal(s->paths[run.path].inflight_bytes, 3 * (HARP_DATA_HEADER_BYTES + 1024));
}

static void an_old_acknowledgement_takes_nothing_back(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, data, 2500, NULL, 0), 0);
  assert_true(take(&run, 64));
  assert_int_equal(feed(ack(run.path, 5, 7, FIRST_LINE + 16, FIRST_MESSAGE + 3)), HARP_DROP_NONE);
  assert_int_equal(feed(ack(run.path, 5, 6, FIRST_LINE + 8, FIRST_MESSAGE + 1)), HARP_DROP_NONE);
  assert_int_equal(s->delivered, FIRST_LINE + 16);
  assert_int_equal(s->posted, FIRST_MESSAGE + 3);
}

static void messages_complete_in_order(void **state) {
  (void)state;
  struct harp_tx_run run;
  void *cookie;
  for (int i = 0; i < 3; i++) assert_int_equal(harp_sender_post(s, data, 100, data + i, 0), 0);
  while (take(&run, 64)) {
  }
  feed(ack(run.path, 0, 0, FIRST_LINE + 2, FIRST_MESSAGE));
  assert_true(harp_sender_poll_done(s, &cookie));
  assert_ptr_equal(cookie, data);
  assert_true(harp_sender_poll_done(s, &cookie));
  assert_ptr_equal(cookie, data + 1);
  assert_false(harp_sender_poll_done(s, &cookie));
  harp_sender_on_final(s, FIRST_LINE + 3, HARP_US(200)); /* the last word, over the control connection */
  assert_true(harp_sender_poll_done(s, &cookie));
  assert_ptr_equal(cookie, data + 2);
  harp_sender_on_final(s, FIRST_LINE + 99, HARP_US(200)); /* more than was ever sent */
  assert_int_equal(s->delivered, FIRST_LINE + 3);
}

static void peeking_tells_the_size_that_comes(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_peek_bytes(s, &s->paths[0], 0), -1);
  assert_int_equal(harp_sender_post(s, data, 0, NULL, 0), 0);
  assert_int_equal(harp_sender_peek_bytes(s, &s->paths[0], 0), 0);
  assert_true(take(&run, 64));
  assert_int_equal(harp_sender_post(s, data, 300, NULL, 0), 0);
  assert_int_equal(harp_sender_peek_bytes(s, &s->paths[0], 0), 300);
  assert_true(take(&run, 64));
  assert_int_equal(harp_sender_post(s, data, 9000, NULL, 0), 0);
  assert_int_equal(harp_sender_peek_bytes(s, &s->paths[0], 0), 1024);
}

static void a_path_that_is_down_moves_its_flight(void **state) {
  (void)state;
  struct harp_tx_run run;
  assert_int_equal(harp_sender_post(s, data, 2500, NULL, 0), 0);
  assert_true(take(&run, 64));
  unsigned first = run.path;
  harp_sender_path_down(s, first, HARP_US(2));
  assert_int_equal(s->paths[first].inflight_bytes, 0);
  assert_int_equal(counters.lost_packets, 3);
  assert_true(take(&run, 64)); /* the probe of the path that is down */
  assert_int_equal(run.type, HARP_PACKET_PROBE);
  assert_int_equal(run.path, first);
  assert_true(take(&run, 64));
  assert_int_equal(run.type, HARP_PACKET_DATA);
  assert_int_not_equal(run.path, first);
  assert_int_equal(run.line, FIRST_LINE);
  assert_int_equal(run.count, 3);
}

/* Paths that make a detour at the receiver carry nothing while another between the same ENIs makes none. */
static void detours_are_avoided(void **state) {
  (void)state;
  struct harp_packet p = ack(0, 0, 0, FIRST_LINE, FIRST_MESSAGE);
  assert_int_equal(s->eligible, 3);
  p.flags = HARP_FLAG_DETOUR;
  assert_int_equal(feed(p), HARP_DROP_NONE);
  assert_int_equal(s->eligible, 2);
  p.path = 1;
  assert_int_equal(feed(p), HARP_DROP_NONE);
  assert_int_equal(s->eligible, 3); /* all do */
  p.flags = 0;
  assert_int_equal(feed(p), HARP_DROP_NONE);
  assert_int_equal(s->eligible, 2);
}

/* Where the driver gains nothing by large windows, paths between the same ENIs divide one: those that carry
 * something, also when they return; a pair of ENIs never takes from another. */
static void paths_between_the_same_enis_share(void **state) {
  (void)state;
  struct harp_sender_config c = {.first_number = 1,
                                 .path_count = 5,
                                 .paths = {{.lines_max = 8, .local_eni = 1},
                                           {.lines_max = 8, .local_eni = 2},
                                           {.lines_max = 8, .local_eni = 1},
                                           {.lines_max = 8, .local_eni = 1},
                                           {.lines_max = 8, .remote_eni = 1, .standby = true}},
                                 .window_max_bytes = 4 << 20,
                                 .cc = &harp_cc_delay,
                                 .share = true};
  static const uint32_t sharers[] = {3, 1, 3, 3, 1};
  struct harp_sender *before = s;
  s = malloc(harp_sender_bytes(5));
  assert_non_null(s);
  harp_sender_init(s, &c, NULL, &counters, 0);
  for (unsigned i = 0; i < 5; i++)
    assert_int_equal(s->paths[i].cc.window_bytes, HARP_CC_INITIAL_BYTES / sharers[i]);
  bring_up(s, 0);
  struct harp_packet p = ack(2, 0, 0, 0, 0);
  p.flags = HARP_FLAG_DETOUR;
  assert_int_equal(feed(p), HARP_DROP_NONE);
  harp_sender_path_down(s, 0, HARP_US(2));
  bring_up_one(s, HARP_US(3));
  assert_int_equal(s->paths[0].state, HARP_PATH_UP);
  assert_int_equal(s->paths[0].cc.window_bytes, HARP_CC_INITIAL_BYTES / 2);
  assert_int_equal(s->paths[1].cc.sharers, 1);
  c.share = false;
  harp_sender_init(s, &c, NULL, &counters, 0);
  for (unsigned i = 0; i < 5; i++) assert_int_equal(s->paths[i].cc.window_bytes, HARP_CC_INITIAL_BYTES);
  free(s);
  s = before;
}

/* Connections begin with different ENIs, equally often with each, though most of their paths are standby. */
static void connections_begin_with_different_paths(void **state) {
  (void)state;
  enum { PRIMARY = 4, PATHS = 16, CONNECTIONS = 64 };
  unsigned chosen[PATHS] = {0};
  struct harp_sender *own = malloc(harp_sender_bytes(PATHS));
  assert_non_null(own);
  for (uint32_t i = 0; i < CONNECTIONS; i++) {
    struct harp_sender_config c = {
        .first_number = i, .path_count = PATHS, .window_max_bytes = 4 << 20, .cc = &harp_cc_delay};
    for (unsigned k = 0; k < PATHS; k++)
      c.paths[k] = (struct harp_path_config){.lines_max = 8,
                                             .local_eni = (uint8_t)(k % PRIMARY),
                                             .remote_eni = (uint8_t)(k / PRIMARY + k % PRIMARY) % PRIMARY,
                                             .standby = k >= PRIMARY};
    harp_sender_init(own, &c, NULL, &counters, 0);
    bring_up(own, 0);
    assert_int_equal(harp_sender_post(own, data, 8, NULL, 0), 0);
    struct harp_path *p = NULL;
    for (harp_ns now = HARP_US(1); !p && now <= HARP_US(50); now += HARP_US(1))
      p = harp_sender_pick(own, now);
    assert_non_null(p);
    chosen[p->index]++;
  }
  for (unsigned k = 0; k < PATHS; k++) assert_int_equal(chosen[k], k < PRIMARY ? CONNECTIONS / PRIMARY : 0);
  free(own);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(detours_are_avoided, init, fini),
      cmocka_unit_test_setup_teardown(paths_between_the_same_enis_share, init, fini),
      cmocka_unit_test_setup_teardown(connections_begin_with_different_paths, init, fini),
      cmocka_unit_test_setup_teardown(posting_is_bounded, init, fini),
      cmocka_unit_test_setup_teardown(a_message_is_cut_into_packets, init, fini),
      cmocka_unit_test_setup_teardown(a_superframe_takes_no_more_than_asked, init, fini),
      cmocka_unit_test_setup_teardown(an_empty_message_takes_one_line_and_no_bytes, init, fini),
      cmocka_unit_test_setup_teardown(early_messages_are_small_and_few, init, fini),
      cmocka_unit_test_setup_teardown(nonsense_is_dropped_and_changes_nothing, init, fini),
      cmocka_unit_test_setup_teardown(an_old_acknowledgement_takes_nothing_back, init, fini),
      cmocka_unit_test_setup_teardown(messages_complete_in_order, init, fini),
      cmocka_unit_test_setup_teardown(peeking_tells_the_size_that_comes, init, fini),
      cmocka_unit_test_setup_teardown(a_path_that_is_down_moves_its_flight, init, fini),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
