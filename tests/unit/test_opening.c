/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that holds the secret and misbehaves: it opens streams without end, or does not read. And strangers
 * that do not hold it. What they do is counted and bounded, in the log as well, and other streams go on. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/address.h"
#include "engine/control/opening.h"
#include "engine/link_close.h"
#include "engine/peer_life.h"
#include "lib/accepted.h"
#include "lib/loopback.h"

enum {
  FLOOD = 10000,
  BATCH = 20, /* OPENs that one read takes */
  SECONDS = 3,
  FIRST_OF_FLOOD = 100, /* stream */
  STRANGERS = 100,
  A = 0, /* the side that misbehaves */
  B = 1,
};

static const bool both[2] = {true, true}, only_a[2] = {true, false};

static unsigned refusal_lines, all_lines;

static void count_lines(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  assert_int_equal(level, HARP_LOG_INFO); /* no call of NCCL has failed */
  refusal_lines += strstr(text, "refused a connection") != NULL;
  all_lines++;
}

static void begin_counting(void) {
  refusal_lines = all_lines = 0;
  harp_log_set_sink(count_lines);
}

/* Connects A to B once: the stream that is not to notice anything. */
static void open_scene(struct loopback_side s[2]) {
  loopback_open(s);
  loopback_connect(s, A, 0);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       (!s[A].links[0] || !s[B].accepted[0]) && loopback_seconds() < limit;)
    loopback_run(s, only_a, both, 1);
  assert_true(s[A].links[0] && s[B].accepted[0]);
  loopback_transfer(s);
  loopback_stop_clock(s);
}

/* ---- refused without end ---- */

static const struct flood {
  uint16_t stream, port_offset; /* stream: the first one; it stays the same where is_one */
  bool is_one, is_secret_wrong, is_full;
} floods[] = {
    {.stream = FIRST_OF_FLOOD, .is_one = true, .is_secret_wrong = true},
    {.stream = FIRST_OF_FLOOD, .is_one = true, .port_offset = 1}, /* nobody listens there */
    {.stream = HARP_STREAMS_MAX, .is_one = true},
    {.stream = UINT16_MAX, .is_one = true},
    {.stream = 0, .is_one = true}, /* it is open */
    {.stream = FIRST_OF_FLOOD, .is_full = true},
};

/* Sends `count` OPENs over A's control connection, which B reads and answers. */
static void send_opens(struct loopback_side s[2], const struct flood *f, unsigned count) {
  struct harp_peer *peer = s[A].links[0]->peer;
  for (unsigned i = 0; i < count; i++) {
    struct harp_open open = {.stream = f->is_one ? f->stream : (uint16_t)(f->stream + i % 1000),
                             .port = (uint16_t)(s[B].l->port + f->port_offset)};
    uint8_t secret[HARP_SECRET_BYTES];
    memcpy(secret, s[B].l->secret, sizeof secret);
    secret[0] ^= f->is_secret_wrong;
    harp_control_open_proof(&open, secret, peer->session.keys.rx_token, peer->session.keys.tx_token,
                            open.proof);
    assert_true(harp_monitor_send_open(peer, &open));
    if (i % BATCH && i + 1 < count) continue;
    for (unsigned k = 0; k < 2; k++) loopback_pass(s[!k].e); /* B, then A, which gets the answers */
  }
}

/* Passes until B has refused so many more. */
static void await_refusals(struct loopback_side s[2], uint64_t until) {
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       s[B].e->counters.handshake_refused < until && loopback_seconds() < limit;)
    for (unsigned i = 0; i < 2; i++) loopback_pass(s[i].e);
  assert_int_equal(s[B].e->counters.handshake_refused, until);
}

/* Fills the engine's table of links, or makes it as it was. */
static void set_full(struct harp_engine *e, bool full) {
  static struct harp_link other;
  const struct harp_link *was = full ? NULL : &other;
  for (unsigned i = 0; i < HARP_ENGINE_LINKS_MAX; i++) {
    if (e->links[i] != was) continue;
    e->links[i] = full ? &other : NULL;
    e->link_count += full ? 1u : -1u;
  }
}

static void test_refused_streams_are_counted_and_bounded(void **state) {
  (void)state;
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(floods); i++) {
    struct loopback_side s[2];
    open_scene(s);
    struct harp_counters *c = &s[B].e->counters;
    uint64_t refused = c->handshake_refused;
    begin_counting();
    if (floods[i].is_full) set_full(s[B].e, true);
    send_opens(s, &floods[i], FLOOD);
    await_refusals(s, refused + FLOOD);
    assert_int_equal(refusal_lines, HARP_LOG_BURST);
    assert_int_equal(c->log_left_out, FLOOD - HARP_LOG_BURST);
    for (unsigned k = 1; k <= SECONDS; k++) {
      loopback_now_ns += HARP_LOG_INTERVAL_NS;
      send_opens(s, &floods[i], BATCH);
      await_refusals(s, refused + FLOOD + k * BATCH);
      assert_int_equal(refusal_lines, HARP_LOG_BURST + k);
    }
    if (floods[i].is_full) set_full(s[B].e, false);
    harp_log_set_sink(NULL);
    assert_int_equal(s[B].e->link_count, 1);
    assert_true(harp_peer_is_usable(s[A].links[0]->peer) && harp_peer_is_usable(s[B].accepted[0]->peer));
    loopback_transfer(s);
    loopback_close(s);
  }
}

