/* SPDX-License-Identifier: Apache-2.0 */
/* One stack instance: an ENI or several, their packet drivers, and the connections on it.
 *
 * Whoever holds the lock owns all of it: NCCL's thread for the length of an inline pass, the engine's own
 * thread, or a control call (connect, close, deregMr). The data path only ever tries the lock; control calls
 * wait for it, and a pass is bounded, so that wait is too.
 *
 * This file is what all others of engine/ stand on: the lock, the slots of peers and links, the list of peers
 * that have something to do, the pool of blocks, and the doorbells. It calls none of them. engine_open.h
 * opens and closes an engine, pass.h moves everything. */
#ifndef HARP_ENGINE_H
#define HARP_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/assert.h"
#include "base/counters.h"
#include "base/log_limit.h"
#include "engine/control/strangers.h"
#include "engine/limits.h"
#include "engine/link.h"
#include "engine/tcp/tcp.h"
#include "engine/watch/outage.h"
#include "engine/watch/recorder.h"
#include "engine/watch/stall.h"
#include "engine/watch/stats.h"
#include "host/arena.h"
#include "host/config.h"
#include "host/shared_clock.h"
#include "io/bundle.h"
#include "io/io.h"
#include "io/ready.h"

enum {
  HARP_DEVICES_MAX = 64, /* the most devices of a process, merged ones included */
  HARP_DEVICE_ENGINES_MAX = 16,
  HARP_ENGINE_ENIS_MAX = HARP_BUNDLE_MAX,
  HARP_ENGINE_NAME_BYTES = 96,
  HARP_ENGINE_MARK_BYTES = 32,
  /* The words of doorbells that a summary bit stands for. */
  HARP_DOORBELL_WORDS = HARP_ENGINE_LINKS_MAX / 64 / 64,
  HARP_BLOCK_BYTES = HARP_STAGING_BYTES, /* the pool's unit */
  /* The memory of an engine without `bytes` in the conf, unless frames need more; the least part of
   * `bytes` where several engines share it; and what an engine has beside the frames. */
  HARP_ENGINE_MEMORY_BYTES = 16 << 20,
  HARP_ENGINE_MEMORY_BYTES_MIN = 1 << 20,
  HARP_ENGINE_BLOCKS_BYTES = 8 << 20,
};
/* The watchdog takes over an inline engine that NCCL's threads have not visited for so long. */
#define HARP_WATCHDOG_NS HARP_US(100)
/* The longest nap of the watchdog, while NCCL's threads visit the engine so often or hold its lock: a timer
 * that fires on their core costs them some 20 us (docs/explanation/decisions/0001-watchdog-naps.md). */
#define HARP_WATCHDOG_MAX_NS HARP_US(1600)
/* A control call that waits for the lock has to take it within this from its last try: longer than the tries
 * of a thread that runs are apart. */
#define HARP_LOCK_LEFT_NS HARP_US(50)

struct harp_engine {
  /* engine_open.c sets these once */
  struct harp_instance instance; /* its configuration: the first ENI's, a thread if any of them has one */
  unsigned eni_count;
  struct harp_instance enis[HARP_ENGINE_ENIS_MAX]; /* numbering.c completes one that had no address */
  unsigned number;                                 /* its number among the engines of its device, from 0 */
  unsigned number_count;                           /* the number of these engines */
  int core;                                        /* the core that its thread is pinned to; -1: any */
  /* The parts of log lines: "eth1+eth2"; " engine 2 (core 5)" where its device has several, else ""; both. */
  char enis_name[HARP_ENGINE_NAME_BYTES - HARP_ENGINE_MARK_BYTES];
  char mark[HARP_ENGINE_MARK_BYTES];
  char name[HARP_ENGINE_NAME_BYTES];
  const struct harp_cc_ops *cc;
  harp_ns (*clock)(void); /* the clock of the host; in tests a clock of theirs */
  uint32_t token_prefix;  /* the upper half of all its tokens; random */

  /* lock */
  HARP_CACHE_ALIGNED _Atomic uint32_t locked;
  /* Until this time passes leave the lock to a control call that waits for it; 0: none waits. */
  _Atomic harp_ns lock_left_until_ns;

  /* links with submissions: a bit for each slot, and a summary bit for some words of 64 */
  HARP_CACHE_ALIGNED _Atomic uint64_t doorbell_words;
  _Atomic uint64_t doorbells[HARP_ENGINE_LINKS_MAX / 64];

