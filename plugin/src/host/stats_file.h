/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics file of this process (stats_layout.h): creates it, allocates entries, removes it.
 *
 * Any thread may take and give entries. An entry has one writer, which writes between harp_stats_begin and
 * harp_stats_end; these cost a few stores. Disk space is allocated before it is written, so a full disk makes
 * `take` fail and raises no signal. A forked child does not inherit the mapping, and does not remove the
 * file. The file is removed at exit. The file of a killed process is recognised by process id and start time,
 * and removed when a process creates its own in the same directory 10 minutes after the last change or
 * later. */
#ifndef HARP_STATS_FILE_H
#define HARP_STATS_FILE_H

#include <string.h>

#include "base/error.h"
#include "host/config.h"
#include "host/stats_layout.h"

struct harp_stats_file;

/* Creates the file in a directory, which is created if its parent exists; NULL: in anonymous memory, without
 * a name. One per process at a time. Returns 0, or -errno with a sentence in `error`. */
int harp_stats_file_open(struct harp_stats_file **file, const char *dir,
                         struct harp_error *error) HARP_MUST_CHECK;

/* Removes the file and frees it. All entries have been given back. */
void harp_stats_file_close(struct harp_stats_file *file);

/* Returns the mapped header. */
const struct harp_stats_header *harp_stats_file_header(const struct harp_stats_file *file);

/* Clears and returns the trace ring of a taken entry of the engine table; valid until close. NULL: there is
 * no memory for it, which is logged once at INFO. */
struct harp_trace_ring *harp_stats_file_ring(struct harp_stats_file *file, int engine);

/* Stores the time at which an engine has written its entries. */
void harp_stats_file_touch_mt(struct harp_stats_file *file, harp_ns now);

/* Allocates `count` consecutive entries, zeroed but for their heads. Returns the index of the first; -1 when
 * the table or the disk is full, which is logged once at INFO and counted as `missing` until they are given
 * back. */
int harp_stats_take(struct harp_stats_file *file, enum harp_stats_table table, unsigned count);

/* Frees entries. `first` is what take returned, also -1. */
void harp_stats_give(struct harp_stats_file *file, enum harp_stats_table table, int first, unsigned count);

/* Returns an entry that was taken. */
void *harp_stats_entry(const struct harp_stats_file *file, enum harp_stats_table table, int index);

/* Begins and ends a change of an entry by its one writer. */
static inline void harp_stats_begin(struct harp_stats_head *head) {
  uint64_t sequence = atomic_load_explicit(&head->sequence, memory_order_relaxed);
  atomic_store_explicit(&head->sequence, sequence + 1, memory_order_relaxed);
  /* (L) No field changes before the sequence is odd; pairs with the reader's second load of it (M). */
  atomic_thread_fence(memory_order_release);
}
static inline void harp_stats_end(struct harp_stats_head *head) {
  uint64_t sequence = atomic_load_explicit(&head->sequence, memory_order_relaxed);
  atomic_store_explicit(&head->sequence, sequence + 1, memory_order_release); /* (L) */
}

#endif
