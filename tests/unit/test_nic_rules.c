/* SPDX-License-Identifier: Apache-2.0 */
/* Rules in the NIC: which are made, told from others', swept and removed, on NICs that behave as drivers do
 * (nic_fake.h); what the kernel says of an interface that has none; and when the xdp driver makes some, on
 * veth in a network namespace (needs root; skipped without). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/log.h"
#include "io/io.h"
#include "io/nic_rules.h"
#include "lib/netns.h"
#include "unit/nic_fake.h"

enum { LO = NETNS_LO, PORTS = 16 };

static const uint32_t queues[] = {2, 5, 6};
static struct sockaddr_storage local;
static char said[2000];

static void hear(enum harp_log_level level, const char *file, int line, const char *text) {
  size_t used = strlen(said);
  (void)file, (void)line;
  assert_int_equal(level, HARP_LOG_INFO);
  snprintf(said + used, sizeof said - used, "%s\n", text);
}

/* Sockets on ports of the kernel's choice whose rules have places of their own in a table of `size`. */
struct holder {
  int fds[PORTS];
  uint16_t ports[PORTS];
};

static uint16_t bind_any(int *fd, const struct sockaddr_storage *at) {
  struct sockaddr_storage got = *at;
  socklen_t bytes = sizeof got;
  *fd = socket(at->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(*fd, (const struct sockaddr *)at,
                        at->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)),
                   0);
  assert_int_equal(getsockname(*fd, (struct sockaddr *)&got, &bytes), 0);
  return ntohs(((struct sockaddr_in *)&got)->sin_port);
}

static bool shares_place(const struct holder *h, unsigned i) {
  for (unsigned k = 0; k < i; k++)
    if (harp_nic_rule_location(h->ports[k], fake->size) == harp_nic_rule_location(h->ports[i], fake->size))
      return true;
  return fake->used[harp_nic_rule_location(h->ports[i], fake->size)];
}

static void hold(struct holder *h) {
  for (unsigned i = 0; i < PORTS;) {
    h->ports[i] = bind_any(&h->fds[i], &local);
    if (shares_place(h, i))
      close(h->fds[i]);
    else
      i++;
  }
}

static void let_go(struct holder *h) {
  for (unsigned i = 0; i < PORTS; i++) close(h->fds[i]);
}

static unsigned steer(struct harp_nic_rules *r, const struct holder *h) {
  said[0] = 0;
  return harp_nic_rules_open(r, LO, &local, h->ports, PORTS, queues, HARP_ARRAY_COUNT(queues));
}

static const struct ethtool_rx_flow_spec *rule_of(uint16_t port) {
  uint32_t location = harp_nic_rule_location(port, fake->size);
  return fake->used[location] ? &fake->rules[location] : NULL;
}

/* A rule that an operator could have made, for UDP to our address. */
static struct ethtool_rx_flow_spec foreign_rule(uint16_t port) {
  struct ethtool_rx_flow_spec fs = {.flow_type = UDP_V4_FLOW, .ring_cookie = 1};
  fs.h_u.udp_ip4_spec.ip4dst = ((struct sockaddr_in *)&local)->sin_addr.s_addr;
  fs.m_u.udp_ip4_spec.ip4dst = UINT32_MAX;
  fs.h_u.udp_ip4_spec.pdst = htons(port);
  fs.m_u.udp_ip4_spec.pdst = 0xffff;
  return fs;
}

static void put(uint32_t location, struct ethtool_rx_flow_spec fs) {
  fs.location = location;
  fake->used[location] = true;
  fake->rules[location] = fs;
}

static int fresh(void **state) {
  (void)state;
  fake_open();
  harp_log_set_sink(hear);
  memset(&local, 0, sizeof local);
  local.ss_family = AF_INET;
  ((struct sockaddr_in *)&local)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return 0;
}

/* ---- making and removing ---- */

static void test_a_rule_for_each_port(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  assert_int_equal(steer(&r, &h), PORTS);
  assert_non_null(strstr(said, "interface 1: rules in the NIC lead all 16 UDP ports to our queues"));
  for (unsigned i = 0; i < PORTS; i++) {
    const struct ethtool_rx_flow_spec *fs = rule_of(h.ports[i]);
    assert_non_null(fs);
    struct ethtool_rx_flow_spec wanted = foreign_rule(h.ports[i]);
    assert_int_equal(fs->flow_type, UDP_V4_FLOW);
    assert_memory_equal(&fs->h_u, &wanted.h_u, sizeof wanted.h_u);
    assert_memory_equal(&fs->m_u, &wanted.m_u, sizeof wanted.m_u);
    assert_int_equal(fs->ring_cookie, queues[i % HARP_ARRAY_COUNT(queues)]);
  }
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 0);
  assert_int_equal(fake->deleted, PORTS);
  harp_nic_rules_close(&r);
  assert_int_equal(r.count, 0);
  assert_int_equal(fake->deleted, PORTS);
  let_go(&h);
}

