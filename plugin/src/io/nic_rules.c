/* SPDX-License-Identifier: Apache-2.0 */
/* See nic_rules.h. */
#include "io/nic_rules.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "io/nic.h"
#include "io/xdp/port.h"

enum {
  RULES_MAX = 1024, /* that we read; a NIC with more is somebody else's */
  LIST_TRIES = 3,   /* rules may come and go while they are listed */
  SALT = 0x4841,    /* keeps us off the places that a person would choose for a port */
};

/* The places of a NIC's table that are taken. */
struct table {
  uint32_t size, count;
  uint32_t taken[RULES_MAX];
};

uint32_t harp_nic_rule_location(uint16_t port, uint32_t table_size) {
  return (uint32_t)(port ^ SALT) % table_size;
}

/* ---- the NIC's table ---- */

static int list_once(unsigned ifindex, struct table *t) {
  struct ethtool_rxnfc count = {.cmd = ETHTOOL_GRXCLSRLCNT};
  union {
    struct ethtool_rxnfc rules;
    uint8_t room[sizeof(struct ethtool_rxnfc) + RULES_MAX * sizeof(uint32_t)];
  } all;
  int err = harp_nic_ethtool(ifindex, &count);
  if (err) return err;
  if (count.rule_cnt > RULES_MAX) return -E2BIG;
  memset(&all, 0, sizeof all);
  all.rules.cmd = ETHTOOL_GRXCLSRLALL;
  all.rules.rule_cnt = count.rule_cnt; /* just as many: mlx5 refuses to list fewer than it is asked for */
  err = harp_nic_ethtool(ifindex, &all.rules);
  if (err) return err;
  t->size = (uint32_t)all.rules.data & ~RX_CLS_LOC_SPECIAL; /* mlx5 says it here only, not with the count */
  t->count = HARP_MIN(all.rules.rule_cnt, count.rule_cnt);
  memcpy(t->taken, all.room + offsetof(struct ethtool_rxnfc, rule_locs), t->count * sizeof t->taken[0]);
  return t->size ? 0 : -ENODATA;
}

static int list(unsigned ifindex, struct table *t) {
  int err = -EAGAIN;
  for (int i = 0; i < LIST_TRIES && err; i++) {
    err = list_once(ifindex, t);
    if (err != -EMSGSIZE && err != -EINVAL) break;
  }
  return err;
}

static int read_rule(unsigned ifindex, uint32_t location, struct ethtool_rx_flow_spec *fs) {
  struct ethtool_rxnfc request = {.cmd = ETHTOOL_GRXCLSRULE, .fs.location = location};
  int err = harp_nic_ethtool(ifindex, &request);
  *fs = request.fs;
  return err;
}

static int delete_rule(unsigned ifindex, uint32_t location) {
  struct ethtool_rxnfc request = {.cmd = ETHTOOL_SRXCLSRLDEL, .fs.location = location};
  return harp_nic_ethtool(ifindex, &request);
}

static bool is_taken(const struct table *t, uint32_t location) {
  for (uint32_t i = 0; i < t->count; i++)
    if (t->taken[i] == location) return true;
  return false;
}

/* ---- our rules ---- */

/* In a mask a set bit is one that is compared. */
static void fill_rule(struct ethtool_rx_flow_spec *fs, const struct sockaddr_storage *local, uint16_t port) {
  memset(fs, 0, sizeof *fs);
  if (local->ss_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)local;
    fs->flow_type = UDP_V6_FLOW;
    memcpy(fs->h_u.udp_ip6_spec.ip6dst, &in->sin6_addr, sizeof in->sin6_addr);
    memset(fs->m_u.udp_ip6_spec.ip6dst, 0xff, sizeof in->sin6_addr);
    fs->h_u.udp_ip6_spec.pdst = htons(port);
    fs->m_u.udp_ip6_spec.pdst = 0xffff;
  } else {
    fs->flow_type = UDP_V4_FLOW;
    fs->h_u.udp_ip4_spec.ip4dst = ((const struct sockaddr_in *)local)->sin_addr.s_addr;
    fs->m_u.udp_ip4_spec.ip4dst = UINT32_MAX;
    fs->h_u.udp_ip4_spec.pdst = htons(port);
    fs->m_u.udp_ip4_spec.pdst = 0xffff;
  }
}

