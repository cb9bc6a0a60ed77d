/* The engine's own thread, in one of two roles.
 *
 * thread: it does all passes: spins while there is work, then sleeps in ppoll until a packet, a submission or
 * a deadline. inline: NCCL's threads do the passes; it is the watchdog that does one when nobody has for
 * HARP_WATCHDOG_NS, so that acknowledgements and retransmissions never wait for NCCL. While passes keep
 * coming it only naps. */
#ifndef HARP_RUNNER_H
#define HARP_RUNNER_H

#include "engine/engine.h"

/* Starts the thread. Returns 0 or -errno with a sentence in `error`. */
int harp_runner_start(struct harp_engine *e, char *error, size_t error_bytes) HARP_MUST_CHECK;
/* Stops and joins it. */
void harp_runner_stop(struct harp_engine *e);
/* Any thread: ends the thread's sleep if it sleeps. */
void harp_runner_wake_mt(struct harp_engine *e);

#endif