/* Left-overs of one version are found by the others. */
static void test_the_place_of_a_port_is_for_ever(void **state) {
  (void)state;
  assert_int_equal(harp_nic_rule_location(0, 1024), 65);
  assert_int_equal(harp_nic_rule_location(4791, 1024), 758);
  assert_int_equal(harp_nic_rule_location(40000, 8000), 6273);
  assert_int_equal(harp_nic_rule_location(65535, 65536), 47038);
}

static void test_ipv6(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  local.ss_family = AF_INET6;
  ((struct sockaddr_in6 *)&local)->sin6_addr = in6addr_loopback;
  int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool has_v6 = fd >= 0 && !bind(fd, (struct sockaddr *)&local, sizeof(struct sockaddr_in6));
  if (fd >= 0) close(fd);
  if (!has_v6) skip();
  hold(&h);
  assert_int_equal(steer(&r, &h), PORTS);
  const struct ethtool_rx_flow_spec *fs = rule_of(h.ports[0]);
  struct ethtool_tcpip6_spec h_u = {.pdst = htons(h.ports[0])}, m_u = {.pdst = 0xffff};
  memcpy(h_u.ip6dst, &in6addr_loopback, 16);
  memset(m_u.ip6dst, 0xff, 16);
  assert_int_equal(fs->flow_type, UDP_V6_FLOW);
  assert_memory_equal(&fs->h_u.udp_ip6_spec, &h_u, sizeof h_u);
  assert_memory_equal(&fs->m_u.udp_ip6_spec, &m_u, sizeof m_u);
  let_go(&h); /* as if killed */
  struct holder next;
  hold(&next);
  assert_int_equal(steer(&r, &next), PORTS);
  assert_int_equal(fake_count(), PORTS);
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 0);
  let_go(&next);
}

/* ---- NICs as they are ---- */

static void as_mlx5(void) {
  fake->size_with_list = true;
}

static void as_ice(void) {
  fake->empty_errno = EINVAL;
  fake->refuses_twins = true;
}

static void as_ena(void) {
  fake->says_special = true;
  fake->size = 256;
}

static void as_i40e(void) {
  as_ice();
  fake->adds_ext = true;
}

static void as_one_whose_rules_change_meanwhile(void) {
  fake->listing = EMSGSIZE;
}

static void test_drivers_that_have_rules(void **state) {
  (void)state;
  static void (*const drivers[])(void) = {as_mlx5, as_ice, as_ena, as_i40e,
                                          as_one_whose_rules_change_meanwhile};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(drivers); i++) {
    struct harp_nic_rules r;
    struct holder h, next;
    fake_open();
    drivers[i]();
    hold(&h);
    assert_int_equal(steer(&r, &h), PORTS);
    let_go(&h); /* as if killed */
    hold(&next);
    assert_int_equal(steer(&r, &next), PORTS);
    assert_int_equal(fake_count(), PORTS);
    harp_nic_rules_close(&r);
    assert_int_equal(fake_count(), 0);
    let_go(&next);
  }
}

static void expect_none(const char *why) {
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  assert_int_equal(steer(&r, &h), 0);
  if (!strstr(said, why)) fail_msg("%s lacks %s", said, why);
  assert_non_null(strstr(said, "rules in the NIC lead 0 of 16 UDP ports to our queues ("));
  assert_null(strchr(strchr(said, '\n') + 1, '\n')); /* said once */
  assert_int_equal(fake_count(), 0);
  harp_nic_rules_close(&r);
  let_go(&h);
}

static void test_what_it_refuses_is_learned(void **state) {
  (void)state;
  static const int refusals[] = {EOPNOTSUPP, ENOSPC, EINVAL, EPERM, EBUSY, ENOMEM, ENODEV};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(refusals); i++) {
    char why[100];
    fake->refusal = refusals[i];
    fake->room = 0;
    snprintf(why, sizeof why, "(making one: %s)", strerror(refusals[i]));
    expect_none(why);
  }
  fake->refusal = EOPNOTSUPP;
  fake->switched_off = true;
  expect_none(
      "(making one: Operation not supported; the NIC's ntuple filters are switched off (ethtool -K))");
}

