/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of an engine: a ring of its last events (base/trace.h), in memory that harpctl can read
 * at any time (host/stats_file.h), and dumps of it where a session fails or NCCL waits for long.
 *
 * Under the engine's lock. A dump is a file of about 1 MiB that is written in the pass; each engine makes one
 * in HARP_DUMP_PAUSE_NS at most, a process HARP_DUMPS_OF_PROCESS. A failure to write is logged once, and
 * never fails a job. */
#ifndef HARP_RECORDER_H
#define HARP_RECORDER_H

#include "base/trace.h"
#include "host/config.h"

struct harp_engine;
struct harp_link;
struct harp_peer;

#define HARP_DUMP_PAUSE_NS HARP_SEC(10)
enum { HARP_DUMPS_OF_PROCESS = 16 };

/* Of an engine. */
struct harp_recorder {
  struct harp_trace trace;    /* of what is no peer's; its ring is NULL where nothing is recorded */
  harp_ns dumped_ns;          /* 0: never */
  uint64_t refused, deferred; /* superframes, when these were looked at last */
};

/* Names the directories for dumps, the first that works is taken; none: there are no dumps. Any thread;
 * copied. */
void harp_recorder_set_dirs(const char dirs[][HARP_STATS_DIR_BYTES], unsigned count);

/* Returns whether dumps are to be made. */
bool harp_recorder_has_dirs(void);

/* Records what an engine with an entry in the statistics does, from now on. */
void harp_recorder_join(struct harp_engine *e);

/* The same for a peer. */
void harp_recorder_add_peer(struct harp_peer *peer);

/* Notes that a link was opened, or is about to end. */
void harp_recorder_note_link(const struct harp_link *link, bool is_open);

/* Records an event of the engine itself, or of a peer. */
void harp_recorder_note(const struct harp_engine *e, harp_ns now, struct harp_trace_entry entry);
void harp_recorder_note_peer(const struct harp_peer *peer, harp_ns now, struct harp_trace_entry entry);

/* Records what the kernel refused in a pass. */
void harp_recorder_note_refused(struct harp_engine *e, harp_ns now);

/* Writes a dump, unless the last one is too recent. `why`: the reason, in a few words. */
void harp_recorder_dump(struct harp_peer *peer, const char *why, harp_ns now);

#endif
