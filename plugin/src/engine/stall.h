/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL waits for, when it waits for long: once a second the pass looks for links with requests under way
 * on which nothing has moved for HARP_STALL_NS, finds the reason, and says it in one INFO line for the peer,
 * again after each HARP_STALL_AGAIN_NS. The reason stands in the statistics as well. A link without requests
 * says nothing, however long.
 *
 * Before that the peer is asked for a word on the control connection (PING): one that does not answer while
 * its kernel does is stopped or starved. Under the engine's lock. */
#ifndef HARP_STALL_H
#define HARP_STALL_H

#include "base/base.h"

#define HARP_STALL_NS       HARP_SEC(10)
#define HARP_STALL_AGAIN_NS HARP_SEC(30)
#define HARP_STALL_ASK_NS   HARP_SEC(7) /* the peer is asked by then */

struct harp_dial;
struct harp_engine;
struct harp_peer;

enum harp_stall_reason {
  HARP_STALL_NONE,
  HARP_STALL_NO_RECEIVE,    /* the peer has posted no receive for what we send */
  HARP_STALL_SENDS_NOTHING, /* the peer lives, and sends nothing of what we receive */
  HARP_STALL_STOPPED,       /* the peer's kernel answers, its process does not */
  HARP_STALL_UNREACHABLE,   /* nothing of the peer answers */
  HARP_STALL_NOT_THROUGH,   /* the peer answers, but no packet is acknowledged */
  HARP_STALL_REASONS
};

/* Of a link. */
struct harp_link_stall {
  harp_ns since_ns;  /* when something moved last, or the first request came; 0: it waits for nothing */
  uint64_t progress; /* another value: something has moved */
};

/* Of a peer. */
struct harp_peer_stall {
  enum harp_stall_reason reason; /* as it was found at seen_ns */
  int eni;                       /* of the engine, that the reason is about; -1: none */
  harp_ns seen_ns, since_ns;     /* when a link of it was found to wait last, and since when that did */
  harp_ns told_ns;               /* 0: not told of this time */
  uint64_t count;                /* of stalls */
};

/* Of an engine. */
struct harp_stalls {
  harp_ns round_ns; /* when the next round begins; 0: none has begun */
  harp_ns
      awake_ns; /* when the engine had a pass again after it had none for long: nothing waits since before */
  uint32_t link_next; /* slot that the round comes to next; past the end: it is over */
};

/* Returns the reason in a few words, as the statistics have it; "" for none. */
const char *harp_stall_name(enum harp_stall_reason reason);

/* Returns why a peer's links wait now, NONE if none has waited for long. */
enum harp_stall_reason harp_stall_of_peer(const struct harp_peer *peer, harp_ns now);

/* Says for whom a connect waits, and what is known, when it has waited for long. By who polls it, without the
 * lock. */
void harp_stall_review_dial(struct harp_dial *d, harp_ns now);

/* Looks at some links; a round is over within HARP_STALL_NS / 10. */
void harp_stalls_review(struct harp_engine *e, harp_ns now);

#endif
