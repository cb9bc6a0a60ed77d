/* SPDX-License-Identifier: Apache-2.0 */
/* The way to a peer as the kernel reports it, in a network namespace: next hops of both IP versions, and
 * which changes are noticed. And netlink's attributes as bytes: found, not there, cut off. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/netlink.h"
#include "io/nic.h"
#include "io/xdp/neighbour.h"
#include "lib/addresses.h"
#include "lib/netns.h"

/* v0 is ours; v1, its other end, has no address, so that all its subnet's hosts are somewhere else. */
#define SETUP                                                                                                \
  "ip link add v0 address 02:48:41:52:50:00 type veth peer name v1 && "                                      \
  "sysctl -qw net.ipv6.conf.v0.accept_dad=0 net.ipv6.conf.v1.disable_ipv6=1 && "                             \
  "ip link set v0 up && ip link set v1 up && "                                                               \
  "ip address add 10.9.0.1/24 dev v0 && ip address add fd09::1/64 dev v0 nodad"
enum { STORM = 40, FLOOD = 2000, LOOKS_MAX = 10000 };
static const uint8_t mac[6] = {0x02, 0x48, 0x41, 0x52, 0x50, 0x07};
#define MAC "02:48:41:52:50:07"

static bool has_namespace;
static unsigned v0;
static int watch_fd = -1;

static int enter(void **state) {
  (void)state;
  has_namespace = netns_enter();
  if (!has_namespace) return 0;
  netns_run(SETUP);
  v0 = netns_index("v0");
  return 0;
}

static int find(const char *local, const char *peer, uint8_t found[6]) {
  struct sockaddr_storage from = address(local, 0), to = address(peer, 0);
  memset(found, 0, 6);
  struct harp_neighbour hop;
  int err = harp_neighbour_find(v0, &from, &to, &hop);
  return err ? err : harp_neighbour_find_mac(v0, &hop, found);
}

static void expect_mac(const char *local, const char *peer) {
  uint8_t found[6];
  assert_int_equal(find(local, peer, found), 0);
  assert_memory_equal(found, mac, 6);
}

/* ---- the next hop ---- */

static void test_a_neighbour_is_found_when_it_is_resolved(void **state) {
  (void)state;
  static const char *const rows[][2] = {{"10.9.0.1", "10.9.0.7"}, {"fd09::1", "fd09::7"}};
  uint8_t found[6];
  if (!has_namespace) skip();
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    assert_int_equal(find(rows[i][0], rows[i][1], found), -EAGAIN);
    netns_run("ip neighbour replace %s lladdr " MAC " dev v0 nud stale", rows[i][1]);
    expect_mac(rows[i][0], rows[i][1]);
    netns_run("ip neighbour replace %s dev v0 nud failed", rows[i][1]);
    assert_int_equal(find(rows[i][0], rows[i][1], found), -EAGAIN);
    netns_run("ip neighbour del %s dev v0", rows[i][1]);
  }
}

static void test_a_gateway_stands_for_what_lies_behind_it(void **state) {
  (void)state;
  uint8_t found[6];
  if (!has_namespace) skip();
  netns_run("ip route add 10.10.0.0/16 via 10.9.0.254 dev v0 && ip route add fd10::/64 via fd09::fe dev v0");
  assert_int_equal(find("10.9.0.1", "10.10.3.4", found), -EAGAIN);
  netns_run("ip neighbour replace 10.9.0.254 lladdr " MAC " dev v0 nud permanent");
  netns_run("ip neighbour replace fd09::fe lladdr " MAC " dev v0 nud permanent");
  expect_mac("10.9.0.1", "10.10.3.4");
  expect_mac("fd09::1", "fd10::4");
  netns_run("ip route del 10.10.0.0/16 && ip route del fd10::/64");
  netns_run("ip neighbour del 10.9.0.254 dev v0 && ip neighbour del fd09::fe dev v0");
}

