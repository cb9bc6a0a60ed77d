/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/routes.h"

#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/log_limit.h"
#include "engine/engine.h"
#include "host/random.h"
#include "host/sparse.h"
#include "proto/pairing.h"

/* ---- our interfaces ---- */

void harp_routes_describe(const struct harp_engine *e, unsigned eni, struct harp_endpoint_eni *out) {
  const struct harp_instance *instance = &e->enis[eni];
  const struct harp_io_info *info = &harp_engine_io(e, eni)->info;
  uint16_t port = e->tcp ? harp_tcp_port(e->tcp, eni) : 0;
  bool takes_paths = harp_tcp_is_wanted(e, eni);
  *out = (struct harp_endpoint_eni){
      .family = (uint8_t)harp_address_version(&instance->addr),
      .is_unnumbered = instance->is_unnumbered,
      .mtu = (uint16_t)HARP_MIN(instance->mtu, 65535),
      .speed_mbps = (uint32_t)instance->speed_mbps,
      .tcp_port = takes_paths ? port : 0,
      .answer_port = takes_paths ? 0 : port,
      .port_count = (uint8_t)info->port_count,
  };
  memcpy(out->ports, info->ports, sizeof out->ports[0] * info->port_count);
  memcpy(out->addr, harp_address_ip(&instance->addr), harp_ip_bytes(instance->addr.ss_family));
  if (!instance->is_unnumbered) return;
  out->port_count = e->late[eni].port_count;
  out->tcp_port = e->tcp && takes_paths;
}

static void tell_address(struct harp_peer *peer, unsigned eni) {
  struct harp_numbered numbered = {.index = (uint16_t)eni};
  harp_routes_describe(peer->engine, eni, &numbered.eni);
  (void)harp_monitor_send_address(peer, &numbered); /* without a control connection it stays out */
}

void harp_routes_tell_news(struct harp_peer *peer, const struct harp_endpoint *told) {
  for (unsigned eni = 0; eni < told->eni_count; eni++)
    if (told->enis[eni].is_unnumbered && !peer->engine->enis[eni].is_unnumbered) tell_address(peer, eni);
}

/* ---- the paths of a peer ---- */

static struct sockaddr_storage eni_address(const struct harp_endpoint_eni *eni, uint16_t port,
                                           uint32_t scope) {
  return harp_address_make(eni->family, eni->addr, port, scope);
}

/* Lines of payload that fit into a packet of this MTU: IP and UDP headers and our own off, whole lines. */
static uint32_t lines_of_mtu(const struct harp_endpoint_eni *eni, uint32_t mtu, uint32_t mac_bytes) {
  uint32_t headers = (eni->family == 6 ? 40u : 20u) + 8u + HARP_DATA_HEADER_BYTES + mac_bytes;
  uint32_t lines = (mtu - headers) / HARP_LINE_BYTES;
  return HARP_MAX(HARP_MIN(lines, (uint32_t)HARP_PACKET_MAX_LINES), (uint32_t)HARP_PACKET_MIN_LINES);
}

/* One end of each path, and what both ends agree on. */
struct span {
  unsigned local_eni, local_port, remote_eni, remote_port;
  uint32_t lines_max;
  bool standby, is_tcp;
};

static struct span span_of(const struct harp_peer_config *c, const struct harp_pairing *p) {
  struct span s = {
      .local_eni = c->is_client ? p->client_eni : p->server_eni,
      .local_port = c->is_client ? p->client_port : p->server_port,
      .remote_eni = c->is_client ? p->server_eni : p->client_eni,
      .remote_port = c->is_client ? p->server_port : p->client_port,
      .standby = p->standby,
      .is_tcp = p->is_tcp,
  };
  const struct harp_endpoint_eni *remote = &c->peer->enis[s.remote_eni];
  s.lines_max = s.is_tcp ? HARP_RECORD_MAX_LINES
                         : lines_of_mtu(remote, HARP_MIN(c->local->enis[s.local_eni].mtu, remote->mtu),
                                        c->macs.is_on ? HARP_MAC_BYTES : 0);
  return s;
}

/* Logs which of our interfaces the connection does not use, since none of the peer's has an address of
 * their family. */
