/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps: copies of a part of the statistics file, with one engine's ring, that stay when the process ends
 * (docs/trace.md). Made under the lock of the engine, whose entries and ring nobody else writes.
 *
 * A directory holds at most HARP_DUMPS_MAX of a user; the oldest is removed for another. */
#ifndef HARP_STATS_DUMP_H
#define HARP_STATS_DUMP_H

#include "host/stats_file.h"

enum { HARP_DUMPS_MAX = 64, HARP_DUMP_NAME_BYTES = 160 };

struct harp_stats_dump;

/* Begins a dump of one engine's entry; NULL: no memory. */
struct harp_stats_dump *harp_stats_dump_begin(const struct harp_stats_file *file, int engine);

/* Takes entries that were taken of the file, none where `first` is -1. */
void harp_stats_dump_add(struct harp_stats_dump *d, enum harp_stats_table table, int first, unsigned count);

/* Writes the dump into a directory, which is made as well if only it is missing, under a name that it fills
 * in. Returns 0, or -errno; nothing is left then. */
int harp_stats_dump_write(struct harp_stats_dump *d, const struct harp_trace_ring *ring, const char *why,
                          harp_ns now, const char *dir, char name[HARP_DUMP_NAME_BYTES]) HARP_MUST_CHECK;

/* Forgets a dump. */
void harp_stats_dump_drop(struct harp_stats_dump *d);

#endif
