/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of a device: one for each of its cores in thread mode that no other process's engine has, else
 * one.
 *
 * They share nothing while they run. Each has drivers of its own on all interfaces, its part of the NICs'
 * queues, and its part of a block of memory, of which there is one for each NUMA node of their cores. An
 * engine is opened when it gets its first user and closed with its last; the memory and the choice of cores
 * last while any engine runs. Under the lock of its device, for which opening or closing an engine may take
 * seconds. */
#ifndef HARP_CREW_H
#define HARP_CREW_H

#include "engine/engine.h"

/* All zero, but for on_tick and sysfs_root: no engine runs. */
struct harp_crew {
  bool (*on_tick)(struct harp_engine *e, harp_ns now); /* of its engines; NULL: none */
  const char *sysfs_root;                              /* NULL: /sys */
  unsigned count;                                      /* of engines that may run; 0 while none does */
  struct harp_engine_enis enis;                        /* in the order that the engines have them */
  int cores[HARP_DEVICE_ENGINES_MAX];                  /* that they may have, as many; -1: any */
  bool told_crowded;                                   /* that other processes have the other cores */
  int nodes[HARP_DEVICE_ENGINES_MAX]; /* NUMA node of each core, the first ENI's where it is not known */
  struct harp_arena
      arenas[HARP_DEVICE_ENGINES_MAX]; /* one for each different node, in the order of `nodes` */
  struct harp_crew_seat {
    struct harp_engine *engine; /* NULL: it does not run */
    unsigned users;             /* listens, connects under way and comms */
    bool is_refused;            /* it could not be opened beside the others */
    unsigned core_at;           /* place of its core in `cores` */
    int core, claim_fd;         /* while it runs; -1: any, none */
  } seats[HARP_DEVICE_ENGINES_MAX];
};

/* Counts a new user on the engine that has fewest, and opens that if it does not run, on a core that no
 * engine has. Where there is none, only the first is opened, and shares one. One that cannot be opened is
 * done without, with an INFO line, as long as another runs. NULL, with one WARN, when none can. */
struct harp_engine *harp_crew_use(struct harp_crew *c, const struct harp_engine_enis *enis);

/* Counts another user of an engine that runs. */
void harp_crew_share(struct harp_crew *c, const struct harp_engine *e);

/* Takes a user off; the last one closes the engine, and then true is returned. May be called in the engine's
 * own thread, by on_tick. */
bool harp_crew_drop(struct harp_crew *c, struct harp_engine *e);

#endif