/* As where routers speak BGP without numbers. */
static void test_a_gateway_of_the_other_ip_version(void **state) {
  (void)state;
  uint8_t found[6];
  if (!has_namespace) skip();
  netns_run("ip route add 10.11.0.0/16 via inet6 fd09::fe dev v0");
  netns_run("ip neighbour replace 10.11.0.1 lladdr 02:00:00:00:00:99 dev v0 nud permanent"); /* not used */
  assert_int_equal(find("10.9.0.1", "10.11.0.1", found), -EAGAIN);
  netns_run("ip neighbour replace fd09::fe lladdr " MAC " dev v0 nud permanent");
  expect_mac("10.9.0.1", "10.11.0.1");
  netns_run(
      "ip route del 10.11.0.0/16 && ip neighbour del 10.11.0.1 dev v0 && ip neighbour del fd09::fe dev v0");
}

static void test_peers_that_no_frame_of_ours_reaches(void **state) {
  (void)state;
  uint8_t found[6];
  if (!has_namespace) skip();
  assert_int_equal(find("10.9.0.1", "10.9.0.1", found), -EXDEV); /* on this host */
  assert_int_equal(find("fd09::1", "fd09::1", found), -EXDEV);
  netns_run("ip route add unreachable 10.12.0.0/16 && ip -6 route add unreachable fd12::/64");
  assert_true(find("10.9.0.1", "10.12.0.1", found) < 0);
  assert_true(find("fd09::1", "fd12::1", found) < 0);
  netns_run("ip route del unreachable 10.12.0.0/16 && ip -6 route del unreachable fd12::/64");
  struct sockaddr_storage from = address("10.9.0.1", 0), to = address("10.9.0.7", 0);
  struct harp_neighbour hop;
  assert_true(harp_neighbour_find(9999, &from, &to, &hop) < 0);
}

/* ---- changes ---- */

static void note_event(void *events, const struct harp_neighbour_news *news) {
  *(unsigned *)events |= 1u << news->event;
}

/* Reads some of the news; returns the events, a bit each. */
static unsigned read_news(int fd) {
  unsigned events = 0;
  (void)harp_neighbour_read(fd, v0, note_event, &events);
  return events;
}

/* Reads until nothing more is reported. */
static unsigned take_changes(void) {
  struct pollfd watch = {.fd = watch_fd, .events = POLLIN};
  unsigned events = 0;
  for (int i = 0; i < LOOKS_MAX && poll(&watch, 1, 0) == 1; i++) events |= read_news(watch_fd);
  return events;
}

static int open_watch(void **state) {
  (void)state;
  if (!has_namespace) return 0;
  watch_fd = harp_neighbour_watch();
  return watch_fd < 0;
}

static int close_watch(void **state) {
  (void)state;
  if (watch_fd >= 0) close(watch_fd);
  watch_fd = -1;
  return 0;
}

static void test_what_counts_as_a_change(void **state) {
  (void)state;
  enum {
    RESOLVED = 1 << HARP_NEIGHBOUR_RESOLVED,
    FAILED = 1 << HARP_NEIGHBOUR_FAILED,
    ROUTE = 1 << HARP_NEIGHBOUR_ROUTE,
    LINK = 1 << HARP_NEIGHBOUR_LINK,
  };
  static const struct {
    const char *command;
    unsigned events;
  } rows[] = {
      {"ip neighbour replace 10.9.0.7 lladdr " MAC " dev v0 nud permanent", RESOLVED},
      {"ip neighbour replace 10.9.0.7 lladdr 02:00:00:00:00:01 dev v0 nud permanent", RESOLVED},
      {"ip neighbour replace 10.9.0.7 lladdr " MAC " dev v1 nud permanent", 0},
      {"ip neighbour del 10.9.0.7 dev v0", FAILED},
      {"ip neighbour replace fd09::7 lladdr " MAC " dev v0 nud permanent", RESOLVED},
      {"ip link set v0 mtu 1400", LINK},
      {"ip link set v0 address 02:48:41:52:50:08", LINK},
      {"ip link set v1 mtu 1400", 0},
      {"ip route add 10.13.0.0/16 via 10.9.0.254 dev v0", ROUTE},
      {"ip -6 route add fd13::/64 via fd09::fe dev v0", ROUTE},
      {"ip route del 10.13.0.0/16", ROUTE},
      {"true", 0},
  };
  if (!has_namespace) skip();
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    netns_run("%s", rows[i].command);
    unsigned events = take_changes();
    if ((events & rows[i].events) != rows[i].events || (!rows[i].events && events))
      fail_msg("%s: %#x", rows[i].command, events);
  }
}

