/* SPDX-License-Identifier: Apache-2.0 */
#include "networks/network.h"

#include <stdlib.h>
#include <string.h>

#include "models/memory.h"
#include "models/probe.h"

/* Seeds begin so far apart on the clock that the hosts share: where nothing is random, they differ all the
 * same. */
#define SEED_PHASE_NS HARP_US(3217)

enum {
  RECEIVE_BUFFER_BYTES = 16 << 20, /* the receive buffer of a host */
  DEPTH_MIN = 2,
  DEPTH_MAX = 28,
  MESSAGES_MIN = 24, /* more of them than this in pipe and queue: they are larger */
  LARGE_BYTES = 1 << 20,
  FEW_FLOWS = 16,
  FAST_GBIT_S = 10, /* the fastest network that is not */
  FASTEST_GBIT_S = 25,
  SLOW_GBIT_S = 1,
};

static uint64_t us(double n) {
  return (uint64_t)(n * 1e3);
}

/* ---- what the scenario comes to ---- */

static double bytes_ns(double gbit_s) {
  return gbit_s / 8;
}

static double queue_bytes(const struct scenario *s) {
  double bytes = s->queue_kb ? s->queue_kb * 1024 : bytes_ns(s->rate) * s->queue_us * 1e3;
  return bytes < 2 * s->mtu ? 2 * s->mtu : bytes;
}

static void plan_messages(struct network *n) {
  const struct scenario *s = &n->scenario;
  double room = s->bucket_kb ? s->bucket_kb * 1024 : queue_bytes(s);
  double need = 2 * (bytes_ns(s->rate) * s->rtt_us * 1e3 + room) * s->interfaces / (s->flows * s->streams);
  n->message_bytes = (uint32_t)(s->message_kb * 1024);
  n->depth = (uint32_t)s->depth;
  if (n->depth) return;
  if (need > (double)MESSAGES_MIN * n->message_bytes) n->message_bytes = LARGE_BYTES;
  n->depth = HARP_MIN((uint32_t)(need / n->message_bytes) + DEPTH_MIN, (uint32_t)DEPTH_MAX);
}

/* Flows come to equal shares within 2 s, many within 4 s, those of an incast within 3 s; a single one need
 * not. An incast at 100 Gbit/s is measured after 1 s, since a second of it takes up to 20 s. Fast networks
 * are measured for half as long, in which they send 100,000 packets and more; many flows of a slow one, which
 * send a few hundred each, three times as long. */
static void plan_time(const struct scenario *s, harp_ns *warm_ns, harp_ns *end_ns) {
  double warm = s->incast              ? (s->rate > FASTEST_GBIT_S ? 1 : 3)
                : s->flows > FEW_FLOWS ? 4
                : s->flows > 1         ? 2
                                       : 0.5;
  bool is_slow = s->rate <= SLOW_GBIT_S && s->flows > FEW_FLOWS;
  double seconds = warm + (s->rate > FAST_GBIT_S ? 0.5 : is_slow ? 3 : 1);
  if (s->seconds) {
    seconds = s->seconds;
    warm = 0.4 * seconds;
  }
  if (s->warm) warm = s->warm;
  *end_ns = (harp_ns)(seconds * 1e9);
  *warm_ns = HARP_MIN((harp_ns)(warm * 1e9), *end_ns);
}

harp_ns network_end_ns(const struct scenario *s) {
  harp_ns warm_ns, end_ns;
  plan_time(s, &warm_ns, &end_ns);
  return end_ns;
}

/* Returns what `flows` flows of one direction can move, in Gbit/s. */
static double direction_gbit_s(const struct scenario *s, unsigned flows) {
  if (!flows) return 0;
  double per_interface = s->rate2 ? s->rate2 : s->rate;
  if (s->own) per_interface *= s->paths * flows;
  if (s->cap) per_interface = HARP_MIN(per_interface, s->cap * s->paths * flows);
  return per_interface * s->interfaces;
}

