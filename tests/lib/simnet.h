/* SPDX-License-Identifier: Apache-2.0 */
/* A network of datagrams on a virtual clock, with every fault that a seed or a test selects.
 *
 * One link per path and direction. Owned by a harness that moves the clock: it sends, queries when the next
 * datagram arrives, and takes it then. Datagrams that arrive at the same instant keep the order in which they
 * were sent. */
#ifndef HARP_TESTS_SIMNET_H
#define HARP_TESTS_SIMNET_H

#include "models/rng.h"

enum {
  SIMNET_PATHS_MAX = 64,
  SIMNET_BLACKHOLES_MAX = 16,
  SIMNET_DATAGRAM_MAX_BYTES = 9216,
  SIMNET_KEPT = 32
};

enum simnet_way { SIMNET_THERE, SIMNET_BACK, SIMNET_WAYS }; /* from end 0 to end 1, from end 1 to end 0 */

/* A bottleneck that several links may share. */
struct simnet_wire {
  uint64_t rate_bytes_s; /* 0: none */
  uint32_t queue_bytes;  /* tail drop behind the rate; 0: unbounded */
  /* state */
  harp_ns free_ns; /* when the rate lets the next datagram start */
  uint64_t queue_max_bytes, drops, bytes;
};

struct simnet_link {
  harp_ns delay_ns, jitter_ns; /* jitter reorders */
  uint32_t loss_ppm, duplicate_ppm, corrupt_ppm, truncate_ppm;
  uint32_t replay_ppm;               /* chance that one of its last datagrams is sent again, any time later */
  uint32_t burst_ppm, burst_packets; /* chance that a burst of losses begins, and its length */
  uint32_t late_ppm;                 /* chance of being held back by late_ns */
  harp_ns late_ns;
  struct simnet_wire own;   /* its bottleneck; */
  struct simnet_wire *wire; /* or one that is shared, borrowed from the test; NULL: none is */
  uint32_t mtu_bytes;       /* larger datagrams vanish from mtu_from_ns on; 0: none */
  harp_ns mtu_from_ns;
  struct {
    harp_ns from_ns, to_ns;
  } blackholes[SIMNET_BLACKHOLES_MAX]; /* nothing passes */
  unsigned blackhole_count;
  uint32_t ce_ppm; /* the share of ECN-capable datagrams that are marked as CE */
  bool drops_ect;  /* ECN-capable datagrams vanish, for ever */
  /* state */
  uint32_t burst_left;
  uint64_t sent; /* datagrams given to the link */
};

struct simnet_datagram {
  enum simnet_way way;
  unsigned path;
  uint32_t bytes;
  bool ce;             /* it was marked */
  bool is_unruly;      /* its link repeats datagrams, or changes their order */
  bool touched;        /* corrupted, cut or forged */
  uint32_t touched_at; /* first byte that differs */
  uint8_t *wire;
};

/* Decides about the nth datagram (from 0) of a link: returns false to drop it. */
typedef bool (*simnet_filter)(void *context, enum simnet_way way, unsigned path, uint64_t nth,
                              const uint8_t *wire, uint32_t bytes, harp_ns now);

/* A datagram that may be sent again. */
struct simnet_kept {
  enum simnet_way way;
  unsigned path;
  uint32_t bytes;
  bool ect;
  uint8_t *wire; /* NULL: none */
};

struct simnet_event;
struct simnet {
  struct rng rng;
  struct simnet_link links[SIMNET_WAYS][SIMNET_PATHS_MAX];
  simnet_filter filter;
  void *filter_context;
  uint64_t order;
  uint64_t delivered, dropped;
  uint32_t count, room; /* the count and the room of the heap */
  struct simnet_event *heap;
  struct simnet_kept kept[SIMNET_KEPT];
  uint32_t free_count, free_room;
  uint8_t **free_wires;
};

/* Empties the network and clears every fault; keeps its memory. The struct must be zero the first time. */
void simnet_reset(struct simnet *n, uint64_t seed);
void simnet_fini(struct simnet *n);

void simnet_send(struct simnet *n, enum simnet_way way, unsigned path, const uint8_t *wire, uint32_t bytes,
                 bool ect, harp_ns now);

/* Sends a datagram that is of neither end; it is not lost, and counts as touched at its first byte. */
void simnet_inject(struct simnet *n, enum simnet_way way, unsigned path, const uint8_t *wire, uint32_t bytes,
                   harp_ns now);

/* Returns when the next datagram arrives, HARP_NEVER when none is under way. */
harp_ns simnet_next_ns(const struct simnet *n);

/* Returns where the next datagram goes without taking it; the network must not be empty. */
enum simnet_way simnet_next_way(const struct simnet *n);

/* Shows it; valid until the network changes. */
const struct simnet_datagram *simnet_next(const struct simnet *n);

/* Drops the next datagram. */
void simnet_drop(struct simnet *n);

/* Delays the next datagram until `at`, behind whatever arrives then already. */
void simnet_postpone(struct simnet *n, harp_ns at);

/* Takes the next datagram; its wire bytes are the caller's until simnet_release. */
void simnet_take(struct simnet *n, struct simnet_datagram *d);
void simnet_release(struct simnet *n, struct simnet_datagram *d);

/* Ends every fault but blackholes that last for ever, MTU, rate, delay and drops_ect. */
void simnet_heal(struct simnet *n);

/* Drops all that is sent on the link during [from_ns, to_ns). */
void simnet_blackhole(struct simnet_link *l, harp_ns from_ns, harp_ns to_ns);

#endif