static void test_the_rest_of_a_storm_is_looked_at_next_time(void **state) {
  (void)state;
  int looks = 0;
  if (!has_namespace) skip();
  netns_run("for i in $(seq %d); do echo neighbour replace 10.9.0.$i lladdr " MAC
            " dev v0 nud permanent; done | ip -batch -",
            STORM);
  while (read_news(watch_fd)) looks++;
  assert_true(looks >= 2 && looks < STORM);
}

struct writer {
  int fd;
  atomic_bool stop;
};

static void *write_without_end(void *arg) {
  struct writer *w = arg;
  struct {
    struct nlmsghdr head;
    struct ndmsg body;
  } news = {{.nlmsg_len = sizeof news, .nlmsg_type = RTM_NEWNEIGH}, {.ndm_ifindex = (int)v0}};
  for (; !atomic_load(&w->stop); news.head.nlmsg_seq++) (void)!send(w->fd, &news, sizeof news, 0);
  return NULL;
}

/* The number of the news that comes next, which it takes. */
static uint32_t next_news(int fd) {
  struct nlmsghdr head;
  assert_true(recv(fd, &head, sizeof head, MSG_TRUNC) >= (ssize_t)sizeof head);
  return head.nlmsg_seq;
}

static void test_endless_notifications_are_read_in_parts(void **state) {
  (void)state;
  enum { QUEUE = 512, READS_MAX = 16, LOOKS = 1000, PATIENCE = 1000000 /* while the writer lacks a core */ };
  int pair[2], queued;
  pthread_t thread;
  if (!has_namespace) skip();
  netns_run("sysctl -qw net.unix.max_dgram_qlen=%d", QUEUE);
  assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  struct writer writer = {.fd = pair[1]};
  assert_int_equal(pthread_create(&thread, NULL, write_without_end, &writer), 0);
  uint32_t before = next_news(pair[0]), most = 0;
  for (int i = 0; i < LOOKS || (most < READS_MAX && i < PATIENCE); i++) {
    (void)read_news(pair[0]);
    uint32_t next = next_news(pair[0]);
    most = HARP_MAX(most, next - before - 1);
    before = next;
  }
  atomic_store(&writer.stop, true);
  while (recv(pair[0], &queued, sizeof queued, MSG_DONTWAIT) > 0) continue;
  pthread_join(thread, NULL);
  assert_int_equal(most, READS_MAX);
  close(pair[0]);
  close(pair[1]);
}