static void plan(struct network *n) {
  const struct scenario *s = &n->scenario;
  uint32_t lines = ((uint32_t)s->mtu - FLOW_HEADERS_BYTES) / HARP_LINE_BYTES;
  n->packet_lines =
      HARP_MIN(HARP_MAX(lines, (uint32_t)HARP_PACKET_MIN_LINES), (uint32_t)HARP_PACKET_MAX_LINES);
  plan_messages(n);
  plan_time(s, &n->warm_ns, &n->end_ns);
  double payload = n->packet_lines * HARP_LINE_BYTES;
  unsigned flows = (unsigned)s->flows, back = s->both ? flows / 2 : 0;
  double wire_gbit_s = direction_gbit_s(s, flows - back) + direction_gbit_s(s, back);
  n->capacity_bytes_ns = bytes_ns(wire_gbit_s) * payload / (payload + FLOW_HEADERS_BYTES);
}

/* ---- wires ---- */

static void init_wires(struct network *n) {
  const struct scenario *s = &n->scenario;
  unsigned path_count = (unsigned)(s->flows * s->interfaces * s->paths);
  n->wire_count = s->own ? path_count : (unsigned)s->interfaces;
  struct wire w = {.ps_per_byte = wire_ps_per_byte(s->rate),
                   .queue_bytes = (uint64_t)queue_bytes(s),
                   .mark_ns = us(s->mark_us)};
  if (s->bucket_kb) {
    w.queue_bytes = 0;
    w.bucket_bytes = (uint64_t)HARP_MAX(s->bucket_kb * 1024, s->mtu);
  }
  for (unsigned way = 0; way < 2; way++) {
    n->wires[way] = take_memory(n->wire_count, sizeof w);
    for (unsigned i = 0; i < n->wire_count; i++) n->wires[way][i] = w;
  }
  if (s->cap) {
    n->caps = take_memory(path_count, sizeof w);
    struct wire cap = {.ps_per_byte = wire_ps_per_byte(s->cap),
                       .bucket_bytes = (uint64_t)HARP_MAX(s->cap_kb * 1024, s->mtu)};
    for (unsigned i = 0; i < path_count; i++) n->caps[i] = cap;
  }
  unsigned tcp_count = (unsigned)(s->flows * s->interfaces * s->tcp);
  n->tcp_wires = take_memory(tcp_count, sizeof w);
  struct wire tcp = {.ps_per_byte = wire_ps_per_byte(s->tcp_rate), .queue_bytes = UINT32_MAX};
  for (unsigned i = 0; i < tcp_count; i++) n->tcp_wires[i] = tcp;
}

/* ---- flows ---- */

/* The paths of a flow: interface by interface, those of datagrams first. */
static unsigned paths_per_interface(const struct scenario *s) {
  return (unsigned)(s->paths + s->tcp);
}

static void route_datagrams(struct network *n, unsigned flow, unsigned interface, unsigned k,
                            struct flow_path *path) {
  const struct scenario *s = &n->scenario;
  unsigned way = s->both && flow % 2,
           path_index = (unsigned)((flow * s->interfaces + interface) * s->paths) + k;
  unsigned wire = s->own ? path_index : interface;
  double loss = s->loss + (interface ? s->loss2 : 0);
  path->there = (struct route){.cap = n->caps ? &n->caps[path_index] : NULL,
                               .wire = &n->wires[way][wire],
                               .delay_ns = us(s->rtt_us) / 2,
                               .loss_ppm = (uint32_t)(loss * 1e4),
                               .mtu_bytes = (uint32_t)s->path_mtu};
  path->back = (struct route){.delay_ns = path->there.delay_ns};
  if (s->both) path->back.wire = &n->wires[!way][wire];
}

