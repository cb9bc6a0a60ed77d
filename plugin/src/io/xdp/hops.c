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

static void note_change(struct harp_xdp_hops *h, struct harp_xdp_hop *hop) {
  hop->version++;
  h->has_changed = true;
}

/* Sets what is known of a hop; mac NULL: it is not resolved. */
static void set_mac(struct harp_xdp_hops *h, struct harp_xdp_hop *hop, const uint8_t *mac) {
  hop->is_mac_due = false;
  if (hop->is_resolved == (mac != NULL) && (!mac || !memcmp(hop->mac, mac, sizeof hop->mac))) return;
  hop->is_resolved = mac != NULL;
  if (mac) memcpy(hop->mac, mac, sizeof hop->mac);
  note_change(h, hop);
}

static void make_due(struct harp_xdp_hops *h, struct harp_xdp_hop *hop, bool is_mac_due) {
  hop->is_mac_due |= is_mac_due;
  if (!hop->is_due) h->due_count++;
  hop->is_due = true;
}

/* ---- looking up ---- */

/* Returns another hop by the same gateway, whose MAC address is up to date. */
static const struct harp_xdp_hop *find_known(const struct harp_xdp_hops *h, const struct harp_xdp_hop *like) {
  const struct harp_xdp_hop *hop = h->first;
  while (hop &&
         (hop == like || !hop->has_via || hop->is_mac_due || !harp_neighbour_is_same(&hop->via, &like->via)))
    hop = hop->next;
  return hop;
}

static void find_mac(struct harp_xdp_hops *h, struct harp_xdp_hop *hop) {
  uint8_t mac[6];
  const struct harp_xdp_hop *known = find_known(h, hop);
  if (known)
    set_mac(h, hop, known->is_resolved ? known->mac : NULL);
  else
    set_mac(h, hop, harp_neighbour_find_mac(h->ifindex, &hop->via, mac) ? NULL : mac);
}

static void look_up(struct harp_xdp_hops *h, struct harp_xdp_hop *hop) {
  struct harp_neighbour via;
  HARP_ASSERT(hop->is_due && h->due_count);
  hop->is_due = false;
  h->due_count--;
  bool has_via = !harp_neighbour_find(h->ifindex, &h->local, &hop->peer, &via);
  bool is_same = has_via && hop->has_via && harp_neighbour_is_same(&via, &hop->via);
  hop->has_via = has_via;
  if (!has_via) {
    set_mac(h, hop, NULL);
  } else if (!is_same || hop->is_mac_due) {
    hop->via = via;
    hop->is_mac_due = true;
    find_mac(h, hop);
  }
}

static void look_up_one(struct harp_xdp_hops *h) {
  struct harp_xdp_hop *hop = h->first;
  while (hop && !hop->is_due) hop = hop->next;
  HARP_ASSERT(hop);
  look_up(h, hop);
}

/* ---- news ---- */

static void set_own_mac(struct harp_xdp_hops *h, const uint8_t mac[6]) {
  if (!memcmp(h->mac, mac, sizeof h->mac)) return;
  memcpy(h->mac, mac, sizeof h->mac);
  for (struct harp_xdp_hop *hop = h->first; hop; hop = hop->next) note_change(h, hop);
}

/* Whether an address begins with the first bits of another. */
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
    return;
  case HARP_NEIGHBOUR_ROUTE:
    if (begins_with(&hop->peer, &news->hop, news->bits)) make_due(h, hop, false);
    return;
  case HARP_NEIGHBOUR_LINK:
    make_due(h, hop, false); /* the kernel removes routes without a word */
    return;
  case HARP_NEIGHBOUR_LOST:
    make_due(h, hop, true);
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
  h->is_mac_due = err && err != -ENODEV; /* retried at the next review */
  if (!err) set_own_mac(h, mac);
}

bool harp_xdp_hops_review(struct harp_xdp_hops *h, harp_ns now) {
  if (harp_unlikely(now >= h->read_ns)) {
    bool is_more = h->watch_fd >= 0 && harp_neighbour_read(h->watch_fd, h->ifindex, on_news, h);
    h->read_ns = is_more ? now : now + HARP_XDP_HOPS_READ_NS;
    if (h->is_mac_due) read_own_mac(h);
  }
  if (harp_unlikely(h->due_count) && now >= h->look_ns) {
    h->look_ns = now + HARP_XDP_HOPS_LOOK_NS;
    look_up_one(h);
  }
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
    make_due(h, hop, true);
    look_up(h, hop);
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
