/* SPDX-License-Identifier: Apache-2.0 */
/* Connects of two engines to each other that cross, in orders drawn at random, and connects whose other side
 * dies or does not answer. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/loopback.h"
#include "models/rng.h"

enum { SEEDS = 400 };

/* What happens next. A seed is a sequence of these. */
enum step { STEP_CONNECT, STEP_POLL, STEP_PASS, STEP_KINDS };

/* How many connects each side makes; how many it has begun. */
struct plan {
  unsigned links[2], begun[2];
  bool begins_at_once; /* all connects are begun before anything else happens */
};

static bool is_complete(const struct loopback_side s[2], const struct plan *p) {
  for (unsigned i = 0; i < 2; i++)
    if (s[i].link_count != p->links[i] || s[!i].accepted_count != p->links[i]) return false;
  return true;
}

static void begin_connect(struct loopback_side s[2], struct plan *p, unsigned i) {
  if (p->begun[i] < p->links[i]) loopback_connect(s, i, p->begun[i]++);
}

static void draw_step(struct loopback_side s[2], struct plan *p, struct rng *rng) {
  unsigned i = (unsigned)rng_below(rng, 2);
  loopback_now_ns += LOOPBACK_STEP_NS;
  switch ((enum step)rng_below(rng, STEP_KINDS)) {
  case STEP_CONNECT:
    begin_connect(s, p, i);
    break;
  case STEP_POLL:
    loopback_poll(&s[i], (unsigned)rng_below(rng, LOOPBACK_LINKS_MAX));
    break;
  default:
    loopback_pass_side(&s[i]);
  }
}

/* Whatever either side does when: one session, in which all streams work. Time moves with the steps alone, so
 * no timer helps. */
static void test_crossed_connects_make_one_peer(void **state) {
  (void)state;
  for (uint32_t seed = 0; seed < SEEDS; seed++) {
    struct loopback_side s[2];
    struct rng rng = {seed};
    struct plan p = {.begins_at_once = seed % 2};
    for (unsigned i = 0; i < 2; i++) p.links[i] = 1 + (unsigned)rng_below(&rng, LOOPBACK_LINKS_MAX);
    loopback_open(s);
    loopback_stop_clock(s);
    unsigned first = (unsigned)rng_below(&rng, 2);
    for (unsigned n = 0; p.begins_at_once && n < 2 * LOOPBACK_LINKS_MAX; n++)
      begin_connect(s, &p, first ^ (n & 1));
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
         !is_complete(s, &p) && loopback_seconds() < limit;)
      draw_step(s, &p, &rng);
    bool is_good = is_complete(s, &p);
    for (unsigned i = 0; i < 2; i++)
      is_good &= s[i].e->link_count == p.links[0] + p.links[1] && s[i].e->counters.peers == 1; /* ever */
    if (!is_good) print_error("seed %u\n", seed);
    assert_true(is_good);
    loopback_transfer(s);
    loopback_close(s);
  }
}

/* Lets both go on until each has connected once and accepted once, over one session. */
static void meet_once(struct loopback_side s[2]) {
  static const bool both[2] = {true, true};
  const struct plan p = {.links = {1, 1}};
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       !is_complete(s, &p) && loopback_seconds() < limit;)
    loopback_run(s, both, both, 1);
  assert_true(is_complete(s, &p));
  for (unsigned i = 0; i < 2; i++) assert_int_equal(s[i].e->counters.peers, 1); /* ever */
  loopback_transfer(s);
}

/* The handshake that would have won ends: nobody polls it any more, or it is closed. The other side's connect
 * is done all the same, and so is the late one when it is polled again. */
static void test_winner_that_dies_is_not_waited_for(void **state) {
  static const bool both[2] = {true, true}, none[2], first[2] = {true, false}, second[2] = {false, true};
  (void)state;
  for (unsigned dies = 0; dies < 4; dies++) {
    struct loopback_side s[2];
    loopback_open(s);
    loopback_connect(s, 0, 0);
    loopback_run(s, first, none, 50); /* its HELLO is sent */
    loopback_connect(s, 1, 0);
    if (dies & 1) loopback_run(s, second, first, 50); /* and the other's is refused */
    if (dies & 2) {
      harp_connect_close(s[0].connects[0]);
      s[0].connects[0] = NULL;
    }
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[1].links[0] && loopback_seconds() < limit;)
      loopback_run(s, second, both, 1);
    assert_non_null(s[1].links[0]);
    if (!s[0].connects[0]) loopback_connect(s, 0, 0);
    meet_once(s);
    loopback_close(s);
  }
}

