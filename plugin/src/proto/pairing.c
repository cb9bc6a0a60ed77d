/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/pairing.h"

#include <string.h>

#include "base/assert.h"

enum { ENIS_MAX = HARP_ENDPOINT_ENIS_MAX, PRIMARY_MIN = HARP_PATHS_MAX / 2 };

/* Both sides while pairs are being made: `many` is the one with more ENIs, the client where they are even. */
struct pairing {
  const struct harp_endpoint *many, *few;
  bool swapped; /* the server has more ENIs */
  uint32_t speed_default;
  uint64_t load_many[ENIS_MAX], load_few[ENIS_MAX]; /* speeds of the partners, added up */
  uint8_t paths[ENIS_MAX]
               [ENIS_MAX]; /* the number of paths of each pair so far, by the index in `many` and in `few` */
  bool primary[ENIS_MAX][ENIS_MAX];
  unsigned standby_many[ENIS_MAX], standby_few[ENIS_MAX];
  unsigned count;
  struct harp_pairing *out;
};

/* An unknown speed counts as the fastest known one. */
static uint64_t speed_of(const struct pairing *g, const struct harp_endpoint_eni *e) {
  return e->speed_mbps ? e->speed_mbps : g->speed_default;
}

static uint32_t fastest_speed_of(const struct harp_endpoint *a, const struct harp_endpoint *b) {
  uint32_t best = 1;
  for (unsigned i = 0; i < a->eni_count; i++) best = HARP_MAX(best, a->enis[i].speed_mbps);
  for (unsigned i = 0; i < b->eni_count; i++) best = HARP_MAX(best, b->enis[i].speed_mbps);
  return best;
}

static bool may_pair(const struct pairing *g, unsigned m, unsigned f) {
  return g->many->enis[m].family == g->few->enis[f].family;
}

static void join_pair(struct pairing *g, unsigned m, unsigned f) {
  g->primary[m][f] = true;
  g->load_few[f] += speed_of(g, &g->many->enis[m]);
  g->load_many[m] += speed_of(g, &g->few->enis[f]);
}

/* Returns how many leading bits the addresses of two ENIs have in common: the more, the likelier it is that
 * they are in one subnet. */
static unsigned common_bits(const struct harp_endpoint_eni *a, const struct harp_endpoint_eni *b) {
  unsigned bytes = 0;
  while (bytes < sizeof a->addr && a->addr[bytes] == b->addr[bytes]) bytes++;
  if (bytes == sizeof a->addr) return 8 * bytes;
  unsigned different = (unsigned)a->addr[bytes] ^ b->addr[bytes];
  return 8 * bytes + (unsigned)__builtin_clz(different) - 24;
}

/* Returns whether a is the better partner: by its load for its speed, else by its address. */
static bool is_better(uint64_t load_a, uint64_t speed_a, unsigned bits_a, uint64_t load_b, uint64_t speed_b,
                      unsigned bits_b) {
  uint64_t a = load_a * speed_b, b = load_b * speed_a;
  return a != b ? a < b : bits_a > bits_b;
}

/* Returns whether an ENI of `few` with an address may be joined to ENI m of `many`. */
static bool has_numbered(const struct pairing *g, unsigned m) {
  unsigned f = 0;
  while (f < g->few->eni_count && (!may_pair(g, m, f) || g->few->enis[f].is_unnumbered)) f++;
  return f < g->few->eni_count;
}

/* Joins ENI m of `many` to the ENI of `few` that would be the least loaded for its speed. One that has an
 * address is joined to one that has, too, where there is one. */
static void join_many(struct pairing *g, unsigned m) {
  const struct harp_endpoint_eni *own = &g->many->enis[m], *few = g->few->enis;
  uint64_t speed = speed_of(g, own);
  bool needs_numbered = !own->is_unnumbered && has_numbered(g, m);
  int best = -1;
  for (unsigned f = 0; f < g->few->eni_count; f++) {
    if (!may_pair(g, m, f) || (needs_numbered && few[f].is_unnumbered)) continue;
    if (best < 0 ||
        is_better(g->load_few[f] + speed, speed_of(g, &few[f]), common_bits(own, &few[f]),
                  g->load_few[best] + speed, speed_of(g, &few[best]), common_bits(own, &few[best])))
      best = (int)f;
  }
  if (best >= 0) join_pair(g, m, (unsigned)best);
}

