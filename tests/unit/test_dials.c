/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP connections that a connect tries, over the addresses 127.0.0.1 to 127.0.0.8 of loopback, each of
 * which listens, refuses or does not answer. */
#include "engine/control/dials.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_open.h"
#include "lib/addresses.h"
#include "lib/loopback.h"

enum { FILLERS = 4, ADDRESSES = 8 };

/* What is at an address. */
enum what { LISTENS = 'l', REFUSES = 'r', MUTE = 'm' };

struct place {
  int listen_fd, fillers[FILLERS]; /* -1: none */
};

struct scene {
  struct harp_engine *e;
  struct harp_contact contact;
  struct place places[ADDRESSES];
  struct harp_dials dials;
  harp_ns now;
};

/* Takes all places of the listening socket's queue, so that the kernel leaves a further SYN unanswered. */
static void fill(struct place *p, const struct sockaddr_storage *at) {
  for (unsigned i = 0; i < FILLERS; i++) {
    p->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    (void)!connect(p->fillers[i], (const struct sockaddr *)at, sizeof(struct sockaddr_in));
  }
}

static void open_place(struct scene *s, unsigned i, enum what what) {
  struct place *p = &s->places[i];
  char text[16];
  snprintf(text, sizeof text, "127.0.0.%u", i + 1);
  struct sockaddr_storage *a = &s->contact.at[i];
  *a = address(text, s->contact.port);
  p->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
  memset(p->fillers, -1, sizeof p->fillers);
  assert_int_equal(bind(p->listen_fd, (struct sockaddr *)a, sizeof(struct sockaddr_in)), 0);
  if (!s->contact.port) { /* the kernel's choice is free at the others, too, or the test cannot run */
    socklen_t n = sizeof *a;
    assert_int_equal(getsockname(p->listen_fd, (struct sockaddr *)a, &n), 0);
    s->contact.port = harp_address_port(a);
  }
  if (what != REFUSES) assert_int_equal(listen(p->listen_fd, what == MUTE ? 0 : 16), 0);
  if (what == MUTE) fill(p, a);
}

static void open_scene(struct scene *s, const char *what) {
  memset(s, 0, sizeof *s);
  s->e = loopback_open_engine();
  s->now = HARP_SEC(1000);
  for (; what[s->contact.count]; s->contact.count++)
    open_place(s, s->contact.count, (enum what)what[s->contact.count]);
  harp_dials_init(&s->dials);
  harp_dials_begin(&s->dials, s->e, &s->contact, s->now);
}

static void close_scene(struct scene *s) {
  harp_dials_end(&s->dials);
  for (unsigned i = 0; i < s->contact.count; i++) {
    close(s->places[i].listen_fd);
    for (unsigned k = 0; k < FILLERS; k++)
      if (s->places[i].fillers[k] >= 0) close(s->places[i].fillers[k]);
  }
  harp_engine_close(s->e);
}

typedef int poll_of_dials(struct harp_dials *d, const struct harp_engine *e,
                          const struct harp_contact *contact, harp_ns now);

/* Lets the kernel answer what it will answer, at the same virtual time. */
static int poll_by(struct scene *s, poll_of_dials *poll_once) {
  int fd = -EAGAIN;
  for (unsigned i = 0; i < 50 && fd == -EAGAIN; i++) {
    struct pollfd p[HARP_DIALS_MAX];
    for (unsigned k = 0; k < s->dials.open_count; k++)
      p[k] = (struct pollfd){.fd = s->dials.open[k].fd, .events = POLLOUT};
    (void)poll(p, s->dials.open_count, 1);
    fd = poll_once(&s->dials, s->e, &s->contact, s->now);
  }
  return fd;
}

static int poll_dials(struct scene *s) {
  return poll_by(s, harp_dials_poll);
}

static int poll_others(struct scene *s) {
  return poll_by(s, harp_dials_poll_others);
}

static void assert_up(struct scene *s, int fd, unsigned at) {
  struct sockaddr_storage to = {0};
  socklen_t n = sizeof to;
  assert_true(fd >= 0);
  assert_int_equal(getpeername(fd, (struct sockaddr *)&to, &n), 0);
  assert_true(harp_address_has_same_ip(&to, &s->contact.at[at]));
  assert_int_equal(s->dials.candidates[s->dials.answered].to, at);
  assert_int_equal(s->dials.open_count, 0);
  close(fd);
}

