/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of a device: in thread mode one for each core that this process has of its cores, else one.
 *
 * Cores are divided among the processes of the host: where the launcher says how many there are, each has its
 * part by its rank, at once. Else each begins with one core, and takes another once it has had one for
 * GROW_NS and that one is free. Where no core is free, the first engine shares the one that fewest share.
 *
 * They share nothing while they run. Each has its own drivers on all interfaces, its part of the NICs'
 * queues, and its part of a block of memory, of which there is one for each NUMA node of their cores. An
 * engine is opened with its first user and closed with its last; the memory and the choice of cores last
 * while any engine runs. All calls under the lock of the device, since opening or closing an engine may take
 * seconds.
 *
 * An engine whose last user leaves while links are closing (engine/link_close.h), since a peer is slow or
 * stopped, goes on until they have, in its own thread, and is another user's meanwhile. The process's end
 * waits for such engines, since what they deliver was sent as far as NCCL knows. */
#ifndef HARP_DEVICE_ENGINES_H
#define HARP_DEVICE_ENGINES_H

#include "engine/control/handle.h"
#include "engine/engine_open.h"

enum { HARP_DEVICE_CORES_MAX = 64 };

/* All zero but for on_tick and sysfs_root: no engine runs. */
struct harp_device_engines {
  bool (*on_tick)(struct harp_engine *e); /* what its engines call on a tick; NULL: none */
  const char *sysfs_root;                 /* NULL: /sys */
  unsigned count;                         /* the number of engines that may run; 0 while none does */
  unsigned core_count;                    /* the number of `cores` */
  unsigned shared_levels; /* claims of each of the first `count` cores that come before others' cores */
  bool is_divided;        /* these cores are this process's part: it need not wait for them */
  harp_ns begun_ns;       /* the time when the first engine got its core */
  struct harp_instance instances[HARP_ENGINE_ENIS_MAX]; /* the ENIs as the first engine found them */
  struct harp_engine_enis enis;       /* these ENIs, in the order that the engines have them */
  int cores[HARP_DEVICE_ENGINES_MAX]; /* the cores that the engines may use, `count` of them; -1: any */
  bool logged_no_core;                /* it has logged that other processes use the other cores */
  int nodes[HARP_DEVICE_ENGINES_MAX]; /* the NUMA node of each core, the first ENI's where it is not known */
  /* One for each different node, in the order of `nodes`. */
  struct harp_arena arenas[HARP_DEVICE_ENGINES_MAX];
  struct harp_engine_slot {
    struct harp_engine *engine; /* NULL: it does not run */
    unsigned users;             /* the users: listens, connects under way and comms */
    bool is_refused;            /* it could not be opened beside the others */
    unsigned core_at;           /* index of its own core in `cores`, whose memory it has */
    int core, claim_fd;         /* its core and its claim while it runs; -1: any, none */
  } slots[HARP_DEVICE_ENGINES_MAX];
};

/* Counts a new user on an engine. Of a listen (`to` NULL) that is the one with the fewest users. Of a connect
 * each engine of another process has one engine here, so that all connections of the two have one session,
 * and two processes with as many engines have one session for each; listens divide the users then. Opens that
 * engine if it does not run and there is a core for it. An engine that cannot be opened is left out, with an
 * INFO line, as long as another runs. Returns NULL, with one WARN, when none runs. */
struct harp_engine *harp_device_engines_use(struct harp_device_engines *d,
                                            const struct harp_engine_enis *enis,
                                            const struct harp_contact *to);

/* Counts another user of an engine that runs. */
void harp_device_engines_share(struct harp_device_engines *d, const struct harp_engine *e);

/* Removes a user. The last one closes the engine; where links are closing for longer than
 * HARP_CLOSING_AT_ONCE_NS, the engine's thread does it. Returns whether the engine was closed. May be called
 * in the engine's own thread, by on_tick.
 */
bool harp_device_engines_drop(struct harp_device_engines *d, struct harp_engine *e);

/* Closes an engine that nobody uses any more, once its closing links are freed. For its own thread, by
 * on_tick. Returns whether it was closed. */
bool harp_device_engines_end_unused(struct harp_device_engines *d, struct harp_engine *e);

#endif
