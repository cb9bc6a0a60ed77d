/* SPDX-License-Identifier: Apache-2.0 */
/* BPF objects on a kernel before 5.11, which charges them against the limit of locked memory. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/xdp/bpf.h"

enum { FD = 99, NEEDED_BYTES = 32 << 10, SOFT_BYTES = 16 << 10 };

static rlim_t needed_bytes; /* to make an object */
static unsigned calls;

static rlim_t soft(void) {
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  return limit.rlim_cur;
}

/* The only system call that io/xdp/bpf.c makes. */
long syscall(long number, ...) {
  assert_int_equal(number, SYS_bpf);
  calls++;
  if (soft() >= needed_bytes) return FD;
  errno = EPERM;
  return -1;
}

static int set_up(void **state) {
  struct rlimit limit;
  (void)state;
  calls = 0;
  assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  assert_true(limit.rlim_max >= NEEDED_BYTES); /* 64 KiB, where an administrator left Linux's default */
  limit.rlim_cur = SOFT_BYTES;
  return setrlimit(RLIMIT_MEMLOCK, &limit);
}

static int make_map(void) {
  return harp_bpf_map_make(HARP_BPF_MAP_HASH, 4, 4, 4096, "test");
}

static void test_a_small_limit_is_raised_for_the_call(void **state) {
  (void)state;
  needed_bytes = NEEDED_BYTES;
  assert_int_equal(make_map(), FD);
  assert_int_equal(calls, 2);
  assert_int_equal(soft(), SOFT_BYTES);
}

static void test_a_sufficient_limit_is_left_alone(void **state) {
  (void)state;
  needed_bytes = SOFT_BYTES;
  assert_int_equal(make_map(), FD);
  assert_int_equal(calls, 1);
}

static void test_the_limit_is_put_back_as_it_was(void **state) {
  struct rlimit limit;
  (void)state;
  needed_bytes = RLIM_INFINITY;
  assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  limit.rlim_max = NEEDED_BYTES; /* the limit is lowered for good */
  limit.rlim_cur = NEEDED_BYTES / 2;
  assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  (void)make_map(); /* with CAP_SYS_RESOURCE it is made */
  assert_int_equal(calls, 2);
  assert_int_equal(soft(), NEEDED_BYTES / 2);
}

int main(void) {
#define T(test) cmocka_unit_test_setup(test, set_up)
  const struct CMUnitTest tests[] = {
      T(test_a_small_limit_is_raised_for_the_call),
      T(test_a_sufficient_limit_is_left_alone),
      T(test_the_limit_is_put_back_as_it_was),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
