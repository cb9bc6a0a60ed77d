/* SPDX-License-Identifier: Apache-2.0 */
/* What the log says when the host or the process is short of something. */
#include "base/shortage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

/* What the kernel bounds: the text has the limit, the number that it is and the setting. */
static void test_limits_of_the_host_are_named(void **state) {
  static const struct {
    int error;
    const char *number, *setting;
  } cases[] = {
      {ENOMEM, "7777 MiB", "ulimit -v"},
      {ENOMEM, " MiB of at most ", "memory.max"},
      {HARP_ETHREADS, "50000", "ulimit -u"},
      {HARP_ETHREADS, "at most ", "pids.max"},
      {EADDRINUSE, " of the range ", "net.ipv4.ip_local_port_range"},
      {ENOBUFS, "TCP has ", "net.ipv4.tcp_mem"},
      {ENOBUFS, " pages ", "net.ipv4.tcp_mem"},
      {ENFILE, "all ", "fs.file-max"},
      {HARP_EWATCHES, "all ", "fs.epoll.max_user_watches"},
      {HARP_ELOCKED, "4321 KiB", "ulimit -l"},
      {HARP_EPORTS, " of the range ", "net.ipv4.ip_local_port_range"},
      {HARP_EFEWFILES, "three quarters of the ", "ulimit -n"},
      {EMFILE, "the process has all ", "ulimit -n"},
  };
  static const rlim_t limits[] = {7777ull << 20, 50000, 4321 << 10};
  static const int resources[] = {RLIMIT_AS, RLIMIT_NPROC, RLIMIT_MEMLOCK};
  struct rlimit before[3];
  char text[HARP_SHORTAGE_TEXT_BYTES];
  (void)state;
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(getrlimit(resources[i], &before[i]), 0);
    struct rlimit now = {limits[i], before[i].rlim_max};
    assert_int_equal(setrlimit(resources[i], &now), 0);
  }
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(cases); i++) {
    harp_shortage_text(cases[i].error, text);
    assert_non_null(strstr(text, cases[i].number));
    assert_non_null(strstr(text, cases[i].setting));
    assert_true(strlen(text) + 1 < sizeof text); /* not cut off */
  }
  for (unsigned i = 0; i < 3; i++) assert_int_equal(setrlimit(resources[i], &before[i]), 0);
}

/* Every text begins a clause that an error ends with. */
static void test_an_error_says_what_and_why(void **state) {
  struct harp_error error;
  (void)state;
  assert_int_equal(harp_shortage_set(&error, -EMFILE, "cannot open %s", "it"), -EMFILE);
  assert_ptr_equal(strstr(error.text, "cannot open it: the process has all "), error.text);
  assert_int_equal(harp_shortage_set(&error, -EISDIR, "cannot open it"), -EISDIR);
  assert_string_equal(error.text, "cannot open it: Is a directory");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_limits_of_the_host_are_named),
      cmocka_unit_test(test_an_error_says_what_and_why),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
