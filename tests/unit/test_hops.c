/* SPDX-License-Identifier: Apache-2.0 */
/* Next hops of a driver's routes, in a network namespace: what the kernel's news change without a look-up,
 * which of them have hops looked up again, and that nobody waits for a kernel that answers late. This program
 * counts look-ups and delays them: it has its own socket and sendto, which netlink's requests reach. Needs
 * root; skipped without. */
#include <errno.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/xdp/hops.h"
#include "lib/addresses.h"
#include "lib/netns.h"

#define MAC "02:48:41:52:50:07"
enum { PEERS = 100, ROUTES = 7 /* to each */, PATIENCE_S = 60 };

static const uint8_t mac[6] = {0x02, 0x48, 0x41, 0x52, 0x50, 0x07};
static const uint8_t own_mac[6] = {0x02, 0x48, 0x41, 0x52, 0x50, 0x00};
static bool has_namespace;
static harp_ns now_ns;
static struct harp_xdp_hops hops;

/* ---- the kernel, as the look-ups see it ---- */

static _Atomic unsigned request_count; /* the requests of netlink */
static pthread_mutex_t rtnl = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned waiting_count; /* requests that wait for it, or have */

int socket(int family, int type, int protocol) {
  request_count += family == AF_NETLINK;
  return (int)syscall(SYS_socket, family, type, protocol);
}

ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
               socklen_t to_bytes) {
  waiting_count++;
  pthread_mutex_lock(&rtnl);
  pthread_mutex_unlock(&rtnl);
  return syscall(SYS_sendto, fd, data, bytes, flags, to, to_bytes);
}

/* ---- hops ---- */

static int enter(void **state) {
  (void)state;
  has_namespace = netns_enter();
  if (has_namespace)
    netns_run("ip link add v0 address 02:48:41:52:50:00 type veth peer name v1 && ip link set v0 up && "
              "ip link set v1 up && ip address add 10.9.0.1/16 dev v0 && "
              "ip route add 10.10.0.0/16 via 10.9.0.254 dev v0");
  return 0;
}

static int open_hops(void **state) {
  (void)state;
  if (!has_namespace) return 0;
  netns_run("ip neighbour flush dev v0; ip link set v0 address 02:48:41:52:50:00; "
            "ip neighbour replace 10.9.0.254 lladdr " MAC " dev v0 nud permanent");
  struct sockaddr_storage local = address("10.9.0.1", 0);
  now_ns = HARP_SEC(1);
  harp_xdp_hops_open(&hops, netns_index("v0"), &local, own_mac);
  assert_true(hops.watch_fd >= 0);
  return 0;
}

static int close_hops(void **state) {
  (void)state;
  while (hops.first) harp_xdp_hops_give(&hops, hops.first);
  if (has_namespace) harp_xdp_hops_close(&hops);
  return 0;
}

static struct harp_xdp_hop *take(const char *peer) {
  struct sockaddr_storage to = address(peer, 7000);
  struct harp_xdp_hop *hop = harp_xdp_hops_take(&hops, &to);
  assert_non_null(hop);
  return hop;
}

/* Reviews once, with time for news and a look-up. Returns whether a hop has changed. */
static bool review(void) {
  now_ns += HARP_XDP_HOPS_READ_NS;
  return harp_xdp_hops_on_time(&hops, now_ns);
}

static bool is_settled(void) {
  return !hops.due_count && !hops.round;
}

/* Reviews until nothing is looked up any more. Returns whether a hop has changed. */
static bool review_all(void) {
  bool has_changed = review();
  for (; !is_settled(); has_changed |= review()) (void)sched_yield();
  return has_changed;
}

static void settle(void) {
  (void)review_all();
  request_count = 0;
}

static void assert_resolved(const struct harp_xdp_hop *hop) {
  assert_true(hop->is_resolved);
  assert_memory_equal(hop->mac, mac, sizeof mac);
}

