/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an engine's passes, with the engine's own thread in one of two roles.
 *
 * thread: it does all passes: spins while there is work, then sleeps in ppoll until a packet, a submission or
 * a deadline. inline: NCCL's threads do the passes when they visit the engine; its own is the watchdog that
 * does one when nobody has visited it for HARP_WATCHDOG_NS, so that acknowledgements and retransmissions
 * never wait for NCCL. While visits keep coming it only naps. */
#ifndef HARP_RUNNER_H
#define HARP_RUNNER_H

#include "base/error.h"
#include "engine/engine.h"

#define HARP_RUNNER_TICK_NS HARP_MS(100)
/* A pass that found nothing stands for so long for the tests of other requests. Longer than the pass, whose
 * empty receive is a system call of some 0.4 us; too short to be seen in a round trip. */
#define HARP_RUNNER_LOOK_NS HARP_US(1)

/* Starts the thread. Returns 0 or -errno with a sentence in `error`. */
int harp_runner_start(struct harp_engine *e, struct harp_error *error) HARP_MUST_CHECK;
/* Stops and joins it; in the thread itself (on_tick) lets it go, which then ends without another look at the
 * engine. */
void harp_runner_stop(struct harp_engine *e);

/* NCCL's thread visits an inline engine to test a request: does a pass, unless somebody else is at it, or one
 * has just found nothing for another request and nothing has been submitted or become due since. */
void harp_runner_inline_pass_mt(struct harp_engine *e, const void *request);
/* The same to send: takes submissions and transmits. */
void harp_runner_inline_transmit_mt(struct harp_engine *e);

/* Returns how long the watchdog naps after a nap of `nap_ns` that saw `visits` of NCCL's threads and found
 * the lock free or busy behind it; 0: they are away, it takes over. */
harp_ns harp_runner_next_nap_ns(harp_ns nap_ns, uint32_t visits, bool busy);

#endif