static void test_the_first_answers(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, "ll");
  assert_up(&s, poll_dials(&s), 0);
  close_scene(&s);
}

/* One that is refused is followed by the next at once. */
static void test_refused_ones_cost_no_time(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, "rrrl");
  assert_up(&s, poll_dials(&s), 3);
  close_scene(&s);
}

/* One without an answer is followed by the next after a while, and stays. */
static void test_mute_one_is_not_waited_for(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, "ml");
  assert_int_equal(poll_dials(&s), -EAGAIN);
  s.now += HARP_DIAL_NEXT_NS - 1;
  assert_int_equal(poll_dials(&s), -EAGAIN);
  assert_int_equal(s.dials.open_count, 1);
  s.now += 1;
  assert_up(&s, poll_dials(&s), 1);
  close_scene(&s);
}

/* The round ends when all were tried, and says how the best one failed. */
static void test_nobody_answers(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, "rr");
  assert_int_equal(poll_dials(&s), -EHOSTUNREACH);
  assert_int_equal(s.dials.error, ECONNREFUSED);
  close_scene(&s);
  open_scene(&s, "mr");
  s.now += HARP_DIAL_NEXT_NS;
  assert_int_equal(poll_dials(&s), -EAGAIN);
  s.now += HARP_DIAL_ROUND_NS - 1;
  assert_int_equal(poll_dials(&s), -EAGAIN);
  s.now += 1;
  assert_int_equal(poll_dials(&s), -EHOSTUNREACH);
  assert_int_equal(s.dials.error, 0);
  assert_int_equal(s.dials.open_count, 0);
  close_scene(&s);
}

/* The next attempt goes on with those that are left, then begins anew; or with the one that has answered, if
 * that was the right peer. */
static void test_rounds_go_on(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, "rlrl");
  assert_up(&s, poll_dials(&s), 1);
  harp_dials_begin(&s.dials, s.e, &s.contact, s.now);
  assert_up(&s, poll_dials(&s), 3);
  harp_dials_keep_answered(&s.dials);
  harp_dials_begin(&s.dials, s.e, &s.contact, s.now);
  assert_up(&s, poll_dials(&s), 3);
  harp_dials_begin(&s.dials, s.e, &s.contact, s.now);
  assert_up(&s, poll_dials(&s), 1);
  close_scene(&s);
}

/* While a connection is kept that says nothing, the others are tried, and that one is not begun again. */
static void test_others_beside_one_that_is_kept(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, "lrl");
  assert_up(&s, poll_dials(&s), 0);
  s.now += HARP_DIAL_NEXT_NS;
  assert_up(&s, poll_others(&s), 2); /* the first of them refuses */
  s.now += HARP_DIAL_ROUND_NS;
  assert_up(&s, poll_others(&s), 0); /* the next round */
  close_scene(&s);
}

/* Others that fail at once are tried again with the next round, not with the next poll. */
static void test_others_that_fail(void **state) {
  (void)state;
  struct scene s;
  open_scene(&s, "lr");
  assert_up(&s, poll_dials(&s), 0);
  s.now += HARP_DIAL_NEXT_NS;
  assert_int_equal(poll_others(&s), -EAGAIN);
  assert_int_equal(s.dials.open_count, 0);
  harp_ns due_ns = s.dials.next_ns;
  assert_true(due_ns > s.now);
  s.now = due_ns - 1;
  assert_int_equal(poll_others(&s), -EAGAIN);
  assert_int_equal(s.dials.next_ns, due_ns);
  s.now = due_ns;
  assert_int_equal(poll_others(&s), -EAGAIN);
  assert_true(s.dials.next_ns > due_ns);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_first_answers),
      cmocka_unit_test(test_refused_ones_cost_no_time),
      cmocka_unit_test(test_mute_one_is_not_waited_for),
      cmocka_unit_test(test_nobody_answers),
      cmocka_unit_test(test_rounds_go_on),
      cmocka_unit_test(test_others_beside_one_that_is_kept),
      cmocka_unit_test(test_others_that_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
