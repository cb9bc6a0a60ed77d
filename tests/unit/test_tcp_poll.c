/* SPDX-License-Identifier: Apache-2.0 */
/* How often an engine looks whether something has come over TCP. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/receive.h"
#include "engine/tcp/tcp.h"

#define BEGIN_NS  HARP_SEC(10)
#define PERIOD_NS HARP_MS(1)
#define STEP_NS   HARP_US(1)
enum { STEPS = (int)(PERIOD_NS / STEP_NS) };

static unsigned polls;

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms) {
  (void)fd, (void)events, (void)max, (void)timeout_ms;
  polls++;
  return 0;
}

static struct harp_engine *e;

static int init(void **state) {
  (void)state;
  polls = 0;
  e = calloc(1, sizeof *e);
  assert_non_null(e);
  e->tcp = calloc(1, sizeof *e->tcp);
  assert_non_null(e->tcp);
  e->tcp->brought_ns = BEGIN_NS;
  return 0;
}

static int fini(void **state) {
  (void)state;
  free(e->tcp);
  free(e);
  return 0;
}

/* Does a pass in each STEP_NS for PERIOD_NS, when nothing has come for `idle_ns`. Returns how many looked. */
static unsigned polls_after(harp_ns idle_ns) {
  polls = 0;
  for (harp_ns at = 0; at < PERIOD_NS; at += STEP_NS) {
    harp_ns now = BEGIN_NS + idle_ns + at;
    assert_int_equal(harp_receive_records(e, &now), 0);
  }
  return polls;
}

static void test_each_pass_looks_while_something_comes(void **state) {
  (void)state;
  assert_int_equal(polls_after(0), STEPS);
}

static void test_while_nothing_comes_few_look(void **state) {
  (void)state;
  assert_in_range(polls_after(HARP_MS(2)), 48, 50);
  assert_in_range(polls_after(HARP_SEC(10)), 48, 50);
}

static void test_each_pass_looks_where_there_are_no_datagrams(void **state) {
  (void)state;
  e->tcp->is_alone = true;
  assert_int_equal(polls_after(HARP_SEC(10)), STEPS);
}

#define T(test) cmocka_unit_test_setup_teardown(test, init, fini)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(test_each_pass_looks_while_something_comes),
      T(test_while_nothing_comes_few_look),
      T(test_each_pass_looks_where_there_are_no_datagrams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
