/* SPDX-License-Identifier: Apache-2.0 */
/* ECN of the driver for UDP sockets, over loopback, on both versions of IP and with every offload: what a
 * plain socket sees of the marks that the driver sends, and what the driver reports of marks that a plain
 * socket sends. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/ecn.h"
#include "io/io.h"
#include "lib/addresses.h"

enum { PAGE_BYTES = 4096, PATIENCE_MS = 5000, PACKET_BYTES = 500, DSCP_CLASS = 0x28 };
static const uint32_t disables[] = {0, HARP_IO_NO_GSO, HARP_IO_NO_GRO, HARP_IO_NO_GSO | HARP_IO_NO_GRO};
static const int families[] = {AF_INET, AF_INET6};
static const struct harp_io_ops *const ops = &harp_io_udp;

struct end {
  struct harp_io *io;
  struct harp_counters counters;
  uint8_t *frames;
  struct sockaddr_storage addr;
  int peer; /* a plain socket */
  struct sockaddr_storage peer_addr;
};

static socklen_t address_bytes(int family) {
  return family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void open_peer(struct end *e, int family) {
  int one = 1;
  socklen_t n = address_bytes(family);
  e->peer = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  e->peer_addr = address(family == AF_INET6 ? "::1" : "127.0.0.1", 0);
  assert_int_equal(bind(e->peer, (struct sockaddr *)&e->peer_addr, n), 0);
  assert_int_equal(getsockname(e->peer, (struct sockaddr *)&e->peer_addr, &n), 0);
  int option = family == AF_INET6 ? IPV6_RECVTCLASS : IP_RECVTOS;
  assert_int_equal(
      setsockopt(e->peer, family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP, option, &one, sizeof one), 0);
}

static void open_end(struct end *e, int family, uint32_t disable, bool ecn) {
  size_t bytes = harp_align_up(ops->frames_bytes(NULL), PAGE_BYTES);
  struct harp_error error = {0};
  *e = (struct end){.addr = address(family == AF_INET6 ? "::1" : "127.0.0.1", 0)};
  e->frames = aligned_alloc(PAGE_BYTES, bytes);
  assert_non_null(e->frames);
  struct harp_io_config config = {.addr = &e->addr,
                                  .port_count = 1,
                                  .frames = e->frames,
                                  .frames_bytes = bytes,
                                  .counters = &e->counters,
                                  .disable = disable,
                                  .ecn = ecn};
  if (ops->open(&e->io, &config, &error)) fail_msg("%s", error.text);
  open_peer(e, family);
}

static void close_end(struct end *e) {
  ops->close(e->io);
  free(e->frames);
  close(e->peer);
}

/* The traffic class of the next datagram at the plain socket. */
static int received_class(const struct end *e) {
  uint8_t data[PACKET_BYTES];
  _Alignas(struct cmsghdr) uint8_t control[64];
  struct iovec iov = {data, sizeof data};
  struct msghdr m = {
      .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct pollfd fd = {.fd = e->peer, .events = POLLIN};
  assert_int_equal(poll(&fd, 1, PATIENCE_MS), 1);
  assert_int_equal(recvmsg(e->peer, &m, 0), PACKET_BYTES);
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  assert_non_null(c);
  return *CMSG_DATA(c); /* IPv4: a byte; IPv6: an int, of which only the low byte is used */
}

static void send_two(struct end *e, struct harp_io_route *r, bool ect) {
  struct harp_tx_superframe sf;
  assert_true(ops->tx_take(e->io, r, PACKET_BYTES, &sf));
  assert_false(sf.ect);
  memset(sf.base, 1, 2 * PACKET_BYTES);
  sf.count = 2;
  sf.last_bytes = PACKET_BYTES;
  sf.ect = ect;
  assert_int_equal(ops->tx_submit(e->io, &sf), 0);
}

static void check_sent(int family, uint32_t disable, bool ecn, int traffic_class) {
  struct end e;
  open_end(&e, family, disable, ecn);
  struct harp_io_route *r = ops->route_open(e.io, 0, &e.peer_addr, traffic_class);
  assert_non_null(r);
  static const bool marks[] = {true, false, false, true};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(marks); i++) {
    send_two(&e, r, marks[i]);
    int expected = HARP_MAX(traffic_class, 0) | (marks[i] ? HARP_ECN_ECT0 : 0);
    for (unsigned k = 0; k < 2; k++) assert_int_equal(received_class(&e), expected);
  }
  ops->route_close(e.io, r);
  close_end(&e);
}

static void test_sent_marks(void **state) {
  (void)state;
  static const int classes[] = {-1, 0, DSCP_CLASS};
  for (unsigned f = 0; f < HARP_ARRAY_COUNT(families); f++)
    for (unsigned d = 0; d < HARP_ARRAY_COUNT(disables); d++)
      for (unsigned c = 0; c < HARP_ARRAY_COUNT(classes); c++)
        for (unsigned ecn = 0; ecn < 2; ecn++) check_sent(families[f], disables[d], ecn, classes[c]);
}

/* Sends a datagram of this traffic class from the plain socket to the driver. */
static void send_marked(struct end *e, int family, int traffic_class) {
  static const uint8_t data[PACKET_BYTES] = {7};
  struct sockaddr_storage to = e->addr;
  uint16_t port = htons(e->io->info.ports[0]);
  if (family == AF_INET6)
    ((struct sockaddr_in6 *)&to)->sin6_port = port;
  else
    ((struct sockaddr_in *)&to)->sin_port = port;
  int level = family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP,
      option = family == AF_INET6 ? IPV6_TCLASS : IP_TOS;
  assert_int_equal(setsockopt(e->peer, level, option, &traffic_class, sizeof traffic_class), 0);
  assert_int_equal(sendto(e->peer, data, sizeof data, 0, (struct sockaddr *)&to, address_bytes(family)),
                   PACKET_BYTES);
}

/* Receives as many packets; each must be marked as expected. */
static void expect_marks(struct end *e, const bool *ce, unsigned count) {
  for (unsigned got = 0; got < count;) {
    struct harp_rx_superframe batch[HARP_RX_BATCH_MAX];
    struct pollfd fds[HARP_IO_FDS_MAX];
    assert_int_not_equal(poll(fds, ops->fds(e->io, fds), PATIENCE_MS), 0);
    unsigned n = ops->rx(e->io, batch, e->io->info.rx_batch);
    for (unsigned i = 0; i < n; i++)
      for (uint32_t at = 0; at < batch[i].bytes; at += batch[i].segment_bytes)
        assert_int_equal(batch[i].ce, ce[got++]);
    ops->rx_release(e->io, batch, n);
  }
}

/* The receiver reports marks whether it sends some itself or not: its peer may. */
static void check_received(int family, uint32_t disable, bool ecn) {
  static const int classes[] = {HARP_ECN_CE,    HARP_ECN_ECT0, HARP_ECN_NOT_ECT,
                                1 /* ECT(1) */, DSCP_CLASS,    DSCP_CLASS | HARP_ECN_CE,
                                HARP_ECN_CE,    0xff};
  bool ce[HARP_ARRAY_COUNT(classes)];
  struct end e;
  open_end(&e, family, disable, ecn);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(classes); i++) {
    ce[i] = (classes[i] & 3) == 3;
    send_marked(&e, family, classes[i]);
  }
  expect_marks(&e, ce, HARP_ARRAY_COUNT(classes));
  close_end(&e);
}

static void test_received_marks(void **state) {
  (void)state;
  for (unsigned f = 0; f < HARP_ARRAY_COUNT(families); f++)
    for (unsigned d = 0; d < HARP_ARRAY_COUNT(disables); d++)
      for (unsigned ecn = 0; ecn < 2; ecn++) check_received(families[f], disables[d], ecn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sent_marks),
      cmocka_unit_test(test_received_marks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