/* A peer's routes have one look-up, and peers behind one gateway one of its MAC address. */
static void test_one_look_up_for_a_peer(void **state) {
  (void)state;
  struct harp_xdp_hop *hop = NULL;
  char peer[32];
  if (!has_namespace) skip();
  request_count = 0;
  for (unsigned i = 0; i < PEERS; i++) {
    snprintf(peer, sizeof peer, "10.10.0.%u", i + 1);
    for (unsigned route = 0; route < ROUTES; route++) {
      struct harp_xdp_hop *same = take(peer);
      assert_true(!route || same == hop);
      hop = same;
    }
    assert_false(hop->is_resolved);
  }
  assert_int_equal(request_count, 0);
  assert_true(review_all());
  for (hop = hops.first; hop; hop = hop->next) assert_resolved(hop);
  assert_int_equal(request_count, PEERS + 1);
}

static void test_news_of_a_neighbour_need_no_look_up(void **state) {
  (void)state;
  if (!has_namespace) skip();
  struct harp_xdp_hop *hop = take("10.9.0.7");
  assert_false(hop->is_resolved);
  settle();
  assert_false(review());
  netns_run("ip neighbour replace 10.9.0.7 lladdr " MAC " dev v0 nud stale");
  assert_true(review());
  assert_resolved(hop);
  unsigned version = hop->version;
  netns_run("ip neighbour replace 10.9.0.7 lladdr " MAC " dev v0 nud reachable");
  assert_false(review()); /* as every 30 s */
  netns_run("ip neighbour del 10.9.0.7 dev v0");
  assert_true(review());
  assert_false(hop->is_resolved);
  assert_int_not_equal(hop->version, version);
  assert_int_equal(request_count, 0);
}

static void test_a_new_address_of_our_own(void **state) {
  (void)state;
  static const uint8_t changed[6] = {0x02, 0x48, 0x41, 0x52, 0x50, 0x99};
  if (!has_namespace) skip();
  struct harp_xdp_hop *hop = take("10.10.0.1");
  settle();
  unsigned version = hop->version;
  netns_run("ip link set v0 address 02:48:41:52:50:99");
  request_count = 0; /* the requests of the command */
  assert_true(review());
  assert_memory_equal(hops.mac, changed, sizeof changed);
  assert_int_not_equal(hop->version, version);
  settle();
  assert_false(hops.is_gone);
}

/* A route that changes has only those looked up that it can concern, in one round. */
static void test_a_route_concerns_few(void **state) {
  (void)state;
  struct harp_xdp_hop *hop[4];
  if (!has_namespace) skip();
  netns_run("ip neighbour replace 10.9.0.7 lladdr " MAC " dev v0 nud permanent");
  hop[0] = take("10.9.0.7");
  hop[1] = take("10.10.1.1");
  hop[2] = take("10.10.1.2");
  hop[3] = take("10.10.2.1");
  settle();
  netns_run("ip route add 10.99.0.0/16 via 10.9.0.254 dev v0");
  (void)review();
  assert_int_equal(request_count, 0);
  netns_run("ip route add 10.10.1.0/24 via 10.9.0.7 dev v0");
  (void)review_all();
  assert_int_equal(request_count, 3); /* two routes by one gateway */
  assert_true(harp_neighbour_is_same(&hop[1]->via, &hop[0]->via));
  assert_true(harp_neighbour_is_same(&hop[2]->via, &hop[0]->via));
  assert_false(harp_neighbour_is_same(&hop[3]->via, &hop[0]->via));
  netns_run("ip route add blackhole 10.10.2.1/32");
  assert_true(review_all());
  assert_false(hop[3]->is_resolved);
  netns_run("ip route del 10.10.1.0/24 && ip route del blackhole 10.10.2.1/32 && ip route del 10.99.0.0/16");
  settle();
  assert_resolved(hop[3]);
}

