/* SPDX-License-Identifier: Apache-2.0 */
/* Who connects to a listener and does not prove the secret, or proves it with somebody else's HELLO: on a
 * real engine over loopback whose passes the test does itself. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files.h"
#include "engine/engine_open.h"
#include "engine/limits.h"
#include "engine/link_close.h"
#include "lib/accepted.h"
#include "lib/hello.h"
#include "lib/loopback.h"

enum { LISTENERS = 12, EACH = 40, REPLAYS = 40 };

struct crowd {
  struct harp_listener *listeners[LISTENERS];
  struct harp_handle handles[LISTENERS];
  int fds[LISTENERS * EACH];
};

static int connect_raw(const struct harp_handle *handle) {
  struct harp_handshake h;
  struct harp_contact to = hello_begin(&h, handle, 0);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  assert_true(fd >= 0);
  (void)connect(fd, (struct sockaddr *)&to.at[0], sizeof(struct sockaddr_in));
  return fd;
}

/* Opens all listeners, then connections to each; does passes until all were seen. */
static void open_crowd(struct harp_engine *e, struct crowd *c) {
  for (unsigned i = 0; i < LISTENERS; i++)
    assert_int_equal(harp_listener_open(&c->listeners[i], e, &c->handles[i], HARP_HANDLE_BYTES, -1), HARP_OK);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(c->fds); i++) c->fds[i] = connect_raw(&c->handles[i % LISTENERS]);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       e->counters.handshake_refused + e->strangers.count < HARP_ARRAY_COUNT(c->fds) &&
       loopback_seconds() < limit;)
    loopback_pass(e);
  assert_int_equal(e->counters.handshake_refused + e->strangers.count, HARP_ARRAY_COUNT(c->fds));
}

static void close_crowd(struct harp_engine *e, struct crowd *c) {
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(c->fds); i++) close(c->fds[i]);
  for (unsigned i = 0; i < LISTENERS; i++) harp_listener_close(c->listeners[i]);
  assert_int_equal(e->strangers.count, 0);
  assert_null(e->strangers.first);
  assert_null(e->strangers.last);
}

