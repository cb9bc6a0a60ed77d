/* SPDX-License-Identifier: Apache-2.0 */
/* The receives that a GPU reads while they fill: NCCL's hint, and the variable that takes it away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "nccl/log.c"
#include "nccl/ops.c"
#include "nccl/profile.c"
#include "nccl/result.c"

/* Has the variable read, as each init does: of the tables up to v10, or of the newer ones. Neither goes
 * further than that: the one is disabled, the other has no place for its context. */
static void init_with(const char *value, bool is_old) {
  if (value)
    setenv("NCCL_NET_OPTIONAL_RECV_COMPLETION", value, 1);
  else
    unsetenv("NCCL_NET_OPTIONAL_RECV_COMPLETION");
  setenv("HARP_DISABLE", "1", 1);
  if (is_old)
    assert_int_equal(harp_nccl_open_process(NULL, NULL), HARP_NCCL_SYSTEM_ERROR);
  else
    assert_int_equal(harp_nccl_open(NULL, 0, NULL, NULL), HARP_NCCL_INTERNAL_ERROR);
}

static bool watched(uintptr_t before) {
  void *request = (void *)before;
  return harp_nccl_is_watched(&request);
}

static void test_the_hint_is_what_the_request_holds(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    init_with(i ? "1" : NULL, false);
    assert_true(watched(HARP_NCCL_RECV_COMPLETION_IS_OPTIONAL));
    assert_false(watched(0));
    assert_false(watched((uintptr_t)&state)); /* one that is stale */
  }
}

static void test_without_hints_all_are_watched(void **state) {
  (void)state;
  for (int is_old = 0; is_old < 2; is_old++) {
    init_with("0", is_old);
    assert_true(watched(0));
    assert_true(watched(HARP_NCCL_RECV_COMPLETION_IS_OPTIONAL));
    init_with(NULL, is_old);
    assert_false(watched(0));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_hint_is_what_the_request_holds),
      cmocka_unit_test(test_without_hints_all_are_watched),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
