/* SPDX-License-Identifier: Apache-2.0 */
/* The next hops of a driver's routes: one for each peer's address, however many routes lead there, with the
 * MAC address that frames to it have.
 *
 * The kernel's news say most: a neighbour's MAC address, and the interface's own. Only a route that changes,
 * a link that changes, and news that were lost have next hops looked up again, those that it may concern, one
 * after the other with HARP_XDP_HOPS_LOOK_NS between: what is known is used meanwhile. A look-up takes some
 * 20 us, and the caller has the engine's lock. Called by the xdp driver, in passes. */
#ifndef HARP_IO_XDP_HOPS_H
#define HARP_IO_XDP_HOPS_H

#include "io/xdp/neighbour.h"

#define HARP_XDP_HOPS_LOOK_NS HARP_US(200)
#define HARP_XDP_HOPS_READ_NS HARP_MS(50) /* between two reads of the news */

struct harp_xdp_hop {
  struct harp_xdp_hop *next;
  unsigned users;
  struct sockaddr_storage peer;
  bool has_via;              /* there is a route by the interface */
  struct harp_neighbour via; /* the next hop of that */
  bool is_resolved;
  uint8_t mac[6];
  bool is_due, is_mac_due; /* to be looked up again: the route, and also the MAC address */
  unsigned version;        /* changes with is_resolved, and with either MAC address */
};

struct harp_xdp_hops {
  unsigned ifindex;
  struct sockaddr_storage local;
  uint8_t mac[6];   /* the interface's */
  bool is_mac_due;  /* it is to be read again */
  bool is_gone;     /* the interface is */
  bool has_changed; /* some hop's version, since the last review */
  int watch_fd;     /* < 0: nothing is noticed */
  struct harp_xdp_hop *first;
  unsigned due_count;
  harp_ns look_ns, read_ns;
};

/* Begins to notice changes. `mac`: of the interface. */
void harp_xdp_hops_open(struct harp_xdp_hops *h, unsigned ifindex, const struct sockaddr_storage *local,
                        const uint8_t mac[6]);
void harp_xdp_hops_close(struct harp_xdp_hops *h);

/* Returns the hop to a peer for one more user; its port counts for nothing. Looks up a new one. NULL: no
 * memory. */
struct harp_xdp_hop *harp_xdp_hops_take(struct harp_xdp_hops *h, const struct sockaddr_storage *peer);
void harp_xdp_hops_give(struct harp_xdp_hops *h, struct harp_xdp_hop *hop);

/* Reads news and looks one hop up, each when it is time. Returns whether a hop has changed since the last
 * call. */
bool harp_xdp_hops_review(struct harp_xdp_hops *h, harp_ns now);

#endif