/* Connects, while a crowd is there, and accepts. */
static void check_that_a_peer_gets_in(struct harp_engine *e, struct harp_listener *l,
                                      const struct harp_handle *handle) {
  struct harp_connect *c;
  struct harp_link *link = NULL, *accepted = NULL;
  assert_int_equal(harp_connect_open(&c, e, handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       (!link || !accepted) && loopback_seconds() < limit;) {
    if (!link) assert_int_equal(harp_connect_poll(c, &link), HARP_OK);
    loopback_pass(e);
    if (!accepted) accepted = take_accepted(l);
  }
  assert_true(link && accepted);
  harp_connect_close(c);
  harp_link_destroy(link);
  harp_link_destroy(accepted);
}

/* Each listener had 64 of them, and each of these a slot of the engine's: some dozens of listeners sufficed
 * to use up all slots, and fewer all files of the process. */
static void test_all_listeners_share_the_bound(void **state) {
  (void)state;
  static struct crowd c;
  struct harp_engine *e = loopback_open_engine();
  open_crowd(e, &c);
  assert_int_equal(e->strangers.count, HARP_STRANGERS_MAX);
  assert_int_equal(e->peer_count, 0);
  check_that_a_peer_gets_in(e, c.listeners[3], &c.handles[3]);
  close_crowd(e, &c);
  harp_engine_close(e);
}

/* Where the process has few files left they take none of these. */
static void test_they_leave_the_last_files(void **state) {
  (void)state;
  static struct crowd c;
  struct harp_engine *e = loopback_open_engine();
  struct rlimit before, few;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  /* The test has the other ends: three quarters are in use when these are open. */
  few.rlim_cur = (HARP_ARRAY_COUNT(c.fds) + LISTENERS + 40) * 4 / 3;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  open_crowd(e, &c);
  assert_in_range(e->strangers.count, 1, 64);
  int file = dup(0); /* a file of somebody else in the process */
  assert_false(harp_files_are_scarce(file));
  close(file);
  check_that_a_peer_gets_in(e, c.listeners[3], &c.handles[3]);
  close_crowd(e, &c);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  harp_engine_close(e);
}

static harp_ns still_ns = HARP_SEC(1000);

static harp_ns still(void) {
  return still_ns;
}

static unsigned seen(const struct harp_engine *e) {
  return (unsigned)e->counters.handshake_refused + e->tcp->accepted_count;
}

/* Accepting them at the port of the tcp paths took the time that the job's data needed: thousands of
 * connections a second halved its rate. */
static void test_they_come_one_by_one(void **state) {
  (void)state;
  enum { COUNT = HARP_STRANGERS_BURST + 40 };
  struct harp_engine *e = loopback_open_engine();
  int fds[COUNT];
  e->clock = still;
  struct sockaddr_in data = {.sin_family = AF_INET,
                             .sin_port = htons(harp_tcp_port(e->tcp, 0)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  for (unsigned i = 0; i < COUNT; i++) {
    fds[i] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fds[i], (struct sockaddr *)&data, sizeof data), 0);
  }
  for (unsigned i = 0; i < 1000; i++) loopback_pass(e);
  assert_int_equal(seen(e), HARP_STRANGERS_BURST);
  for (unsigned n = 1; n <= 10; n++) {
    still_ns += HARP_STRANGER_NS;
    for (unsigned i = 0; i < 10; i++) loopback_pass(e);
    assert_int_equal(seen(e), HARP_STRANGERS_BURST + n);
  }
  still_ns += HARP_SEC(1);
  for (unsigned i = 0; i < 1000; i++) loopback_pass(e);
  assert_int_equal(seen(e), COUNT);
  for (unsigned i = 0; i < COUNT; i++) close(fds[i]);
  harp_engine_close(e);
}

/* ---- recordings ---- */

/* Sends a HELLO on connections of its own, as somebody does who has seen it, and waits for the answers. */
static void replay(struct harp_engine *e, const struct harp_handle *handle,
                   const struct harp_handshake *hello, int fds[REPLAYS]) {
  for (unsigned i = 0; i < REPLAYS; i++) {
    fds[i] = connect_raw(handle);
    for (unsigned passes = 0; passes < 3; passes++) loopback_pass(e);
    assert_int_equal(send(fds[i], hello->out, hello->out_bytes, MSG_NOSIGNAL), hello->out_bytes);
    for (unsigned passes = 0; passes < 3; passes++) loopback_pass(e);
  }
  for (unsigned passes = 0; passes < 100 && e->strangers.count; passes++) loopback_pass(e);
  assert_int_equal(e->strangers.count, 0);
}

/* Nobody can confirm a recorded HELLO. Eight of them took all places of a listener for minutes. */
static void test_one_recorded_hello_takes_one_place(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  struct harp_handshake hello;
  int fds[REPLAYS];
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  hello_begin(&hello, &handle, 7);
  replay(e, &handle, &hello, fds);
  assert_int_equal(harp_listener_count_unaccepted(l), 1);
  check_that_a_peer_gets_in(e, l, &handle);
  for (unsigned i = 0; i < REPLAYS; i++) close(fds[i]);
  harp_listener_close(l);
  harp_engine_close(e);
}

/* Takes the WELCOME on a connection, and confirms it. */
static void confirm(struct harp_engine *e, struct harp_handshake *h, int fd) {
  uint8_t in[HARP_CONTROL_MAX_BYTES];
  assert_int_equal(send(fd, h->out, h->out_bytes, 0), h->out_bytes);
  uint32_t sent = h->out_bytes;
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S;
       h->state == HARP_HANDSHAKE_WAIT_WELCOME && loopback_seconds() < limit;) {
    loopback_pass(e);
    ssize_t n = recv(fd, in, harp_handshake_wants(h), MSG_DONTWAIT);
    if (n > 0) harp_handshake_on_bytes(h, in, (size_t)n);
  }
  assert_int_equal(h->state, HARP_HANDSHAKE_DONE);
  assert_int_equal(send(fd, h->out + sent, h->out_bytes - sent, 0), h->out_bytes - sent);
}

/* The whole handshake of a peer, recorded and sent again after it: neither HELLO nor CONFIRM brings anything.
 */
static void test_a_recorded_handshake_brings_nothing(void **state) {
  (void)state;
  struct harp_engine *e = loopback_open_engine();
  struct harp_listener *l;
  struct harp_handle handle;
  struct harp_handshake first, replayed;
  int fds[REPLAYS];
  assert_int_equal(harp_listener_open(&l, e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  hello_begin(&first, &handle, 7);
  replayed = first;
  int fd = connect_raw(&handle);
  confirm(e, &first, fd);
  struct harp_link *link = NULL;
  for (time_t limit = loopback_seconds() + LOOPBACK_LIMIT_S; !link && loopback_seconds() < limit;) {
    loopback_pass(e);
    link = take_accepted(l);
  }
  assert_non_null(link);
  uint64_t refused = e->counters.handshake_refused;
  memcpy(replayed.out, first.out, first.out_bytes); /* and CONFIRM behind HELLO */
  replayed.out_bytes = first.out_bytes;
  replay(e, &handle, &replayed, fds);
  assert_int_equal(e->counters.handshake_refused, refused + REPLAYS);
  assert_int_equal(e->counters.connections, 1);
  assert_int_equal(harp_listener_count_unaccepted(l), 0);
  assert_null(take_accepted(l));
  for (unsigned i = 0; i < REPLAYS; i++) close(fds[i]);
  close(fd);
  harp_link_destroy(link);
  harp_listener_close(l);
  harp_engine_close(e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_listeners_share_the_bound),
      cmocka_unit_test(test_they_leave_the_last_files),
      cmocka_unit_test(test_they_come_one_by_one),
      cmocka_unit_test(test_one_recorded_hello_takes_one_place),
      cmocka_unit_test(test_a_recorded_handshake_brings_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
