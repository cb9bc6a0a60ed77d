/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions against programming errors; input from the network must never fail one. Always compiled in. Any
 * thread. */
#ifndef HARP_ASSERT_H
#define HARP_ASSERT_H

#include "base/base.h"

/* Prints the expression and aborts: to continue with a broken invariant would risk wrong bytes in a
 * gradient. */
_Noreturn void harp_assert_failed(const char *file, int line, const char *expr);

#define HARP_ASSERT(x) (harp_likely(x) ? (void)0 : harp_assert_failed(__FILE__, __LINE__, #x))

#endif
