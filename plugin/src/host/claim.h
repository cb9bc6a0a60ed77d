/* SPDX-License-Identifier: Apache-2.0 */
/* Cores that engines of this host's processes have to themselves.
 *
 * A claim is a name in the abstract Unix namespace, held by a socket: it goes when its file is closed, also
 * by kill -9, and leaves nothing. Seen by all processes of a network namespace, which those that share an ENI
 * are. Any thread. */
#ifndef HARP_HOST_CLAIM_H
#define HARP_HOST_CLAIM_H

#include "base/base.h"

/* Claims a core. Returns the file that holds the claim, which the caller closes; -EADDRINUSE when an engine
 * has it; another -errno when that can not be found out. */
HARP_MUST_CHECK int harp_claim_core(int core);

#endif
