/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/watch/stats_write.h"

#include <string.h>

#include "base/address.h"
#include "base/seq.h"
#include "engine/engine.h"
#include "host/stats_file.h"
#include "proto/experiment_report.h"
#include "proto/path_report.h"

static void set_text(char *to, size_t bytes, const char *from) {
  size_t n = strlen(from);
  if (n >= bytes) n = bytes - 1;
  memcpy(to, from, n);
  memset(to + n, 0, bytes - n);
}
#define SET_TEXT(to, from) set_text(to, sizeof(to), from)

static void set_address(char *to, size_t bytes, const struct sockaddr_storage *a) {
  char text[HARP_ADDRESS_TEXT_BYTES];
  set_text(to, bytes, harp_address_text(a, text));
}

/* The same without the port. */
static void set_ip(char *to, size_t bytes, const struct sockaddr_storage *a) {
  char text[HARP_ADDRESS_TEXT_BYTES];
  harp_address_text(a, text);
  *strrchr(text, ':') = 0;
  set_text(to, bytes, text);
}

static struct harp_stats_eni *eni_of(const struct harp_engine *e, unsigned i) {
  return harp_stats_entry(e->stats.file, HARP_STATS_ENIS, e->stats.eni_first + (int)i);
}

/* ---- engines ---- */

static void write_eni(const struct harp_engine *e, unsigned i) {
  struct harp_stats_eni *s = eni_of(e, i);
  const struct harp_io_info *info = &harp_engine_io(e, i)->info;
  harp_stats_begin(&s->head);
  SET_TEXT(s->name, e->enis[i].ifname);
  set_ip(s->address, sizeof s->address, &e->enis[i].addr);
  SET_TEXT(s->driver, info->mode);
  SET_TEXT(s->queues, info->queues);
  SET_TEXT(s->why_not, info->why_not);
  s->engine = e->stats.entry;
  s->speed_mbps = e->enis[i].speed_mbps;
  s->mtu = e->enis[i].mtu;
  s->port = info->ports[0];
  s->port_count = info->port_count;
  harp_stats_end(&s->head);
}

static void copy_counters(struct harp_stats_engine *s, const struct harp_counters *c) {
#define X(name, unit, text) s->name = (int64_t)c->name;
  HARP_COUNTERS(X)
#undef X
#define X(name, text) s->drop_##name = (int64_t)c->drops[HARP_DROP_##name];
  HARP_DROPS(X)
#undef X
}

void harp_stats_write_engine(const struct harp_engine *e, harp_ns now) {
  for (unsigned i = 0; i < e->eni_count; i++) write_eni(e, i);
  struct harp_stats_engine *s = harp_stats_entry(e->stats.file, HARP_STATS_ENGINES, e->stats.entry);
  harp_stats_begin(&s->head);
  SET_TEXT(s->name, e->enis_name);
  SET_TEXT(s->mode, e->threaded ? "thread" : "inline");
  s->number = e->number;
  s->core = e->core;
  s->thread = atomic_load_explicit(&e->thread_id, memory_order_relaxed);
  s->updated_ns = (int64_t)now;
  s->eni_first = e->stats.eni_first;
  s->eni_count = e->eni_count;
  s->session_count = e->peer_count;
  s->stream_count = e->link_count;
  s->outstanding = e->outstanding;
  copy_counters(s, &e->counters);
  harp_stats_end(&s->head);
}

/* ---- paths ---- */

static const char *path_state(const struct harp_path_report *p) {
  static const char *const names[] = {
      [HARP_PATH_NEW] = "new",
      [HARP_PATH_UP] = "up",
      [HARP_PATH_DOWN] = "down",
      [HARP_PATH_DORMANT] = "dormant",
  };
  return p->state == HARP_PATH_UP && p->is_silent ? "silent" : names[p->state];
}

static const char *path_kind(const struct harp_path_report *p) {
  if (p->is_tcp) return p->is_standby ? "tcp standby" : "tcp";
  return p->is_standby ? "udp standby" : "udp";
}

/* Sets a counter of a path, and adds what is new to that of its interface. */
static void count_path_and_eni(int64_t *of_path, int64_t *of_eni, uint64_t now) {
  *of_eni += (int64_t)now - *of_path;
  *of_path = (int64_t)now;
}