static void log_idle_enis(struct harp_peer *peer, uint32_t used) {
  for (unsigned eni = 0; eni < peer->engine->eni_count; eni++) {
    const struct harp_instance *instance = &peer->engine->enis[eni];
    if (used >> eni & 1) continue;
    HARP_INFO_LIMITED(
        &peer->log, peer->engine->clock(),
        "%s is not used by the connection with %s, none of whose interfaces has an IPv%d address: "
        "give all interfaces addresses of the same family",
        instance->ifname, peer->name, harp_address_version(&instance->addr));
  }
}

/* A speed that is known; 0: what a virtual interface without a device reports is made up. */
static uint32_t speed_of(const struct harp_instance *eni) {
  bool known =
      eni->speed_source == HARP_SPEED_CONF || (eni->pci_path[0] && eni->speed_source != HARP_SPEED_ASSUMED);
  return known ? (uint32_t)eni->speed_mbps : 0;
}

/* Returns whether both ends of a path have an address. */
static bool is_numbered(const struct harp_peer *peer, unsigned path) {
  const struct harp_path_ends *ends = &peer->ends[path];
  return !peer->engine->enis[ends->local_eni].is_unnumbered &&
         !peer->remote_enis[ends->remote_eni].is_unnumbered;
}

/* Returns the peer's address that a path leads to. */
static struct sockaddr_storage remote_of(const struct harp_peer *peer, unsigned path, uint16_t port) {
  const struct harp_path_ends *ends = &peer->ends[path];
  uint32_t scope = harp_address_scope(&peer->engine->enis[ends->local_eni].addr);
  return eni_address(&peer->remote_enis[ends->remote_eni], port, scope);
}

/* Opens the route of a path whose ends have addresses. Returns false without memory. */
static bool open_route(struct harp_peer *peer, unsigned path) {
  struct harp_engine *e = peer->engine;
  const struct harp_path_ends *ends = &peer->ends[path];
  uint16_t remote_port = peer->remote_enis[ends->remote_eni].ports[ends->remote_port];
  unsigned port =
      e->eni_count > 1 ? harp_io_bundle_port(ends->local_eni, ends->local_port) : ends->local_port;
  struct sockaddr_storage to = remote_of(peer, path, remote_port);
  HARP_ASSERT(path < peer->route_count && !peer->routes[path] && is_numbered(peer, path));
  peer->routes[path] = e->io->ops->route_open(e->io, port, &to, peer->traffic_class);
  return peer->routes[path] != NULL;
}

/* Says where a tcp path is to be connected, whose ends have addresses. */
static void set_remote(struct harp_peer *peer, struct harp_tcp_path *tcp) {
  const struct harp_path_ends *ends = &peer->ends[tcp->path];
  struct sockaddr_storage to = remote_of(peer, tcp->path, peer->remote_enis[ends->remote_eni].tcp_port);
  HARP_ASSERT(is_numbered(peer, tcp->path));
  if (peer->is_client) harp_tcp_path_set_remote(tcp, &to);
}

/* Makes the paths that both endpoints allow, and opens a route for each of datagrams whose ends have
 * addresses. */
static bool open_routes(struct harp_peer *peer, const struct harp_peer_config *c,
                        struct harp_path_config paths[HARP_PATHS_MAX]) {
  struct harp_engine *e = peer->engine;
  struct harp_pairing pairings[HARP_PATHS_MAX];
  uint32_t used = 0;
  unsigned count =
      harp_pairing_make(c->is_client ? c->local : c->peer, c->is_client ? c->peer : c->local, pairings);
  for (unsigned i = 0; i < count; i++) {
    struct span s = span_of(c, &pairings[i]);
    paths[i] = (struct harp_path_config){.lines_max = s.lines_max,
                                         .local_eni = (uint8_t)s.local_eni,
                                         .remote_eni = (uint8_t)s.remote_eni,
                                         .standby = s.standby,
                                         .is_tcp = s.is_tcp,
                                         .ecn = e->enis[s.local_eni].ecn == HARP_ECN_ON,
                                         .speed_mbps = speed_of(&e->enis[s.local_eni])};
    if (!s.is_tcp && harp_random_fill(&paths[i].skip_seed, sizeof paths[i].skip_seed)) return false;
    peer->ends[i] = (struct harp_path_ends){(uint8_t)s.local_eni, (uint8_t)s.local_port,
                                            (uint8_t)s.remote_eni, (uint8_t)s.remote_port};
    peer->enis[s.remote_eni] = remote_of(peer, i, peer->remote_enis[s.remote_eni].ports[s.remote_port]);
    used |= 1u << s.local_eni;
    HARP_ASSERT(i == peer->path_count && (s.is_tcp || i == peer->route_count)); /* tcp paths come last */
    peer->path_count++;
    if (s.is_tcp) continue;
    peer->route_count++;
    if (is_numbered(peer, i) && !open_route(peer, i)) return false;
  }
  log_idle_enis(peer, used);
  return count > 0;
}