/* A connect that waits for a CONFIRM does not wait for ever. */
static void test_pending_peer_that_never_confirms_is_not_waited_for(void **state) {
  static const bool both[2] = {true, true}, none[2], first[2] = {true, false}, second[2] = {false, true};
  (void)state;
  for (unsigned i = 0; i < 2; i++) {
    struct loopback_side s[2];
    loopback_open(s);
    loopback_connect(s, !i, 0);
    loopback_run(s, i ? first : second, none, 50);
    loopback_run(s, none, i ? second : first, 50); /* it is welcomed, and does not look */
    loopback_connect(s, i, 0);
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[i].links[0] && loopback_seconds() < limit;)
      loopback_run(s, i ? second : first, both, 1);
    assert_non_null(s[i].links[0]);
    meet_once(s);
    loopback_close(s);
  }
}

/* Resets the connection, what it has brought unread. */
static void break_socket(int fd) {
  int other = socket(AF_INET, SOCK_STREAM, 0);
  assert_int_equal(dup2(other, fd), fd);
  close(other);
}

/* The server's end of a handshake breaks after its WELCOME: the client must not count itself connected, since
 * nothing might ever correct that, and tries again. */
static void test_connect_is_done_when_the_server_knows(void **state) {
  static const bool none[2], first[2] = {true, false}, second[2] = {false, true};
  (void)state;
  for (unsigned i = 0; i < 2; i++) {
    struct loopback_side s[2];
    bool broken = false;
    loopback_open(s);
    loopback_connect(s, i, 0);
    while (!broken) {
      loopback_run(s, i ? second : first, none, 50); /* takes the WELCOME, once it is there */
      for (unsigned g = 0; g < s[!i].l->place_count && !broken; g++) {
        struct harp_pending_peer *m = s[!i].l->pending[g];
        broken = m->fd >= 0 && m->handshake.state == HARP_HANDSHAKE_WAIT_CONFIRM;
        if (broken) break_socket(m->fd);
      }
      if (!broken) loopback_run(s, none, i ? first : second, 1);
    }
    assert_null(s[i].links[0]);
    for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[i].links[0] && loopback_seconds() < limit;)
      loopback_run(s, i ? second : first, (const bool[2]){true, true}, 1);
    assert_non_null(s[i].links[0]);
    assert_int_equal(s[!i].accepted_count, 1);
    assert_int_equal(s[!i].e->counters.peers, 1);
    loopback_close(s);
  }
}

/* The control connection breaks while it owes the answer to a connect, and the peer lives on over its other
 * interfaces: the connect begins a new handshake. */
static void test_lost_control_connection_is_not_waited_for(void **state) {
  static const bool both[2] = {true, true}, none[2], first[2] = {true, false};
  struct loopback_side s[2];
  (void)state;
  loopback_open(s);
  loopback_connect(s, 0, 0);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[0].links[0] && loopback_seconds() < limit;)
    loopback_run(s, first, both, 1);
  assert_non_null(s[0].links[0]);
  loopback_only_peer(s[0].e)->is_multihomed = true;
  loopback_connect(s, 0, 1);
  assert_ptr_equal(s[0].connects[1]->peer, loopback_only_peer(s[0].e));
  break_socket(loopback_only_peer(s[1].e)->monitor.fd);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       !loopback_only_peer(s[0].e)->monitor.lost && loopback_seconds() < limit;)
    loopback_run(s, none, first, 1);
  assert_true(loopback_only_peer(s[0].e)->monitor.lost);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !s[0].links[1] && loopback_seconds() < limit;) {
    loopback_poll(&s[0], 1);
    loopback_run(s, none, both, 1);
  }
  assert_non_null(s[0].links[1]);
  assert_int_equal(s[1].accepted_count, 2);
  loopback_close(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_crossed_connects_make_one_peer),
      cmocka_unit_test(test_winner_that_dies_is_not_waited_for),
      cmocka_unit_test(test_pending_peer_that_never_confirms_is_not_waited_for),
      cmocka_unit_test(test_connect_is_done_when_the_server_knows),
      cmocka_unit_test(test_lost_control_connection_is_not_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