static void test_a_table_that_fills_up(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  fake->refusal = ENOSPC;
  fake->room = 5;
  assert_int_equal(steer(&r, &h), 5);
  assert_non_null(strstr(said, "lead 5 of 16 UDP ports to our queues (making one: No space left on device)"));
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 0);
  let_go(&h);
}

static void test_nics_that_are_left_alone(void **state) {
  (void)state;
  fake->wants_special = true;
  expect_none("making one: Invalid argument");
  fake_open();
  fake->hides_size = true;
  expect_none("(listing its rules: it does not tell how many it takes)");
  fake_open();
  fake->claims = 1025;
  expect_none("(listing its rules: there are too many)");
  fake_open();
  fake->chooses = true;
  expect_none("making one: the NIC tells another rule than it was given");
  fake_open();
  fake->garbles = true;
  expect_none("making one: the NIC tells another rule than it was given");
  fake_open();
  fake->reading = EOPNOTSUPP;
  expect_none("making one: Operation not supported");
}

/* Real answers: loopback has none, as veth has none. */
static void test_an_interface_without_rules(void **state) {
  (void)state;
  fake->has_rules = false;
  expect_none("listing its rules: Operation not supported");
}

/* ---- other people's ---- */

static void test_a_place_that_somebody_has_is_left_alone(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  uint32_t location = harp_nic_rule_location(h.ports[3], fake->size);
  struct ethtool_rx_flow_spec theirs = foreign_rule(7);
  put(location, theirs);
  assert_int_equal(steer(&r, &h), PORTS - 1);
  assert_non_null(strstr(said, "lead 15 of 16 UDP ports to our queues (other rules have their places)"));
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 1);
  assert_memory_equal(&fake->rules[location].h_u, &theirs.h_u, sizeof theirs.h_u);
  let_go(&h);
}

/* Each as ours but for one thing, at the place that ours would have, for a port that nobody has. */
static void test_what_is_nearly_ours_stays(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  int fd;
  uint16_t port = bind_any(&fd, &local);
  uint32_t location = harp_nic_rule_location(port, fake->size);
  close(fd);
  struct ethtool_rx_flow_spec rows[9];
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) rows[i] = foreign_rule(port);
  rows[0].flow_type = TCP_V4_FLOW;
  rows[1].flow_type |= FLOW_RSS;
  rows[2].flow_type |= FLOW_EXT, rows[2].m_ext.vlan_tci = htons(0xfff);
  rows[3].h_u.udp_ip4_spec.ip4dst ^= htonl(1 << 8);
  rows[4].m_u.udp_ip4_spec.ip4dst = htonl(0xffffff00);
  rows[5].m_u.udp_ip4_spec.pdst = htons(0xfff0);
  rows[6].m_u.udp_ip4_spec.ip4src = UINT32_MAX;
  rows[7].m_u.udp_ip4_spec.psrc = 0xffff;
  rows[8].m_u.udp_ip4_spec.tos = 0xff;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    fake_open();
    put(location, rows[i]);
    hold(&h);
    (void)steer(&r, &h);
    harp_nic_rules_close(&r);
    if (!fake->used[location]) fail_msg("row %zu was removed", i);
    let_go(&h);
  }
  fake_open();
  put((location + 1) % fake->size, foreign_rule(port)); /* and elsewhere */
  hold(&h);
  (void)steer(&r, &h);
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 1);
  let_go(&h);
}

/* An operator's own rule for the packets of one of our ports. */
static void test_a_twin_that_the_nic_refuses_is_no_end(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  as_ice();
  put((harp_nic_rule_location(h.ports[0], fake->size) + 1) % fake->size, foreign_rule(h.ports[0]));
  unsigned made = steer(&r, &h);
  assert_in_range(made, PORTS - 2, PORTS - 1); /* one of ours may have wanted the operator's place */
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 1);
  let_go(&h);
}

/* Somebody replaced our rule while we ran. */
static void test_what_is_not_ours_any_more_is_not_removed(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  assert_int_equal(steer(&r, &h), PORTS);
  put(harp_nic_rule_location(h.ports[2], fake->size), foreign_rule(9));
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 1);
  let_go(&h);
}

/* ---- other processes ---- */

/* Two find a place free at the same moment, and the NIC keeps the later rule. */
static void test_who_lost_a_race_leaves_it_at_that(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  fake->has_rival = true;
  assert_int_equal(steer(&r, &h), 0);
  assert_int_equal(fake->made, PORTS);
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), PORTS);
  let_go(&h);
}

