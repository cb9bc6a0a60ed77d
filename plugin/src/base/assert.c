/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where an assertion ends. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void harp_assert_failed(const char *file, int line, const char *expr) {
  fprintf(stderr, "HARP: assertion failed at %s:%d: %s\n", file, line, expr);
  abort();
}
