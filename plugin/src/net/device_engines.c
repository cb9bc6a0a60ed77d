/* SPDX-License-Identifier: Apache-2.0 */
#include "net/device_engines.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/shortage.h"
#include "engine/link_close.h"
#include "engine/runner.h"
#include "host/claim.h"
#include "host/cpu.h"
#include "host/node.h"
#include "net/near.h"

/* A process that does not know how many processes of the job run on its host opens a second engine only after
 * this time: until then each of them can get a core. */
#define GROW_NS HARP_SEC(1)
/* The time between two looks of the process's end at engines with closing links. */
#define REST_NS HARP_MS(1)

static _Atomic unsigned
    unused_count; /* the engines of this process that nobody uses, and that have closing links */

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

/* Keeps the cores that this process may use. Returns how many. */
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

/* Returns how many of `all` cores belong to the processes before this one, of `count` that divide them. */
static unsigned cores_before(unsigned process, unsigned count, unsigned all) {
  return process * all / count;
}

/* Gives a process its part of the cores: the next ones to each. Where there are fewer cores than processes it
 * may be none, and the core that its part would begin at is shared. */
static unsigned divide_cores(struct harp_device_engines *d, const struct harp_local *local, unsigned all,
                             unsigned *from) {
  unsigned count = local->sharers, process = local->rank % count;
  *from = cores_before(process, count, all);
  d->is_divided = true;
  d->shared_levels = (count + all - 1) / all;
  return cores_before(process + 1, count, all) - *from;
}

/* Chooses the cores of the engines, and how many engines there may be. Processes that are not counted begin
 * with different cores, by their rank or number. */
static void choose_cores(struct harp_device_engines *d, const struct harp_engine_enis *enis) {
  uint16_t cores[HARP_CPU_MAX];
  const char *ifname = enis->at[0]->ifname;
  const struct harp_local *local = &enis->at[0]->local;
  unsigned all = has_thread(enis) ? gather_cores(enis, cores) : 0, own, from = 0;
  if (all) all = keep_usable(ifname, cores, all);
  d->count = d->core_count = 1;
  d->cores[0] = -1;
  d->shared_levels = 1;
  if (!all) return;
  if (local->count) {
    own = divide_cores(d, local, all, &from);
  } else {
    own = all;
    from = (local->has_rank ? local->rank : (unsigned)getpid()) % all;
  }
  if (own > HARP_DEVICE_ENGINES_MAX) {
    HARP_INFO("%s: %u cores are configured for this process; the first %d of them have an engine each",
              ifname, own, HARP_DEVICE_ENGINES_MAX);
    own = HARP_DEVICE_ENGINES_MAX;
  }
  d->count = HARP_MAX(own, 1u);
  d->core_count = HARP_MIN(all, (unsigned)HARP_DEVICE_CORES_MAX);
  for (unsigned i = 0; i < d->core_count; i++) d->cores[i] = cores[(from + i) % all];
}

/* ---- memory ---- */

/* Finds the node of each core. */
static void find_nodes(struct harp_device_engines *d, const struct harp_engine_enis *enis) {
  for (unsigned i = 0; i < d->count; i++) {
    d->nodes[i] = harp_node_of_core(d->sysfs_root ? d->sysfs_root : "/sys", d->cores[i]);
    if (d->nodes[i] < 0) d->nodes[i] = enis->at[0]->numa;
  }
}

/* Returns how many of the first cores are on the node of one. */
static unsigned count_on_node(const struct harp_device_engines *d, unsigned first_count, unsigned core_at) {
  unsigned count = 0;
  for (unsigned i = 0; i < first_count; i++) count += d->nodes[i] == d->nodes[core_at];
  return count;
}

/* Returns the memory of the node that a core is on. */
static struct harp_arena *arena_of(struct harp_device_engines *d, unsigned core_at) {
  unsigned at = 0;
  for (unsigned i = 0; d->nodes[i] != d->nodes[core_at]; i++) at += count_on_node(d, i, i) == 0;
  return &d->arenas[at];
}

static void close_arenas(struct harp_device_engines *d) {
  for (unsigned i = 0; i < HARP_DEVICE_ENGINES_MAX; i++) harp_arena_close(&d->arenas[i]);
}

/* Gets the memory of all engines, node by node, since few large pages serve many. */
static bool open_arenas(struct harp_device_engines *d, const struct harp_engine_enis *enis) {
  size_t each_bytes = harp_engine_memory_bytes(enis, d->count);
  char text[HARP_SHORTAGE_TEXT_BYTES];
  for (unsigned i = 0; i < d->count; i++) {
    struct harp_arena *arena = arena_of(d, i);
    size_t bytes = each_bytes * count_on_node(d, d->count, i);
    if (arena->base) continue;
    if (!harp_arena_open(arena, bytes, enis->at[0]->page_size, d->nodes[i])) continue;
    HARP_WARN("%s: cannot get %zu MiB of memory%s: %s; %s", enis->at[0]->ifname, bytes >> 20,
              enis->at[0]->memory_bytes ? " (`bytes` of the conf file)" : "",
              harp_shortage_text(ENOMEM, text), arena->note);
    close_arenas(d);
    return false;
  }
  return true;
}

