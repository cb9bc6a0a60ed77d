/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/recorder.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/stats_write.h"
#include "host/stats_dump.h"
#include "proto/path_report.h"

/* All of a process. */
static struct {
  pthread_mutex_t lock;
  char dirs[HARP_STATS_DIRS_MAX][HARP_STATS_DIR_BYTES];
  unsigned dir_count, dump_count;
  bool is_failure_logged;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

void harp_recorder_set_dirs(const char dirs[][HARP_STATS_DIR_BYTES], unsigned count) {
  HARP_ASSERT(count <= HARP_STATS_DIRS_MAX);
  pthread_mutex_lock(&process.lock);
  process.dir_count = count;
  process.is_failure_logged = false;
  for (unsigned i = 0; i < count; i++) snprintf(process.dirs[i], sizeof process.dirs[i], "%s", dirs[i]);
  pthread_mutex_unlock(&process.lock);
}

bool harp_recorder_has_dirs(void) {
  pthread_mutex_lock(&process.lock);
  bool has = process.dir_count;
  pthread_mutex_unlock(&process.lock);
  return has;
}

/* ---- events ---- */

void harp_recorder_join(struct harp_engine *e) {
  e->recorder = (struct harp_recorder){
      .trace = {.peer = HARP_TRACE_NO_PEER, .message_min_bytes = HARP_TRACE_MESSAGE_BYTES}};
  if (e->stats.file) e->recorder.trace.ring = harp_stats_file_ring(e->stats.file, e->stats.entry);
}

static const struct harp_trace *trace_of(const struct harp_engine *e) {
  return e->recorder.trace.ring ? &e->recorder.trace : NULL;
}

void harp_recorder_note(const struct harp_engine *e, harp_ns now, struct harp_trace_entry entry) {
  harp_trace(trace_of(e), now, entry);
}

void harp_recorder_note_peer(const struct harp_peer *peer, harp_ns now, struct harp_trace_entry entry) {
  harp_trace(peer->session.trace, now, entry);
}

void harp_recorder_add_peer(struct harp_peer *peer) {
  if (!trace_of(peer->engine)) return;
  peer->trace = peer->engine->recorder.trace;
  if (peer->stats.entry >= 0) peer->trace.peer = (uint16_t)peer->stats.entry;
  harp_session_set_trace(&peer->session, &peer->trace);
  struct harp_path_report first = harp_path_report_of(&peer->session, 0);
  harp_recorder_note_peer(peer, peer->engine->clock(),
                          (struct harp_trace_entry){.event = HARP_EVENT_SESSION_OPEN,
                                                    .number = first.first_number,
                                                    .a = peer->path_count});
}

void harp_recorder_note_link(const struct harp_link *link, bool is_open) {
  HARP_ASSERT(!link->tx != !link->rx);
  struct harp_trace_entry entry = {
      .event = is_open ? HARP_EVENT_STREAM_OPEN : HARP_EVENT_STREAM_CLOSED,
      .stream = link->tx ? link->tx->id : link->rx->id,
      .a = !link->tx,
      .b = atomic_load_explicit(&link->status, memory_order_relaxed),
  };
  harp_recorder_note_peer(link->peer, link->engine->clock(), entry);
}

void harp_recorder_note_refused(struct harp_engine *e, harp_ns now) {
  struct harp_recorder *r = &e->recorder;
  uint64_t refused = e->counters.tx_busy - r->refused, deferred = e->counters.tx_deferred - r->deferred;
  if (harp_likely(!refused && !deferred)) return;
  r->refused += refused;
  r->deferred += deferred;
  harp_recorder_note(e, now,
                     (struct harp_trace_entry){
                         .event = HARP_EVENT_REFUSED, .a = (uint32_t)refused, .b = (uint32_t)deferred});
}

/* ---- dumps ---- */

/* Writes all that the engine shows as it is now, and takes it into the dump. */
static void gather(struct harp_stats_dump *d, const struct harp_engine *e, harp_ns now) {
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

/* Logs where the dump is, or once why there is none. NCCL keeps the last WARN as the reason of a failure:
 * that of the failure itself comes later. */
static void log_dump(const struct harp_engine *e, int err, const char *dir, const char *name,
                     const char *why) {
  if (!err) {
    HARP_INFO("%s: %s: the last events are in %s/%s; `harpctl trace` shows them", e->name, why, dir, name);
  } else if (!process.is_failure_logged) {
    process.is_failure_logged = true;
    HARP_WARN("%s: no dump of the last events in %s: %s; HARP_DUMP_DIR names another directory, or off",
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

void harp_recorder_dump(struct harp_peer *peer, const char *why, harp_ns now) {
  struct harp_engine *e = peer->engine;
  struct harp_recorder *r = &e->recorder;
  char text[HARP_PEER_TEXT_BYTES + 64];
  if (!r->trace.ring || !harp_recorder_has_dirs()) return;
  if (r->dumped_ns && now - r->dumped_ns < HARP_DUMP_PAUSE_NS) return;
  r->dumped_ns = now;
  HARP_ASSERT(e->stats.file); /* the ring is in it */
  struct harp_stats_dump *d = harp_stats_dump_begin(e->stats.file, e->stats.entry);
  if (!d) return;
  gather(d, e, now);
  snprintf(text, sizeof text, "%s: %s", why, peer->name);
  write_dump(e, d, text, now);
  harp_stats_dump_drop(d);
}