/* Joins an ENI of `few` that nobody chose, for its family or its lack of speed. */
static void join_few(struct pairing *g, unsigned f) {
  const struct harp_endpoint_eni *own = &g->few->enis[f], *many = g->many->enis;
  int best = -1;
  for (unsigned m = 0; m < g->many->eni_count; m++) {
    if (!may_pair(g, m, f)) continue;
    if (best < 0 || is_better(g->load_many[m], speed_of(g, &many[m]), common_bits(own, &many[m]),
                              g->load_many[best], speed_of(g, &many[best]), common_bits(own, &many[best])))
      best = (int)m;
  }
  if (best >= 0) join_pair(g, (unsigned)best, f);
}

/* Returns whether ENI a of `many` chooses before ENI b, which has the lower index. */
static bool chooses_before(const struct pairing *g, const struct harp_endpoint_eni *a,
                           const struct harp_endpoint_eni *b) {
  if (a->is_unnumbered != b->is_unnumbered) return b->is_unnumbered;
  return speed_of(g, a) > speed_of(g, b);
}

/* Joins all ENIs of `many`. Those with an address choose first, of these the fast ones, else by index. */
static void join_all(struct pairing *g) {
  bool done[ENIS_MAX] = {false};
  for (unsigned n = 0; n < g->many->eni_count; n++) {
    int next = -1;
    for (unsigned m = 0; m < g->many->eni_count; m++) {
      if (!done[m] && (next < 0 || chooses_before(g, &g->many->enis[m], &g->many->enis[next]))) next = (int)m;
    }
    done[next] = true;
    join_many(g, (unsigned)next);
  }
  for (unsigned f = 0; f < g->few->eni_count; f++) {
    if (!g->load_few[f]) join_few(g, f);
  }
}

static void add_path(struct pairing *g, unsigned m, unsigned f) {
  HARP_ASSERT(g->count < HARP_PATHS_MAX);
  const struct harp_endpoint_eni *a = &g->many->enis[m], *b = &g->few->enis[f];
  unsigned k = g->paths[m][f]++;
  uint8_t many_port = (uint8_t)(k % a->port_count), few_port = (uint8_t)(k % b->port_count);
  struct harp_pairing *p = &g->out[g->count++];
  bool standby = !g->primary[m][f];
  *p = (struct harp_pairing){(uint8_t)m, many_port, (uint8_t)f, few_port, standby, false};
  if (g->swapped) *p = (struct harp_pairing){(uint8_t)f, few_port, (uint8_t)m, many_port, standby, false};
  if (!p->standby) return;
  g->standby_many[m]++;
  g->standby_few[f]++;
}

static bool has_datagrams(const struct pairing *g, unsigned m, unsigned f) {
  return g->many->enis[m].port_count && g->few->enis[f].port_count;
}

/* Returns whether the pair may have another path: no two with the same ports. */
static bool has_ports(const struct pairing *g, unsigned m, unsigned f, unsigned ports) {
  unsigned different = HARP_MAX(g->many->enis[m].port_count, g->few->enis[f].port_count);
  return has_datagrams(g, m, f) && g->paths[m][f] < HARP_MIN(ports, different);
}

/* The next standby path goes to the pair that has the fewest, and of those to the ENIs that have the fewest,
 * so that what does not fit is missing evenly. Returns false when every pair has `ports`. */
static bool add_standby(struct pairing *g, unsigned ports) {
  unsigned best_m = 0, best_f = 0, best = ~0u;
  for (unsigned m = 0; m < g->many->eni_count; m++) {
    for (unsigned f = 0; f < g->few->eni_count; f++) {
      if (g->primary[m][f] || !may_pair(g, m, f) || !has_ports(g, m, f, ports)) continue;
      unsigned cost = g->paths[m][f] * 1024u + g->standby_many[m] + g->standby_few[f];
      if (cost < best) best = cost, best_m = m, best_f = f;
    }
  }
  if (best == ~0u) return false;
  add_path(g, best_m, best_f);
  return true;
}

