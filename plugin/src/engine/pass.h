/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of an engine: everything that moves, moves here.
 *
 *   reap        frames that the driver has sent
 *   look        which sources have something; what came on control connections (look.h)
 *   receive     superframes from the driver (receive.h), records from tcp paths (tcp.h)
 *   submissions what NCCL's threads submitted
 *   transmit    for the active peers in turn: timers, data, acknowledgements (transmit.h)
 *   control     now and then: what is due by time alone
 *
 * Each stage has a budget, so a pass is bounded and no peer starves another. The mailbox needs none: each
 * link has at most HARP_REQUESTS_MAX submissions, and NCCL's threads submit no more before some are done. */
#ifndef HARP_PASS_H
#define HARP_PASS_H

#include "base/base.h"

struct harp_engine;

/* Does one bounded pass. The caller holds the lock. Returns how much it did: 0 means that nothing moved. */
unsigned harp_engine_pass(struct harp_engine *e);
/* Takes submissions and transmits, without looking for input: the short way for isend. */
unsigned harp_engine_pass_transmit(struct harp_engine *e);
/* Returns when the next pass is due by time alone. */
harp_ns harp_engine_deadline_ns(const struct harp_engine *e);

#endif
