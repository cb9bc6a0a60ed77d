/* SPDX-License-Identifier: Apache-2.0 */
/* From which interface to which of the peer's addresses a connect may go, the best pair first.
 *
 * The rules, the first that decides:
 * 1. the route: in the same subnet; by a gateway; by another interface; to this host itself; none known
 *    (host/route.h);
 * 2. of several gateways the longest prefix: a route to the peer's network before a default route;
 * 3. a pair that shares no interface with those before it: the first interface with the first address, the
 *    second with the second, and so on, before each of them with the next address. Where one interface is
 *    broken the next pair avoids it on both sides;
 * 4. our order of interfaces. */
#ifndef HARP_CANDIDATES_H
#define HARP_CANDIDATES_H

#include "engine/control/handle.h"
#include "host/config.h"
#include "host/route.h"

enum { HARP_CANDIDATES_MAX = HARP_ENDPOINT_ENIS_MAX * HARP_HANDLE_ADDRESSES_MAX };

struct harp_candidate {
  uint8_t from, to; /* our interface; the peer's address */
  struct harp_route route;
};

typedef struct harp_route harp_route_finder(const struct sockaddr_storage *from, unsigned ifindex,
                                            const struct sockaddr_storage *to);

/* Fills `out` with the pairs of one family, the best first. Returns how many; 0: the families differ. */
unsigned harp_candidates_make(const struct harp_instance *enis, unsigned eni_count,
                              const struct harp_contact *contact, harp_route_finder *find,
                              struct harp_candidate out[HARP_CANDIDATES_MAX]);

/* Returns the first interface of which all packets to the peer leave by other ones, as the routing tables
 * say; -1: there is none. */
int harp_candidates_diverted(const struct harp_candidate *candidates, unsigned count);

/* Returns the peer's address of a pair; a link-local one has the scope of our interface, since what the peer
 * calls its own means nothing here. */
struct sockaddr_storage harp_candidate_to(const struct harp_instance *from,
                                          const struct sockaddr_storage *to);

#endif
