/* SPDX-License-Identifier: Apache-2.0 */
/* Connected sockets beside a port's own: who sends to a peer has one, shared by all routes to it, closed with
 * the last of them. Packets of unknown hosts still arrive, what ICMP reports harms nothing, and nobody else
 * gets the port. Where there can be no more of them, the port's own socket sends. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"
#include "lib/netns.h"

enum { PAGE_BYTES = 4096, PATIENCE_MS = 5000, TRIES = 100, PACKET_BYTES = 300, BYTE = 9, CLASS = 0x68 };
enum { CONNECTED_MAX = 32, CONNECTED_SHARE = 16, MANY = CONNECTED_MAX + 8 }; /* the first two as in udp.c */

struct end {
  struct harp_io *io;
  struct harp_counters counters;
  uint8_t *frames;
};

static bool is_one_of_many; /* whether the driver that is opened is one of many */

static bool is_each_receiving = true;

static int try_open(struct end *e, unsigned ports, uint16_t low) {
  struct harp_error error = {0};
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_storage addr = {0};
  memset(e, 0, sizeof *e);
  memcpy(&addr, &in, sizeof in);
  size_t bytes = harp_io_udp.frames_bytes(NULL);
  e->frames = aligned_alloc(PAGE_BYTES, harp_align_up(bytes, PAGE_BYTES));
  struct harp_io_config config = {.addr = &addr,
                                  .port_low = low,
                                  .port_high = low,
                                  .port_count = ports,
                                  .is_each_receiving = is_each_receiving,
                                  .is_one_of_many = is_one_of_many,
                                  .ifname = "lo",
                                  .ifindex = NETNS_LO,
                                  .frames = e->frames,
                                  .frames_bytes = bytes,
                                  .counters = &e->counters};
  int err = harp_io_udp.open(&e->io, &config, &error);
  if (err) free(e->frames);
  return err;
}

static void open_end(struct end *e, unsigned ports) {
  assert_int_equal(try_open(e, ports, 0), 0);
}

static void close_end(struct end *e) {
  assert_int_equal(e->counters.tx_busy, 0);
  assert_int_equal(e->counters.drops[HARP_DROP_SHORT], 0);
  e->io->ops->close(e->io);
  free(e->frames);
}

