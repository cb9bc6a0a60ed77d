/* SPDX-License-Identifier: Apache-2.0 */
/* Which sockets have something: the kernel is queried when no mark is left, seldom while one is or while all
 * comes from one socket, and no socket waits long for another. */
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
static int ends[SOCKETS][2];

static int open_all(void **state) {
  (void)state;
  queries = 0;
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

static void bring(unsigned i) {
  assert_int_equal(write(ends[i][1], "x", 1), 1);
}

/* What a driver does: takes from a marked socket, and unmarks one that is empty. */
static bool take(unsigned i) {
  char byte;
  if (!harp_io_ready_marked(&ready, i)) return false;
  if (read(ends[i][0], &byte, 1) == 1) {
    harp_io_ready_received(&ready, i);
    return true;
  }
  harp_io_ready_unmark(&ready, i);
  return false;
}

static void test_idle_queries_each_time(void **state) {
  (void)state;
  for (unsigned n = 1; n <= 20; n++) {
    harp_io_ready_refresh(&ready);
    assert_int_equal(queries, n);
  }
  bring(SOCKETS - 1);
  harp_io_ready_refresh(&ready);
  for (unsigned i = 0; i < SOCKETS; i++) assert_int_equal(take(i), i == SOCKETS - 1);
}

static void test_a_busy_socket_is_not_queried(void **state) {
  (void)state;
  enum { CALLS = 10 * HARP_READY_EVERY };
  for (unsigned n = 0; n < CALLS; n++) {
    bring(3);
    harp_io_ready_refresh(&ready);
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
      harp_io_ready_refresh(&ready);
      assert_true(take(0));
    }
    bring(70);
    for (bool taken = false; !taken; waited++) {
      bring(0);
      harp_io_ready_refresh(&ready);
      assert_true(take(0));
      taken = take(70);
    }
    assert_in_range(waited, 1, HARP_READY_EVERY);
    assert_false(take(70));
  }
}

/* It is tried again while it is empty, between questions; not so two that take turns. */
static void test_the_only_busy_socket_is_tried(void **state) {
  (void)state;
  enum { CALLS = 10 * HARP_READY_EVERY };
  for (unsigned n = 0; n < CALLS; n++) {
    if (n % 3 == 0) bring(3);
    harp_io_ready_refresh(&ready);
    (void)take(3);
  }
  assert_in_range(queries, CALLS / HARP_READY_EVERY, CALLS / HARP_READY_EVERY + 4);
  while (take(3)) continue;
  bring(4);
  unsigned waited = 0;
  for (bool taken = false; !taken; waited++) {
    harp_io_ready_refresh(&ready);
    assert_false(take(3));
    taken = take(4);
  }
  assert_in_range(waited, 1, HARP_READY_EVERY);
  assert_false(take(4));
  for (unsigned n = 0; n < 20; n++) {
    unsigned i = 3 + n % 2, before = queries;
    bring(i);
    harp_io_ready_refresh(&ready);
    assert_int_equal(queries, before + 1);
    assert_true(take(i));
    assert_false(take(i));
  }
  harp_io_ready_remove(&ready, ends[4][0], 4);
  harp_io_ready_refresh(&ready);
  for (unsigned i = 0; i < SOCKETS; i++) assert_false(take(i));
}

/* More are ready than the kernel returns at once: all get their turn. */
static void test_all_at_once(void **state) {
  (void)state;
  unsigned left = SOCKETS;
  for (unsigned i = 0; i < SOCKETS; i++) bring(i);
  for (unsigned n = 0; left; n++) {
    assert_true(n < 4 * SOCKETS);
    harp_io_ready_refresh(&ready);
    for (unsigned i = 0; i < SOCKETS; i++) left -= take(i);
  }
}

/* A mark is no promise, and one that was taken away too early comes again. */
static void test_marks_are_level_triggered(void **state) {
  (void)state;
  bring(5);
  for (unsigned n = 0; n < 3; n++) {
    harp_io_ready_refresh(&ready);
    assert_true(harp_io_ready_marked(&ready, 5));
    harp_io_ready_unmark(&ready, 5); /* after an error, say */
  }
  assert_int_equal(queries, 3);
  harp_io_ready_refresh(&ready);
  assert_true(take(5));
  assert_false(take(5));
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