/* ---- opening ---- */

/* Chooses what all engines share: the order of the ENIs, the cores, and the memory. The configuration may be
 * old: with older tables NCCL reads it once in a process. */
static bool prepare_engines(struct harp_device_engines *d, const struct harp_engine_enis *enis) {
  d->enis.count = enis->count;
  for (unsigned i = 0; i < enis->count; i++) {
    d->instances[i] = *enis->at[i];
    d->enis.at[i] = &d->instances[i];
  }
  harp_instances_refresh(d->instances, enis->count);
  choose_cores(d, enis); /* in an order that all processes have */
  harp_near_first(&d->enis);
  find_nodes(d, &d->enis);
  if (open_arenas(d, &d->enis)) return true;
  d->count = 0;
  return false;
}

static void release_engines(struct harp_device_engines *d) {
  close_arenas(d);
  *d = (struct harp_device_engines){.on_tick = d->on_tick, .sysfs_root = d->sysfs_root};
}

static int open_slot(struct harp_device_engines *d, unsigned number, struct harp_error *error) {
  struct harp_engine *e;
  unsigned core_at = d->slots[number].core_at;
  const struct harp_arena *arena = arena_of(d, core_at);
  size_t part_bytes = arena->bytes / count_on_node(d, d->count, core_at) & ~(size_t)(HARP_BLOCK_BYTES - 1);
  struct harp_engine_place place = {.number = number,
                                    .count = d->count,
                                    .core = d->slots[number].core,
                                    .memory = (uint8_t *)arena->base +
                                              count_on_node(d, core_at, core_at) * part_bytes,
                                    .memory_bytes = part_bytes,
                                    .pages = arena->page_size};
  struct harp_node_policy policy;
  harp_node_enter(&policy, d->nodes[core_at]);
  int err = harp_engine_open(&e, &d->enis, &place, error);
  harp_node_leave(&policy);
  if (!err) {
    e->on_tick = d->on_tick;
    e->owner = d;
  }
  if (!err && (err = harp_runner_start(e, error))) harp_engine_close(e);
  if (!err) d->slots[number].engine = e;
  return err;
}

static unsigned running_count(const struct harp_device_engines *d) {
  unsigned running = 0;
  for (unsigned i = 0; i < d->count; i++) running += d->slots[i].engine != NULL;
  return running;
}

/* Gathers the slots of engines that run, and of those that may be opened. Returns how many; at least one,
 * since one that runs is never refused, and none is while none runs. */
static unsigned gather_slots(struct harp_device_engines *d, bool may_open,
                             struct harp_engine_slot *slots[HARP_DEVICE_ENGINES_MAX]) {
  unsigned count = 0;
  for (unsigned i = 0; i < d->count; i++)
    if (d->slots[i].engine || (may_open && !d->slots[i].is_refused)) slots[count++] = &d->slots[i];
  HARP_ASSERT(count);
  return count;
}

/* Returns the slot for a new user by the rules of the header. Of slots with equally many users it is the
 * first one, whose engine has the resources that do not suffice for all. */
static struct harp_engine_slot *choose_slot(struct harp_device_engines *d, bool may_open,
                                            const struct harp_contact *to) {
  struct harp_engine_slot *slots[HARP_DEVICE_ENGINES_MAX], *best;
  unsigned count = gather_slots(d, may_open, slots);
  if (to) return slots[(to->engine_count == d->count ? to->engine_number : to->engine_id) % count];
  best = slots[0];
  for (unsigned i = 1; i < count; i++)
    if (slots[i]->users < best->users) best = slots[i];
  return best;
}

/* Returns whether an engine has this core as its own, with the memory, or runs on it. */
static bool uses_core(const struct harp_device_engines *d, unsigned core_at) {
  for (unsigned i = 0; i < d->count; i++)
    if (d->slots[i].engine && (d->slots[i].core_at == core_at || d->slots[i].core == d->cores[core_at]))
      return true;
  return false;
}

/* Claims the lowest free level, below `levels`, of the first `count` cores. Where a claim fails for another
 * reason, the core is taken without one. Returns the level; -1: all are taken. */
static int claim_lowest(struct harp_device_engines *d, struct harp_engine_slot *s, unsigned count,
                        unsigned levels) {
  for (unsigned level = 0; level < levels; level++) {
    for (unsigned i = 0; i < count; i++) {
      int core = d->cores[i];
      if (i < d->count && uses_core(d, i)) continue;
      s->claim_fd = core < 0 ? -ENOENT : harp_claim_core(core, level);
      if (s->claim_fd == -EADDRINUSE) continue;
      if (s->claim_fd >= 0) harp_files_own(s->claim_fd);
      s->core = core;
      s->core_at = i < d->count ? i : 0;
      return (int)level;
    }
  }
  return -1;
}

