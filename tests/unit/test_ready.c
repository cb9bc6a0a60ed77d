/* SPDX-License-Identifier: Apache-2.0 */
/* The sources that have something: the kernel is queried when no mark is left, seldom while one is or while
 * all comes from one source, and none waits long for another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/ready.h"

enum { SOCKETS = 100 };

static unsigned queries;

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms) {
  queries++;
  return (int)syscall(SYS_epoll_pwait, fd, events, max, timeout_ms, NULL, 0);
}

static struct harp_io_ready ready;
static harp_ns now_ns;
static struct epoll_event others[HARP_READY_EVENTS];
static int ends[SOCKETS][2];

static int open_all(void **state) {
  (void)state;
  queries = 0;
  now_ns = HARP_SEC(1);
  assert_int_equal(harp_io_ready_open(&ready), 0);
  for (unsigned i = 0; i < SOCKETS; i++) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends[i]), 0);
    assert_int_equal(harp_io_ready_add(&ready, ends[i][0]), (int)i);
  }
  return 0;
}

static int close_all(void **state) {
  (void)state;
  for (unsigned i = 0; i < SOCKETS; i++) close(ends[i][0]), close(ends[i][1]);
  harp_io_ready_close(&ready);
  return 0;
}

/* Begins a pass. Returns how many events of other sources there are. */
static unsigned refresh(void) {
  return harp_io_ready_refresh(&ready, false, now_ns, others);
}

static void bring(unsigned i) {
  assert_int_equal(write(ends[i][1], "x", 1), 1);
}

/* What a driver does: takes from a marked socket, and unmarks one that is empty. */
static bool take(unsigned i) {
  char byte;
  if (!harp_io_ready_marked(&ready, i)) return false;
  if (read(ends[i][0], &byte, 1) == 1) {
    harp_io_ready_received(&ready, harp_io_ready_name(HARP_READY_SOCKET, i));
    return true;
  }
  harp_io_ready_unmark(&ready, i);
  return false;
}

static void test_idle_queries_each_time(void **state) {
  (void)state;
  for (unsigned n = 1; n <= 20; n++) {
    (void)refresh();
    assert_int_equal(queries, n);
  }
  bring(SOCKETS - 1);
  (void)refresh();
  for (unsigned i = 0; i < SOCKETS; i++) assert_int_equal(take(i), i == SOCKETS - 1);
}

static void test_a_busy_socket_is_not_queried(void **state) {
  (void)state;
  enum { CALLS = 10 * HARP_READY_EVERY };
  for (unsigned n = 0; n < CALLS; n++) {
    bring(3);
    (void)refresh();
    assert_true(take(3));
  }
  assert_in_range(queries, 1, CALLS / HARP_READY_EVERY + 1);
}

static void test_a_busy_socket_starves_none(void **state) {
  (void)state;
  for (unsigned phase = 0; phase < HARP_READY_EVERY; phase++) {
    unsigned waited = 0;
    for (unsigned n = 0; n < 2 * HARP_READY_EVERY + phase; n++) {
      bring(0);
      (void)refresh();
      assert_true(take(0));
    }
    bring(70);
    for (bool taken = false; !taken; waited++) {
      bring(0);
      (void)refresh();
      assert_true(take(0));
      taken = take(70);
    }
    assert_in_range(waited, 1, HARP_READY_EVERY);
    assert_false(take(70));
  }
}

/* It is tried, empty or not, until the next look is due; not so two that take turns. */
static void test_the_only_busy_socket_is_tried(void **state) {
  (void)state;
  enum { CALLS = 10 * HARP_READY_EVERY };
  for (unsigned n = 0; n < CALLS; n++) {
    if (n % 3 == 0) bring(3);
    (void)refresh();
    (void)take(3);
  }
  assert_in_range(queries, 1, CALLS / HARP_READY_EVERY + 2);
  while (take(3)) continue;
  bring(4);
  unsigned waited = 0;
  for (bool taken = false; !taken; waited++) {
    (void)refresh();
    assert_false(take(3));
    taken = take(4);
  }
  assert_in_range(waited, 1, HARP_READY_EVERY);
  assert_false(take(4));
  for (unsigned n = 0; n < 20; n++) {
    unsigned i = 3 + n % 2, before = queries;
    bring(i);
    (void)refresh();
    assert_int_equal(queries, before + 1);
    assert_true(take(i));
    assert_false(take(i));
  }
  harp_io_ready_remove(&ready, ends[4][0], 4);
  (void)refresh();
  for (unsigned i = 0; i < SOCKETS; i++) assert_false(take(i));
}