static void count_path(struct harp_stats_path *s, struct harp_stats_eni *eni,
                       const struct harp_path_report *p) {
  count_path_and_eni(&s->tx_bytes, &eni->tx_bytes, p->sent_bytes);
  count_path_and_eni(&s->tx_packets, &eni->tx_packets, p->sent_packets);
  count_path_and_eni(&s->rx_bytes, &eni->rx_bytes, p->received_bytes);
  count_path_and_eni(&s->lost_packets, &eni->lost_packets, p->lost_packets);
  count_path_and_eni(&s->resent_packets, &eni->resent_packets, p->resent_packets);
  count_path_and_eni(&s->probe_timeouts, &eni->probe_timeouts, p->probe_timeouts);
  s->ce_bytes = (int64_t)p->ce_bytes;
}

static struct harp_stats_path *path_entry(const struct harp_peer *peer, unsigned i) {
  return harp_stats_entry(peer->engine->stats.file, HARP_STATS_PATHS, peer->stats.path_first + (int)i);
}

static void write_path(const struct harp_peer *peer, unsigned i) {
  struct harp_path_report p = harp_path_report_of(&peer->session, i);
  struct harp_stats_eni *eni = eni_of(peer->engine, p.local_eni);
  struct harp_stats_path *s = path_entry(peer, i);
  harp_stats_begin(&s->head);
  harp_stats_begin(&eni->head);
  SET_TEXT(s->state, path_state(&p));
  s->packet_bytes = p.packet_bytes;
  s->rtt_ns = (int64_t)p.rtt_ns;
  s->rtt_min_ns = (int64_t)p.rtt_min_ns;
  s->window_bytes = p.window_bytes;
  s->inflight_bytes = p.inflight_bytes;
  count_path(s, eni, &p);
  harp_stats_end(&eni->head);
  harp_stats_end(&s->head);
}

/* ---- sessions ---- */

static struct harp_stats_session *session_entry(const struct harp_peer *peer) {
  return harp_stats_entry(peer->engine->stats.file, HARP_STATS_SESSIONS, peer->stats.entry);
}

void harp_stats_name_paths(const struct harp_peer *peer) {
  for (unsigned i = 0; i < peer->path_count && peer->stats.path_first >= 0; i++) {
    struct harp_path_report p = harp_path_report_of(&peer->session, i);
    struct harp_stats_path *s = path_entry(peer, i);
    harp_stats_begin(&s->head);
    set_address(s->address, sizeof s->address, &peer->enis[p.remote_eni]);
    SET_TEXT(s->kind, path_kind(&p));
    s->session = peer->stats.entry;
    s->eni = peer->engine->stats.eni_first + p.local_eni;
    s->peer_eni = p.remote_eni;
    harp_stats_end(&s->head);
  }
}

void harp_stats_name_peer(const struct harp_peer *peer, const struct harp_peer_config *c) {
  harp_stats_name_paths(peer);
  if (peer->stats.entry < 0) return;
  struct harp_stats_session *s = session_entry(peer);
  harp_stats_begin(&s->head);
  SET_TEXT(s->host, c->peer->name);
  set_address(s->address, sizeof s->address, &c->peer_addr);
  s->engine = peer->engine->stats.entry;
  s->peer_pid = c->peer->pid;
  s->mark = (int64_t)harp_path_report_of(&peer->session, 0).first_number;
  s->path_first = peer->stats.path_first;
  s->path_count = peer->stats.path_first < 0 ? 0 : peer->path_count;
  harp_stats_end(&s->head);
}

static void add_paths(struct harp_stats_session *s, const struct harp_peer *peer) {
  s->rtt_ns = s->rtt_min_ns = s->window_bytes = s->inflight_bytes = 0;
  s->lost_packets = s->resent_packets = s->probe_timeouts = 0;
  for (unsigned i = 0; i < peer->path_count; i++) {
    struct harp_path_report p = harp_path_report_of(&peer->session, i);
    int64_t rtt = (int64_t)p.rtt_ns, lowest = (int64_t)p.rtt_min_ns;
    if (rtt && p.state == HARP_PATH_UP && (!s->rtt_ns || rtt < s->rtt_ns)) s->rtt_ns = rtt;
    if (lowest && (!s->rtt_min_ns || lowest < s->rtt_min_ns)) s->rtt_min_ns = lowest;
    if (p.state == HARP_PATH_UP) s->window_bytes += p.window_bytes;
    s->inflight_bytes += p.inflight_bytes;
    s->lost_packets += (int64_t)p.lost_packets;
    s->resent_packets += (int64_t)p.resent_packets;
    s->probe_timeouts += (int64_t)p.probe_timeouts;
  }
}

