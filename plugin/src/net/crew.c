/* SPDX-License-Identifier: Apache-2.0 */
#include "net/crew.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/drain.h"
#include "engine/runner.h"
#include "host/claim.h"
#include "host/cpu.h"
#include "host/node.h"
#include "net/near.h"

enum { ERROR_BYTES = 640 /* a sentence for each rung */ };

/* ---- cores ---- */

static bool has_thread(const struct harp_engine_enis *enis) {
  for (unsigned i = 0; i < enis->count; i++)
    if (enis->at[i]->mode == HARP_ENGINE_THREAD) return true;
  return false;
}

/* Gathers the cores of all ENIs, each once. Returns how many. */
static unsigned gather_cores(const struct harp_engine_enis *enis, uint16_t cores[HARP_CPU_MAX]) {
  unsigned count = 0;
  for (unsigned i = 0; i < enis->count; i++) {
    for (unsigned k = 0; k < enis->at[i]->cores.count; k++) {
      unsigned at = 0;
      while (at < count && cores[at] != enis->at[i]->cores.at[k]) at++;
      cores[at] = enis->at[i]->cores.at[k];
      if (at == count) count++;
    }
  }
  return count;
}

static const char *list_cores(const uint16_t *cores, unsigned count, char *text, size_t bytes) {
  size_t used = 0;
  text[0] = 0;
  for (unsigned i = 0; i < count && used < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%u", i ? "," : "", cores[i]);
  return text;
}

/* Keeps the cores that this process can have. */
static unsigned keep_usable(const char *ifname, uint16_t *cores, unsigned count) {
  char text[256];
  unsigned usable = harp_cpu_sort_usable(cores, count);
  if (usable == count) return count;
  list_cores(cores + usable, count - usable, text, sizeof text);
  if (usable)
    HARP_INFO(
        "%s: of the configured cores %s are not available to this process; it has an engine for each of "
        "the other %u",
        ifname, text, usable);
  else
    HARP_INFO("%s: the configured cores (%s) are not available to this process; its one engine runs on any",
              ifname, text);
  return usable;
}

/* Says how many engines there are to be, and on which cores. Processes that have the same configuration begin
 * with different cores, by their numbers. */
static void choose_cores(struct harp_crew *c, const struct harp_engine_enis *enis) {
  uint16_t cores[HARP_CPU_MAX];
  const char *ifname = enis->at[0]->ifname;
  unsigned count = has_thread(enis) ? gather_cores(enis, cores) : 0;
  if (count) count = keep_usable(ifname, cores, count);
  if (count > HARP_DEVICE_ENGINES_MAX) {
    HARP_INFO("%s: %u cores are configured; the first %d of them have an engine each", ifname, count,
              HARP_DEVICE_ENGINES_MAX);
    count = HARP_DEVICE_ENGINES_MAX;
  }
  c->count = HARP_MAX(count, 1u);
  for (unsigned i = 0; i < count; i++) c->cores[i] = cores[(i + (unsigned)getpid()) % count];
  if (!count) c->cores[0] = -1;
}

/* ---- memory ---- */

/* Finds the node of each core. */
static void find_nodes(struct harp_crew *c, const struct harp_engine_enis *enis) {
  for (unsigned i = 0; i < c->count; i++) {
    c->nodes[i] = harp_node_of_core(c->sysfs_root ? c->sysfs_root : "/sys", c->cores[i]);
    if (c->nodes[i] < 0) c->nodes[i] = enis->at[0]->numa;
  }
}

/* Returns how many of the first cores are on the node of one. */
static unsigned count_on_node(const struct harp_crew *c, unsigned first_count, unsigned core_at) {
  unsigned count = 0;
  for (unsigned i = 0; i < first_count; i++) count += c->nodes[i] == c->nodes[core_at];
  return count;
}

/* Returns the memory of the node that a core is on. */
static struct harp_arena *arena_of(struct harp_crew *c, unsigned core_at) {
  unsigned at = 0;
  for (unsigned i = 0; c->nodes[i] != c->nodes[core_at]; i++) at += count_on_node(c, i, i) == 0;
  return &c->arenas[at];
}

static void close_arenas(struct harp_crew *c) {
  for (unsigned i = 0; i < HARP_DEVICE_ENGINES_MAX; i++) harp_arena_close(&c->arenas[i]);
}

/* Gets the memory of all engines, node by node, since few large pages serve many. */
static bool open_arenas(struct harp_crew *c, const struct harp_engine_enis *enis) {
  size_t each_bytes = harp_engine_memory_bytes(enis, c->count);
  for (unsigned i = 0; i < c->count; i++) {
    struct harp_arena *arena = arena_of(c, i);
    size_t bytes = each_bytes * count_on_node(c, c->count, i);
    if (arena->base) continue;
    if (!harp_arena_open(arena, bytes, enis->at[0]->page_size, c->nodes[i])) continue;
    HARP_WARN("%s: cannot get %zu MiB of memory: %s%s", enis->at[0]->ifname, bytes >> 20, arena->note,
              enis->at[0]->memory_bytes ? "; set a smaller `bytes` in the conf file" : "");
    close_arenas(c);
    return false;
  }
  return true;
}

/* ---- opening ---- */

/* Settles what all engines share: the order of the ENIs, cores, and memory for all of them. */
static bool assemble(struct harp_crew *c, const struct harp_engine_enis *enis) {
  c->enis = *enis;
  harp_near_first(&c->enis);
  choose_cores(c, &c->enis);
  find_nodes(c, &c->enis);
  if (open_arenas(c, &c->enis)) return true;
  c->count = 0;
  return false;
}

static void dissolve(struct harp_crew *c) {
  close_arenas(c);
  *c = (struct harp_crew){.on_tick = c->on_tick, .sysfs_root = c->sysfs_root};
}

static int open_seat(struct harp_crew *c, unsigned number, char *error) {
  struct harp_engine *e;
  unsigned core_at = c->seats[number].core_at;
  const struct harp_arena *arena = arena_of(c, core_at);
  size_t part_bytes = arena->bytes / count_on_node(c, c->count, core_at) & ~(size_t)(HARP_BLOCK_BYTES - 1);
  struct harp_engine_seat seat = {.number = number,
                                  .count = c->count,
                                  .core = c->seats[number].core,
                                  .memory = (uint8_t *)arena->base +
                                            count_on_node(c, core_at, core_at) * part_bytes,
                                  .memory_bytes = part_bytes,
                                  .pages = arena->rung};
  struct harp_node_policy policy;
  harp_node_enter(&policy, c->nodes[core_at]);
  int err = harp_engine_open(&e, &c->enis, &seat, error, ERROR_BYTES);
  harp_node_leave(&policy);
  if (!err) e->on_tick = c->on_tick;
  if (!err && (err = harp_runner_start(e, error, ERROR_BYTES))) harp_engine_close(e);
  if (!err) c->seats[number].engine = e;
  return err;
}

static unsigned running_count(const struct harp_crew *c) {
  unsigned running = 0;
  for (unsigned i = 0; i < c->count; i++) running += c->seats[i].engine != NULL;
  return running;
}

/* Returns the seat with fewest users, of those that run if no other may be opened; of equals the first, which
 * has what there is of scarce things. */
static struct harp_crew_seat *least_used(struct harp_crew *c, bool may_open) {
  struct harp_crew_seat *best = NULL;
  for (unsigned i = 0; i < c->count; i++) {
    struct harp_crew_seat *s = &c->seats[i];
    if (!s->engine && (!may_open || s->is_refused)) continue;
    if (!best || s->users < best->users) best = s;
  }
  HARP_ASSERT(best); /* one that runs is never refused, and none is while none runs */
  return best;
}

static bool is_ours(const struct harp_crew *c, int core) {
  for (unsigned i = 0; i < c->count; i++)
    if (c->seats[i].engine && c->seats[i].core == core) return true;
  return false;
}

/* Gives a seat a core that no engine has, the first engine any. Processes that start together so get one each
 * before any gets a second. */
static bool take_core(struct harp_crew *c, struct harp_crew_seat *s, const char *ifname) {
  s->claim_fd = -EADDRINUSE;
  for (unsigned i = 0; i < c->count && s->claim_fd == -EADDRINUSE; i++) {
    s->core = c->cores[s->core_at = i];
    if (s->core >= 0 && is_ours(c, s->core)) continue;
    s->claim_fd = s->core < 0 ? -ENOENT : harp_claim_core(s->core);
  }
  if (s->claim_fd >= 0) harp_files_own(s->claim_fd);
  if (s->claim_fd != -EADDRINUSE) return true;
  if (!c->told_crowded)
    HARP_INFO("%s: the other configured cores have engines already, of other processes or devices; here %s",
              ifname, running_count(c) ? "there are no more" : "is one engine, which shares a core");
  c->told_crowded = true;
  s->core = c->cores[s->core_at = 0];
  return !running_count(c);
}

static void leave_core(struct harp_crew_seat *s) {
  if (s->claim_fd >= 0) harp_files_close(s->claim_fd);
  s->claim_fd = -1;
}

struct harp_engine *harp_crew_use(struct harp_crew *c, const struct harp_engine_enis *enis) {
  char error[ERROR_BYTES];
  if (!c->count && !assemble(c, enis)) return NULL;
  for (bool may_open = true;;) {
    struct harp_crew_seat *s = least_used(c, may_open);
    if (!s->engine && !take_core(c, s, enis->at[0]->ifname)) {
      may_open = false;
      continue;
    }
    if (s->engine || !open_seat(c, (unsigned)(s - c->seats), error)) {
      s->users++;
      return s->engine;
    }
    leave_core(s);
    if (!running_count(c)) break;
    s->is_refused = true;
    HARP_INFO("%s; going on with %u engine(s), and none on core %d", error, running_count(c), s->core);
  }
  HARP_WARN("%s", error);
  dissolve(c);
  return NULL;
}

/* ---- users ---- */

static struct harp_crew_seat *seat_of(struct harp_crew *c, const struct harp_engine *e) {
  unsigned i = 0;
  while (i < c->count && c->seats[i].engine != e) i++;
  HARP_ASSERT(i < c->count && c->seats[i].users);
  return &c->seats[i];
}

void harp_crew_share(struct harp_crew *c, const struct harp_engine *e) {
  seat_of(c, e)->users++;
}

bool harp_crew_drop(struct harp_crew *c, struct harp_engine *e) {
  struct harp_crew_seat *s = seat_of(c, e);
  if (--s->users) return false;
  s->engine = NULL;
  harp_drain_wait(e);
  harp_runner_stop(e);
  harp_engine_close(e);
  leave_core(s);
  if (!running_count(c)) dissolve(c);
  return true;
}