static struct harp_io_route *route(struct end *from, unsigned port, uint16_t to_port, int traffic_class) {
  struct sockaddr_in in = {
      .sin_family = AF_INET, .sin_port = htons(to_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_storage to = {0};
  memcpy(&to, &in, sizeof in);
  struct harp_io_route *r = from->io->ops->route_open(from->io, port, &to, traffic_class);
  assert_non_null(r);
  return r;
}

static void send_byte(struct end *e, struct harp_io_route *r, uint8_t byte) {
  struct harp_tx_superframe sf;
  assert_true(e->io->ops->tx_take(e->io, r, PACKET_BYTES, &sf));
  memset(sf.base, byte, PACKET_BYTES);
  sf.count = 1;
  sf.last_bytes = PACKET_BYTES;
  assert_int_equal(e->io->ops->tx_submit(e->io, &sf), 0);
  e->io->ops->tx_flush(e->io);
}

/* Receives one packet, waiting for it. */
static uint8_t receive(struct end *e) {
  struct harp_rx_superframe got;
  struct pollfd fds[HARP_IO_FDS_MAX];
  for (unsigned tries = 0; tries < TRIES; tries++) {
    assert_true(poll(fds, e->io->ops->fds(e->io, fds), PATIENCE_MS) > 0);
    if (!e->io->ops->rx(e->io, &got, 1)) continue;
    assert_int_equal(got.segment_bytes, PACKET_BYTES);
    assert_int_equal(got.bytes, PACKET_BYTES);
    uint8_t byte = got.data[0];
    e->io->ops->rx_release(e->io, &got, 1);
    return byte;
  }
  fail_msg("nothing came");
  return 0;
}

/* Counts this process's sockets on a port that are connected, or that are not. */
static unsigned sockets_on(uint16_t port, bool connected) {
  unsigned count = 0;
  DIR *dir = opendir("/proc/self/fd");
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    struct sockaddr_in in;
    socklen_t bytes = sizeof in;
    int fd = atoi(entry->d_name);
    if (getsockname(fd, (struct sockaddr *)&in, &bytes) || in.sin_family != AF_INET) continue;
    bytes = sizeof in;
    bool is_peers = in.sin_port == htons(port) && !getpeername(fd, (struct sockaddr *)&in, &bytes);
    if (bytes && is_peers) count += connected;
    if (!is_peers && in.sin_port == htons(port)) count += !connected;
  }
  closedir(dir);
  return count;
}

static void test_both_ways_and_unknown_senders(void **state) {
  (void)state;
  enum { ENDS = 3, ROUNDS = 20 };
  struct end ends[ENDS];
  struct harp_io_route *routes[ENDS][ENDS];
  for (unsigned i = 0; i < ENDS; i++) open_end(&ends[i], 1);
  for (unsigned i = 0; i < ENDS; i++)
    for (unsigned j = 0; j < ENDS; j++) routes[i][j] = route(&ends[i], 0, ends[j].io->info.ports[0], -1);
  for (unsigned round = 0; round < ROUNDS; round++) {
    for (unsigned i = 0; i < ENDS; i++) { /* in the first round, before the others have sent anything */
      for (unsigned j = 0; j < ENDS; j++) {
        send_byte(&ends[i], routes[i][j], (uint8_t)(round * ENDS + i));
        assert_int_equal(receive(&ends[j]), (uint8_t)(round * ENDS + i));
      }
    }
  }
  for (unsigned i = 0; i < ENDS; i++) {
    assert_int_equal(sockets_on(ends[i].io->info.ports[0], true), ENDS);
    assert_int_equal(sockets_on(ends[i].io->info.ports[0], false), 1);
    for (unsigned j = 0; j < ENDS; j++) ends[i].io->ops->route_close(ends[i].io, routes[i][j]);
    assert_int_equal(sockets_on(ends[i].io->info.ports[0], true), 0);
  }
  for (unsigned i = 0; i < ENDS; i++) close_end(&ends[i]);
}

/* Lists the ports from which sockets of this process are connected to that one. */
static unsigned sources_to(uint16_t port, uint16_t *sources, unsigned most) {
  unsigned count = 0;
  DIR *dir = opendir("/proc/self/fd");
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir)) && count < most;) {
    struct sockaddr_in in, peer;
    socklen_t bytes = sizeof in, peer_bytes = sizeof peer;
    int fd = atoi(entry->d_name);
    if (getsockname(fd, (struct sockaddr *)&in, &bytes) || in.sin_family != AF_INET) continue;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) || peer.sin_port != htons(port)) continue;
    sources[count++] = ntohs(in.sin_port);
  }
  closedir(dir);
  return count;
}

/* What any port sends comes to the first one of the peer, which alone is looked at. */
static void test_the_first_port_receives_for_all(void **state) {
  (void)state;
  enum { PORTS = 3, ROUNDS = 10, BACK = 100 /* what marks the bytes sent back */ };
  struct end a, b;
  struct harp_io_route *there[PORTS], *back[PORTS];
  uint16_t sources[PORTS + 1];
  is_each_receiving = false;
  open_end(&a, PORTS);
  open_end(&b, PORTS);
  for (unsigned i = 0; i < PORTS; i++) {
    assert_int_equal(b.io->info.ports[i], b.io->info.ports[0]);
    there[i] = route(&a, i, b.io->info.ports[i], -1);
    back[i] = route(&b, i, a.io->info.ports[i], -1);
  }
  for (uint8_t round = 0; round < ROUNDS; round++) {
    for (unsigned i = 0; i < PORTS; i++) {
      send_byte(&a, there[i], (uint8_t)(round * PORTS + i));
      assert_int_equal(receive(&b), round * PORTS + i);
      send_byte(&b, back[i], (uint8_t)(BACK + round * PORTS + i));
      assert_int_equal(receive(&a), BACK + round * PORTS + i);
    }
  }
  assert_int_equal(sources_to(b.io->info.ports[0], sources, PORTS + 1), PORTS);
  assert_true(sources[0] != sources[1] && sources[0] != sources[2] && sources[1] != sources[2]);
  for (unsigned i = 0; i < PORTS; i++) { /* who sends to a source is not heard */
    if (sources[i] == a.io->info.ports[0]) continue;
    struct harp_io_route *r = route(&b, 0, sources[i], -1);
    struct harp_rx_superframe got;
    send_byte(&b, r, 1);
    assert_int_equal(a.io->ops->rx(a.io, &got, 1), 0);
    b.io->ops->route_close(b.io, r);
  }
  for (unsigned i = 0; i < PORTS; i++) {
    a.io->ops->route_close(a.io, there[i]);
    b.io->ops->route_close(b.io, back[i]);
  }
  close_end(&a);
  close_end(&b);
  is_each_receiving = true;
}

