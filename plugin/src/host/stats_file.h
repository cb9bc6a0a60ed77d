/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics file of this process (stats_layout.h): made, given entries, grown, removed.
 *
 * Any thread may take and give entries; each is then written by its one owner, between harp_stats_begin and
 * harp_stats_end, which cost a few stores. Disk space is allocated before it is written to, so a full disk is
 * an error of `take`, never a signal. A forked child neither has the mapping nor removes the file. At exit
 * the file is removed; one that is left by a killed process is known by its process id and start time, and
 * removed 10 minutes after its last change, when another process makes a file beside it. */
#ifndef HARP_STATS_FILE_H
#define HARP_STATS_FILE_H

#include <string.h>

#include "base/error.h"
#include "host/config.h"
#include "host/stats_layout.h"

struct harp_stats_file;

/* Makes the file in a directory, which is made as well if only it is missing; without a name, in memory that
 * no other process finds, where the directory is NULL. One in a process at a time. Returns 0, or -errno with
 * a sentence in `error`. */
int harp_stats_file_open(struct harp_stats_file **file, const char *dir,
                         struct harp_error *error) HARP_MUST_CHECK;

/* Removes the file. No entry may be written any more. */
void harp_stats_file_close(struct harp_stats_file *file);

/* Returns the file's path; valid until close. */
const char *harp_stats_file_path(const struct harp_stats_file *file);

/* Returns the mapped header. */
const struct harp_stats_header *harp_stats_file_header(const struct harp_stats_file *file);

/* Empties and returns the ring of an entry of the table engine that was taken; NULL: there is no memory for
 * it, which is said once at INFO. It is there until close. */
struct harp_trace_ring *harp_stats_file_ring(struct harp_stats_file *file, int engine);

/* Notes that an engine has written its entries. */
void harp_stats_file_touch_mt(struct harp_stats_file *file, harp_ns now);

/* Takes `count` consecutive entries, zeroed but for their heads. Returns the index of the first; -1 when they
 * do not fit, which is said once at INFO, and counted until they are given back. */
int harp_stats_take(struct harp_stats_file *file, enum harp_stats_table table, unsigned count);

/* Gives entries back. `first` is what take returned, -1 included. */
void harp_stats_give(struct harp_stats_file *file, enum harp_stats_table table, int first, unsigned count);

/* Returns an entry that was taken. */
void *harp_stats_entry(const struct harp_stats_file *file, enum harp_stats_table table, int index);

/* Begins and ends a change of an entry by its one writer. */
static inline void harp_stats_begin(struct harp_stats_head *head) {
  uint64_t sequence = atomic_load_explicit(&head->sequence, memory_order_relaxed);
  atomic_store_explicit(&head->sequence, sequence + 1, memory_order_relaxed);
  /* (L) No field is changed before the sequence is odd; pairs with a reader that looks at it again (M). */
  atomic_thread_fence(memory_order_release);
}
static inline void harp_stats_end(struct harp_stats_head *head) {
  uint64_t sequence = atomic_load_explicit(&head->sequence, memory_order_relaxed);
  atomic_store_explicit(&head->sequence, sequence + 1, memory_order_release); /* (L) */
}

#endif
