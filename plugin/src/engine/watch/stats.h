/* SPDX-License-Identifier: Apache-2.0 */
/* Shows an engine in the process's statistics file (host/stats_file.h): itself, its interfaces, its
 * sessions with their paths, and its streams.
 *
 * Counters are kept where they arise; the pass copies them into the file, a bounded number of entries at a
 * time, each some times a second. So the data path knows nothing of the file. Without a file, or without room
 * in it, nothing is copied; all else works as before. The file is made with the first engine of the process
 * and removed with the last. */
#ifndef HARP_STATS_H
#define HARP_STATS_H

#include "host/config.h"

struct harp_engine;
struct harp_peer;
struct harp_link;
struct harp_stats_file;
struct harp_peer_config;

/* Every entry is written so often while the engine has passes, the last time when it is given back. */
#define HARP_STATS_ROUND_NS HARP_MS(250)

/* The statistics' part of an engine. */
struct harp_stats {
  bool is_joined;               /* it counts as a user of the file, whether there is one or not */
  struct harp_stats_file *file; /* NULL: it shows nothing */
  int entry, eni_first;
  harp_ns look_ns;                 /* nothing is written before this time */
  harp_ns round_ns;                /* the time when the next round begins */
  uint32_t peer_next, link_next;   /* the slots that this round comes to next; past the end: it is over */
  uint32_t peers_seen, links_seen; /* the peers and links seen in this round: when all are, it is over, too */
};

/* The statistics' part of a peer. */
struct harp_peer_stats {
  int entry, path_first; /* -1: there is no room for it */
  uint64_t sent_bytes, sent_messages, received_bytes, received_messages;
};

/* Names the directories for the file, the first that works is taken; none: there is no file. Any thread;
 * copied. Changes nothing while there is one. */
void harp_stats_set_dirs(const char dirs[][HARP_STATS_DIR_BYTES], unsigned count);

/* Takes entries for an engine with its drivers; makes the file if there is none yet. */
void harp_stats_join(struct harp_engine *e);
/* Frees the entries. */
void harp_stats_leave(struct harp_engine *e);

/* The same for peers and links; under the engine's lock. */
void harp_stats_add_peer(struct harp_peer *peer, const struct harp_peer_config *config);
void harp_stats_remove_peer(struct harp_peer *peer);
/* An interface of the peer's has an address now. */
void harp_stats_on_address(const struct harp_peer *peer);
void harp_stats_add_link(struct harp_link *link);
void harp_stats_remove_link(struct harp_link *link);

/* Writes what is due, in a pass. */
void harp_stats_update(struct harp_engine *e, harp_ns now);

#endif