/* Claims a core for the first engine: one of its own, else the one that fewest engines use. */
static void take_first_core(struct harp_device_engines *d, struct harp_engine_slot *s, const char *ifname) {
  int level = claim_lowest(d, s, d->count, d->shared_levels);
  if (level < 0) level = claim_lowest(d, s, d->core_count, HARP_CLAIM_LEVELS);
  if (level < 0) s->core = d->cores[s->core_at = 0];
  d->begun_ns = harp_clock_ns();
  d->logged_no_core = level != 0;
  if (level)
    HARP_INFO("%s: the configured cores have engines already, of other processes or devices; here is one "
              "engine, which shares core %d",
              ifname, s->core);
}

/* Claims a core for another engine: one of its own that no engine uses. */
static bool take_another_core(struct harp_device_engines *d, struct harp_engine_slot *s, const char *ifname) {
  bool is_early = !d->is_divided && harp_clock_ns() - d->begun_ns < GROW_NS;
  if (!is_early && claim_lowest(d, s, d->count, 1) == 0) return true;
  if (!is_early && !d->logged_no_core)
    HARP_INFO("%s: the other configured cores have engines already, of other processes or devices; here are "
              "no more",
              ifname);
  d->logged_no_core |= !is_early;
  return false;
}

static void leave_core(struct harp_engine_slot *s) {
  if (s->claim_fd >= 0) harp_files_close(s->claim_fd);
  s->claim_fd = -1;
}

/* An engine that nobody used may still run: it has closing links. */
static void use_again(struct harp_engine *e) {
  if (!atomic_load_explicit(&e->is_unused, memory_order_relaxed)) return;
  atomic_store_explicit(&e->is_unused, false, memory_order_relaxed);
  atomic_fetch_sub(&unused_count, 1);
}

struct harp_engine *harp_device_engines_use(struct harp_device_engines *d,
                                            const struct harp_engine_enis *enis,
                                            const struct harp_contact *to) {
  struct harp_error error;
  if (!d->count && !prepare_engines(d, enis)) return NULL;
  for (bool may_open = true;;) {
    struct harp_engine_slot *s = choose_slot(d, may_open, to);
    if (!s->engine && !running_count(d)) {
      take_first_core(d, s, enis->at[0]->ifname);
    } else if (!s->engine && !take_another_core(d, s, enis->at[0]->ifname)) {
      may_open = false;
      continue;
    }
    if (s->engine || !open_slot(d, (unsigned)(s - d->slots), &error)) {
      s->users++;
      use_again(s->engine);
      return s->engine;
    }
    leave_core(s);
    if (!running_count(d)) break;
    s->is_refused = true;
    HARP_INFO("%s; continuing with %u engine(s), and none on core %d", error.text, running_count(d), s->core);
  }
  HARP_WARN("%s", error.text);
  release_engines(d);
  return NULL;
}

/* ---- users ---- */

static struct harp_engine_slot *slot_of(struct harp_device_engines *d, const struct harp_engine *e) {
  unsigned i = 0;
  while (i < d->count && d->slots[i].engine != e) i++;
  HARP_ASSERT(i < d->count);
  return &d->slots[i];
}

void harp_device_engines_share(struct harp_device_engines *d, const struct harp_engine *e) {
  struct harp_engine_slot *s = slot_of(d, e);
  HARP_ASSERT(s->users);
  s->users++;
}

static void close_slot(struct harp_device_engines *d, struct harp_engine_slot *s) {
  struct harp_engine *e = s->engine;
  s->engine = NULL;
  harp_runner_stop(e);
  harp_engine_close(e);
  leave_core(s);
  if (!running_count(d)) release_engines(d);
}

/* Leaves the engine to its own thread where links are closing for longer. Returns whether they are. */
static bool leave_to_closing(struct harp_engine *e) {
  harp_engine_await_closing(e);
  harp_engine_lock(e);
  bool closes = e->closing != NULL;
  if (closes) {
    atomic_store_explicit(&e->is_unused, true, memory_order_relaxed);
    atomic_fetch_add(&unused_count, 1);
  }
  harp_engine_unlock(e);
  return closes;
}

bool harp_device_engines_drop(struct harp_device_engines *d, struct harp_engine *e) {
  struct harp_engine_slot *s = slot_of(d, e);
  HARP_ASSERT(s->users);
  if (--s->users || leave_to_closing(e)) return false;
  close_slot(d, s);
  return true;
}

bool harp_device_engines_end_unused(struct harp_device_engines *d, struct harp_engine *e) {
  if (!atomic_load_explicit(&e->is_unused, memory_order_relaxed)) return false;
  harp_engine_lock(e);
  bool closes = e->closing != NULL;
  harp_engine_unlock(e);
  if (closes) return false;
  HARP_ASSERT(!slot_of(d, e)->users);
  close_slot(d, slot_of(d, e));
  atomic_fetch_sub(&unused_count, 1);
  return true;
}

/* Closes engines at the process's end, with their threads still at work. No link is closing for longer. */
__attribute__((destructor)) static void await_unused_engines(void) {
  const struct timespec rest = {.tv_nsec = (long)REST_NS};
  harp_ns end_ns = harp_clock_ns() + HARP_LINK_CLOSING_MAX_NS;
  if (harp_files_in_child()) return;
  while (atomic_load(&unused_count) && harp_clock_ns() < end_ns) nanosleep(&rest, NULL);
}