/* The first path of datagrams between the ENIs of a tcp path; the path itself where there is none. */
static unsigned datagram_path_beside(const struct harp_peer *peer, const struct harp_path_config *paths,
                                     unsigned tcp) {
  unsigned i = 0;
  while (i < peer->route_count &&
         (paths[i].local_eni != paths[tcp].local_eni || paths[i].remote_eni != paths[tcp].remote_eni))
    i++;
  return i < peer->route_count ? i : tcp;
}

/* Makes the connections of the tcp paths, which come after all that have a route. */
static bool make_tcp(struct harp_peer *peer, const struct harp_path_config *paths) {
  peer->tcp_count = peer->path_count - peer->route_count;
  if (!peer->tcp_count) return true;
  peer->tcp = harp_sparse_map(peer->tcp_count * sizeof *peer->tcp);
  if (!peer->tcp) return false;
  for (unsigned i = 0; i < peer->tcp_count; i++) {
    unsigned path = peer->route_count + i;
    harp_tcp_path_init(&peer->tcp[i], peer, path, datagram_path_beside(peer, paths, path));
    if (is_numbered(peer, path)) set_remote(peer, &peer->tcp[i]);
  }
  return true;
}

bool harp_routes_open(struct harp_peer *peer, const struct harp_peer_config *c,
                      struct harp_path_config paths[HARP_PATHS_MAX]) {
  peer->remote_eni_count = c->peer->eni_count;
  memcpy(peer->remote_enis, c->peer->enis, sizeof peer->remote_enis);
  return open_routes(peer, c, paths) && make_tcp(peer, paths);
}

void harp_routes_close(struct harp_peer *peer) {
  struct harp_io *io = peer->engine->io;
  for (unsigned i = 0; i < peer->route_count; i++)
    if (peer->routes[i]) io->ops->route_close(io, peer->routes[i]);
  harp_sparse_unmap(peer->tcp, peer->tcp_count * sizeof *peer->tcp);
}

/* ---- addresses that come later ---- */

/* Opens what waited for an address, and probes it at once. */
static void open_waiting(struct harp_peer *peer, harp_ns now) {
  for (unsigned i = 0; i < peer->route_count; i++) {
    if (peer->routes[i] || !is_numbered(peer, i)) continue;
    if (open_route(peer, i)) /* without memory the path stays silent */
      harp_sender_probe_anew(peer->session.sender, i, now);
  }
  for (unsigned i = 0; i < peer->tcp_count; i++)
    if (is_numbered(peer, peer->tcp[i].path) && !harp_tcp_path_has_remote(&peer->tcp[i]))
      set_remote(peer, &peer->tcp[i]);
  harp_peer_touch(peer);
}

void harp_routes_number(struct harp_peer *peer, unsigned eni, harp_ns now) {
  if (peer->session.state != HARP_SESSION_OPEN) return;
  open_waiting(peer, now);
  tell_address(peer, eni);
}

void harp_routes_on_address(struct harp_peer *peer, const struct harp_numbered *numbered, harp_ns now) {
  struct harp_endpoint_eni *known = &peer->remote_enis[numbered->index % HARP_ENDPOINT_ENIS_MAX];
  if (peer->session.state != HARP_SESSION_OPEN || numbered->index >= peer->remote_eni_count) return;
  if (!known->is_unnumbered || known->family != numbered->eni.family ||
      known->port_count != numbered->eni.port_count)
    return;
  *known = numbered->eni;
  peer->enis[numbered->index] = eni_address(known, known->ports[0], 0);
  harp_stats_on_address(peer);
  open_waiting(peer, now);
}
