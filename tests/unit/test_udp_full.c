/* SPDX-License-Identifier: Apache-2.0 */
/* A send buffer without room: the superframe waits in its frame and leaves later, whole and once; its port
 * waits with it, others go on, and a sleeper is woken. A real refusal is still a loss. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/bundle.h"
#include "lib/netns.h"

enum { PORTS = 3, TX_FRAMES = 2, HEAD_BYTES = 44, PAGE_BYTES = 4096, PATIENCE_MS = 5000, REUSED = 0xee };
enum { TINY = HEAD_BYTES + 26, LARGE_SEGMENTS = 60 };
enum { SEGMENT_BYTES = 1000, SHORT = SEGMENT_BYTES / 2, BYTES = 2 * SEGMENT_BYTES + SHORT };

/* ---- the kernel, as the driver sees it ---- */

static uint16_t full_port;      /* the sockets of this port take nothing; 0: none */
static int refusal = EAGAIN;    /* their errno */
static unsigned messages_taken; /* the messages that the next sendmmsg takes there, before it is full */
static unsigned refusals;       /* so far */
static harp_ns stopped_ns;      /* the clock stands there; 0: it runs */

int clock_gettime(clockid_t id, struct timespec *at) {
  if (!stopped_ns) return (int)syscall(SYS_clock_gettime, id, at);
  *at = (struct timespec){.tv_sec = (time_t)(stopped_ns / HARP_SEC(1)),
                          .tv_nsec = (long)(stopped_ns % HARP_SEC(1))};
  return 0;
}

static int refuse(void) {
  refusals++;
  errno = refusal;
  return -1;
}

static uint16_t port_of(int fd) {
  struct sockaddr_in in;
  socklen_t bytes = sizeof in;
  return getsockname(fd, (struct sockaddr *)&in, &bytes) ? 0 : ntohs(in.sin_port);
}

static int kernel_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
  return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  if (full_port && port_of(fd) == full_port) return refuse();
  return syscall(SYS_sendmsg, fd, message, flags);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
  if (!full_port || port_of(fd) != full_port) return kernel_sendmmsg(fd, messages, count, flags);
  if (!messages_taken) return refuse();
  count = HARP_MIN(count, messages_taken);
  messages_taken = 0;
  return kernel_sendmmsg(fd, messages, count, flags);
}

/* ---- two ends ---- */

struct end {
  struct harp_io *io;
  struct harp_counters counters;
  uint8_t *frames;
  struct sockaddr_storage addr;
};

static void open_at(struct end *e, const char *addr, uint32_t disable, unsigned ports) {
  struct harp_error error = {0};
  struct sockaddr_in in = {.sin_family = AF_INET};
  assert_int_equal(inet_pton(AF_INET, addr, &in.sin_addr), 1);
  memset(e, 0, sizeof *e);
  memcpy(&e->addr, &in, sizeof in);
  size_t bytes = harp_io_udp.frames_bytes(NULL);
  e->frames = aligned_alloc(PAGE_BYTES, harp_align_up(bytes, PAGE_BYTES));
  struct harp_io_config config = {.addr = &e->addr,
                                  .port_count = ports,
                                  .is_each_receiving = true,
                                  .frames = e->frames,
                                  .frames_bytes = bytes,
                                  .counters = &e->counters,
                                  .disable = disable};
  int err = harp_io_udp.open(&e->io, &config, &error);
  if (err) fail_msg("%s", error.text);
}

static void close_end(struct end *e) {
  e->io->ops->close(e->io);
  free(e->frames);
}

static struct harp_io_route *route(struct end *from, unsigned port, const char *addr, uint16_t to_port) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(to_port)};
  struct sockaddr_storage to = {0};
  assert_int_equal(inet_pton(AF_INET, addr, &in.sin_addr), 1);
  memcpy(&to, &in, sizeof in);
  struct harp_io_route *r = from->io->ops->route_open(from->io, port, &to, -1);
  assert_non_null(r);
  return r;
}