static void route_tcp(struct network *n, unsigned flow, unsigned interface, unsigned k,
                      struct flow_path *path) {
  const struct scenario *s = &n->scenario;
  unsigned wire = (unsigned)((flow * s->interfaces + interface) * s->tcp) + (s->tcp_shared ? 0 : k);
  path->there = (struct route){.wire = &n->tcp_wires[wire], .delay_ns = us(s->rtt_us) / 2};
  path->back = (struct route){.delay_ns = path->there.delay_ns};
  path->is_lossy = s->tcp_loss != 0;
  path->kernel_bytes = (uint32_t)(s->kernel_kb * 1024);
  path->silent_every_ns = us(s->tcp_silent_ms * 1e3);
}

static void init_traffic(const struct network *n, struct flow *f, unsigned index) {
  const struct scenario *s = &n->scenario;
  struct traffic bulk = {.message_bytes = n->message_bytes,
                         .depth = n->depth,
                         .start_ns = n->start_ns + us(s->late_ms * 1e3) * index};
  if (s->step_mb) {
    bulk.step_messages = (uint32_t)HARP_MAX(s->step_mb * (1 << 20) / n->message_bytes, 1.0);
    bulk.pause_ns = us(s->pause_ms * 1e3);
  }
  for (unsigned k = 0; k < f->stream_count; k++) f->traffic[k] = bulk;
  if (!s->small_us) return;
  f->traffic[f->stream_count - 1] = (struct traffic){.message_bytes = (uint32_t)s->small_bytes,
                                                     .depth = DEPTH_MAX,
                                                     .start_ns = bulk.start_ns,
                                                     .every_ns = us(s->small_us)};
}

static uint32_t window_bytes(const struct scenario *s) {
  if (s->window_kb) return (uint32_t)(s->window_kb * 1024);
  return s->incast ? HARP_MAX((uint32_t)(RECEIVE_BUFFER_BYTES / s->flows), (uint32_t)HARP_WINDOW_MIN_BYTES)
                   : RECEIVE_BUFFER_BYTES;
}

static void init_flow(struct network *n, unsigned index) {
  const struct scenario *s = &n->scenario;
  unsigned each = paths_per_interface(s), count = (unsigned)s->interfaces * each;
  struct flow_config c = {.path_count = count,
                          .stream_count = (unsigned)s->streams + (s->small_us != 0),
                          .window_bytes = window_bytes(s),
                          .cc = probe_cc(s->cc),
                          .seed = rng_next(&n->rng)};
  for (unsigned i = 0; i < count; i++) {
    bool is_tcp = i % each >= (unsigned)s->paths;
    c.paths[i] = (struct harp_path_config){.lines_max = is_tcp ? HARP_RECORD_MAX_LINES : n->packet_lines,
                                           .local_eni = (uint8_t)(i / each),
                                           .remote_eni = (uint8_t)(i / each),
                                           .is_tcp = is_tcp,
                                           .skip_seed = s->skip && !is_tcp ? rng_next(&n->rng) | 1 : 0,
                                           .ecn = s->mark_us > 0};
  }
  struct flow *f = &n->flows[index];
  flow_init(f, &n->agenda, &c);
  for (unsigned i = 0; i < count; i++) {
    unsigned k = i % each;
    if (c.paths[i].is_tcp)
      route_tcp(n, index, i / each, k - (unsigned)s->paths, &f->paths[i]);
    else
      route_datagrams(n, index, i / each, k, &f->paths[i]);
  }
  init_traffic(n, f, index);
  if (!index) f->lie = (enum lie)s->lie;
  struct host *hosts[] = {&f->sender_host, &f->receiver_host};
  for (unsigned i = 0; (s->jitter_us || s->jitter2_us) && i < HARP_ARRAY_COUNT(hosts); i++)
    host_init(hosts[i], us(s->jitter_every_us), HOST_PAUSE_MIN_NS,
              HARP_MAX(us(s->jitter_us), HOST_PAUSE_MIN_NS), rng_next(&n->rng));
  harp_ns stop_ns = n->start_ns + us(s->at_s * 1e6);
  if (s->stop_ms) host_stop(&f->receiver_host, stop_ns, stop_ns + us(s->stop_ms * 1e3));
}

