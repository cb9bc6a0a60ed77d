/* SPDX-License-Identifier: Apache-2.0 */
/* A control connection breaks with the answer to a connect in it: the connect asks again, and gets the link
 * that was made for it, whatever has become of its listener meanwhile. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "engine/control/listener.h"
#include "engine/link_close.h"
#include "lib/accepted.h"
#include "lib/loopback.h"
#include "lib/sides.h"

enum { A = 0, B = 1, BYTES = 5000, BUSY_PASSES = 20 };

/* What happens at B, the side that accepts, between its answer and the break. */
struct lost {
  bool is_opening; /* the connect opens a stream of a session that is there */
  bool is_accepted, posts, closes_link, closes_listener;
  bool closes_late;  /* all that after the break */
  bool notices_late; /* B sees the break only after it was asked again */
};

/* Holds back what is sent on a TCP connection, for some 200 ms. */
static void hold_back(int fd) {
  int one = 1;
  assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &one, sizeof one), 0);
}

/* Resets a TCP connection; what was held back is lost. */
static void break_off(int fd) {
  struct sockaddr none = {.sa_family = AF_UNSPEC};
  assert_int_equal(connect(fd, &none, sizeof none), 0);
}

static void pass_both(struct loopback_side s[2]) {
  for (unsigned i = 0; i < 2; i++) loopback_pass(s[i].e);
}

static void await_link(struct loopback_side s[2], unsigned n) {
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[A].links[n] && loopback_seconds() < limit;) {
    loopback_poll(&s[A], n);
    pass_both(s);
  }
  assert_non_null(s[A].links[n]);
}

/* Lets B learn that A has all answers. */
static void await_delivery(struct loopback_side s[2]) {
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       s[B].l->answers.count && loopback_seconds() < limit;)
    pass_both(s);
  assert_int_equal(s[B].l->answers.count, 0);
}

/* Begins a connect of A, which B answers; the answer is held back. Returns the connection that it is in. */
static int answer_in_vain(struct loopback_side s[2], bool is_opening, unsigned n) {
  time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
  int fd = is_opening ? loopback_only_peer(s[B].e)->monitor.fd : -1;
  if (is_opening) hold_back(fd);
  loopback_connect(s, A, n);
  while (fd < 0 && loopback_seconds() < limit) {
    loopback_poll(&s[A], n);
    loopback_pass(s[B].e);
    const struct harp_pending_peer *p = s[B].l->pending[0];
    if (p && p->handshake.state == HARP_HANDSHAKE_WAIT_CONFIRM) hold_back(fd = p->fd);
  }
  while (!atomic_load(&s[B].l->ready_count) && loopback_seconds() < limit) {
    loopback_poll(&s[A], n);
    loopback_pass(s[B].e);
  }
  assert_int_equal(atomic_load(&s[B].l->ready_count), 1);
  assert_null(s[A].links[n]);
  return fd;
}

static unsigned listener_count(const struct harp_engine *e) {
  unsigned count = 0;
  for (const struct harp_listener *l = e->listeners; l; l = l->next) count++;
  return count;
}