static void fill_route(struct end *from, struct harp_io_route *routes[PORTS], const struct end *to) {
  for (unsigned p = 0; p < PORTS; p++) routes[p] = route(from, p, "127.0.0.1", to->io->info.ports[p]);
}

static void close_routes(struct end *e, struct harp_io_route *routes[PORTS]) {
  for (unsigned p = 0; p < PORTS; p++) e->io->ops->route_close(e->io, routes[p]);
}

static uint8_t byte_of(unsigned superframe, unsigned at) {
  enum { OF_SUPERFRAME = 131, OF_BYTE = 7 }; /* odd: neighbours differ */
  return (uint8_t)(superframe * OF_SUPERFRAME + at * OF_BYTE + (at >> 8));
}

static uint8_t payload[HARP_SUPERFRAME_MAX_BYTES];

/* Builds superframe `n` of so many bytes. With gather its payload is in `payload`. */
static void build(struct end *e, struct harp_io_route *r, unsigned n, uint32_t bytes, bool gather,
                  struct harp_tx_superframe *sf) {
  assert_true(e->io->ops->tx_take(e->io, r, SEGMENT_BYTES, sf));
  sf->gather = gather;
  if (gather) sf->stride = sf->head_bytes = HEAD_BYTES;
  for (uint32_t at = 0; at < bytes; at += SEGMENT_BYTES) {
    uint32_t i = sf->count++, head = gather ? HEAD_BYTES : SEGMENT_BYTES;
    sf->last_bytes = HARP_MIN(bytes - at, (uint32_t)SEGMENT_BYTES);
    for (uint32_t b = 0; b < sf->last_bytes; b++)
      *(b < head ? sf->base + (size_t)i * sf->stride + b : payload + at + b) = byte_of(n, at + b);
    sf->payload[i] = payload + at + head;
    sf->payload_bytes[i] = sf->last_bytes - HARP_MIN(head, sf->last_bytes);
  }
}

static int send_one(struct end *e, struct harp_io_route *r, unsigned n, uint32_t bytes, bool gather) {
  struct harp_tx_superframe sf;
  build(e, r, n, bytes, gather, &sf);
  int err = e->io->ops->tx_submit(e->io, &sf);
  if (gather) memset(payload, REUSED, sizeof payload); /* its owner has it back */
  return err;
}

/* Expects superframe `n` to arrive, in order and whole. */
static void expect(struct end *e, unsigned n, uint32_t bytes) {
  struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
  struct pollfd fds[HARP_IO_FDS_MAX];
  for (uint32_t at = 0; at < bytes;) {
    assert_true(poll(fds, e->io->ops->fds(e->io, fds), PATIENCE_MS) > 0);
    unsigned count = e->io->ops->rx(e->io, got, e->io->info.rx_batch);
    for (unsigned i = 0; i < count; i++)
      for (uint32_t b = 0; b < got[i].bytes; b++, at++)
        if (at >= bytes || got[i].data[b] != byte_of(n, at)) fail_msg("wrong byte %u", at);
    e->io->ops->rx_release(e->io, got, count);
  }
}

static void expect_nothing(struct end *e) {
  struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
  for (unsigned i = 0; i < 4 * PORTS; i++)
    assert_int_equal(e->io->ops->rx(e->io, got, e->io->info.rx_batch), 0);
}

static bool can_take(struct end *e, struct harp_io_route *r) {
  struct harp_tx_superframe sf;
  if (!e->io->ops->tx_take(e->io, r, SEGMENT_BYTES, &sf)) return false;
  e->io->ops->tx_give_back(e->io, &sf);
  return true;
}

/* ---- tests ---- */