  /* runner */
  /* The visits of NCCL's threads, whether they did a pass or not; wraps. Two at once may count as one. */
  HARP_CACHE_ALIGNED _Atomic uint32_t visit_count;
  struct harp_stall_watch watch;
  _Atomic bool sleeping, stop;
  bool threaded, running;
  pthread_t thread;
  _Atomic int32_t thread_id; /* the kernel's id of the thread; 0: not known yet */
  int wake_fd;               /* the eventfd that ends the runner's sleep */
  harp_ns tick_ns;           /* the runner's: the time of the next call of on_tick */
  harp_ns number_ns;         /* the runner's: the time to look whether ENIs have an address at last */
  bool numbering_failed;     /* the runner's: it has logged that an ENI has an address that cannot be used */
  /* The turns of the engine's own thread, which alone writes it; wraps. */
  HARP_CACHE_ALIGNED _Atomic uint32_t turn_count;

  /* the engine's owner, net/ */
  /* The owner sets it before the runner starts; NULL: none. The runner calls it every HARP_RUNNER_TICK_NS
   * without the lock, for work that no call of NCCL may ever come for. It may close the engine, and then
   * returns true. */
  bool (*on_tick)(struct harp_engine *e);
  void *owner; /* the argument of on_tick that the owner needs */
  /* The last user has left while links are closing: once they have closed, the runner calls on_tick, which
   * closes the engine. The owner writes it; it is true only under the lock. */
  _Atomic bool is_unused;

  /* the lock's holder owns all below */

  /* input: pass.c, runner.c */
  struct harp_io *io;         /* the driver of the ENI, or a bundle of the drivers of all ENIs */
  struct harp_io_ready ready; /* all sockets that something may come from */
  harp_ns looked_ns;          /* the time when the last pass looked for input */
  const void *looked_for; /* the request whose test made the last pass, if that found nothing; else NULL */
  harp_ns look_again_ns;  /* until then tests of other requests make no pass; 0: not computed yet */

  /* memory, which the device owns: frames, then blocks */
  uint8_t *memory;
  enum harp_page_size pages; /* the size of its pages, for log lines */
  size_t blocks_used, block_count;
  void *block_free; /* the list of blocks given back */

  /* sending: superframe.c, transmit.c */
  harp_ns short_since_ns[HARP_ENGINE_ENIS_MAX]; /* the time since which an ENI lacks frames; 0: it has */
  uint8_t scrap[HARP_PACKET_MAX_BYTES + HARP_MAC_BYTES]; /* packets are built here for an ENI that is stuck */

  /* numbering: what the driver of an ENI without an address will get */
  struct {
    uint8_t *frames;
    uint8_t port_count;
  } late[HARP_ENGINE_ENIS_MAX];

  /* times: the earliest of the next call of each */
  harp_ns control_ns;       /* pass.c: everything that is due by time alone */
  harp_ns pending_drive_ns; /* receive.c: pending peers whose first packet has overtaken their handshake */
  harp_ns silence_ns;       /* pass.c: peers that are silent, and probes that keep idle paths alive */
  harp_ns linger_ns;        /* peer_life.c: peers without links */
  harp_ns inquire_ns;       /* control/liveness.c: peers that are quiet while NCCL waits */
  harp_ns closing_ns;       /* link_close.c: links that NCCL has closed; 0: now */

  /* connecting: control/ */
  struct harp_listener *listeners;     /* the listeners, whose pending peers the pass drives */
  struct harp_listener *listener_turn; /* the listener whose timers are next; NULL: the first */
  struct harp_connect *connects;       /* the connects under way */
  struct harp_strangers strangers;     /* those who have not proved a secret */
  int spare_fd; /* a file to be closed when there are none, so that a connection can be refused; -1: none */
  bool is_spare_lent;                  /* a connection that is being refused uses the spare file */
  struct harp_log_limit strangers_log; /* the limit of lines that whoever reaches a listener can cause */
  _Atomic bool is_diverted_logged;     /* it has logged that an interface sends by another one */
  bool is_outside_ports_logged;        /* it has logged that a listener found no free port of `ports` */

  /* parts that have a file each */
  struct harp_tcp *tcp;                  /* tcp/: the TCP connections with data; NULL: it has none */
  struct harp_shared_clock shared_clock; /* the clock by which the drains of congestion control coincide */
  struct harp_outages outages;
  uint64_t size_changes_seen; /* watch/packet_sizes.c: the counter at the last look */
  struct harp_stats stats;
  struct harp_recorder recorder;
  struct harp_stalls stalls;