/* A process with rules, until it is killed. */
static pid_t start_process(uint16_t ports[PORTS]) {
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    struct harp_nic_rules r;
    struct holder h;
    harp_log_set_sink(NULL);
    hold(&h);
    if (steer(&r, &h) != PORTS || write(ready[1], h.ports, sizeof h.ports) != sizeof h.ports) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], ports, PORTS * sizeof ports[0]), PORTS * sizeof ports[0]);
  close(ready[0]);
  return child;
}

static void kill_it(pid_t child) {
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_nobody_sweeps_a_living_process(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  uint16_t theirs[PORTS];
  pid_t child = start_process(theirs);
  hold(&h);
  assert_int_equal(steer(&r, &h), PORTS);
  assert_int_equal(fake_count(), 2 * PORTS);
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), PORTS);
  for (unsigned i = 0; i < PORTS; i++) assert_non_null(rule_of(theirs[i]));
  kill_it(child);
  let_go(&h);
}

static void test_what_a_killed_process_left_is_swept(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  uint16_t theirs[PORTS];
  pid_t alive = start_process(theirs), child = start_process(theirs);
  kill_it(child);
  assert_int_equal(fake_count(), 2 * PORTS);
  hold(&h);
  assert_int_equal(steer(&r, &h), PORTS);
  assert_int_equal(fake_count(), 2 * PORTS);
  assert_non_null(strstr(said, "removed the NIC's rule "));
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), PORTS);
  kill_it(alive);
  let_go(&h);
}

/* The kernel gives us a port whose last owner was killed. */
static void test_a_rule_from_an_earlier_life_of_our_port(void **state) {
  (void)state;
  struct harp_nic_rules r;
  struct holder h;
  hold(&h);
  for (unsigned i = 0; i < PORTS; i++)
    put(harp_nic_rule_location(h.ports[i], fake->size), foreign_rule(h.ports[i]));
  assert_int_equal(steer(&r, &h), PORTS);
  for (unsigned i = 0; i < PORTS; i++)
    assert_int_equal(rule_of(h.ports[i])->ring_cookie, queues[i % HARP_ARRAY_COUNT(queues)]);
  harp_nic_rules_close(&r);
  assert_int_equal(fake_count(), 0);
  let_go(&h);
}

/* ---- the xdp driver ---- */

enum { DRIVER_PORTS = 4, FLUSHES_MAX = 100 };

static bool has_namespace;
static struct harp_counters counters;

/* v0 has two queues, and a peer that the kernel knows. */
static int enter(void **state) {
  (void)state;
  has_namespace = netns_enter();
  if (has_namespace)
    netns_run(
        "ip link add v0 numrxqueues 2 numtxqueues 2 type veth peer name v1 numrxqueues 2 numtxqueues 2 && "
        "ip address add 10.9.0.1/24 dev v0 && ip link set v1 up && ip link set v0 up && "
        "ip neighbour add 10.9.0.7 lladdr 02:48:41:52:50:07 dev v0 nud permanent");
  return 0;
}

static struct sockaddr_storage address(const char *ip, uint16_t port) {
  struct sockaddr_storage a = {.ss_family = AF_INET};
  struct sockaddr_in *in = (struct sockaddr_in *)&a;
  in->sin_port = htons(port);
  assert_int_equal(inet_pton(AF_INET, ip, &in->sin_addr), 1);
  return a;
}

static struct harp_io *open_driver(unsigned queue_count, uint8_t **frames) {
  struct harp_io *io = NULL;
  char error[640];
  local = address("10.9.0.1", 0);
  said[0] = 0;
  memset(&counters, 0, sizeof counters);
  struct harp_io_config config = {
      .addr = &local,
      .port_count = DRIVER_PORTS,
      .counters = &counters,
      .xdp_mode = HARP_IO_XDP_COPY,
      .ifindex = netns_index("v0"),
      .mtu = 1500,
      .queues = queue_count,
  };
  config.frames_bytes = (size_t)harp_align_up(harp_io_xdp.frames_bytes(&config), 4096);
  config.frames = *frames = aligned_alloc(4096, config.frames_bytes);
  assert_non_null(*frames);
  if (harp_io_xdp.open(&io, &config, error, sizeof error)) fail_msg("%s", error);
  return io;
}

static void close_driver(struct harp_io *io, uint8_t *frames) {
  io->ops->close(io);
  free(frames);
}