static void init_cubics(struct network *n) {
  const struct scenario *s = &n->scenario;
  n->cubic_count = (unsigned)(s->cubic + s->reno);
  for (unsigned i = 0; i < n->cubic_count; i++)
    cubic_init(&n->cubics[i], &n->agenda, &n->wires[0][0], us(s->rtt_us) / 2,
               (uint32_t)s->mtu - CUBIC_HEADERS_BYTES, i >= (unsigned)s->cubic, n->start_ns);
}

/* ---- what changes in time ---- */

static void on_changes(struct source *source, harp_ns now) {
  struct network *n = HARP_CONTAINER_OF(source, struct network, changes);
  const struct scenario *s = &n->scenario;
  (void)now;
  for (unsigned i = 0; s->rate2 && i < n->wire_count; i++) {
    for (unsigned way = 0; way < 2; way++) n->wires[way][i].ps_per_byte = wire_ps_per_byte(s->rate2);
  }
  for (unsigned i = 0; s->jitter2_us && i < n->flow_count; i++)
    n->flows[i].sender_host.most_ns = n->flows[i].receiver_host.most_ns = us(s->jitter2_us);
  if (!s->rtt2_us) return;
  for (unsigned i = 0; i < n->flow_count; i++) {
    for (unsigned k = 0; k < n->flows[i].path_count; k++)
      n->flows[i].paths[k].there.delay_ns = n->flows[i].paths[k].back.delay_ns = us(s->rtt2_us) / 2;
  }
  for (unsigned i = 0; i < n->cubic_count; i++) n->cubics[i].delay_ns = us(s->rtt2_us) / 2;
}

static void on_clocks(struct source *source, harp_ns now) {
  struct network *n = HARP_CONTAINER_OF(source, struct network, clocks);
  const struct scenario *s = &n->scenario;
  for (unsigned i = 0; i < n->flow_count; i++) {
    harp_ns offset_ns = s->clock_ms ? rng_below(&n->rng, us(s->clock_ms * 1e3)) : 0;
    probe_set_clock(n->flows[i].sender, offset_ns, s->clock_own != 0, now);
  }
  if (s->clock_step_s) agenda_set(&n->agenda, source, now + us(s->clock_step_s * 1e6));
}

/* ---- life ---- */

void network_init(struct network *n, const struct scenario *s) {
  memset(n, 0, sizeof *n);
  n->scenario = *s;
  n->start_ns = AGENDA_BEGIN_NS + HARP_MS(1) + (harp_ns)s->seed * SEED_PHASE_NS;
  n->rng.state = (uint64_t)s->seed;
  agenda_init(&n->agenda, AGENDA_BEGIN_NS);
  plan(n);
  init_wires(n);
  n->flow_count = (unsigned)s->flows;
  n->flows = take_memory(n->flow_count, sizeof n->flows[0]);
  for (unsigned i = 0; i < n->flow_count; i++) init_flow(n, i);
  init_cubics(n);
  source_init(&n->changes, on_changes);
  if (s->rtt2_us || s->rate2 || s->jitter2_us)
    agenda_set(&n->agenda, &n->changes, n->start_ns + us(s->at_s * 1e6));
  source_init(&n->clocks, on_clocks);
  if (s->clock_ms || s->clock_own) agenda_set(&n->agenda, &n->clocks, AGENDA_BEGIN_NS);
  for (unsigned i = 0; i < n->flow_count; i++) flow_start(&n->flows[i]);
}

void network_fini(struct network *n) {
  for (unsigned i = 0; i < n->flow_count; i++) flow_fini(&n->flows[i]);
  for (unsigned i = 0; i < n->cubic_count; i++) cubic_fini(&n->cubics[i]);
  free(n->flows);
  free(n->wires[0]);
  free(n->wires[1]);
  free(n->caps);
  free(n->tcp_wires);
  agenda_fini(&n->agenda);
}

void network_run(struct network *n, harp_ns since_start_ns) {
  agenda_run(&n->agenda, n->start_ns + since_start_ns);
}
