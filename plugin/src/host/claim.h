/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of cores by the engines of a host's processes.
 *
 * A claim is a socket bound to a name in the abstract Unix namespace, so the kernel releases it when the
 * socket is closed, also by kill -9. Visible to all processes of the network namespace, which includes all
 * that share an ENI. Each core has names of several levels: an engine of its own claims level 0, a second one
 * that shares the core level 1, and so on, so that the lowest free level counts the claims. No state; any
 * thread. */
#ifndef HARP_HOST_CLAIM_H
#define HARP_HOST_CLAIM_H

#include "base/base.h"

enum { HARP_CLAIM_LEVELS = 64 };

/* Claims a level of a core. Returns the descriptor that holds the claim, which the caller closes;
 * -EADDRINUSE when another engine has claimed it; another -errno when the attempt failed. */
HARP_MUST_CHECK int harp_claim_core(int core, unsigned level);

#endif
