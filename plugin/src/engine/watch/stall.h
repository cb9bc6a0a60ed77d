/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out what NCCL waits for, when it waits for long: the pass looks for links with requests under way on
 * which nothing has moved for the stall time, finds the reason, and logs it in one INFO line for the peer,
 * again after each three such times. The statistics have the reason as well. A link without requests is never
 * stalled. All other times here are parts of the stall time.
 *
 * Before that the peer gets a PING on the control connection: a process that does not answer while its kernel
 * does is stopped or lacks a core. Under the engine's lock.
 *
 * That an engine's thread waits for its core is logged by the thread itself, or, where it does not run at
 * all, by the thread of NCCL's that waits for it. */
#ifndef HARP_STALL_H
#define HARP_STALL_H

#include <stdatomic.h>

#include "base/base.h"

struct harp_connect;
struct harp_engine;
struct harp_listener;
struct harp_peer;

enum harp_stall_reason {
  HARP_STALL_NONE,
  HARP_STALL_NO_RECEIVE,    /* the peer has posted no receive for what we send */
  HARP_STALL_SENDS_NOTHING, /* the peer answers, and sends nothing of what we receive */
  HARP_STALL_STOPPED,       /* the peer's kernel answers, its process does not */
  HARP_STALL_UNREACHABLE,   /* nothing of the peer answers */
  HARP_STALL_NOT_THROUGH,   /* the peer answers, but no packet is acknowledged */
  HARP_STALL_NO_CORE,       /* our own engine's thread waits for its core */
  HARP_STALL_REASONS
};

/* The stall of a link. */
struct harp_link_stall {
  harp_ns since_ns;  /* the time of the last progress or first request; 0: it does not wait */
  uint64_t progress; /* a number that changes when something moves */
};

/* The stall of a peer. */
struct harp_peer_stall {
  enum harp_stall_reason reason; /* the reason that was found at seen_ns */
  int eni;                       /* the engine's interface that the reason is about; -1: none */
  harp_ns seen_ns;               /* the last time when a link was found to have waited for long */
  harp_ns since_ns;              /* the time since which that link had waited */
  harp_ns logged_ns;             /* the time when the stall was logged; 0: it was not */
  uint64_t count;                /* the number of stalls */
};

/* The wait of a connect or an accept. */
struct harp_stall_wait {
  harp_ns begun_ns;  /* the time when it began */
  harp_ns logged_ns; /* the time when it was logged last; 0: it was not */
};

/* The progress of an engine's thread, as NCCL's threads see it. */
struct harp_stall_watch {
  _Atomic uint32_t turns;    /* the engine's turns when they looked last */
  _Atomic harp_ns since_ns;  /* the time since which the turns have not changed */
  _Atomic harp_ns logged_ns; /* the time when that was logged; 0: it was not */
};

/* The waits of an engine's thread for its core. */
struct harp_stall_core {
  harp_ns looked_ns, delay_ns;      /* the time of the last look, and the sum of its waits by then */
  harp_ns since_ns, since_delay_ns; /* the same when it began to wait most of the time; 0: it does not */
  harp_ns seen_ns, logged_ns; /* the times when it was found to have waited for long, and logged; 0: not */
};

/* The stalls of an engine. */
struct harp_stalls {
  harp_ns round_ns;   /* the time when the next round begins; 0: none has begun */
  uint32_t link_next; /* the slot that the round comes to next; past the end: it is over */
  harp_ns awake_ns;   /* the end of a long time without a pass: no wait counts from before */
  struct harp_stall_core core;
};

/* Returns the reason in a few words, as the statistics have it; "" for none. */
const char *harp_stall_name(enum harp_stall_reason reason);

/* Returns why a peer's links wait now, NONE if none has waited for long. */
enum harp_stall_reason harp_stall_of_peer(const struct harp_peer *peer, harp_ns now);

/* Returns since when a peer's links wait for that reason. */
harp_ns harp_stall_since_ns(const struct harp_peer *peer, enum harp_stall_reason reason);

/* Log for whom a connect or an accept waits when it has waited for long. Called by the thread that polls it,
 * without the lock. */
void harp_stall_log_connect(struct harp_connect *d, harp_ns now);
void harp_stall_log_accept(struct harp_listener *l, harp_ns now);

/* Looks at some links; a round is over within a tenth of the stall time. Returns the first peer whose stall
 * it has logged for the first time; NULL: none. */
struct harp_peer *harp_stalls_on_time(struct harp_engine *e, harp_ns now);

/* Learns how long the engine's thread has waited for a core since it began. */
void harp_stalls_on_core_delay(struct harp_engine *e, harp_ns delay_ns, harp_ns now);

/* A link's tests that found nothing, after each so many of which the engine's thread is watched. */
enum { HARP_STALL_TESTS = 1024 };

/* NCCL's thread waits for a request: logs when the engine has a thread of its own that does not run. */
void harp_stall_watch_mt(struct harp_engine *e);

#endif