/* Returns how many paths each primary pair gets. Half of all places at least are for them; what standby
 * pairs there are take the rest. */
static unsigned primary_ports(const struct pairing *g, unsigned wanted, unsigned *pairs) {
  unsigned standby = 0;
  *pairs = 0;
  for (unsigned m = 0; m < g->many->eni_count; m++) {
    for (unsigned f = 0; f < g->few->eni_count; f++) {
      *pairs += g->primary[m][f];
      standby += !g->primary[m][f] && may_pair(g, m, f);
    }
  }
  if (!*pairs) return 0;
  unsigned room = HARP_MAX((unsigned)HARP_PATHS_MAX - standby, (unsigned)PRIMARY_MIN) / *pairs;
  return HARP_MAX(HARP_MIN(wanted, room), 1u);
}

/* A standby pair has a tcp path where it can have no other. */
static bool is_tcp_pair(const struct pairing *g, unsigned m, unsigned f) {
  return may_pair(g, m, f) && g->many->enis[m].tcp_port && g->few->enis[f].tcp_port &&
         (g->primary[m][f] || !has_datagrams(g, m, f));
}

/* Returns how many tcp paths each primary pair gets: as many as are wanted, where every standby pair still
 * finds a place. */
static unsigned tcp_ports(const struct pairing *g, unsigned wanted, unsigned *pairs) {
  unsigned standby = 0;
  *pairs = 0;
  for (unsigned m = 0; m < g->many->eni_count; m++) {
    for (unsigned f = 0; f < g->few->eni_count; f++) {
      *pairs += is_tcp_pair(g, m, f) && g->primary[m][f];
      standby += may_pair(g, m, f) && !g->primary[m][f];
    }
  }
  if (!*pairs) return 0;
  unsigned taken = HARP_MIN(g->count + standby, (unsigned)HARP_PATHS_MAX);
  return HARP_MAX(HARP_MIN(wanted, (HARP_PATHS_MAX - taken) / *pairs), 1u);
}

/* One for each pair; where the datagram paths take all places, pairs are left without. */
static void add_tcp(struct pairing *g, bool standby) {
  for (unsigned m = 0; m < g->many->eni_count; m++) {
    for (unsigned f = 0; f < g->few->eni_count && g->count < HARP_PATHS_MAX; f++) {
      if (!is_tcp_pair(g, m, f) || g->primary[m][f] == standby) continue;
      g->out[g->count++] = (struct harp_pairing){.client_eni = (uint8_t)(g->swapped ? f : m),
                                                 .server_eni = (uint8_t)(g->swapped ? m : f),
                                                 .standby = standby,
                                                 .is_tcp = true};
    }
  }
}

unsigned harp_pairing_make(const struct harp_endpoint *client, const struct harp_endpoint *server,
                           struct harp_pairing out[HARP_PATHS_MAX]) {
  bool swapped = server->eni_count > client->eni_count;
  struct pairing g = {.many = swapped ? server : client,
                      .few = swapped ? client : server,
                      .swapped = swapped,
                      .speed_default = fastest_speed_of(client, server),
                      .out = out};
  unsigned pairs, wanted = HARP_MIN(client->path_count, server->path_count);
  join_all(&g);
  unsigned ports = primary_ports(&g, wanted, &pairs);
  /* Port by port, so that the first paths use every ENI. */
  for (unsigned k = 0; k < ports; k++) {
    for (unsigned m = 0; m < g.many->eni_count; m++) {
      for (unsigned f = 0; f < g.few->eni_count; f++) {
        if (g.primary[m][f] && has_ports(&g, m, f, ports)) add_path(&g, m, f);
      }
    }
  }
  unsigned tcp_pairs, tcp = tcp_ports(&g, wanted, &tcp_pairs);
  while (pairs && g.count + tcp * tcp_pairs < HARP_PATHS_MAX && add_standby(&g, ports)) {
  }
  for (unsigned k = 0; k < tcp; k++) add_tcp(&g, false);
  add_tcp(&g, true);
  return g.count;
}