/* Each way of sending, by copy and by reference, from single packets to full superframes. */
static void test_what_is_refused_leaves_later(void **state) {
  (void)state;
  enum { FLUSHES = 3 };
  static const uint32_t sizes[] = {TINY, SEGMENT_BYTES, BYTES, LARGE_SEGMENTS * SEGMENT_BYTES + 1};
  for (uint32_t disable = 0; disable <= HARP_IO_NO_GSO; disable += HARP_IO_NO_GSO) {
    for (unsigned n = 0; n < 2 * HARP_ARRAY_COUNT(sizes); n++) {
      struct end a, b;
      struct harp_io_route *routes[PORTS];
      uint32_t bytes = sizes[n / 2];
      open_at(&a, "127.0.0.1", disable, PORTS);
      open_at(&b, "127.0.0.1", 0, PORTS);
      fill_route(&a, routes, &b);
      full_port = a.io->info.ports[1];
      messages_taken = bytes > SEGMENT_BYTES;
      assert_int_equal(send_one(&a, routes[1], n, bytes, n % 2), 0);
      for (unsigned tries = 0; tries < FLUSHES; tries++) a.io->ops->tx_flush(a.io);
      assert_false(can_take(&a, routes[1]));
      full_port = 0;
      a.io->ops->tx_flush(a.io);
      assert_true(can_take(&a, routes[1]));
      expect(&b, n, bytes);
      a.io->ops->tx_flush(a.io);
      expect_nothing(&b);
      assert_int_equal(a.counters.tx_deferred, 1);
      assert_int_equal(a.counters.tx_busy, 0);
      close_routes(&a, routes);
      close_end(&a);
      close_end(&b);
    }
  }
}

/* Other ports send while one waits, but each of them that waits too keeps one more frame. */
static void test_other_ports_go_on(void **state) {
  (void)state;
  enum { FIRST = 1, LAST = 20 }; /* superframes: the two that wait */
  struct end a, b;
  struct harp_io_route *routes[PORTS];
  struct pollfd fds[HARP_IO_FDS_MAX];
  open_at(&a, "127.0.0.1", 0, PORTS);
  open_at(&b, "127.0.0.1", 0, PORTS);
  fill_route(&a, routes, &b);
  assert_int_equal(a.io->ops->fds(a.io, fds), 1);
  full_port = a.io->info.ports[0];
  assert_int_equal(send_one(&a, routes[0], FIRST, BYTES, false), 0);
  for (unsigned n = FIRST + 1; n < LAST; n++) {
    assert_int_equal(send_one(&a, routes[2], n, BYTES, false), 0);
    expect(&b, n, BYTES);
  }
  assert_int_equal(a.io->ops->fds(a.io, fds), 2);
  assert_int_equal(port_of(fds[1].fd), full_port);
  assert_int_equal(fds[1].events, POLLOUT);
  full_port = a.io->info.ports[2];
  assert_int_equal(send_one(&a, routes[2], LAST, BYTES, false), 0);
  assert_int_equal(a.io->ops->fds(a.io, fds), 1 + TX_FRAMES);
  for (unsigned p = 0; p < PORTS; p++) assert_false(can_take(&a, routes[p]));
  a.io->ops->tx_flush(a.io); /* the first has room by now */
  expect(&b, FIRST, BYTES);
  assert_true(can_take(&a, routes[0]));
  assert_true(can_take(&a, routes[1]));
  assert_false(can_take(&a, routes[2]));
  full_port = 0;
  a.io->ops->tx_flush(a.io);
  expect(&b, LAST, BYTES);
  assert_int_equal(a.io->ops->fds(a.io, fds), 1);
  assert_int_equal(a.counters.tx_deferred, 2);
  close_routes(&a, routes);
  close_end(&a);
  close_end(&b);
}

