/* SPDX-License-Identifier: Apache-2.0 */
/* See choice.h. */
#include "host/choice.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/shortage.h"
#include "host/env.h"

enum {
  SLOW_PARTS = 4,     /* an interface with less than this part of the fastest one's speed is left out */
  LINE_BYTES = 400,   /* the bytes of a line of names and reasons */
  ENOUGH_BYTES = 320, /* the others are not listed behind so many */
};

/* Sorts, from the best. */
enum sort { SORT_NIC, SORT_ABOVE_NIC, SORT_CONTAINER, SORT_NONE };

/* An interface that may be chosen. */
struct candidate {
  const struct harp_eni *eni;
  struct harp_eni_kind kind;
  enum sort sort;
  int mbps;        /* 0: unknown */
  const char *why; /* it is left out; NULL: it is used */
};

const char *harp_choice_asked_by(const char *const *environment) {
  const char *net = harp_env_find(environment, "NCCL_NET");
  if (net && strcasecmp(net, "HARP") == 0) return "NCCL_NET";
  return harp_env_find(environment, "NCCL_NET_PLUGIN") ? "NCCL_NET_PLUGIN" : NULL;
}

static enum sort sort_of(const char *kind) {
  static const struct {
    const char *kind;
    enum sort sort;
  } sorts[] = {
      {"", SORT_NIC},           {"bond", SORT_NIC},          {"team", SORT_NIC},
      {"vlan", SORT_NIC},       {"macvlan", SORT_ABOVE_NIC}, {"ipvlan", SORT_ABOVE_NIC},
      {"veth", SORT_CONTAINER},
  };
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(sorts); i++)
    if (strcmp(kind, sorts[i].kind) == 0) return sorts[i].sort;
  return SORT_NONE;
}

static bool has_global_address(const struct harp_eni *eni, int family) {
  struct sockaddr_storage address;
  if (harp_eni_choose_address(eni, family, false, &address)) return false;
  const struct sockaddr_in *ip4 = (const struct sockaddr_in *)&address;
  return address.ss_family != AF_INET || ntohl(ip4->sin_addr.s_addr) >> 16 != 0xa9fe; /* 169.254.0.0/16 */
}

static void examine_candidate(struct candidate *c, const struct harp_eni_source *source, int family) {
  enum harp_speed_source speed_source;
  if (c->eni->flags & IFF_LOOPBACK) {
    c->why = "loopback";
  } else if (!harp_eni_is_up(c->eni)) {
    c->why = c->eni->flags & IFF_UP ? "no link" : "down";
  } else if (!has_global_address(c->eni, family)) {
    c->why = "no address";
  } else {
    source->kind(c->eni->index, &c->kind);
    c->sort = c->eni->hardware == ARPHRD_ETHER ? sort_of(c->kind.name) : SORT_NONE;
    if (c->sort == SORT_NONE) c->why = c->kind.name[0] ? c->kind.name : "no Ethernet";
  }
  if (c->why) return;
  c->mbps = harp_eni_speed_mbps(source, c->eni, &speed_source);
  if (speed_source == HARP_SPEED_ASSUMED) c->mbps = 0;
}

static void leave_out_worse_sorts(struct candidate *of, unsigned count) {
  enum sort best = SORT_NONE;
  for (unsigned i = 0; i < count; i++) best = HARP_MIN(best, of[i].sort);
  for (unsigned i = 0; i < count; i++)
    if (!of[i].why && of[i].sort != best) of[i].why = of[i].kind.name;
}

static bool is_used(const struct candidate *of, unsigned count, int index) {
  for (unsigned i = 0; i < count; i++)
    if (!of[i].why && of[i].eni->index == index) return true;
  return false;
}

static void leave_out_upper(struct candidate *of, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    if (!of[i].why && of[i].kind.lower && is_used(of, count, of[i].kind.lower))
      of[i].why = "its lower interface is used";
}

static void leave_out_slow(struct candidate *of, unsigned count) {
  int most = 0;
  for (unsigned i = 0; i < count; i++)
    if (!of[i].why) most = HARP_MAX(most, of[i].mbps);
  for (unsigned i = 0; i < count; i++)
    if (!of[i].why && of[i].mbps && of[i].mbps < most / SLOW_PARTS) of[i].why = "slow";
}

/* Writes the names that are used, or those that are not with their reasons, as far as there is room. */
static const char *list_names(const struct candidate *of, unsigned count, bool used, char line[LINE_BYTES]) {
  size_t at = 0;
  line[0] = 0;
  for (unsigned i = 0; i < count; i++) {
    const struct candidate *c = &of[i];
    if (used == !!c->why) continue;
    bool is_enough = at >= ENOUGH_BYTES;
    at += (size_t)snprintf(line + at, LINE_BYTES - at, "%s%s", at ? ", " : "",
                           is_enough ? "..." : c->eni->name);
    if (is_enough) break;
    if (!used)
      at += (size_t)snprintf(line + at, LINE_BYTES - at, " (%s)", c->why);
    else if (c->mbps)
      at += (size_t)snprintf(line + at, LINE_BYTES - at, " (%d Mbit/s)", c->mbps);
  }
  return at ? line : "none";
}

static int choose_candidates(struct candidate *of, unsigned count, struct harp_ifname_choice *choices,
                             unsigned max, struct harp_error *error) {
  char used[LINE_BYTES], left_out[LINE_BYTES];
  unsigned chosen = 0;
  leave_out_worse_sorts(of, count);
  leave_out_upper(of, count);
  leave_out_slow(of, count);
  for (unsigned i = 0; i < count; i++) {
    if (of[i].why) continue;
    if (chosen == max) {
      of[i].why = "too many";
      continue;
    }
    choices[chosen] = (struct harp_ifname_choice){0};
    memcpy(choices[chosen++].name, of[i].eni->name, sizeof choices->name);
  }
  if (!chosen)
    return harp_error_set(
        error, -ENODEV,
        "no interface fits of this network namespace's: %s; name those to use with HARP_IFNAME",
        list_names(of, count, false, left_out));
  HARP_INFO("neither conf files nor HARP_IFNAME name interfaces: using %s; left out: %s",
            list_names(of, count, true, used), list_names(of, count, false, left_out));
  return (int)chosen;
}

int harp_choice_make(const struct harp_eni_source *source, const struct harp_eni *enis, unsigned count,
                     int family, struct harp_ifname_choice *choices, unsigned max, struct harp_error *error) {
  struct candidate *of = calloc(count + 1, sizeof *of);
  if (!of) return harp_shortage_set(error, -ENOMEM, "cannot choose among the network interfaces");
  for (unsigned i = 0; i < count; i++) {
    of[i] = (struct candidate){.eni = &enis[i], .sort = SORT_NONE};
    examine_candidate(&of[i], source, family);
  }
  int rc = choose_candidates(of, count, choices, max, error);
  free(of);
  return rc;
}
