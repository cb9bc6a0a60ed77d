/* SPDX-License-Identifier: Apache-2.0 */
/* The small ones of host/: clock, cpu, random, fork. */
#include <pthread.h>

#include "base/clock.h"
#include "base/files.h"
#include "host/cpu.h"
#include "host/random.h"
#include "lib/cores.h"
#include "unit/host_deny.h"
#include "unit/host_tree.h"

static void test_clock_never_goes_back(void **state) {
  (void)state;
  harp_ns last = harp_clock_ns();
  assert_true(last > 0);
  for (int i = 0; i < 1000; i++) {
    harp_ns now = harp_clock_ns();
    assert_true(now >= last);
    last = now;
  }
}

/* ---- cpu ---- */

static void *pin_to_one(void *core) {
  uint16_t cores[HARP_CPU_MAX];
  if (harp_cpu_pin_self(core, 1) < 0) return (void *)1;
  if (cores_allowed(cores, HARP_CPU_MAX) != 1 || cores[0] != *(uint16_t *)core) return (void *)2;
  return NULL;
}

static void test_cpu(void **state) {
  (void)state;
  uint16_t cores[HARP_CPU_MAX], again[HARP_CPU_MAX];
  unsigned count = cores_allowed(cores, HARP_CPU_MAX);
  assert_true(count >= 1);

  pthread_t thread;
  void *failed = (void *)3;
  assert_int_equal(pthread_create(&thread, NULL, pin_to_one, &cores[count - 1]), 0);
  assert_int_equal(pthread_join(thread, &failed), 0);
  assert_null(failed);
  assert_int_equal(cores_allowed(again, HARP_CPU_MAX), count); /* only that thread */

  assert_int_equal(harp_cpu_pin_self(cores, 0), -EINVAL);
  assert_int_equal(harp_cpu_pin_self((uint16_t[]){HARP_CPU_MAX - 1}, 1), -EINVAL);
  assert_int_equal(harp_cpu_pin_self((uint16_t[]){HARP_CPU_MAX}, 1), -EINVAL);
}

/* ---- random ---- */

static void test_random(void **state) {
  (void)state;
  uint8_t a[64] = {0}, b[64] = {0}, none = 7;
  assert_int_equal(harp_random_fill(a, sizeof a), 0);
  assert_int_equal(harp_random_fill(b, sizeof b), 0);
  assert_memory_not_equal(a, b, sizeof a);
  assert_int_equal(harp_random_fill(&none, 0), 0);
  assert_int_equal(none, 7);
}

static int random_without_getrandom(void) {
  uint8_t a[64] = {0}, b[64] = {0};
  if (!deny_call(SYS_getrandom, 2, 0, 0, ENOSYS)) return CHILD_NO_FILTER;
  if (harp_random_fill(a, sizeof a) < 0 || harp_random_fill(b, sizeof b) < 0) return 1;
  return memcmp(a, b, sizeof a) == 0 ? 2 : 0;
}

static int random_refused(void) {
  uint8_t bytes[64], zero[64] = {0};
  memset(bytes, 0xff, sizeof bytes);
  if (!deny_call(SYS_getrandom, 2, 0, 0, EPERM)) return CHILD_NO_FILTER;
  if (harp_random_fill(bytes, sizeof bytes) != -EPERM) return 1;
  return memcmp(bytes, zero, sizeof zero) ? 2 : 0;
}

/* ---- fork ---- */

static int query_child(void) {
  return harp_files_in_child();
}

static int init_and_query_child(void) {
  harp_files_mark_children();
  return harp_files_in_child();
}

static int query_grandchild(void) {
  return in_child(query_child);
}

/* The whole life, in a process of its own: nothing before init, a child and its child after it. Returns 0 or
 * the step that failed. */
static int fork_life(void) {
  if (harp_files_in_child()) return 1;
  if (in_child(query_child) != 0) return 2;
  if (in_child(init_and_query_child) != 0) return 3; /* nobody has: so the child may for itself */
  harp_files_mark_children();
  harp_files_mark_children();
  if (harp_files_in_child()) return 4;
  if (in_child(query_child) != 1) return 5;
  if (in_child(init_and_query_child) != 1) return 6; /* a child stays one, whatever it calls */
  if (in_child(query_grandchild) != 1) return 7;
  return harp_files_in_child() ? 8 : 0;
}

static void test_fork(void **state) {
  (void)state;
  assert_int_equal(in_child(fork_life), 0);
}

static void assert_child_succeeds(int (*body)(void)) {
  int status = in_child(body);
  if (status == CHILD_NO_FILTER) {
    print_message("no system call filters here\n");
    skip();
  }
  assert_int_equal(status, 0);
}

static void test_random_without_getrandom(void **state) {
  (void)state;
  assert_child_succeeds(random_without_getrandom);
}

static void test_random_fails_closed(void **state) {
  (void)state;
  assert_child_succeeds(random_refused);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_clock_never_goes_back),
      cmocka_unit_test(test_cpu),
      cmocka_unit_test(test_random),
      cmocka_unit_test(test_random_without_getrandom),
      cmocka_unit_test(test_random_fails_closed),
      cmocka_unit_test(test_fork),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
