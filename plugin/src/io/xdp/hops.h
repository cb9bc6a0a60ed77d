/* SPDX-License-Identifier: Apache-2.0 */
/* The next hops of a driver's routes: one for each peer's address, however many routes lead there, with the
 * MAC address that frames to it have.
 *
 * The kernel's news say most: a neighbour's MAC address, and the interface's own. New hops are looked up, and
 * after a route that changes, a link that changes, and news that were lost, those that it may concern: all
 * together in a round by a thread of its own (look_up.h). What is known is used meanwhile. News that come
 * during a round may be newer than its answers: the hops that they may concern are looked up once more.
 * Called by the xdp driver, under the engine's lock. */
#ifndef HARP_IO_XDP_HOPS_H
#define HARP_IO_XDP_HOPS_H

#include "io/xdp/look_up.h"

/* Between two reads of the news, and before a round is tried again that cannot start. */
#define HARP_XDP_HOPS_READ_NS HARP_MS(50)

struct harp_xdp_hop {
  struct harp_xdp_hop *next;
  unsigned users;
  struct sockaddr_storage peer;
  bool has_via;              /* there is a route by the interface */
  struct harp_neighbour via; /* the next hop of that */
  bool is_resolved;
  uint8_t mac[6];
  bool is_due;      /* it is to be looked up in the next round */
  unsigned place;   /* its place in the round that is under way, from 1; 0: none */
  unsigned version; /* the version changes with is_resolved, and with either MAC address */
};

struct harp_xdp_hops {
  unsigned ifindex;
  struct sockaddr_storage local;
  uint8_t mac[6];   /* the interface's */
  bool is_mac_due;  /* it is to be read again */
  bool is_gone;     /* the interface is */
  bool has_changed; /* some hop's version has, since the last harp_xdp_hops_on_time */
  int watch_fd;     /* < 0: nothing is noticed */
  struct harp_xdp_hop *first;
  unsigned due_count;
  struct harp_xdp_look_ups *round; /* the round under way; NULL: none */
  harp_ns round_ns, read_ns; /* the times when the next round may start, and when the news are read next */
};

/* Begins to notice changes. `mac`: of the interface. */
void harp_xdp_hops_open(struct harp_xdp_hops *h, unsigned ifindex, const struct sockaddr_storage *local,
                        const uint8_t mac[6]);
void harp_xdp_hops_close(struct harp_xdp_hops *h);

/* Returns the hop to a peer for one more user; its port counts for nothing. A new one is not resolved yet.
 * NULL: no memory. */
struct harp_xdp_hop *harp_xdp_hops_take(struct harp_xdp_hops *h, const struct sockaddr_storage *peer);
void harp_xdp_hops_give(struct harp_xdp_hops *h, struct harp_xdp_hop *hop);

/* Reads news when it is time, takes the answers of a round, and starts the next. Waits for nothing. Returns
 * whether a hop has changed since the last call. */
bool harp_xdp_hops_on_time(struct harp_xdp_hops *h, harp_ns now);

#endif
