/* SPDX-License-Identifier: Apache-2.0 */
/* A round of look-ups of next hops, made by a thread of its own. The kernel answers under its rtnl lock,
 * which another process may hold for seconds while it changes the network: neither a pass nor NCCL waits for
 * that.
 *
 * The owner, who has the engine's lock, makes a round, names the peers, starts it, and reads the answers once
 * it is done. The thread ends with its round. The last of both frees the round. */
#ifndef HARP_IO_XDP_LOOK_UP_H
#define HARP_IO_XDP_LOOK_UP_H

#include <stdatomic.h>

#include "io/xdp/neighbour.h"

/* One peer, and what is found out about it. */
struct harp_xdp_look_up {
  struct sockaddr_storage peer;
  bool has_via;              /* there is a route by the interface */
  struct harp_neighbour via; /* the next hop of that */
  bool is_resolved;
  uint8_t mac[6];
};

struct harp_xdp_look_ups {
  unsigned ifindex;
  struct sockaddr_storage local;
  _Atomic int state; /* look_up.c's */
  unsigned count;
  struct harp_xdp_look_up at[];
};

/* Makes a round for so many peers, which the caller writes to `at`. NULL: no memory. */
struct harp_xdp_look_ups *harp_xdp_look_ups_make(unsigned ifindex, const struct sockaddr_storage *local,
                                                 unsigned count);
/* Starts the thread. Returns 0, or -errno: the round is the caller's alone. */
HARP_MUST_CHECK int harp_xdp_look_ups_start(struct harp_xdp_look_ups *l);
/* Returns whether the answers are there. */
bool harp_xdp_look_ups_are_done(const struct harp_xdp_look_ups *l);
/* Frees a round; one that is under way is left to its thread. */
void harp_xdp_look_ups_free(struct harp_xdp_look_ups *l);

#endif
