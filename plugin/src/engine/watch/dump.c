/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/dump.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/watch/stats_write.h"
#include "host/stats_dump.h"

/* All of a process. */
static struct {
  pthread_mutex_t lock;
  char dirs[HARP_STATS_DIRS_MAX][HARP_STATS_DIR_BYTES];
  unsigned dir_count, dump_count;
  bool is_failure_logged;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

void harp_dump_set_dirs(const char dirs[][HARP_STATS_DIR_BYTES], unsigned count) {
  HARP_ASSERT(count <= HARP_STATS_DIRS_MAX);
  pthread_mutex_lock(&process.lock);
  process.dir_count = count;
  process.is_failure_logged = false;
  for (unsigned i = 0; i < count; i++) snprintf(process.dirs[i], sizeof process.dirs[i], "%s", dirs[i]);
  pthread_mutex_unlock(&process.lock);
}

bool harp_dump_has_dirs(void) {
  pthread_mutex_lock(&process.lock);
  bool has = process.dir_count;
  pthread_mutex_unlock(&process.lock);
  return has;
}

/* Writes all that the engine shows as it is now, and takes it into the dump. */
static void write_current(struct harp_stats_dump *d, const struct harp_engine *e, harp_ns now) {
  harp_stats_write_engine(e, now);
  harp_stats_dump_add(d, HARP_STATS_ENGINES, e->stats.entry, 1);
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (const struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));) {
    harp_stats_write_peer(peer, now);
    harp_stats_dump_add(d, HARP_STATS_SESSIONS, peer->stats.entry, 1);
    harp_stats_dump_add(d, HARP_STATS_PATHS, peer->stats.path_first, peer->path_count);
  }
  for (unsigned slot = 0, seen = 0; slot < HARP_ENGINE_LINKS_MAX && seen < e->link_count; slot++) {
    const struct harp_link *link = e->links[slot];
    if (!link) continue;
    seen++;
    harp_stats_write_link(link);
    harp_stats_dump_add(d, HARP_STATS_STREAMS, link->stats_entry, 1);
  }
  harp_stats_dump_add(d, HARP_STATS_ENIS, e->stats.eni_first, e->eni_count);
}

/* Logs where the dump is, or once why there is none. */
static void log_dump(const struct harp_engine *e, int err, const char *dir, const char *name,
                     const char *why) {
  if (!err) {
    HARP_INFO("%s: %s: the last events are in %s/%s; `harpctl trace` shows them", e->name, why, dir, name);
  } else if (!process.is_failure_logged) {
    process.is_failure_logged = true;
    HARP_INFO("%s: no dump of the last events in %s: %s; HARP_DUMP_DIR names another directory, or off",
              e->name, dir, strerror(-err));
  }
}

static void write_dump(const struct harp_engine *e, struct harp_stats_dump *d, const char *why, harp_ns now) {
  char name[HARP_DUMP_NAME_BYTES];
  int err = -1;
  unsigned i = 0;
  pthread_mutex_lock(&process.lock);
  if (process.dump_count < HARP_DUMPS_OF_PROCESS) {
    for (; i < process.dir_count && err; i++)
      err = harp_stats_dump_write(d, e->recorder.trace.ring, why, now, process.dirs[i], name);
    process.dump_count += !err;
    if (i) log_dump(e, err, process.dirs[i - 1], name, why);
  }
  pthread_mutex_unlock(&process.lock);
}

void harp_dump_make(struct harp_peer *peer, const char *why, harp_ns now) {
  struct harp_engine *e = peer->engine;
  struct harp_recorder *r = &e->recorder;
  char text[HARP_PEER_TEXT_BYTES + 64];
  if (!r->trace.ring || !harp_dump_has_dirs()) return;
  if (r->dumped_ns && now - r->dumped_ns < HARP_DUMP_PAUSE_NS) return;
  r->dumped_ns = now;
  HARP_ASSERT(e->stats.file); /* the ring is in it */
  struct harp_stats_dump *d = harp_stats_dump_begin(e->stats.file, e->stats.entry);
  if (!d) return;
  write_current(d, e, now);
  snprintf(text, sizeof text, "%s: %s", why, peer->name);
  write_dump(e, d, text, now);
  harp_stats_dump_drop(d);
}