  /* peers and links by slot */
  struct harp_peer *active_first, *active_last; /* the peers that have something to do or to wait for */
  uint32_t peer_count, peer_next;               /* the number of slots taken; the next slot to try */
  uint32_t link_count, link_next;               /* the same of links */
  struct harp_link *closing; /* the links that NCCL has closed, and that have copies to deliver */
  uint32_t outstanding;      /* the requests of all links that NCCL waits for; 0: NCCL may make no calls */
  struct harp_peer *peers[HARP_ENGINE_PEERS_MAX]; /* HARP_SLOT_RESERVED until the handshake is done */
  struct harp_link *links[HARP_ENGINE_LINKS_MAX];
  struct harp_counters counters;
};

#define HARP_SLOT_RESERVED ((struct harp_peer *)1)

/* A walk over an engine's peers in the order of their slots. */
struct harp_peer_walk {
  const struct harp_engine *engine;
  uint32_t slot; /* the next one */
  uint32_t left; /* the taken slots not yet seen */
};

/* Returns the driver of one ENI. */
static inline struct harp_io *harp_engine_io(const struct harp_engine *e, unsigned eni) {
  return e->eni_count > 1 ? harp_io_bundle_member(e->io, eni) : e->io;
}

static inline bool harp_engine_try_lock(struct harp_engine *e) {
  harp_ns until_ns = atomic_load_explicit(&e->lock_left_until_ns, memory_order_relaxed);
  if (harp_unlikely(until_ns) && e->clock() < until_ns) return false;
  return !atomic_exchange_explicit(&e->locked, 1, memory_order_acquire);
}
static inline void harp_engine_unlock(struct harp_engine *e) {
  HARP_ASSERT(atomic_load_explicit(&e->locked, memory_order_relaxed));
  atomic_store_explicit(&e->locked, 0, memory_order_release);
}

/* Copies the interfaces (HARP_ENGINE_ENIS_MAX) for a thread without the lock, which it takes: an address may
 * come at any time (numbering.h). Returns how many there are. */
unsigned harp_engine_copy_enis(struct harp_engine *e, struct harp_instance *enis);
/* Waits for the lock: control calls only. Passes leave it to the call that waits while that one runs; one
 * that has lost its core keeps them from it for HARP_LOCK_LEFT_NS at most. */
void harp_engine_lock(struct harp_engine *e);

/* Under the lock: */

/* Reserves a slot for a peer whose handshake is under way; -1 when the table is full. */
int harp_engine_reserve_slot(struct harp_engine *e);
void harp_engine_release_slot(struct harp_engine *e, uint32_t slot);
/* Puts a peer into its slot. Returns 0; -errno when its control connection cannot be watched. */
int harp_engine_attach(struct harp_engine *e, struct harp_peer *peer) HARP_MUST_CHECK;
void harp_engine_detach(struct harp_engine *e, struct harp_peer *peer);
/* Returns the peer in a slot; NULL: the slot is free, or its handshake is under way. */
static inline struct harp_peer *harp_engine_peer_at(const struct harp_engine *e, uint32_t slot) {
  HARP_ASSERT(slot < HARP_ENGINE_PEERS_MAX);
  return e->peers[slot] == HARP_SLOT_RESERVED ? NULL : e->peers[slot];
}
static inline struct harp_peer_walk harp_engine_peers(const struct harp_engine *e) {
  return (struct harp_peer_walk){.engine = e, .left = e->peer_count};
}
/* Returns the next peer, NULL after the last. The caller may destroy the one that was returned before. */
struct harp_peer *harp_engine_next_peer(struct harp_peer_walk *walk);
void harp_engine_activate(struct harp_engine *e, struct harp_peer *peer);
/* Waits for the control connection to be readable, and writable or not. */
void harp_engine_watch_control(struct harp_engine *e, struct harp_peer *peer, bool writable);
/* Waits for nothing more on the peer's control connection. */
void harp_engine_ignore_control(struct harp_engine *e, struct harp_peer *peer);
/* Assigns a doorbell to a link; false: the engine has all the links that it can have. */
bool harp_engine_add_link(struct harp_engine *e, struct harp_link *link) HARP_MUST_CHECK;
void harp_engine_remove_link(struct harp_engine *e, struct harp_link *link);
/* The pool: blocks of HARP_BLOCK_BYTES out of its memory; NULL when it is used up. */
void *harp_engine_take_block(struct harp_engine *e);
void harp_engine_give_block(struct harp_engine *e, void *block);

/* Any thread: notifies the engine that the link's submit ring has something. */
void harp_engine_ring_mt(struct harp_engine *e, uint32_t slot);
/* Any thread: ends the sleep of the engine's thread if it sleeps. */
void harp_engine_wake_mt(struct harp_engine *e);

#endif
