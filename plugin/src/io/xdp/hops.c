/* SPDX-License-Identifier: Apache-2.0 */
/* See hops.h. */
#include "io/xdp/hops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "io/nic.h"

static void count_change(struct harp_xdp_hops *h, struct harp_xdp_hop *hop) {
  hop->version++;
  h->has_changed = true;
}

/* Sets what is known of a hop; mac NULL: it is not resolved. */
static void set_mac(struct harp_xdp_hops *h, struct harp_xdp_hop *hop, const uint8_t *mac) {
  if (hop->is_resolved == (mac != NULL) && (!mac || !memcmp(hop->mac, mac, sizeof hop->mac))) return;
  hop->is_resolved = mac != NULL;
  if (mac) memcpy(hop->mac, mac, sizeof hop->mac);
  count_change(h, hop);
}

static void make_due(struct harp_xdp_hops *h, struct harp_xdp_hop *hop) {
  if (!hop->is_due) h->due_count++;
  hop->is_due = true;
}

/* ---- rounds ---- */

static void take_answer(struct harp_xdp_hops *h, struct harp_xdp_hop *hop,
                        const struct harp_xdp_look_up *answer) {
  hop->has_via = answer->has_via;
  hop->via = answer->via;
  set_mac(h, hop, answer->is_resolved ? answer->mac : NULL);
}

static void end_round(struct harp_xdp_hops *h) {
  for (struct harp_xdp_hop *hop = h->first; hop; hop = hop->next) {
    /* One that is due again has had news since. */
    if (hop->place && !hop->is_due) take_answer(h, hop, &h->round->at[hop->place - 1]);
    hop->place = 0;
  }
  harp_xdp_look_ups_free(h->round);
  h->round = NULL;
}

/* Starts a round of all that are due. Returns 0 or -errno. */
static int start_round(struct harp_xdp_hops *h) {
  struct harp_xdp_look_ups *round = harp_xdp_look_ups_make(h->ifindex, &h->local, h->due_count);
  unsigned n = 0;
  if (!round) return -ENOMEM;
  for (struct harp_xdp_hop *hop = h->first; hop; hop = hop->next)
    if (hop->is_due) round->at[n++].peer = hop->peer;
  HARP_ASSERT(n == h->due_count);
  int err = harp_xdp_look_ups_start(round);
  if (err) {
    harp_xdp_look_ups_free(round);
    return err;
  }
  n = 0;
  for (struct harp_xdp_hop *hop = h->first; hop; hop = hop->next) {
    if (hop->is_due) hop->place = ++n;
    hop->is_due = false;
  }
  h->due_count = 0;
  h->round = round;
  return 0;
}

/* ---- news ---- */

static void set_own_mac(struct harp_xdp_hops *h, const uint8_t mac[6]) {
  if (!memcmp(h->mac, mac, sizeof h->mac)) return;
  memcpy(h->mac, mac, sizeof h->mac);
  for (struct harp_xdp_hop *hop = h->first; hop; hop = hop->next) count_change(h, hop);
}

/* Returns whether an address begins with the first bits of another. */
static bool begins_with(const struct sockaddr_storage *address, const struct harp_neighbour *prefix,
                        unsigned bits) {
  if (address->ss_family != prefix->family) return false;
  struct sockaddr_storage first = harp_address_make(harp_address_version(address), prefix->ip, 0, 0);
  return harp_address_common_bits(address, &first) >= bits;
}

static void take_news(struct harp_xdp_hops *h, struct harp_xdp_hop *hop,
                      const struct harp_neighbour_news *news) {
  switch (news->event) {
  case HARP_NEIGHBOUR_RESOLVED:
  case HARP_NEIGHBOUR_FAILED:
    if (hop->has_via && harp_neighbour_is_same(&hop->via, &news->hop))
      set_mac(h, hop, news->has_mac ? news->mac : NULL);
    if (hop->place) make_due(h, hop); /* it may be the next hop that the round finds */
    return;
  case HARP_NEIGHBOUR_ROUTE:
    if (begins_with(&hop->peer, &news->hop, news->bits)) make_due(h, hop);
    return;
  case HARP_NEIGHBOUR_LINK: /* the kernel removes routes without a word */
  case HARP_NEIGHBOUR_LOST:
    make_due(h, hop);
    return;
  default:
    return;
  }
}

static void on_news(void *owner, const struct harp_neighbour_news *news) {
  struct harp_xdp_hops *h = owner;
  h->is_gone |= news->event == HARP_NEIGHBOUR_GONE;
  h->is_mac_due |= news->event == HARP_NEIGHBOUR_LOST;
  if (news->event == HARP_NEIGHBOUR_LINK && news->has_mac) set_own_mac(h, news->mac);
  for (struct harp_xdp_hop *hop = h->first; hop; hop = hop->next) take_news(h, hop, news);
}

static void read_own_mac(struct harp_xdp_hops *h) {
  uint8_t mac[6];
  int err = harp_nic_mac(h->ifindex, mac);
  h->is_gone |= err == -ENODEV;
  h->is_mac_due = err && err != -ENODEV; /* it is tried again at the next harp_xdp_hops_on_time */
  if (!err) set_own_mac(h, mac);
}

bool harp_xdp_hops_on_time(struct harp_xdp_hops *h, harp_ns now) {
  if (harp_unlikely(now >= h->read_ns)) {
    bool is_more = h->watch_fd >= 0 && harp_neighbour_read(h->watch_fd, h->ifindex, on_news, h);
    h->read_ns = is_more ? now : now + HARP_XDP_HOPS_READ_NS;
    if (h->is_mac_due) read_own_mac(h);
  }
  if (harp_unlikely(h->round != NULL) && harp_xdp_look_ups_are_done(h->round)) end_round(h);
  if (harp_unlikely(h->due_count) && !h->round && now >= h->round_ns && start_round(h))
    h->round_ns = now + HARP_XDP_HOPS_READ_NS;
  bool has_changed = h->has_changed;
  h->has_changed = false;
  return has_changed;
}

/* ---- hops ---- */

void harp_xdp_hops_open(struct harp_xdp_hops *h, unsigned ifindex, const struct sockaddr_storage *local,
                        const uint8_t mac[6]) {
  *h = (struct harp_xdp_hops){.ifindex = ifindex, .local = *local, .watch_fd = harp_neighbour_watch()};
  memcpy(h->mac, mac, sizeof h->mac);
}

void harp_xdp_hops_close(struct harp_xdp_hops *h) {
  HARP_ASSERT(!h->first);
  harp_xdp_look_ups_free(h->round);
  h->round = NULL;
  if (h->watch_fd >= 0) close(h->watch_fd);
  h->watch_fd = -1;
}

struct harp_xdp_hop *harp_xdp_hops_take(struct harp_xdp_hops *h, const struct sockaddr_storage *peer) {
  struct harp_xdp_hop *hop = h->first;
  while (hop && !harp_address_has_same_ip(&hop->peer, peer)) hop = hop->next;
  if (!hop) {
    hop = calloc(1, sizeof *hop);
    if (!hop) return NULL;
    hop->peer = *peer;
    hop->next = h->first;
    h->first = hop;
    make_due(h, hop);
  }
  hop->users++;
  return hop;
}

void harp_xdp_hops_give(struct harp_xdp_hops *h, struct harp_xdp_hop *hop) {
  struct harp_xdp_hop **at = &h->first;
  HARP_ASSERT(hop->users);
  if (--hop->users) return;
  while (*at != hop) at = &(*at)->next;
  *at = hop->next;
  h->due_count -= hop->is_due;
  free(hop);
}
