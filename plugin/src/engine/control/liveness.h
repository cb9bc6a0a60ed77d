/* SPDX-License-Identifier: Apache-2.0 */
/* Returns whether a peer is alive: fails it when its silence, its sender's stall, or what waits for its
 * control connection shows that it is not. A process that is only paused is waited for.
 *
 * Called by the pass, under the engine's lock. */
#ifndef HARP_LIVENESS_H
#define HARP_LIVENESS_H

#include "base/base.h"

struct harp_engine;
struct harp_peer;

/* Decides what a stalled sender, a false acknowledgement, and messages that did not fit the control
 * connection mean for the peer, and fails it if need be. Called at each visit of the pass. */
void harp_liveness_on_visit(struct harp_peer *peer, harp_ns now);

/* Asks the hosts of quiet peers whether their processes live, and fails those that have ended (inquiry.h). */
void harp_liveness_inquire(struct harp_engine *e, harp_ns now);

/* Fails a peer when NCCL has waited for it for the peer timeout, nothing has come from it meanwhile, and its
 * control connection is lost or as silent. */
void harp_liveness_on_silence(struct harp_peer *peer, harp_ns now);

#endif