/* It opens with the first send and closes with the last route. */
static void test_routes_to_a_peer_share_one(void **state) {
  (void)state;
  struct end a, b;
  open_end(&a, 2);
  open_end(&b, 1);
  uint16_t own = a.io->info.ports[1], to = b.io->info.ports[0];
  struct harp_io_route *first = route(&a, 1, to, -1), *second = route(&a, 1, to, -1);
  struct harp_io_route *silent = route(&a, 1, to, -1);
  assert_int_equal(sockets_on(own, true), 0);
  send_byte(&a, first, 1);
  send_byte(&a, second, 2);
  assert_int_equal(sockets_on(own, true), 1);
  a.io->ops->route_close(a.io, first);
  a.io->ops->route_close(a.io, silent);
  send_byte(&a, second, 3);
  assert_int_equal(sockets_on(own, true), 1);
  a.io->ops->route_close(a.io, second);
  assert_int_equal(sockets_on(own, true), 0);
  second = route(&a, 1, to, -1);
  send_byte(&a, second, 4);
  assert_int_equal(sockets_on(own, true), 1);
  for (uint8_t byte = 1; byte <= 4; byte++) assert_int_equal(receive(&b), byte);
  a.io->ops->route_close(a.io, second);
  close_end(&a);
  close_end(&b);
}

/* The peer's process ends and another one takes its port: each packet that is sent then arrives, and what
 * ICMP reported before is neither an error nor a drop. */
