/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/packet_sizes.h"

#include "base/address.h"
#include "engine/engine.h"
#include "proto/path_report.h"

enum { UDP_HEADER_BYTES = 8, IP4_HEADER_BYTES = 20, IP6_HEADER_BYTES = 40 };

/* Returns the size of the IP packet that carries so much payload. */
static uint32_t ip_bytes(const struct harp_peer *peer, const struct sockaddr_storage *to,
                         uint32_t payload_bytes) {
  uint32_t ip_header = to->ss_family == AF_INET6 ? IP6_HEADER_BYTES : IP4_HEADER_BYTES;
  return ip_header + UDP_HEADER_BYTES + HARP_DATA_HEADER_BYTES + payload_bytes +
         harp_session_mac_bytes(&peer->session);
}

/* Returns whether another path between the same interfaces was seen with that limit already; or, where there
 * is no more limit, still has one. */
static bool is_known(const struct harp_peer *peer, const struct harp_path_report *r, unsigned path,
                     uint16_t limit) {
  for (unsigned i = 0; i < peer->route_count; i++) {
    uint16_t others = peer->packet_limits[i];
    if (i == path || (limit ? others != limit : !others)) continue;
    struct harp_path_report other = harp_path_report_of(&peer->session, i);
    if (other.state == HARP_PATH_UP && other.local_eni == r->local_eni && other.remote_eni == r->remote_eni)
      return true;
  }
  return false;
}

static void log_limit(struct harp_peer *peer, const struct harp_path_report *r, harp_ns now) {
  const struct sockaddr_storage *to = &peer->enis[r->remote_eni];
  const char *ifname = peer->engine->enis[r->local_eni].ifname;
  char address[HARP_IP_TEXT_BYTES];
  harp_address_ip_text(to, address);
  if (r->is_size_limited)
    HARP_INFO_LIMITED(
        &peer->log, now,
        "%s: packets of %u bytes do not arrive at the interface %s of %s; continuing with %u bytes: "
        "the MTU of the network between them may be smaller than that of the interfaces",
        ifname, ip_bytes(peer, to, r->packet_max_bytes), address, peer->name,
        ip_bytes(peer, to, r->packet_bytes));
  else
    HARP_INFO_LIMITED(&peer->log, now, "%s: packets of %u bytes arrive at the interface %s of %s again",
                      ifname, ip_bytes(peer, to, r->packet_bytes), address, peer->name);
}

/* Logs a new limit of a path, or its end. A path that was silent begins with small packets, which is no
 * limit, and no end of one. */
static void log_path_limit(struct harp_peer *peer, unsigned path, harp_ns now) {
  struct harp_path_report r = harp_path_report_of(&peer->session, path);
  uint16_t limit = r.is_size_limited ? (uint16_t)r.packet_bytes : 0;
  if (limit == peer->packet_limits[path] || (!limit && r.packet_bytes < r.packet_max_bytes)) return;
  if (!is_known(peer, &r, path, limit)) log_limit(peer, &r, now);
  peer->packet_limits[path] = limit;
}

void harp_packet_sizes_on_pass(struct harp_engine *e, harp_ns now) {
  if (harp_likely(e->counters.size_changes == e->size_changes_seen)) return;
  e->size_changes_seen = e->counters.size_changes;
  struct harp_peer_walk walk = harp_engine_peers(e);
  for (struct harp_peer *peer; (peer = harp_engine_next_peer(&walk));)
    for (unsigned i = 0; i < peer->route_count; i++) log_path_limit(peer, i, now);
}
