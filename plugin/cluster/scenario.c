/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/scenario.h"

#include <math.h>
#include <string.h>

#include "cluster/fabric.h"
#include "models/probe.h"
#include "models/traffic.h"

enum { CONNECTIONS_MAX = 40000 }; /* a session takes up to 0.2 MB */

static const struct parameter parameters[] = {
#define NUMBER(key, value, help) {#key, help, #value, offsetof(struct cluster_scenario, key), false},
#define TEXT(key, value, help)   {#key, help, value, offsetof(struct cluster_scenario, key), true},
#include "cluster/cluster.def"
};

struct cluster_scenario cluster_scenario_default(void) {
  return (struct cluster_scenario){
#define NUMBER(key, value, help) .key = (value),
#define TEXT(key, value, help)   .key = value,
#include "cluster/cluster.def"
  };
}

bool cluster_scenario_set(struct cluster_scenario *s, const char *assignment) {
  return parameters_set(parameters, HARP_ARRAY_COUNT(parameters), s, assignment);
}

void cluster_scenario_print_help(void) {
  parameters_print_help(parameters, HARP_ARRAY_COUNT(parameters));
}

static bool is_all_to_all(const struct cluster_scenario *s) {
  return !strcmp(s->collective, "alltoall");
}

unsigned cluster_scenario_channels(const struct cluster_scenario *s) {
  if (s->channels) return (unsigned)s->channels;
  return is_all_to_all(s) ? 1 : (unsigned)s->interfaces;
}

static bool is_count(double value, unsigned most) {
  return value >= 1 && value <= most && value == floor(value);
}

static bool is_one_of(const char *text, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!strcmp(text, words[i])) return true;
  }
  return false;
}

const char *cluster_scenario_fault(const struct cluster_scenario *s) {
  static const char *const collectives[] = {"ring", "tree", "alltoall", "incast"};
  static const char *const transports[] = {"harp", "tcp"};
  if (!is_count(s->hosts, FABRIC_HOSTS_MAX) || s->hosts < 2) return "hosts is a whole number from 2 to 1024";
  if (!is_count(s->interfaces, FABRIC_INTERFACES_MAX)) return "interfaces is a whole number from 1 to 8";
  if (!is_count(s->paths, HARP_PATHS_MAX) || s->paths * s->interfaces > HARP_PATHS_MAX)
    return "paths times interfaces is at most 32";
  if (!is_count(s->per_leaf, FABRIC_HOSTS_MAX)) return "per_leaf is a whole number from 1 to 1024";
  if (!is_count(s->spines, FABRIC_SPINES_MAX)) return "spines is a whole number from 1 to 64";
  if (!(s->rate > 0)) return "rate is more than 0";
  if (s->mtu < 576 || s->mtu > 9216) return "mtu is from 576 to 9216";
  if (!(s->oversubscribed > 0)) return "oversubscribed is more than 0";
  if (s->message_kb < 1 || s->message_kb > 4096) return "message_kb is from 1 to 4096";
  if (!is_count(s->depth, TRAFFIC_DEPTH_MAX)) return "depth is a whole number from 1 to 32";
  if (!is_count(s->sockets, 64)) return "sockets is a whole number from 1 to 64";
  if (!is_count(s->operations, 1000)) return "operations is a whole number from 1 to 1000";
  if (!is_count(s->peers, FABRIC_HOSTS_MAX)) return "peers is a whole number from 1 to 1024";
  if (s->channels && !is_count(s->channels, 64)) return "channels is a whole number up to 64";
  double pairs = is_all_to_all(s) ? s->hosts * (s->hosts - 1) : 4 * s->hosts;
  if (pairs * cluster_scenario_channels(s) > CONNECTIONS_MAX)
    return "more than 40,000 connections: take fewer hosts or channels";
  if (!(s->size_mb > 0)) return "size_mb is more than 0";
  if (!is_one_of(s->collective, collectives, HARP_ARRAY_COUNT(collectives)))
    return "collective is ring, tree, alltoall or incast";
  if (!is_one_of(s->transport, transports, HARP_ARRAY_COUNT(transports))) return "transport is harp or tcp";
  if (!probe_cc(s->cc)) return "cc is no congestion control";
  return NULL;
}