static bool is_same_v4(const struct ethtool_rx_flow_spec *a, const struct ethtool_rx_flow_spec *b) {
  const struct ethtool_tcpip4_spec *m = &a->m_u.udp_ip4_spec, *n = &b->m_u.udp_ip4_spec;
  return a->h_u.udp_ip4_spec.ip4dst == b->h_u.udp_ip4_spec.ip4dst && m->ip4dst == n->ip4dst &&
         m->pdst == n->pdst && m->ip4src == n->ip4src && m->psrc == n->psrc && m->tos == n->tos;
}

static bool is_same_v6(const struct ethtool_rx_flow_spec *a, const struct ethtool_rx_flow_spec *b) {
  const struct ethtool_tcpip6_spec *m = &a->m_u.udp_ip6_spec, *n = &b->m_u.udp_ip6_spec;
  return !memcmp(a->h_u.udp_ip6_spec.ip6dst, b->h_u.udp_ip6_spec.ip6dst, sizeof m->ip6dst) &&
         !memcmp(m->ip6dst, n->ip6dst, sizeof m->ip6dst) && m->pdst == n->pdst &&
         !memcmp(m->ip6src, n->ip6src, sizeof m->ip6src) && m->psrc == n->psrc && m->tclass == n->tclass;
}

/* Returns the port whose rule of ours this is, by all that we ask for; 0 when it is somebody else's. What a
 * mask leaves out is not looked at: drivers fill it in as they like. */
static uint16_t port_of_rule(const struct harp_nic_rules *r, const struct ethtool_rx_flow_spec *fs,
                             uint32_t location) {
  static const struct ethtool_flow_ext nothing_more;
  struct ethtool_rx_flow_spec ours;
  bool is_v6 = r->local.ss_family == AF_INET6;
  uint16_t port = ntohs(is_v6 ? fs->h_u.udp_ip6_spec.pdst : fs->h_u.udp_ip4_spec.pdst);
  bool has_more = fs->flow_type & (FLOW_EXT | FLOW_MAC_EXT);
  fill_rule(&ours, &r->local, port);
  if ((fs->flow_type & ~(FLOW_EXT | FLOW_MAC_EXT)) != ours.flow_type) return 0;
  if (has_more && memcmp(&fs->m_ext, &nothing_more, sizeof nothing_more) != 0) return 0;
  if (location != harp_nic_rule_location(port, r->table_size)) return 0;
  return (is_v6 ? is_same_v6(fs, &ours) : is_same_v4(fs, &ours)) ? port : 0;
}

/* Returns the port whose rule of ours lies at a place, or 0. */
static uint16_t port_at(const struct harp_nic_rules *r, uint32_t location) {
  struct ethtool_rx_flow_spec fs;
  return read_rule(r->ifindex, location, &fs) ? 0 : port_of_rule(r, &fs, location);
}

/* ---- what killed processes left ---- */

static bool is_one_of(uint16_t port, const uint16_t *ports, unsigned port_count) {
  for (unsigned i = 0; i < port_count; i++)
    if (ports[i] == port) return true;
  return false;
}

/* Removes a rule that has no owner; says whether the place is free then. A rule for one of `ports`, which are
 * bound by ourselves, is from an earlier life of that port. */
static bool sweep_place(const struct harp_nic_rules *r, uint32_t location, const uint16_t *ports,
                        unsigned port_count) {
  uint16_t port = port_at(r, location);
  bool is_mine = is_one_of(port, ports, port_count);
  int fd = port && !is_mine ? harp_port_hold(&r->local, port) : -1;
  bool is_left = is_mine || (fd >= 0 && port_at(r, location) == port);
  bool is_free = is_left && !delete_rule(r->ifindex, location);
  if (is_free)
    HARP_INFO("interface %u: removed the NIC's rule %u, which a killed process left for UDP port %u",
              r->ifindex, location, port);
  if (fd >= 0) close(fd);
  return is_free;
}

static void sweep(const struct harp_nic_rules *r, struct table *t, const uint16_t *ports,
                  unsigned port_count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < t->count; i++)
    if (!sweep_place(r, t->taken[i], ports, port_count)) t->taken[kept++] = t->taken[i];
  t->count = kept;
}

/* ---- making them ---- */