/* After lost news all is looked up again, and each MAC address once. */
static void test_lost_news(void **state) {
  (void)state;
  struct harp_xdp_hop *hop[2];
  int small = 1;
  if (!has_namespace) skip();
  hop[0] = take("10.10.0.1");
  hop[1] = take("10.10.0.2");
  settle();
  assert_int_equal(setsockopt(hops.watch_fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  netns_run("for i in $(seq 2000); do echo neighbour replace 10.9.$((i / 250)).$((i %% 250 + 1)) lladdr " MAC
            " dev v1 nud permanent; done | ip -batch -");
  netns_run("ip neighbour replace 10.9.0.254 lladdr 02:00:00:00:00:01 dev v0 nud permanent");
  request_count = 0;
  for (unsigned i = 0; i < 10000 && (is_settled() || i < 100); i++) (void)review();
  (void)review_all();
  for (unsigned i = 0; i < 2; i++) {
    assert_true(hop[i]->is_resolved);
    assert_int_equal(hop[i]->mac[5], 1);
  }
}

static void test_the_interface_goes(void **state) {
  (void)state;
  if (!has_namespace) skip();
  (void)take("10.10.0.1");
  settle();
  netns_run("ip link del v0");
  (void)review();
  assert_true(hops.is_gone);
}

/* Another process holds the lock by which the kernel answers. */
static void test_nobody_waits_for_the_kernel(void **state) {
  (void)state;
  if (!has_namespace) skip();
  (void)alarm(PATIENCE_S); /* who waits does so for ever */
  waiting_count = 0;
  pthread_mutex_lock(&rtnl);
  struct harp_xdp_hop *hop = take("10.10.0.1");
  for (unsigned i = 0; i < 100; i++) assert_false(review());
  while (!waiting_count) assert_false(review());
  struct harp_xdp_hop *other = take("10.10.0.2");
  assert_false(review());
  harp_xdp_hops_give(&hops, hop); /* its peer has left */
  pthread_mutex_unlock(&rtnl);
  assert_true(review_all());
  assert_resolved(other);
  (void)alarm(0);
}

/* The driver closes meanwhile, and another opens. */
static void test_close_does_not_wait_either(void **state) {
  if (!has_namespace) skip();
  (void)alarm(PATIENCE_S);
  waiting_count = 0;
  pthread_mutex_lock(&rtnl);
  (void)take("10.10.0.1");
  while (!waiting_count) (void)review();
  close_hops(state);
  pthread_mutex_unlock(&rtnl);
  open_hops(state);
  struct harp_xdp_hop *hop = take("10.10.0.1");
  settle();
  assert_resolved(hop);
  (void)alarm(0);
}

/* What the kernel said before that is older. */
static void test_news_during_a_round_count(void **state) {
  (void)state;
  if (!has_namespace) skip();
  struct harp_xdp_hop *hop = take("10.9.0.9");
  waiting_count = 0;
  pthread_mutex_lock(&rtnl);
  while (!waiting_count) (void)review();
  netns_run("ip neighbour replace 10.9.0.9 lladdr " MAC " dev v0 nud permanent");
  (void)review();
  assert_int_equal(hops.due_count, 1);
  pthread_mutex_unlock(&rtnl);
  assert_true(review_all());
  assert_resolved(hop);
  netns_run("ip neighbour del 10.9.0.9 dev v0");
}

#define T(test) cmocka_unit_test_setup_teardown(test, open_hops, close_hops)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(test_one_look_up_for_a_peer),
      T(test_news_of_a_neighbour_need_no_look_up),
      T(test_a_new_address_of_our_own),
      T(test_a_route_concerns_few),
      T(test_lost_news),
      T(test_nobody_waits_for_the_kernel),
      T(test_close_does_not_wait_either),
      T(test_news_during_a_round_count),
      T(test_the_interface_goes),
  };
  return cmocka_run_group_tests(tests, enter, NULL);
}