/* More are ready than the kernel returns at once: all get their turn. */
static void test_all_at_once(void **state) {
  (void)state;
  unsigned left = SOCKETS;
  for (unsigned i = 0; i < SOCKETS; i++) bring(i);
  for (unsigned n = 0; left; n++) {
    assert_true(n < 4 * SOCKETS);
    (void)refresh();
    for (unsigned i = 0; i < SOCKETS; i++) left -= take(i);
  }
}

/* A mark is no promise, and one that was taken away too early comes again. */
static void test_marks_are_level_triggered(void **state) {
  (void)state;
  bring(5);
  for (unsigned n = 0; n < 3; n++) {
    (void)refresh();
    assert_true(harp_io_ready_marked(&ready, 5));
    harp_io_ready_unmark(&ready, 5); /* after an error, say */
  }
  assert_int_equal(queries, 3);
  (void)refresh();
  assert_true(take(5));
  assert_false(take(5));
}

/* However seldom passes come. */
static void test_a_look_is_due_after_a_time(void **state) {
  (void)state;
  (void)refresh();
  for (unsigned n = 0; n < 2; n++) bring(0), (void)refresh(), assert_true(take(0));
  while (take(0)) continue;
  bring(1);
  unsigned before = queries;
  now_ns += HARP_READY_LOOK_NS - 1;
  ready.look_ns = now_ns + 1;
  ready.calls = 0;
  (void)refresh();
  assert_int_equal(queries, before);
  (void)take(0);
  now_ns++;
  (void)refresh();
  assert_int_equal(queries, before + 1);
  assert_true(take(1));
}

/* A connection whose events are its owner's, and rings that have none: tried alike. */
static void test_other_sources(void **state) {
  (void)state;
  int pair[2];
  static _Alignas(8) int owner;
  const uint64_t name = harp_io_ready_address_name(HARP_READY_TCP_PATH, &owner);
  const uint64_t rings = harp_io_ready_name(HARP_READY_RINGS, 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  assert_int_equal(harp_io_ready_watch(&ready, pair[0], EPOLLIN | EPOLLET, name), 0);
  assert_int_equal(refresh(), 0);
  bring(2);
  assert_int_equal(write(pair[1], "x", 1), 1);
  assert_int_equal(refresh(), 1);
  assert_int_equal(others[0].data.u64, name);
  assert_int_equal(others[0].events, EPOLLIN);
  assert_ptr_equal(harp_io_ready_address(name), &owner);
  assert_true(take(2));
  assert_false(take(2));
  unsigned before = queries;
  assert_int_equal(harp_io_ready_refresh(&ready, true, now_ns, others), 0); /* it has more */
  assert_int_equal(queries, before);
  assert_int_equal(ready.tried, HARP_READY_NONE);
  for (unsigned n = 0; n < 2; n++) {
    uint64_t source = n ? rings : name;
    for (unsigned i = 0; i < 2; i++) harp_io_ready_received(&ready, source);
    before = queries;
    for (unsigned i = 0; i < 10 * HARP_READY_EVERY; i++) {
      unsigned so_far = queries;
      assert_int_equal(refresh(), 0);
      assert_int_equal(ready.tried, queries == so_far ? source : HARP_READY_NONE);
    }
    if (n)
      assert_in_range(queries - before, 10, 11); /* they cost nothing */
    else
      assert_in_range(queries - before, 10 * HARP_READY_EVERY / 2, 10 * HARP_READY_EVERY / 2 + 1);
  }
  harp_io_ready_received(&ready, name);
  harp_io_ready_received(&ready, name);
  (void)refresh();
  harp_io_ready_forget(&ready, name);
  assert_int_equal(ready.tried, HARP_READY_NONE);
  before = queries;
  (void)refresh();
  assert_int_equal(queries, before + 1);
  harp_io_ready_unwatch(&ready, pair[0]);
  assert_int_equal(write(pair[1], "x", 1), 1);
  assert_int_equal(refresh(), 0);
  close(pair[0]), close(pair[1]);
}

int main(void) {
#define ROW(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)
  const struct CMUnitTest tests[] = {
      ROW(test_idle_queries_each_time),
      ROW(test_a_busy_socket_is_not_queried),
      ROW(test_a_busy_socket_starves_none),
      ROW(test_the_only_busy_socket_is_tried),
      ROW(test_all_at_once),
      ROW(test_marks_are_level_triggered),
      ROW(test_a_look_is_due_after_a_time),
      ROW(test_other_sources),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