static const char *session_state(const struct harp_peer *peer) {
  static const char *const names[] = {
      [HARP_SESSION_OPEN] = "open",
      [HARP_SESSION_FAILED] = "failed",
      [HARP_SESSION_CLOSED] = "closed",
  };
  return names[peer->session.state];
}

static void write_stall(struct harp_stats_session *s, const struct harp_peer *peer, harp_ns now) {
  enum harp_stall_reason reason = harp_stall_of_peer(peer, now);
  bool has_eni = reason && reason == peer->stall.reason && peer->stall.eni >= 0;
  SET_TEXT(s->stall, harp_stall_name(reason));
  SET_TEXT(s->stall_eni, has_eni ? peer->engine->enis[peer->stall.eni].ifname : "");
  s->stalled_ns = reason ? (int64_t)(now - harp_stall_since_ns(peer, reason)) : 0;
  s->stalls = (int64_t)peer->stall.count;
}

static void write_carrier(struct harp_stats_session *s, const struct harp_peer *peer) {
  static const char *const names[] = {"none", "tcp", "datagrams", "both"};
  struct harp_experiment_report r = harp_experiment_report_of(&peer->session);
  SET_TEXT(s->large, names[r.takes_tcp + 2 * r.takes_datagrams]);
  SET_TEXT(s->large_why, harp_tcp_why_large(peer));
  SET_TEXT(s->experiment, r.under_way);
  s->experiment_time = r.carrier.time_percent;
  s->experiment_cpu = r.carrier.cpu_percent;
}

void harp_stats_write_peer(const struct harp_peer *peer, harp_ns now) {
  for (unsigned i = 0; i < peer->path_count && peer->stats.path_first >= 0; i++) write_path(peer, i);
  if (peer->stats.entry < 0) return;
  struct harp_stats_session *s = session_entry(peer);
  harp_stats_begin(&s->head);
  SET_TEXT(s->state, session_state(peer));
  write_stall(s, peer, now);
  write_carrier(s, peer);
  s->stream_count = peer->link_count;
  s->outstanding = peer->outstanding;
  s->last_received_ns = (int64_t)peer->last_received_ns;
  s->sent_bytes = (int64_t)peer->stats.sent_bytes;
  s->sent_messages = (int64_t)peer->stats.sent_messages;
  s->received_bytes = (int64_t)peer->stats.received_bytes;
  s->received_messages = (int64_t)peer->stats.received_messages;
  add_paths(s, peer);
  harp_stats_end(&s->head);
}

/* ---- streams ---- */

static const char *link_state(const struct harp_link *link) {
  if (atomic_load_explicit(&link->status, memory_order_relaxed)) return "failed";
  return link->is_closing ? "closing" : link->is_ended ? "ended" : "open";
}

static int64_t without_receive(const struct harp_link *link) {
  if (!link->tx || !link->is_open || !harp_seq_after(link->tx->tail, link->tx->let_go)) return 0;
  return link->tx->tail - link->tx->let_go;
}

void harp_stats_write_link(const struct harp_link *link) {
  if (link->stats_entry < 0) return;
  struct harp_stats_stream *s =
      harp_stats_entry(link->engine->stats.file, HARP_STATS_STREAMS, link->stats_entry);
  harp_stats_begin(&s->head);
  SET_TEXT(s->direction, link->role == HARP_ROLE_SENDER ? "send" : "receive");
  SET_TEXT(s->state, link_state(link));
  s->session = link->peer->stats.entry;
  s->stream = link->tx ? link->tx->id : link->rx->id;
  s->outstanding = link->outstanding - link->copies_outstanding;
  s->without_receive = without_receive(link);
  s->bytes = (int64_t)link->bytes;
  s->messages = (int64_t)link->messages;
  harp_stats_end(&s->head);
}
