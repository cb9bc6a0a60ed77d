/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/send.h"

/* Returns the number of primary paths of datagrams: the search for paths begins among these, since standby
 * paths come last. */
static unsigned primary_count(const struct harp_sender_config *config) {
  unsigned n = 0;
  while (n < config->path_count && !config->paths[n].standby && !config->paths[n].is_tcp) n++;
  return n;
}

/* Returns whether two paths run between the same ENIs, over the same carrier. */
static bool is_same_pair(const struct harp_path_config *a, const struct harp_path_config *b) {
  return a->local_eni == b->local_eni && a->remote_eni == b->remote_eni && a->is_tcp == b->is_tcp;
}

/* The first path of the same pair. */
static unsigned first_of_pair(const struct harp_sender_config *config, unsigned path) {
  unsigned i = 0;
  while (!is_same_pair(&config->paths[i], &config->paths[path])) i++;
  return i;
}

static unsigned pair_count(const struct harp_sender_config *config, bool primary) {
  unsigned n = 0;
  for (unsigned i = 0; i < config->path_count; i++) {
    const struct harp_path_config *p = &config->paths[i];
    n += first_of_pair(config, i) == i && !(primary && (p->standby || p->is_tcp));
  }
  return n;
}

/* Returns the paths over our first ENI, a bit each, if they are preferred. */
static uint64_t preferred_paths(const struct harp_sender_config *config) {
  uint64_t paths = 0;
  for (unsigned i = 0; i < config->path_count && config->prefers_first_eni; i++)
    if (!config->paths[i].local_eni) paths |= 1ull << i;
  return paths;
}

/* Returns how many records the flight of a path has: most for those that carry data first. */
static uint32_t records_of(const struct harp_sender_config *config, unsigned path) {
  if (config->paths[path].is_tcp) return HARP_FLIGHT_RECORDS_TCP;
  unsigned first = pair_count(config, true), others = primary_count(config) - first;
  bool is_first = first_of_pair(config, path) == path;
  uint32_t records = harp_flight_records(HARP_MAX(is_first ? first : others, 1u), others);
  return config->paths[path].standby ? HARP_MIN(records, (uint32_t)HARP_FLIGHT_RECORDS_STANDBY) : records;
}

static size_t id_words(unsigned stream_max) {
  return (stream_max + 63) / 64;
}

size_t harp_sender_bytes(const struct harp_sender_config *config) {
  size_t bytes = sizeof(struct harp_sender) + config->path_count * sizeof(struct harp_path) +
                 config->stream_max * sizeof(struct harp_tx_stream *) +
                 id_words(config->stream_max) * sizeof(uint64_t) +
                 pair_count(config, false) * sizeof(struct harp_flows);
  for (unsigned i = 0; i < config->path_count; i++)
    bytes += records_of(config, i) * sizeof(struct harp_burst);
  return bytes;
}

/* Finds the pairs of ENIs, and the paths of each. */
static void init_pairs(struct harp_sender *s, const struct harp_sender_config *config) {
  for (unsigned i = 0; i < s->path_count; i++) {
    unsigned first = first_of_pair(config, i);
    if (first < i) continue;
    uint64_t paths = 0, speed_bytes_s = (uint64_t)config->paths[i].speed_mbps * 125000;
    for (unsigned k = i; k < s->path_count; k++) {
      if (first_of_pair(config, k) != i) continue;
      paths |= 1ull << k;
    }
    harp_path_pairs_add(s, paths, speed_bytes_s);
  }
}

void harp_sender_init(struct harp_sender *s, const struct harp_sender_config *config,
                      const struct harp_trace *trace, struct harp_counters *counters, harp_ns now) {
  HARP_ASSERT(config->path_count >= 1 && config->path_count <= HARP_PATHS_MAX);
  HARP_ASSERT(config->stream_max >= 1 && config->stream_max <= HARP_STREAMS_MAX);
  s->trace = trace;
  s->counters = counters;
  s->load = (struct harp_tx_load){0};
  harp_send_credit_init(&s->credit);
  harp_send_turns_init(&s->turns);
  harp_send_cork_init(&s->cork);
  s->carriers = (struct harp_send_carriers){0};
  harp_experiments_init(&s->experiments);
  harp_send_search_init(&s->search, config->first_number % HARP_MAX(pair_count(config, true), 1u),
                        preferred_paths(config));
  harp_tail_duplication_init(&s->duplication);
  harp_send_stall_init(&s->stall);
  harp_tcp_speeds_init(&s->tcp_speeds, now);
  harp_send_windows_init(&s->windows, config->window_bytes, counters, now);
  s->set = (struct harp_path_set){0};
  harp_path_timers_init(&s->timers);
  s->path_count = config->path_count;
  struct harp_burst *ring = (struct harp_burst *)&s->paths[config->path_count];
  for (unsigned i = 0; i < config->path_count; i++) {
    struct harp_receive_window *to = config->paths[i].is_tcp
                                         ? &s->windows.tcp
                                         : harp_send_windows_to(&s->windows, config->paths[i].remote_eni);
    harp_path_init(&s->paths[i], i, config->first_number, &config->paths[i], config->cc, to, ring,
                   records_of(config, i), now);
    ring += records_of(config, i);
  }
  s->stream_max = config->stream_max;
  s->pairs = (struct harp_path_pairs){.flows = (struct harp_flows *)ring};
  init_pairs(s, config);
  s->streams = (struct harp_tx_stream **)&s->pairs.flows[s->pairs.count];
  memset(s->streams, 0, s->stream_max * sizeof s->streams[0]);
  s->was_open = (uint64_t *)&s->streams[s->stream_max];
  memset(s->was_open, 0, id_words(s->stream_max) * sizeof s->was_open[0]);
  harp_path_pairs_init(s, config->first_number, now);
}
