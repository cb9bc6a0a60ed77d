/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/candidates.h"

#include <netinet/in.h>

#include "base/address.h"
#include "base/assert.h"

static bool is_link_local(const struct sockaddr_storage *a) {
  return a->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

struct sockaddr_storage harp_candidate_to(const struct harp_instance *from,
                                          const struct sockaddr_storage *to) {
  struct sockaddr_storage a = *to;
  if (is_link_local(to)) ((struct sockaddr_in6 *)&a)->sin6_scope_id = harp_address_scope(&from->addr);
  return a;
}

static bool may_pair(const struct sockaddr_storage *from, const struct sockaddr_storage *to) {
  return from->ss_family == to->ss_family && is_link_local(from) == is_link_local(to);
}

/* Returns by how many places the peer's address lies behind the one with the number of our interface. */
static unsigned shift_of(const struct harp_candidate *c, unsigned to_count) {
  return (c->to + to_count - c->from % to_count) % to_count;
}

static bool is_better(const struct harp_candidate *a, const struct harp_candidate *b, unsigned to_count) {
  unsigned shift_a = shift_of(a, to_count), shift_b = shift_of(b, to_count);
  if (a->route.kind != b->route.kind) return a->route.kind < b->route.kind;
  if (a->route.prefix_bits != b->route.prefix_bits) return a->route.prefix_bits > b->route.prefix_bits;
  return shift_a != shift_b ? shift_a < shift_b : a->from < b->from;
}

unsigned harp_candidates_make(const struct harp_instance *enis, unsigned eni_count,
                              const struct harp_contact *contact, harp_route_finder *find,
                              struct harp_candidate out[HARP_CANDIDATES_MAX]) {
  unsigned count = 0;
  HARP_ASSERT(eni_count <= HARP_ENDPOINT_ENIS_MAX && contact->count <= HARP_HANDLE_ADDRESSES_MAX);
  for (unsigned from = 0; from < eni_count; from++) {
    if (enis[from].is_unnumbered) continue;
    for (unsigned to = 0; to < contact->count; to++) {
      if (!may_pair(&enis[from].addr, &contact->at[to])) continue;
      const struct sockaddr_storage there = harp_candidate_to(&enis[from], &contact->at[to]);
      struct harp_candidate c = {.from = (uint8_t)from, .to = (uint8_t)to};
      c.route = find(&enis[from].addr, (unsigned)enis[from].index, &there);
      unsigned at = count++;
      for (; at && is_better(&c, &out[at - 1], contact->count); at--) out[at] = out[at - 1];
      out[at] = c;
    }
  }
  return count;
}

int harp_candidates_diverted(const struct harp_candidate *candidates, unsigned count) {
  uint64_t own = 0, other = 0; /* interfaces by which packets leave, and by others than which */
  _Static_assert(HARP_ENDPOINT_ENIS_MAX <= 64, "a bit for each interface");
  for (unsigned i = 0; i < count; i++) {
    const struct harp_candidate *c = &candidates[i];
    *(c->route.kind == HARP_ROUTE_OTHER ? &other : &own) |=
        c->route.kind < HARP_ROUTE_SELF ? 1ull << c->from : 0;
  }
  return __builtin_ffsll((long long)(other & ~own)) - 1;
}
