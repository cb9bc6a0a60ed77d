/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions for our own mistakes; input from the network must never reach one.
 * HARP_ASSERT is always compiled in. A failure ends in harp_assert_failed, which prints and aborts:
 * going on with broken invariants would risk wrong bytes in a gradient. */
#ifndef HARP_ASSERT_H
#define HARP_ASSERT_H

#include "base/base.h"

_Noreturn void harp_assert_failed(const char *file, int line, const char *expr);

#define HARP_ASSERT(x) (harp_likely(x) ? (void)0 : harp_assert_failed(__FILE__, __LINE__, #x))

#endif