/* Two that were lent before the port was full: both wait, and the port does until both have left. */
static void test_two_of_one_port(void **state) {
  (void)state;
  struct end a, b;
  struct harp_tx_superframe sf[TX_FRAMES];
  open_at(&a, "127.0.0.1", 0, 1);
  open_at(&b, "127.0.0.1", 0, 1);
  struct harp_io_route *r = route(&a, 0, "127.0.0.1", b.io->info.ports[0]);
  for (unsigned i = 0; i < TX_FRAMES; i++) build(&a, r, 1, SHORT, false, &sf[i]);
  full_port = a.io->info.ports[0];
  for (unsigned i = 0; i < TX_FRAMES; i++) assert_int_equal(a.io->ops->tx_submit(a.io, &sf[i]), 0);
  assert_false(can_take(&a, r));
  full_port = 0;
  a.io->ops->tx_flush(a.io);
  assert_true(can_take(&a, r));
  for (unsigned i = 0; i < TX_FRAMES; i++) expect(&b, 1, SHORT);
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

/* The engine may close a route whose last superframe waits, and the driver itself. */
static void test_the_route_goes_first(void **state) {
  (void)state;
  for (unsigned last = 0; last < 2; last++) {
    struct end a, b;
    open_at(&a, "127.0.0.1", 0, 1);
    open_at(&b, "127.0.0.1", 0, 1);
    struct harp_io_route *r = route(&a, 0, "127.0.0.1", b.io->info.ports[0]);
    full_port = a.io->info.ports[0];
    assert_int_equal(send_one(&a, r, 1, BYTES, true), 0);
    a.io->ops->route_close(a.io, r);
    full_port = 0;
    if (!last) {
      a.io->ops->tx_flush(a.io);
      expect(&b, 1, BYTES);
    }
    close_end(&a);
    close_end(&b);
  }
}

/* What the kernel refuses for another reason is lost, at once or when it was to leave later. */
static void test_other_refusals_are_losses(void **state) {
  (void)state;
  struct end a, b;
  open_at(&a, "127.0.0.1", 0, 1);
  open_at(&b, "127.0.0.1", 0, 1);
  struct harp_io_route *r = route(&a, 0, "127.0.0.1", b.io->info.ports[0]);
  full_port = a.io->info.ports[0];
  refusal = EPERM;
  assert_int_equal(send_one(&a, r, 1, SHORT, false), -EPERM);
  assert_int_equal(a.counters.tx_busy, 1);
  assert_true(can_take(&a, r));
  refusal = ENOBUFS;
  assert_int_equal(send_one(&a, r, 1, SHORT, false), 0);
  assert_int_equal(a.counters.tx_deferred, 1);
  refusal = EPERM;
  for (unsigned i = 0; i < PATIENCE_MS && a.counters.tx_busy < 2; i++) {
    (void)poll(NULL, 0, 1);
    a.io->ops->tx_flush(a.io);
  }
  assert_int_equal(a.counters.tx_busy, 2);
  assert_true(can_take(&a, r));
  refusal = EAGAIN;
  full_port = 0;
  expect_nothing(&b);
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

/* A kernel without memory is asked once in a while, and the sleeper is not woken by sockets that have room.
 */
static void test_no_memory_is_tried_rarely(void **state) {
  (void)state;
  enum { FLUSHES_IN_1_MS = 100, PERIOD_MS = 50 };
  struct end a, b;
  struct pollfd fds[HARP_IO_FDS_MAX];
  open_at(&a, "127.0.0.1", 0, 1);
  open_at(&b, "127.0.0.1", 0, 1);
  struct harp_io_route *r = route(&a, 0, "127.0.0.1", b.io->info.ports[0]);
  full_port = a.io->info.ports[0];
  refusal = ENOBUFS;
  refusals = 0;
  stopped_ns = HARP_SEC(1000);
  assert_int_equal(send_one(&a, r, 1, BYTES, false), 0);
  for (unsigned i = 0; i < FLUSHES_IN_1_MS * PERIOD_MS; i++) {
    stopped_ns += HARP_MS(1) / FLUSHES_IN_1_MS;
    a.io->ops->tx_flush(a.io);
  }
  assert_in_range(refusals, PERIOD_MS / 2, PERIOD_MS + 1);
  assert_int_equal(a.io->ops->fds(a.io, fds), 1);
  assert_false(can_take(&a, r));
  refusal = EAGAIN;
  full_port = 0;
  stopped_ns += HARP_MS(1);
  a.io->ops->tx_flush(a.io);
  stopped_ns = 0;
  expect(&b, 1, BYTES);
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

/* A bundle hands out its member's full port, and flushes it. */
static void test_member_of_a_bundle(void **state) {
  (void)state;
  struct end a = {0}, b;
  struct harp_error error = {0};
  struct pollfd fds[HARP_IO_FDS_MAX];
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_storage to = {0};
  memcpy(&a.addr, &in, sizeof in);
  size_t bytes = harp_io_udp.frames_bytes(NULL);
  a.frames = malloc(bytes);
  a.io = harp_io_bundle_make(&error);
  struct harp_io_config config = {.addr = &a.addr,
                                  .port_count = 2,
                                  .is_each_receiving = true,
                                  .frames = a.frames,
                                  .frames_bytes = bytes,
                                  .counters = &a.counters,
                                  .ifname = "lo",
                                  .ifindex = NETNS_LO};
  assert_int_equal(harp_io_bundle_add(a.io, &harp_io_udp, &config, &error), 0);
  open_at(&b, "127.0.0.1", 0, 1);
  in.sin_port = htons(b.io->info.ports[0]);
  memcpy(&to, &in, sizeof in);
  struct harp_io_route *r = a.io->ops->route_open(a.io, harp_io_bundle_port(0, 1), &to, -1);
  struct end member = {.io = harp_io_bundle_member(a.io, 0)};
  full_port = member.io->info.ports[1];
  assert_int_equal(send_one(&a, r, 1, BYTES, true), 0);
  assert_false(can_take(&a, r));
  assert_int_equal(a.io->ops->fds(a.io, fds), 2);
  assert_int_equal(port_of(fds[1].fd), full_port);
  full_port = 0;
  a.io->ops->tx_flush(a.io);
  expect(&b, 1, BYTES);
  assert_true(can_take(&a, r));
  a.io->ops->route_close(a.io, r);
  close_end(&a);
  close_end(&b);
}

/* A real link, slower than its sender: the buffer fills, and poll reports when there is room. */
static void test_a_slow_link(void **state) {
  (void)state;
  enum { ENOUGH = 4096, FULL = 64 * SEGMENT_BYTES, PEER_PORT = 9999, FDS_MAX = 256, ROUNDS = 3 };
  struct end a;
  struct pollfd fds[HARP_IO_FDS_MAX];
  int buffer_bytes = 128 << 10;
  if (!netns_enter()) skip();
  netns_run("ip link add v0 type veth peer name v1 && ip address add 10.9.0.1/24 dev v0 && "
            "ip link set v0 up && ip link set v1 up && "
            "ip neighbour add 10.9.0.7 lladdr 02:48:41:52:50:07 dev v0 nud permanent && "
            "tc qdisc add dev v0 root tbf rate 20mbit burst 128k limit 64m");
  open_at(&a, "10.9.0.1", 0, 1);
  struct harp_io_route *r = route(&a, 0, "10.9.0.7", PEER_PORT);
  assert_int_equal(send_one(&a, r, 0, FULL, false), 0);
  for (int fd = 0; fd < FDS_MAX; fd++)
    if (port_of(fd) == a.io->info.ports[0])
      assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes), 0);
  for (unsigned round = 0; round < ROUNDS; round++) {
    unsigned n = 0;
    for (; can_take(&a, r) && n < ENOUGH; n++) assert_int_equal(send_one(&a, r, n, FULL, n % 2), 0);
    assert_in_range(n, 1, ENOUGH - 1);
    assert_int_equal(a.counters.tx_deferred, round + 1);
    unsigned count = a.io->ops->fds(a.io, fds);
    assert_int_equal(count, 2);
    assert_int_equal(poll(fds, count, PATIENCE_MS), 1);
    assert_int_equal(fds[1].revents, POLLOUT);
    a.io->ops->tx_flush(a.io);
    assert_true(can_take(&a, r));
  }
  assert_int_equal(a.counters.tx_busy, 0);
  a.io->ops->route_close(a.io, r);
  close_end(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_refused_leaves_later),
      cmocka_unit_test(test_other_ports_go_on),
      cmocka_unit_test(test_two_of_one_port),
      cmocka_unit_test(test_the_route_goes_first),
      cmocka_unit_test(test_other_refusals_are_losses),
      cmocka_unit_test(test_no_memory_is_tried_rarely),
      cmocka_unit_test(test_member_of_a_bundle),
      cmocka_unit_test(test_a_slow_link), /* the last: it moves to another namespace */
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
