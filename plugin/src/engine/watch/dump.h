/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps of what an engine's flight recorder (recorder.h) and its statistics hold, where a session fails or
 * NCCL waits for long.
 *
 * A dump is a file of about 1 MiB that is written in the pass; each engine makes one in HARP_DUMP_PAUSE_NS at
 * most, a process HARP_DUMPS_OF_PROCESS. A failure to write is logged once, and never fails a job. */
#ifndef HARP_DUMP_H
#define HARP_DUMP_H

#include "host/config.h"

struct harp_peer;

#define HARP_DUMP_PAUSE_NS HARP_SEC(10)
enum { HARP_DUMPS_OF_PROCESS = 16 };

/* Names the directories for dumps, the first that works is taken; none: there are no dumps. Any thread;
 * copied. */
void harp_dump_set_dirs(const char dirs[][HARP_STATS_DIR_BYTES], unsigned count);

/* Returns whether dumps are to be made. Any thread. */
bool harp_dump_has_dirs(void);

/* Writes a dump of the peer's engine, unless the last one is too recent. `why`: the reason, in a few words.
 * Under the engine's lock. */
void harp_dump_make(struct harp_peer *peer, const char *why, harp_ns now);

#endif