/* The kernel has thrown messages away: perhaps those that concern us. */
static void test_lost_messages_count_as_a_change(void **state) {
  (void)state;
  int small = 1;
  if (!has_namespace) skip();
  (void)take_changes();
  assert_int_equal(setsockopt(watch_fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  netns_run("for i in $(seq %d); do echo neighbour replace 10.9.$((i / 250)).$((i %% 250 + 1)) lladdr " MAC
            " dev v1 nud permanent; done | ip -batch -",
            FLOOD);
  assert_true(take_changes() & 1u << HARP_NEIGHBOUR_LOST);
  assert_int_equal(take_changes(), 0);
}

/* ---- netlink as bytes ---- */

struct message {
  struct nlmsghdr head;
  struct ndmsg body;
  uint8_t attributes[64];
};

static void put(struct message *m, uint32_t *used, uint16_t type, uint16_t claimed_bytes) {
  struct rtattr a = {.rta_type = type, .rta_len = claimed_bytes};
  memcpy(m->attributes + *used, &a, sizeof a);
  *used += RTA_ALIGN(claimed_bytes);
  m->head.nlmsg_len = (uint32_t)NLMSG_SPACE(sizeof m->body) + *used;
}

static const struct rtattr *look_up(const struct message *m, uint16_t type) {
  return harp_netlink_find(m, sizeof m->body, type);
}

static void test_attributes_are_found(void **state) {
  (void)state;
  struct message m = {{0}, {0}, {0}};
  uint32_t used = 0;
  put(&m, &used, NDA_DST, RTA_LENGTH(4));
  put(&m, &used, NDA_LLADDR | NLA_F_NESTED, RTA_LENGTH(6));
  assert_ptr_equal(look_up(&m, NDA_DST), m.attributes);
  assert_int_equal(RTA_PAYLOAD(look_up(&m, NDA_LLADDR)), 6);
  assert_null(look_up(&m, NDA_PROBES));
}

static void test_attributes_that_are_cut_off_are_not_found(void **state) {
  (void)state;
  static const uint16_t nonsense[] = {0, 1, sizeof(struct rtattr) - 1, 61, UINT16_MAX};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(nonsense); i++) {
    struct message m = {{0}, {0}, {0}};
    uint32_t used = 0;
    put(&m, &used, NDA_DST, nonsense[i]);
    m.head.nlmsg_len = (uint32_t)NLMSG_SPACE(sizeof m.body) + 60;
    assert_null(look_up(&m, NDA_DST));
    assert_null(look_up(&m, NDA_LLADDR));
  }
  struct message m = {.head = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct ndmsg)) - 1}};
  assert_null(look_up(&m, 0));
}

static void test_nested_attributes_stay_within_the_outer_one(void **state) {
  (void)state;
  struct message m = {{0}, {0}, {0}};
  uint32_t used = 0;
  put(&m, &used, 43, RTA_LENGTH(8));
  used = RTA_LENGTH(0);
  put(&m, &used, 5, RTA_LENGTH(4));
  put(&m, &used, 6, RTA_LENGTH(4)); /* behind the end of the outer one */
  assert_non_null(harp_netlink_nested(look_up(&m, 43), 5));
  assert_null(harp_netlink_nested(look_up(&m, 43), 6));
}

static void test_what_the_kernel_refuses_is_an_error(void **state) {
  (void)state;
  uint8_t found[6];
  uint32_t program;
  if (!has_namespace) skip();
  assert_int_equal(harp_nic_mac(9999, found), -ENODEV);
  assert_int_equal(harp_nic_xdp_program(9999, true, &program), -ENODEV);
  assert_int_equal(harp_nic_xdp_program(v0, true, &program), 0);
  assert_int_equal(program, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_neighbour_is_found_when_it_is_resolved),
      cmocka_unit_test(test_a_gateway_stands_for_what_lies_behind_it),
      cmocka_unit_test(test_a_gateway_of_the_other_ip_version),
      cmocka_unit_test(test_peers_that_no_frame_of_ours_reaches),
      cmocka_unit_test_setup_teardown(test_what_counts_as_a_change, open_watch, close_watch),
      cmocka_unit_test_setup_teardown(test_the_rest_of_a_storm_is_looked_at_next_time, open_watch,
                                      close_watch),
      cmocka_unit_test(test_endless_notifications_are_read_in_parts),
      cmocka_unit_test_setup_teardown(test_lost_messages_count_as_a_change, open_watch, close_watch),
      cmocka_unit_test(test_attributes_are_found),
      cmocka_unit_test(test_attributes_that_are_cut_off_are_not_found),
      cmocka_unit_test(test_nested_attributes_stay_within_the_outer_one),
      cmocka_unit_test(test_what_the_kernel_refuses_is_an_error),
  };
  return cmocka_run_group_tests(tests, enter, NULL);
}