/* Makes a rule and looks at what the NIC made of it: what we could not recognise again must not stay. */
static int make_rule(const struct harp_nic_rules *r, uint16_t port, uint32_t queue) {
  struct ethtool_rxnfc request = {.cmd = ETHTOOL_SRXCLSRLINS};
  struct ethtool_rx_flow_spec fs;
  uint32_t location = harp_nic_rule_location(port, r->table_size);
  fill_rule(&request.fs, &r->local, port);
  request.fs.ring_cookie = queue;
  request.fs.location = location;
  int err = harp_nic_ethtool(r->ifindex, &request);
  if (err) return err;
  err = read_rule(r->ifindex, request.fs.location, &fs);
  uint16_t found = err ? 0 : port_of_rule(r, &fs, request.fs.location);
  if (found == port) return 0;
  if (found) return -EEXIST; /* another process has had the same idea at the same moment */
  (void)delete_rule(r->ifindex, request.fs.location);
  return err ? err : -EPROTO;
}

static void say_refusal(unsigned ifindex, int err, char *why, size_t why_bytes) {
  struct ethtool_value flags = {.cmd = ETHTOOL_GFLAGS};
  bool is_off = (err == -EOPNOTSUPP || err == -EPERM) && !harp_nic_ethtool(ifindex, &flags) &&
                !(flags.data & ETH_FLAG_NTUPLE);
  snprintf(why, why_bytes, "making one: %s%s",
           err == -EPROTO ? "the NIC tells another rule than it was given" : strerror(-err),
           is_off ? "; the NIC's ntuple filters are switched off (ethtool -K)" : "");
}

/* Makes a rule for each port whose place is free, until the NIC refuses one. */
static void make_rules(struct harp_nic_rules *r, const struct table *t, const uint16_t *ports,
                       unsigned port_count, const uint32_t *queues, unsigned queue_count, char *why,
                       size_t why_bytes) {
  for (unsigned i = 0; i < port_count; i++) {
    uint32_t location = harp_nic_rule_location(ports[i], t->size);
    bool is_used = is_taken(t, location);
    for (unsigned k = 0; k < r->count; k++)
      is_used |= harp_nic_rule_location(r->ports[k], t->size) == location;
    int err = is_used ? -EEXIST : make_rule(r, ports[i], queues[i % queue_count]);
    if (!err) r->ports[r->count++] = ports[i];
    if (!err || err == -EEXIST) continue; /* by what the NIC says, another rule wants the same packets */
    say_refusal(r->ifindex, err, why, why_bytes);
    return;
  }
}

static void report(const struct harp_nic_rules *r, unsigned port_count, const char *why) {
  if (r->count == port_count)
    HARP_INFO("interface %u: rules in the NIC lead all %u UDP ports to our queues", r->ifindex, port_count);
  else
    HARP_INFO(
        "interface %u: rules in the NIC lead %u of %u UDP ports to our queues (%s); which of the others "
        "do is learned",
        r->ifindex, r->count, port_count, why);
}

unsigned harp_nic_rules_open(struct harp_nic_rules *r, unsigned ifindex, const struct sockaddr_storage *local,
                             const uint16_t *ports, unsigned port_count, const uint32_t *queues,
                             unsigned queue_count) {
  char why[160] = "other rules have their places";
  struct table t;
  HARP_ASSERT(port_count <= HARP_IO_PORTS_MAX && queue_count > 0);
  *r = (struct harp_nic_rules){.ifindex = ifindex, .local = *local};
  int err = list(ifindex, &t);
  if (err) {
    snprintf(why, sizeof why, "listing its rules: %s",
             err == -E2BIG     ? "there are too many"
             : err == -ENODATA ? "it does not tell how many it takes"
                               : strerror(-err));
  } else {
    r->table_size = t.size;
    sweep(r, &t, ports, port_count);
    make_rules(r, &t, ports, port_count, queues, queue_count, why, sizeof why);
  }
  report(r, port_count, why);
  return r->count;
}

void harp_nic_rules_close(struct harp_nic_rules *r) {
  for (unsigned i = 0; i < r->count; i++) {
    uint32_t location = harp_nic_rule_location(r->ports[i], r->table_size);
    if (port_at(r, location) == r->ports[i]) (void)delete_rule(r->ifindex, location);
  }
  r->count = 0;
}