/* Streams that it may open, more than NCCL accepts. */
static void test_opened_streams_are_bounded(void **state) {
  struct loopback_side s[2];
  struct harp_link *link;
  (void)state;
  open_scene(s);
  struct harp_counters *c = &s[B].e->counters;
  uint64_t refused = c->handshake_refused;
  begin_counting();
  send_opens(s, &(struct flood){.stream = FIRST_OF_FLOOD}, FLOOD);
  await_refusals(s, refused + FLOOD - HARP_UNACCEPTED_MAX);
  harp_log_set_sink(NULL);
  assert_int_equal(s[B].e->link_count, 1 + HARP_UNACCEPTED_MAX);
  assert_in_range(all_lines, HARP_UNACCEPTED_MAX, HARP_UNACCEPTED_MAX + HARP_LOG_BURST);
  assert_int_equal(s[B].e->counters.peers, 1);
  loopback_transfer(s);
  for (unsigned i = 0; i < HARP_UNACCEPTED_MAX; i++) {
    link = take_accepted(s[B].l);
    assert_non_null(link);
    harp_link_destroy(link);
  }
  assert_null(take_accepted(s[B].l));
  loopback_close(s);
}

/* ---- strangers ---- */

static void test_strangers_are_counted_and_bounded(void **state) {
  static const uint8_t junk[HARP_CONTROL_MIN_BYTES] = "neither magic nor secret";
  struct loopback_side s[2];
  struct harp_contact to;
  struct harp_error error = {0};
  (void)state;
  open_scene(s);
  struct harp_counters *c = &s[B].e->counters;
  uint64_t refused = c->handshake_refused;
  assert_true(harp_handle_decode(&s[B].handle, HARP_HANDLE_BYTES, &to, &error));
  begin_counting();
  for (unsigned i = 0; i < STRANGERS; i++) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to.at[0], harp_address_bytes(&to.at[0])), 0);
    assert_int_equal(send(fd, junk, sizeof junk, 0), sizeof junk);
    await_refusals(s, refused + i + 1);
    close(fd);
  }
  harp_log_set_sink(NULL);
  assert_int_equal(refusal_lines, HARP_LOG_BURST);
  assert_int_equal(c->log_left_out, STRANGERS - HARP_LOG_BURST);
  assert_int_equal(s[B].e->peer_count, 1);
  loopback_transfer(s);
  loopback_close(s);
}

/* ---- a peer that does not read ---- */

/* A session whose messages have no room is of no use: the next connect makes another. */
static void test_connect_after_an_overflow_makes_a_new_session(void **state) {
  struct loopback_side s[2];
  struct harp_close end = {.stream = UINT16_MAX};
  (void)state;
  open_scene(s);
  struct harp_link *old = s[A].links[0];
  while (harp_monitor_send_close(old->peer, &end)) { /* B makes no pass */
  }
  loopback_connect(s, A, 1);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       (!s[A].links[1] || s[B].accepted_count < 2) && loopback_seconds() < limit;) {
    loopback_poll(&s[A], 1);
    loopback_run(s, (const bool[2]){false, false}, both, 1);
  }
  assert_true(s[A].links[1] && s[B].accepted[1]);
  assert_int_equal(atomic_load(&old->status), HARP_ERR_REMOTE);
  assert_ptr_not_equal(s[A].links[1]->peer, old->peer);
  assert_int_equal(s[A].e->counters.peers, 2);
  loopback_transfer(s); /* over the link that has not failed */
  loopback_close(s);
}

/* ---- a peer that ends ---- */

/* A request for a stream that comes as the peer ends, and is not read before: no link is made on a peer that
 * is freed. The other side tries again. */
static void test_a_peer_that_ends_opens_no_stream(void **state) {
  (void)state;
  struct loopback_side s[2];
  open_scene(s);
  harp_connect_close(s[A].connects[0]);
  harp_link_destroy(s[A].links[0]);
  harp_link_destroy(s[B].accepted[0]);
  s[A].links[0] = s[B].accepted[0] = NULL;
  s[A].link_count = s[B].accepted_count = 0;
  for (unsigned i = 0; i < 2 * BATCH; i++) loopback_pass(s[!(i % 2)].e); /* CLOSE is read */
  loopback_connect(s, A, 0);
  harp_peer_destroy(loopback_only_peer(s[B].e));
  assert_int_equal(s[B].e->link_count, 0);
  assert_int_equal(atomic_load(&s[B].l->ready_count), 0);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       (!s[A].links[0] || !s[B].accepted[0]) && loopback_seconds() < limit;)
    loopback_run(s, only_a, both, 1);
  assert_true(s[A].links[0] && s[B].accepted[0]);
  loopback_transfer(s);
  loopback_close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_peer_that_ends_opens_no_stream),
      cmocka_unit_test(test_refused_streams_are_counted_and_bounded),
      cmocka_unit_test(test_opened_streams_are_bounded),
      cmocka_unit_test(test_strangers_are_counted_and_bounded),
      cmocka_unit_test(test_connect_after_an_overflow_makes_a_new_session),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