static void test_the_driver_asks_where_it_has_some_queues(void **state) {
  (void)state;
  uint8_t *frames;
  if (!has_namespace) skip();
  struct harp_io *io = open_driver(1, &frames);
  assert_string_equal(io->info.queues, "queue 0");
  assert_int_equal(fake->made, counters.nic_rules);
  assert_in_range(counters.nic_rules, 1, DRIVER_PORTS);
  for (unsigned i = 0; i < DRIVER_PORTS; i++) {
    const struct ethtool_rx_flow_spec *fs = rule_of(io->info.ports[i]);
    assert_non_null(fs); /* or that of a port with the same place */
    assert_int_equal(fs->ring_cookie, 0);
    assert_int_equal(fs->h_u.udp_ip4_spec.ip4dst, inet_addr("10.9.0.1"));
  }
  close_driver(io, frames);
  assert_int_equal(fake_count(), 0);
}

static void test_the_driver_asks_nothing_where_it_has_all(void **state) {
  (void)state;
  uint8_t *frames;
  if (!has_namespace) skip();
  struct harp_io *io = open_driver(0, &frames);
  assert_string_equal(io->info.queues, "queues 0-1");
  assert_int_equal(fake->made, 0);
  assert_int_equal(counters.nic_rules, 0);
  assert_string_equal(said, "");
  close_driver(io, frames);
}

static void test_veth_has_none_and_the_driver_goes_on(void **state) {
  (void)state;
  uint8_t *frames;
  if (!has_namespace) skip();
  fake->has_rules = false;
  struct harp_io *io = open_driver(1, &frames);
  assert_string_equal(io->info.rung, "xdp generic copy");
  assert_int_equal(counters.nic_rules, 0);
  assert_non_null(
      strstr(said, "lead 0 of 4 UDP ports to our queues (listing its rules: Operation not supported)"));
  close_driver(io, frames);
}

static void test_rules_go_when_the_driver_falls(void **state) {
  (void)state;
  uint8_t *frames;
  struct harp_tx_superframe sf;
  struct sockaddr_storage peer = address("10.9.0.7", 9999);
  if (!has_namespace) skip();
  struct harp_io *io = open_driver(1, &frames);
  struct harp_io_route *route = io->ops->route_open(io, 0, &peer, -1);
  assert_true(fake_count() > 0);
  netns_run("ip link set v0 down");
  for (int i = 0; !counters.driver_falls && i < FLUSHES_MAX; i++) {
    assert_true(io->ops->tx_take(io, route, 100, &sf));
    memset(sf.base, 'x', 100);
    sf.count = 1, sf.last_bytes = 100;
    (void)io->ops->tx_submit(io, &sf);
    io->ops->tx_flush(io);
  }
  netns_run("ip link set v0 up");
  assert_int_equal(counters.driver_falls, 1);
  assert_int_equal(fake_count(), 0);
  io->ops->route_close(io, route);
  close_driver(io, frames);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_a_rule_for_each_port, fresh),
      cmocka_unit_test_setup(test_the_place_of_a_port_is_for_ever, fresh),
      cmocka_unit_test_setup(test_ipv6, fresh),
      cmocka_unit_test_setup(test_drivers_that_have_rules, fresh),
      cmocka_unit_test_setup(test_what_it_refuses_is_learned, fresh),
      cmocka_unit_test_setup(test_a_table_that_fills_up, fresh),
      cmocka_unit_test_setup(test_nics_that_are_left_alone, fresh),
      cmocka_unit_test_setup(test_an_interface_without_rules, fresh),
      cmocka_unit_test_setup(test_a_place_that_somebody_has_is_left_alone, fresh),
      cmocka_unit_test_setup(test_what_is_nearly_ours_stays, fresh),
      cmocka_unit_test_setup(test_a_twin_that_the_nic_refuses_is_no_end, fresh),
      cmocka_unit_test_setup(test_what_is_not_ours_any_more_is_not_removed, fresh),
      cmocka_unit_test_setup(test_who_lost_a_race_leaves_it_at_that, fresh),
      cmocka_unit_test_setup(test_nobody_sweeps_a_living_process, fresh),
      cmocka_unit_test_setup(test_what_a_killed_process_left_is_swept, fresh),
      cmocka_unit_test_setup(test_a_rule_from_an_earlier_life_of_our_port, fresh),
      cmocka_unit_test_setup(test_the_driver_asks_where_it_has_some_queues, fresh),
      cmocka_unit_test_setup(test_the_driver_asks_nothing_where_it_has_all, fresh),
      cmocka_unit_test_setup(test_veth_has_none_and_the_driver_goes_on, fresh),
      cmocka_unit_test_setup(test_rules_go_when_the_driver_falls, fresh),
  };
  return cmocka_run_group_tests(tests, enter, NULL);
}
