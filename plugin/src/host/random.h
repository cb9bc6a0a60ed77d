/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes from the kernel, for secrets, tokens and seeds.
 *
 * No state; any thread. Called at set-up, never on the data path. */
#ifndef HARP_HOST_RANDOM_H
#define HARP_HOST_RANDOM_H

#include "base/base.h"

/* Fills `buffer` with `bytes` unpredictable bytes. Returns 0 or -errno; after an error the buffer is zeroed
 * and must not be used: a predictable secret is worse than no connection. */
HARP_MUST_CHECK int harp_random_fill(void *buffer, size_t bytes);

#endif