static void test_a_peer_that_comes_back(void **state) {
  (void)state;
  enum { LOST_PACKETS = 5, FIRST_BYTE = 3, LAST_BYTE = 7 };
  struct end a, b, gone;
  open_end(&a, 1);
  open_end(&gone, 1);
  uint16_t port = gone.io->info.ports[0];
  struct harp_io_route *r = route(&a, 0, port, -1);
  send_byte(&a, r, 1);
  close_end(&gone);
  for (unsigned n = 0; n < LOST_PACKETS; n++) {
    struct harp_rx_superframe got;
    send_byte(&a, r, 2);
    if (n % 2) assert_int_equal(a.io->ops->rx(a.io, &got, 1), 0);
  }
  if (try_open(&b, 1, port)) skip(); /* somebody was quicker */
  for (uint8_t byte = FIRST_BYTE; byte <= LAST_BYTE; byte++) {
    send_byte(&a, r, byte);
    assert_int_equal(receive(&b), byte);
  }
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

static void send_to_many(bool some_connected) {
  enum { ROUNDS = 3 };
  struct end a, b[MANY];
  struct harp_io_route *routes[MANY];
  open_end(&a, 1);
  for (unsigned i = 0; i < MANY; i++) {
    open_end(&b[i], 1);
    routes[i] = route(&a, 0, b[i].io->info.ports[0], -1);
  }
  for (uint8_t round = 0; round < ROUNDS; round++) {
    for (unsigned i = 0; i < MANY; i++) {
      send_byte(&a, routes[i], round);
      assert_int_equal(receive(&b[i]), round);
    }
  }
  assert_int_equal(sockets_on(a.io->info.ports[0], true), some_connected ? CONNECTED_MAX : 0);
  for (unsigned i = 0; i < MANY; i++) a.io->ops->route_close(a.io, routes[i]);
  for (unsigned i = 0; i < MANY; i++) close_end(&b[i]);
  close_end(&a);
}

static void test_only_so_many_peers_have_one(void **state) {
  (void)state;
  send_to_many(true);
}

/* The process may open too few files for one connected socket: all are left to others. */
static void test_files_are_scarce(void **state) {
  (void)state;
  struct rlimit before, few;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = CONNECTED_SHARE - 1;
  struct end a, b;
  open_end(&a, 1);
  open_end(&b, 1);
  struct harp_io_route *r = route(&a, 0, b.io->info.ports[0], -1);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  send_byte(&a, r, BYTE);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_int_equal(receive(&b), BYTE);
  assert_int_equal(sockets_on(a.io->info.ports[0], true), 0);
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

/* Old kernels would send by another interface. */
static void test_one_of_many_interfaces_has_none(void **state) {
  (void)state;
  struct end a, b;
  is_one_of_many = true;
  open_end(&a, 1);
  open_end(&b, 1);
  is_one_of_many = false;
  struct harp_io_route *r = route(&a, 0, b.io->info.ports[0], -1);
  send_byte(&a, r, BYTE);
  assert_int_equal(receive(&b), BYTE);
  assert_int_equal(sockets_on(a.io->info.ports[0], true), 0);
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

/* Whoever does not share the socket gets no share of the port, whatever option it sets. */
static void test_the_port_stays_ours(void **state) {
  (void)state;
  struct end a, b;
  int one = 1;
  open_end(&a, 1);
  open_end(&b, 1);
  struct harp_io_route *r = route(&a, 0, b.io->info.ports[0], -1);
  send_byte(&a, r, 1);
  assert_int_equal(sockets_on(a.io->info.ports[0], true), 1);
  for (int option = 0; option < 3; option++) {
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons(a.io->info.ports[0]),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (option == 1) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (option == 2) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), -1);
    assert_int_equal(errno, EADDRINUSE);
    close(fd);
  }
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

/* Routes to one peer may differ in it; a route's is that of all it sends. */
static void test_traffic_classes(void **state) {
  (void)state;
  struct end a;
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t bytes = sizeof in;
  int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &bytes), 0);
  assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &one, sizeof one), 0);
  open_end(&a, 1);
  static const int classes[] = {CLASS, -1, CLASS, 0};
  for (unsigned round = 0; round < 2; round++) {
    struct harp_io_route *routes[HARP_ARRAY_COUNT(classes)];
    for (unsigned i = 0; i < HARP_ARRAY_COUNT(classes); i++)
      routes[i] = route(&a, 0, ntohs(in.sin_port), classes[i]);
    for (unsigned i = 0; i < HARP_ARRAY_COUNT(classes); i++) {
      uint8_t data[PACKET_BYTES];
      _Alignas(struct cmsghdr) uint8_t control[64];
      struct iovec iov = {data, sizeof data};
      struct msghdr m = {
          .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
      send_byte(&a, routes[i], (uint8_t)i);
      assert_int_equal(recvmsg(fd, &m, 0), PACKET_BYTES);
      assert_non_null(CMSG_FIRSTHDR(&m));
      assert_int_equal(*CMSG_DATA(CMSG_FIRSTHDR(&m)), HARP_MAX(classes[i], 0));
    }
    for (unsigned i = 0; i < HARP_ARRAY_COUNT(classes); i++) a.io->ops->route_close(a.io, routes[i]);
  }
  close(fd);
  close_end(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_both_ways_and_unknown_senders),
      cmocka_unit_test(test_routes_to_a_peer_share_one),
      cmocka_unit_test(test_the_first_port_receives_for_all),
      cmocka_unit_test(test_a_peer_that_comes_back),
      cmocka_unit_test(test_only_so_many_peers_have_one),
      cmocka_unit_test(test_files_are_scarce),
      cmocka_unit_test(test_one_of_many_interfaces_has_none),
      cmocka_unit_test(test_the_port_stays_ours),
      cmocka_unit_test(test_traffic_classes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