/* NCCL closes B's listener. Another one takes its place in the scene. */
static void close_listener(struct loopback_side *s) {
  struct harp_handle handle;
  harp_listener_close(s->l);
  assert_int_equal(harp_listener_open(&s->l, s->e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
}

static uint8_t received[BYTES], sent[BYTES];

static void accept_and_close(struct loopback_side *s, const struct lost *lost, unsigned n) {
  if (!lost->is_accepted) return;
  struct harp_link *link = s->accepted[n] = take_accepted(s->l);
  assert_non_null(link);
  if (lost->posts) {
    memset(received, 0, sizeof received);
    side_submit(link, 0, received, sizeof received);
    loopback_pass(s->e);
  }
  if (lost->closes_listener) close_listener(s);
  if (!lost->closes_link) return;
  harp_link_destroy(link);
  s->accepted[n] = NULL;
}

/* A message arrives whole; where NCCL has closed B's end, A has an error. */
static void check_link(struct loopback_side s[2], const struct lost *lost, unsigned n) {
  struct harp_link *from = s[A].links[n], *to = s[B].accepted[n];
  if (!to && !lost->closes_link) to = s[B].accepted[n] = take_accepted(s[B].l);
  assert_true(!to == lost->closes_link);
  assert_int_equal(atomic_load(&s[B].l->ready_count), 0);
  memset(sent, 0x5a, sizeof sent);
  if (to && !lost->posts) side_submit(to, 0, received, sizeof received);
  side_submit(from, 0, sent, sizeof sent);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       atomic_load(&from->requests[0].state) != HARP_REQUEST_DONE && !atomic_load(&from->status) &&
       loopback_seconds() < limit;)
    pass_both(s);
  assert_int_equal(atomic_load(&from->status), to ? HARP_OK : HARP_ERR_REMOTE);
  if (!to) return;
  assert_int_equal(atomic_load(&to->requests[0].state), HARP_REQUEST_DONE);
  assert_memory_equal(received, sent, sizeof sent);
}

static void lose_answer(const struct lost *lost) {
  struct loopback_side s[2];
  unsigned n = lost->is_opening;
  loopback_open(s);
  if (n) {
    loopback_connect(s, A, 0);
    await_link(s, 0);
    s[B].accepted[0] = take_accepted(s[B].l);
    await_delivery(s);
  }
  int fd = answer_in_vain(s, lost->is_opening, n);
  if (!lost->closes_late) accept_and_close(&s[B], lost, n);
  break_off(fd);
  for (unsigned i = 0; i < BUSY_PASSES && !lost->notices_late; i++) loopback_pass(s[B].e);
  if (lost->closes_late) accept_and_close(&s[B], lost, n);
  await_link(s, n);
  check_link(s, lost, n);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       listener_count(s[B].e) > 1 && loopback_seconds() < limit;)
    pass_both(s);
  assert_int_equal(listener_count(s[B].e), 1);
  loopback_close(s);
}

static void test_an_answer_is_lost(void **state) {
  (void)state;
  enum { CASES = 1 << 7 };
  for (unsigned bits = 0; bits < CASES; bits++) {
    struct lost lost = {bits & 1, bits & 2, bits & 4, bits & 8, bits & 16, bits & 32, bits & 64};
    bool is_idle =
        !lost.is_accepted && (lost.posts || lost.closes_link || lost.closes_listener || lost.closes_late);
    if (is_idle || (lost.closes_link && lost.posts)) continue;
    lose_answer(&lost);
  }
}

/* Lets A's OPEN come to B, whose answers are held back, and NCCL accept there and close its listener. */
static void open_in_vain(struct loopback_side s[2], const struct harp_open *open, unsigned answered) {
  assert_true(harp_monitor_send_open(loopback_only_peer(s[A].e), open));
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       s[B].l->answers.count < answered && loopback_seconds() < limit;)
    loopback_pass(s[B].e);
  assert_int_equal(s[B].l->answers.count, answered);
}

static struct harp_open open_of(const struct loopback_side s[2], uint16_t stream, uint32_t first_line,
                                uint32_t attempt) {
  const struct harp_session_keys *keys = &loopback_only_peer(s[A].e)->session.keys;
  struct harp_open open = {
      .stream = stream, .port = s[B].l->port, .first_line = first_line, .attempt = attempt};
  harp_control_open_proof(&open, s[B].l->secret, keys->rx_token, keys->tx_token, open.proof);
  return open;
}

static void open_scene(struct loopback_side s[2]) {
  loopback_open(s);
  loopback_connect(s, A, 0);
  await_link(s, 0);
  s[B].accepted[0] = take_accepted(s[B].l);
  await_delivery(s);
  hold_back(loopback_only_peer(s[B].e)->monitor.fd);
}

/* An attempt that another one has overtaken moves nothing, wherever it was for so long. */
static void test_an_earlier_attempt_is_refused(void **state) {
  (void)state;
  struct loopback_side s[2];
  open_scene(s);
  struct harp_open second = open_of(s, 1, 1000, 2), first = open_of(s, 2, 1000, 1),
                   third = open_of(s, 3, 1000, 3);
  open_in_vain(s, &second, 1);
  struct harp_link *link = s[B].accepted[1] = take_accepted(s[B].l);
  assert_non_null(link);
  uint64_t refused = s[B].e->counters.handshake_refused;
  open_in_vain(s, &first, 1);
  for (unsigned i = 0; i < BUSY_PASSES; i++) loopback_pass(s[B].e);
  assert_int_equal(s[B].e->counters.handshake_refused, refused + 1);
  assert_int_equal(link->rx->id, second.stream);
  open_in_vain(s, &third, 1);
  for (unsigned i = 0; i < BUSY_PASSES; i++) loopback_pass(s[B].e);
  assert_int_equal(link->rx->id, third.stream);
  assert_int_equal(s[B].e->link_count, 2);
  loopback_close(s);
}

