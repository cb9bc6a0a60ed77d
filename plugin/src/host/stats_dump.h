/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps: files with a copy of one engine's statistics entries and trace ring, which remain after the process
 * has ended (docs/reference/trace.md).
 *
 * Called under the lock of the engine, the only writer of these entries and the ring. A directory holds at
 * most HARP_DUMPS_MAX dumps of a user; the oldest is removed for a new one. Writing a dump blocks on the
 * disk. */
#ifndef HARP_STATS_DUMP_H
#define HARP_STATS_DUMP_H

#include "host/stats_file.h"

enum { HARP_DUMPS_MAX = 64, HARP_DUMP_NAME_BYTES = 160 };

struct harp_stats_dump;

/* Creates a dump of the statistics file and copies the engine's own entry. `file` stays open until the dump
 * is dropped. NULL: no memory. */
struct harp_stats_dump *harp_stats_dump_begin(const struct harp_stats_file *file, int engine);

/* Copies `count` entries from `first` on, which harp_stats_take has returned; nothing when it is -1. */
void harp_stats_dump_add(struct harp_stats_dump *d, enum harp_stats_table table, int first, unsigned count);

/* Writes the dump to a new file in a directory, which is created if its parent exists, and stores the file's
 * name. Returns 0, or -errno without leaving a file. */
int harp_stats_dump_write(struct harp_stats_dump *d, const struct harp_trace_ring *ring, const char *why,
                          harp_ns now, const char *dir, char name[HARP_DUMP_NAME_BYTES]) HARP_MUST_CHECK;

/* Frees a dump. */
void harp_stats_dump_drop(struct harp_stats_dump *d);

#endif
