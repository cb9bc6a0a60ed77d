/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics of a process: the file, its entries, and which entry is written next. */
#include "engine/watch/stats.h"

#include <pthread.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/watch/dump.h"
#include "engine/watch/stats_write.h"
#include "host/stats_file.h"

enum {
  LOOK_SLOTS = 512,  /* the most peers or links that one update looks at */
  LOOK_ENTRIES = 64, /* the most that it writes, but for one peer's paths */
};
#define LOOK_NS HARP_MS(1)

/* All of a process. */
static struct {
  pthread_mutex_t lock;
  char dirs[HARP_STATS_DIRS_MAX][HARP_STATS_DIR_BYTES];
  unsigned dir_count, user_count;
  struct harp_stats_file *file;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the file ---- */

void harp_stats_set_dirs(const char dirs[][HARP_STATS_DIR_BYTES], unsigned count) {
  HARP_ASSERT(count <= HARP_STATS_DIRS_MAX);
  pthread_mutex_lock(&process.lock);
  process.dir_count = count;
  for (unsigned i = 0; i < count; i++) snprintf(process.dirs[i], sizeof process.dirs[i], "%s", dirs[i]);
  pthread_mutex_unlock(&process.lock);
}

/* Makes the file where it can be made; for dumps alone, where it has no name. Statistics are never a reason
 * for a job to fail. */
static void open_file(void) {
  struct harp_error error;
  unsigned i = 0;
  while (i < process.dir_count && harp_stats_file_open(&process.file, process.dirs[i], &error)) i++;
  if (i && i == process.dir_count)
    HARP_INFO("%s; there are no statistics of this process; HARP_STATS_DIR names another directory, or off",
              error.text);
  if (i == process.dir_count && harp_dump_has_dirs() && harp_stats_file_open(&process.file, NULL, &error))
    HARP_INFO("%s; there will be no dumps", error.text);
}

static struct harp_stats_file *use_file(void) {
  pthread_mutex_lock(&process.lock);
  if (!process.user_count++) open_file();
  struct harp_stats_file *file = process.file;
  pthread_mutex_unlock(&process.lock);
  return file;
}

static void leave_file(void) {
  pthread_mutex_lock(&process.lock);
  HARP_ASSERT(process.user_count);
  if (!--process.user_count && process.file) {
    harp_stats_file_close(process.file);
    process.file = NULL;
  }
  pthread_mutex_unlock(&process.lock);
}

/* ---- entries ---- */

static void give_engine(struct harp_engine *e) {
  harp_stats_give(e->stats.file, HARP_STATS_ENIS, e->stats.eni_first, e->eni_count);
  harp_stats_give(e->stats.file, HARP_STATS_ENGINES, e->stats.entry, 1);
}

void harp_stats_join(struct harp_engine *e) {
  struct harp_stats *s = &e->stats;
  HARP_ASSERT(!s->is_joined);
  *s = (struct harp_stats){.is_joined = true, .file = use_file()};
  if (!s->file) return;
  s->entry = harp_stats_take(s->file, HARP_STATS_ENGINES, 1);
  s->eni_first = harp_stats_take(s->file, HARP_STATS_ENIS, e->eni_count);
  if (s->entry >= 0 && s->eni_first >= 0) {
    harp_stats_write_engine(e, e->clock());
  } else { /* nothing of an engine is shown without it */
    give_engine(e);
    s->file = NULL;
  }
  harp_recorder_join(e);
}

void harp_stats_leave(struct harp_engine *e) {
  struct harp_stats *s = &e->stats;
  if (!s->is_joined) return;
  if (s->file) give_engine(e);
  leave_file();
  *s = (struct harp_stats){0};
  e->recorder = (struct harp_recorder){0};
}

void harp_stats_add_peer(struct harp_peer *peer, const struct harp_peer_config *config) {
  struct harp_stats_file *file = peer->engine->stats.file;
  peer->stats = (struct harp_peer_stats){.entry = -1, .path_first = -1};
  if (!file) return;
  peer->stats.entry = harp_stats_take(file, HARP_STATS_SESSIONS, 1);
  peer->stats.path_first = harp_stats_take(file, HARP_STATS_PATHS, peer->path_count);
  harp_stats_name_peer(peer, config);
  harp_stats_write_peer(peer, peer->engine->clock());
}

void harp_stats_remove_peer(struct harp_peer *peer) {
  struct harp_stats_file *file = peer->engine->stats.file;
  if (!file) return;
  harp_stats_write_peer(peer, peer->engine->clock()); /* its interfaces count to the end */
  harp_stats_give(file, HARP_STATS_PATHS, peer->stats.path_first, peer->path_count);
  harp_stats_give(file, HARP_STATS_SESSIONS, peer->stats.entry, 1);
}

void harp_stats_on_address(const struct harp_peer *peer) {
  if (peer->engine->stats.file) harp_stats_name_paths(peer);
}

void harp_stats_add_link(struct harp_link *link) {
  struct harp_stats_file *file = link->engine->stats.file;
  if (!file) return;
  link->stats_entry = harp_stats_take(file, HARP_STATS_STREAMS, 1);
  harp_stats_write_link(link);
}

void harp_stats_remove_link(struct harp_link *link) {
  struct harp_stats_file *file = link->engine->stats.file;
  if (file) harp_stats_give(file, HARP_STATS_STREAMS, link->stats_entry, 1);
}

/* ---- writing ---- */

/* Writes peers from where the round is on, as many as `left` entries take; returns how many are left. */
static unsigned write_peers(struct harp_engine *e, unsigned left, harp_ns now) {
  struct harp_stats *s = &e->stats;
  uint32_t slot = s->peer_next, end = HARP_MIN(slot + LOOK_SLOTS, (uint32_t)HARP_ENGINE_PEERS_MAX);
  for (; slot < end && left && s->peers_seen < e->peer_count; slot++) {
    const struct harp_peer *peer = e->peers[slot];
    if (!peer) continue;
    s->peers_seen++;
    HARP_ASSERT(s->peers_seen <= e->peer_count);
    if (peer == HARP_SLOT_RESERVED) continue;
    harp_stats_write_peer(peer, now);
    left -= HARP_MIN(left, 1 + peer->path_count);
  }
  s->peer_next = s->peers_seen < e->peer_count ? slot : HARP_ENGINE_PEERS_MAX;
  return left;
}

static void write_links(struct harp_engine *e, unsigned left) {
  struct harp_stats *s = &e->stats;
  uint32_t slot = s->link_next, end = HARP_MIN(slot + LOOK_SLOTS, (uint32_t)HARP_ENGINE_LINKS_MAX);
  for (; slot < end && left && s->links_seen < e->link_count; slot++) {
    const struct harp_link *link = e->links[slot];
    if (!link) continue;
    s->links_seen++;
    harp_stats_write_link(link);
    left--;
  }
  s->link_next = s->links_seen < e->link_count ? slot : HARP_ENGINE_LINKS_MAX;
}

static void begin_round(struct harp_engine *e, harp_ns now) {
  e->stats.round_ns = now + HARP_STATS_ROUND_NS;
  e->stats.peer_next = e->stats.link_next = e->stats.peers_seen = e->stats.links_seen = 0;
  harp_stats_write_engine(e, now);
  harp_stats_file_touch_mt(e->stats.file, now);
}

void harp_stats_update(struct harp_engine *e, harp_ns now) {
  if (!e->stats.file || now < e->stats.look_ns) return;
  e->stats.look_ns = now + LOOK_NS;
  if (e->stats.link_next >= HARP_ENGINE_LINKS_MAX) {
    e->stats.look_ns = e->stats.round_ns;
    if (now < e->stats.round_ns) return;
    begin_round(e, now);
  }
  unsigned left = write_peers(e, LOOK_ENTRIES, now);
  if (e->stats.peer_next >= HARP_ENGINE_PEERS_MAX && left) write_links(e, left);
}