/* Nobody asks again: a listener that was closed holds its socket for as long as somebody may. */
static void test_a_closed_listener_does_not_stay(void **state) {
  (void)state;
  struct loopback_side s[2];
  open_scene(s);
  loopback_stop_clock(s);
  struct harp_open open = open_of(s, 1, 1000, 1);
  open_in_vain(s, &open, 1);
  s[B].accepted[1] = take_accepted(s[B].l);
  close_listener(&s[B]);
  assert_int_equal(listener_count(s[B].e), 2);
  break_off(loopback_only_peer(s[B].e)->monitor.fd);
  for (unsigned i = 0; i < BUSY_PASSES; i++) loopback_pass(s[B].e);
  loopback_now_ns += HARP_ANSWER_TIMEOUTS * s[B].e->instance.peer_timeout_ns - 1;
  for (unsigned i = 0; i < BUSY_PASSES; i++) loopback_pass(s[B].e);
  assert_int_equal(listener_count(s[B].e), 2);
  loopback_now_ns += 1;
  for (unsigned i = 0; i < BUSY_PASSES; i++) loopback_pass(s[B].e);
  assert_int_equal(listener_count(s[B].e), 1);
  loopback_close(s);
}

/* The oldest are forgotten of more connects than a listener keeps. */
static void test_answers_are_bounded(void **state) {
  (void)state;
  enum { COUNT = HARP_ANSWERS_MAX + 10 };
  static struct harp_link *links[COUNT];
  struct loopback_side s[2];
  open_scene(s);
  loopback_only_peer(s[B].e)->monitor.pong_sent = false;
  for (unsigned i = 0; i < COUNT; i++) {
    struct harp_open open = open_of(s, (uint16_t)(1 + i), 1000 + i, 1);
    unsigned links_before = s[B].e->link_count;
    assert_true(harp_monitor_send_open(loopback_only_peer(s[A].e), &open));
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
         s[B].e->link_count == links_before && loopback_seconds() < limit;)
      loopback_pass(s[B].e);
    links[i] = take_accepted(s[B].l);
    assert_non_null(links[i]);
    links[i]->answer->awaits_ping = true;
    assert_int_equal(s[B].l->answers.count, HARP_MIN(i + 1, (unsigned)HARP_ANSWERS_MAX));
  }
  for (unsigned i = 0; i < COUNT; i++) {
    assert_int_equal(links[i]->answer != NULL, i >= COUNT - HARP_ANSWERS_MAX);
    harp_link_destroy(links[i]);
  }
  loopback_close(s);
}

/* However many close before their answers have come. */
static void test_closed_listeners_are_bounded(void **state) {
  (void)state;
  enum { COUNT = HARP_LISTENERS_CLOSED_MAX + 10 };
  static struct harp_link *links[COUNT];
  struct loopback_side s[2];
  open_scene(s);
  loopback_only_peer(s[B].e)->monitor.pong_sent = false; /* no answer to a PING comes any more */
  for (unsigned i = 0; i < COUNT; i++) {
    struct harp_open open = open_of(s, (uint16_t)(1 + i), 1000 + i, 1);
    open_in_vain(s, &open, 1);
    links[i] = take_accepted(s[B].l);
    assert_non_null(links[i]);
    links[i]->answer->awaits_ping = true;
    close_listener(&s[B]);
    assert_int_equal(listener_count(s[B].e), 1 + HARP_MIN(i + 1, (unsigned)HARP_LISTENERS_CLOSED_MAX));
  }
  for (unsigned i = 0; i < COUNT; i++) {
    assert_true(!links[i]->answer || links[i]->answer->link == links[i]);
    harp_link_destroy(links[i]);
  }
  loopback_close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_answer_is_lost),
      cmocka_unit_test(test_an_earlier_attempt_is_refused),
      cmocka_unit_test(test_a_closed_listener_does_not_stay),
      cmocka_unit_test(test_answers_are_bounded),
      cmocka_unit_test(test_closed_listeners_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
