/* SPDX-License-Identifier: Apache-2.0 */
/* The xdp driver in a network namespace of its own: which queue it takes, how long it waits for one that is
 * being let go, and what it makes of a kernel that sends later, not at all, or never completes what it has
 * sent.
 *
 * For the latter this program has its own sendto, poll and clock_gettime, which the driver's calls reach.
 * Whole jobs are in tests/lab. Needs root; skipped without. */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/ecn.h"
#include "io/io.h"
#include "io/nic.h"
#include "io/xdp/filter.h"
#include "io/xdp/modes.h"
#include "io/xdp/socket.h"
#include "lib/addresses.h"
#include "lib/netns.h"

enum { LO = NETNS_LO, HELD_POLLS = 30, POLL_MS = 1, PATIENCE_MS = 5000, RX_FRAMES = 64, TX_RUNS = 4 };

enum {
  PAGE_BYTES = 65536, /* the largest that a kernel has */
  PEER_PORT = 9999,
};
enum { SHARED_PORTS = 5 }; /* where an engine has a share of the queues; else 1 */

static bool has_namespace;
static struct harp_counters counters;

/* ---- the kernel, as the driver sees it ---- */

static int wake_answer;                /* what waking a queue to send returns: 0, or -errno */
static unsigned wakes;                 /* so answered */
static bool wake_is_ignored;           /* the kernel takes the wake-up and does nothing */
static int ignored_fd = -1;            /* the same, of this queue only */
static int64_t clock_ahead_ns, nap_ns; /* how far the clock is ahead; how far each nap takes it */
static pid_t doomed;                   /* a process that a nap kills, when the clock is ahead so far */
static int64_t doom_ns;

ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
               socklen_t to_bytes) {
  if (!data && wake_answer) return wakes++, errno = -wake_answer, -1;
  if (!data && (wake_is_ignored || fd == ignored_fd)) return 0;
  return syscall(SYS_sendto, fd, data, bytes, flags, to, to_bytes);
}

static bool socket_is_full; /* each socket's send buffer */

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  if (socket_is_full) return errno = EAGAIN, -1;
  return syscall(SYS_sendmsg, fd, message, flags);
}

/* Polling a queue for room to send makes the kernel send, too. */
int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
  struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
  if (!count) clock_ahead_ns += nap_ns;
  if (!count && doomed && clock_ahead_ns >= doom_ns) {
    (void)kill(doomed, SIGKILL);
    doomed = 0, nap_ns = 0;
  }
  if (wake_is_ignored) return 0;
  return (int)syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &limit, NULL, 0);
}

int clock_gettime(clockid_t id, struct timespec *at) {
  int rc = (int)syscall(SYS_clock_gettime, id, at);
  at->tv_sec += clock_ahead_ns / 1000000000;
  at->tv_nsec += clock_ahead_ns % 1000000000;
  if (at->tv_nsec >= 1000000000) at->tv_sec++, at->tv_nsec -= 1000000000;
  return rc;
}

/* v0 is an ENI whose peer's MAC address the kernel knows; v1, its other end, swallows what comes. */
static void make_eni(void) {
  netns_run("ip link add v0 type veth peer name v1 && ip link set v1 up && ip link set v0 up && "
            "ip address add 10.9.0.1/24 dev v0 && "
            "ip neighbour add 10.9.0.7 lladdr 02:48:41:52:50:07 dev v0 nud permanent");
}

static int enter(void **state) {
  (void)state;
  has_namespace = netns_enter();
  if (has_namespace) make_eni();
  return 0;
}

static unsigned sharer, sharer_count, process, process_count, port_count = 1; /* what is opened */

static int open_on(unsigned ifindex, const char *ip, struct harp_io **io, uint8_t **frames,
                   enum harp_io_xdp_mode mode, struct harp_error *error) {
  struct sockaddr_storage addr = address(ip, 0);
  struct harp_io_xdp_config xdp = {
      .mode = mode,
      .mtu = 1500,
      .process = process,
      .process_count = process_count,
      .sharer = sharer,
      .sharer_count = sharer_count,
      .shared_port_count = SHARED_PORTS,
  };
  struct harp_io_config config = {
      .addr = &addr,
      .port_count = port_count,
      .counters = &counters,
      .ifindex = ifindex,
      .xdp = &xdp,
  };
  config.frames_bytes = (size_t)harp_align_up(harp_io_xdp.frames_bytes(&config), PAGE_BYTES);
  config.frames = *frames = aligned_alloc(PAGE_BYTES, config.frames_bytes);
  assert_non_null(*frames);
  *io = NULL;
  return harp_io_xdp.open(io, &config, error);
}

static int try_open(struct harp_io **io, uint8_t **frames, enum harp_io_xdp_mode mode,
                    struct harp_error *error) {
  return open_on(LO, "127.0.0.1", io, frames, mode, error);
}

static void close_it(struct harp_io *io, uint8_t *frames) {
  if (io) io->ops->close(io);
  free(frames);
}

static uint32_t program_on_lo(void) {
  uint32_t id;
  return harp_nic_xdp_program(LO, true, &id) ? 0 : id;
}

/* Takes queue 0 of loopback; what an earlier test closed may still be on its way out. */
static bool take_queue(struct harp_xdp_socket *s) {
  size_t bytes = harp_xdp_queue_umem_bytes(RX_FRAMES, TX_RUNS);
  struct harp_xdp_socket_config config = {
      .ifindex = LO, .umem = aligned_alloc(PAGE_BYTES, bytes), .rx_frames = RX_FRAMES, .tx_runs = TX_RUNS};
  struct harp_error error = {0};
  int err = config.umem ? -EBUSY : -ENOMEM;
  for (int i = 0; err == -EBUSY && i < PATIENCE_MS; i++) {
    err = harp_xdp_socket_open(s, &config, &error);
    if (err) (void)poll(NULL, 0, POLL_MS);
  }
  return !err;
}

/* A process that has queue 0. It lets go when a program has been on loopback for so many milliseconds: then
 * whoever attached it has found the queue taken. 0: it never does. */
static pid_t start_holder(int held_polls) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    struct harp_xdp_socket s;
    if (!take_queue(&s) || write(ready[1], "r", 1) != 1) _exit(1);
    for (int i = 0, seen = 0; i < PATIENCE_MS && (seen < held_polls || !held_polls); i++) {
      (void)poll(NULL, 0, POLL_MS);
      seen += program_on_lo() != 0;
    }
    _exit(0);
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

static void end_holder(pid_t child) {
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_loopback_has_generic_mode(void **state) {
  (void)state;
  struct harp_error error = {0};
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  int err = try_open(&io, &frames, HARP_IO_XDP_ANY, &error);
  if (err) fail_msg("open: %d %s", err, error.text);
  assert_string_equal(io->info.mode, "xdp generic copy");
  assert_string_equal(io->info.queues, "queue 0");
  assert_non_null(strstr(io->info.why_not, "xdp native copy: attaching a native XDP program"));
  assert_true(program_on_lo() != 0);
  close_it(io, frames);
  assert_int_equal(program_on_lo(), 0);
}

/* AF_XDP on a part of the queues needs more ports than sockets alone. */
static void test_too_few_ports_for_shared_queues(void **state) {
  (void)state;
  enum { PORT_LOW = 4002 };
  struct harp_error error = {0};
  struct harp_io *io;
  struct sockaddr_storage addr = address("127.0.0.1", 0);
  struct harp_io_xdp_config xdp = {.sharer_count = 2, .shared_port_count = 4, .mtu = 1500};
  struct harp_io_config config = {
      .addr = &addr,
      .port_low = PORT_LOW,
      .port_high = PORT_LOW + 1,
      .port_count = 1,
      .counters = &counters,
      .ifindex = LO,
      .xdp = &xdp,
  };
  if (!has_namespace) skip();
  config.frames_bytes = (size_t)harp_align_up(harp_io_xdp.frames_bytes(&config), PAGE_BYTES);
  assert_non_null(config.frames = aligned_alloc(PAGE_BYTES, config.frames_bytes));
  xdp.mode = HARP_IO_XDP_ANY;
  assert_int_equal(harp_io_xdp.open(&io, &config, &error), -EADDRINUSE);
  assert_non_null(strstr(error.text, "cannot bind 4 of the UDP ports 4002 to 4003"));
  xdp.mode = HARP_IO_XDP_AUTO;
  assert_int_equal(harp_io_xdp.open(&io, &config, &error), 0);
  assert_ptr_equal(io->ops, &harp_io_udp);
  assert_int_equal(io->info.port_count, 1);
  assert_non_null(strstr(io->info.why_not, "cannot bind 4 of the UDP ports 4002 to 4003"));
  close_it(io, config.frames);
}

/* As when a job follows another. */
static void test_waits_for_a_queue_that_is_being_released(void **state) {
  (void)state;
  struct harp_error error = {0};
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  pid_t holder = start_holder(HELD_POLLS);
  int err = try_open(&io, &frames, HARP_IO_XDP_COPY, &error);
  if (err) fail_msg("open: %d %s", err, error.text);
  assert_string_equal(io->info.queues, "queue 0");
  close_it(io, frames);
  end_holder(holder);
}

/* As when one of several processes is killed and started again: the others keep the program, and its ports
 * stand in the table. */
static void test_waits_for_the_queue_of_a_killed_process(void **state) {
  (void)state;
  enum { ITS_PORT = 4001 };
  struct harp_error error = {0};
  struct harp_io *io;
  uint8_t *frames;
  struct harp_xdp_filter others;
  struct sockaddr_storage its = address("127.0.0.1", ITS_PORT);
  if (!has_namespace) skip();
  if (harp_xdp_filter_open(&others, LO, HARP_XDP_GENERIC, false, &error)) fail_msg("%s", error.text);
  assert_int_equal(harp_xdp_filter_add_port(&others, &its, ITS_PORT, 1, 0), 0);
  pid_t holder = start_holder(5 * HELD_POLLS); /* native mode is tried first */
  ;
  int err = try_open(&io, &frames, HARP_IO_XDP_COPY, &error);
  if (err) fail_msg("open: %d %s", err, error.text);
  assert_string_equal(io->info.queues, "queue 0");
  close_it(io, frames);
  end_holder(holder);
  harp_xdp_filter_close(&others);
}

/* A process was killed on a host whose kernel has much to do. */
static void test_waits_for_a_queue_that_is_released_late(void **state) {
  (void)state;
  struct harp_error error = {0};
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  pid_t holder = doomed = start_holder(0);
  clock_ahead_ns = 0, nap_ns = HARP_MS(200), doom_ns = HARP_SEC(7);
  int err = try_open(&io, &frames, HARP_IO_XDP_COPY, &error);
  nap_ns = clock_ahead_ns = 0;
  if (err) fail_msg("open: %d %s", err, error.text);
  assert_string_equal(io->info.queues, "queue 0");
  close_it(io, frames);
  end_holder(holder);
}

static void test_a_queue_that_stays_in_use_is_an_error(void **state) {
  (void)state;
  struct harp_error error = {0};
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  pid_t holder = start_holder(0);
  nap_ns = HARP_MS(200);
  assert_int_equal(try_open(&io, &frames, HARP_IO_XDP_COPY, &error), -EBUSY);
  nap_ns = 0;
  assert_non_null(strstr(error.text, "xdp generic copy: other processes have all 1 queues"));
  assert_int_equal(program_on_lo(), 0);
  close_it(NULL, frames);
  end_holder(holder);
}

/* ---- sending ---- */

enum { SEGMENT_BYTES = 1000, SEGMENTS = 3, REAPS_MAX = 100000, SOCKET_BUFFER_MAX_BYTES = 8 << 20 };
#define OF_A_SOCKET (1u << 31) /* in the name of a frame */

static struct {
  struct harp_io *io;
  uint8_t *frames;
  struct harp_io_route *route;
} eni;

/* Waits until frames of a queue are lent: until then the kernel is asked for the next hop, and sockets send.
 */
static bool await_queue(struct harp_io *io, struct harp_io_route *route) {
  struct harp_tx_superframe sf;
  for (int i = 0; i < PATIENCE_MS; i++) {
    (void)io->ops->reap(io);
    bool is_fast = io->ops->tx_take(io, route, SEGMENT_BYTES, &sf) && !(sf.frame & OF_A_SOCKET);
    io->ops->tx_give_back(io, &sf);
    if (is_fast) return true;
    (void)poll(NULL, 0, POLL_MS);
  }
  return false;
}

static int open_eni(void **state) {
  (void)state;
  struct harp_error error = {0};
  wake_answer = 0, wake_is_ignored = false, clock_ahead_ns = 0;
  memset(&counters, 0, sizeof counters);
  eni.io = NULL;
  if (!has_namespace) return 0;
  if (open_on(netns_index("v0"), "10.9.0.1", &eni.io, &eni.frames, HARP_IO_XDP_ANY, &error)) {
    print_error("%s\n", error.text);
    return -1;
  }
  struct sockaddr_storage peer = address("10.9.0.7", PEER_PORT);
  eni.route = eni.io->ops->route_open(eni.io, 0, &peer, -1);
  return !eni.route || !await_queue(eni.io, eni.route);
}

static int close_eni(void **state) {
  (void)state;
  wake_answer = 0, wake_is_ignored = false, clock_ahead_ns = 0;
  if (!eni.io) return 0;
  eni.io->ops->route_close(eni.io, eni.route);
  close_it(eni.io, eni.frames);
  return 0;
}

static void build(struct harp_tx_superframe *sf) {
  assert_true(eni.io->ops->tx_take(eni.io, eni.route, SEGMENT_BYTES, sf));
  for (sf->count = 0; sf->count < SEGMENTS; sf->count++)
    memset(sf->base + sf->count * sf->stride, 'x', SEGMENT_BYTES);
  sf->last_bytes = SEGMENT_BYTES;
}

static void send_one(void) {
  struct harp_tx_superframe sf;
  build(&sf);
  assert_int_equal(eni.io->ops->tx_submit(eni.io, &sf), 0);
  eni.io->ops->tx_flush(eni.io);
}

/* Flushes and reaps until so many frames have come back. */
static void until_back(unsigned frames) {
  unsigned back = 0;
  for (int i = 0; back < frames && i < REAPS_MAX; i++) {
    eni.io->ops->tx_flush(eni.io);
    back += eni.io->ops->reap(eni.io);
  }
  assert_int_equal(back, frames);
}

static void expect_fallback(const char *why) {
  assert_int_equal(counters.driver_fallbacks, 1);
  assert_non_null(strstr(eni.io->info.mode, "udp "));
  assert_string_equal(eni.io->info.queues, "");
  assert_in_range(eni.io->info.buffer_bytes, 1, SOCKET_BUFFER_MAX_BYTES); /* peers met from now on get it */
  assert_non_null(strstr(eni.io->info.why_not, why));
  assert_int_equal(harp_nic_xdp_program(netns_index("v0"), true, &(uint32_t){1}), 0);
  send_one(); /* through a socket */
  assert_int_equal(eni.io->ops->reap(eni.io), 0);
}

static void test_frames_that_are_sent_come_back(void **state) {
  (void)state;
  if (!has_namespace) skip();
  assert_string_equal(eni.io->info.mode, "xdp generic copy");
  for (int i = 0; i < 100; i++) {
    send_one();
    until_back(SEGMENTS);
  }
  assert_int_equal(counters.driver_fallbacks, 0);
}

static void test_sends_are_retried_after_eagain(void **state) {
  (void)state;
  static const int later[] = {-EAGAIN, -EBUSY, -ENOBUFS};
  if (!has_namespace) skip();
  for (size_t i = 0; i < HARP_ARRAY_COUNT(later); i++) {
    wake_answer = later[i];
    send_one();
    send_one();
    assert_int_equal(eni.io->ops->reap(eni.io), 0);
    wake_answer = 0;
    clock_ahead_ns += HARP_MS(1);
    until_back(2 * SEGMENTS);
  }
  assert_int_equal(counters.driver_fallbacks, 0);
  assert_string_equal(eni.io->info.mode, "xdp generic copy");
}

/* A kernel that has no memory is asked once in a while. */
static void test_no_memory_is_tried_rarely(void **state) {
  (void)state;
  enum { FLUSHES = 100000 };
  if (!has_namespace) skip();
  wake_answer = -ENOBUFS;
  wakes = 0;
  harp_ns from_ns = harp_clock_ns();
  send_one();
  for (unsigned i = 0; i < FLUSHES; i++) eni.io->ops->tx_flush(eni.io);
  assert_in_range(wakes, 1, (harp_clock_ns() - from_ns) / HARP_MS(1) + 1);
  wake_answer = 0;
  clock_ahead_ns += HARP_MS(1);
  until_back(SEGMENTS);
}

/* The kernel knows no next hop for the peer, and the socket's send buffer is full. */
static void test_what_a_full_socket_refuses_leaves_later(void **state) {
  (void)state;
  struct pollfd fds[HARP_IO_FDS_MAX];
  struct harp_tx_superframe sf;
  if (!has_namespace) skip();
  struct sockaddr_storage unresolved = address("10.9.0.8", PEER_PORT);
  struct harp_io_route *r = eni.io->ops->route_open(eni.io, 0, &unresolved, -1);
  unsigned quiet = eni.io->ops->fds(eni.io, fds);
  socket_is_full = true;
  assert_true(eni.io->ops->tx_take(eni.io, r, SEGMENT_BYTES, &sf));
  memset(sf.base, 'x', SEGMENT_BYTES);
  sf.count = 1;
  sf.last_bytes = SEGMENT_BYTES;
  assert_int_equal(eni.io->ops->tx_submit(eni.io, &sf), 0);
  assert_int_equal(counters.tx_deferred, 1);
  assert_int_equal(eni.io->ops->fds(eni.io, fds), quiet + 1);
  eni.io->ops->tx_flush(eni.io);
  assert_false(eni.io->ops->tx_take(eni.io, r, SEGMENT_BYTES, &sf));
  socket_is_full = false;
  eni.io->ops->tx_flush(eni.io);
  assert_true(eni.io->ops->tx_take(eni.io, r, SEGMENT_BYTES, &sf));
  eni.io->ops->tx_give_back(eni.io, &sf);
  assert_int_equal(eni.io->ops->fds(eni.io, fds), quiet);
  eni.io->ops->route_close(eni.io, r);
}

static void test_falls_back_when_the_interface_is_gone(void **state) {
  (void)state;
  static const struct {
    int answer;
    const char *why;
  } rows[] = {{-ENETDOWN, "AF_XDP disabled: the interface went down"},
              {-ENXIO, "AF_XDP disabled: the interface is gone"}};
  for (size_t i = 0; has_namespace && i < HARP_ARRAY_COUNT(rows); i++) {
    wake_answer = rows[i].answer;
    send_one();
    wake_answer = 0;
    expect_fallback(rows[i].why);
    close_eni(state);
    assert_int_equal(open_eni(state), 0);
  }
  if (!has_namespace) skip();
}

/* Nothing is sent through it meanwhile: the kernel's tables have lost the next hop with it. */
static void test_falls_back_when_an_idle_interface_goes(void **state) {
  (void)state;
  if (!has_namespace) skip();
  netns_run("ip link delete v0");
  clock_ahead_ns += HARP_MS(100);
  for (int i = 0; i < 10 && !counters.driver_fallbacks; i++, clock_ahead_ns += HARP_MS(50))
    assert_int_equal(eni.io->ops->reap(eni.io), 0); /* reads some of the kernel's news each time */
  assert_int_equal(counters.driver_fallbacks, 1);
  assert_string_equal(eni.io->info.why_not, "AF_XDP disabled: the interface is gone");
  assert_non_null(strstr(eni.io->info.mode, "udp "));
  make_eni();
}

static void test_falls_back_without_completions(void **state) {
  (void)state;
  if (!has_namespace) skip();
  wake_is_ignored = true;
  for (int second = 0; second < 3; second++) {
    assert_int_equal(counters.driver_fallbacks, 0);
    send_one();
    assert_int_equal(eni.io->ops->reap(eni.io), 0);
    clock_ahead_ns += HARP_MS(1100);
  }
  assert_int_equal(eni.io->ops->reap(eni.io), 0);
  wake_is_ignored = false;
  expect_fallback("AF_XDP disabled: no send was completed for 2 s");
}

/* The others go on, and so does what all of them complete together. */
static void test_falls_back_when_one_queue_is_stuck(void **state) {
  (void)state;
  if (!has_namespace) skip();
  enum { QUEUES = 2 };
  struct sockaddr_storage peer = address("10.8.0.7", PEER_PORT);
  struct harp_io_route *routes[QUEUES];
  struct pollfd fds[HARP_IO_FDS_MAX];
  struct harp_error error = {0};
  memset(&counters, 0, sizeof counters);
  clock_ahead_ns = 0;
  netns_run("ip link add w0 numrxqueues 2 numtxqueues 2 type veth peer name w1 && "
            "ip address add 10.8.0.1/24 dev w0 && ip link set w0 up && ip link set w1 up && "
            "ip neighbour add 10.8.0.7 lladdr 02:48:41:52:50:07 dev w0 nud permanent");
  port_count = QUEUES;
  int err = open_on(netns_index("w0"), "10.8.0.1", &eni.io, &eni.frames, HARP_IO_XDP_ANY, &error);
  port_count = 1;
  if (err) fail_msg("%d %s", err, error.text);
  assert_string_equal(eni.io->info.queues, "queues 0-1");
  for (unsigned i = 0; i < QUEUES; i++) {
    routes[i] = eni.io->ops->route_open(eni.io, i, &peer, -1);
    assert_true(await_queue(eni.io, routes[i]));
  }
  ignored_fd = fds[eni.io->ops->fds(eni.io, fds) - 1].fd;
  for (int half_second = 0; half_second < 6; half_second++) {
    for (unsigned i = 0; i < QUEUES; i++) {
      eni.route = routes[i];
      send_one();
    }
    (void)eni.io->ops->reap(eni.io);
    clock_ahead_ns += HARP_MS(500);
  }
  ignored_fd = -1;
  assert_int_equal(counters.driver_fallbacks, 1);
  assert_non_null(strstr(eni.io->info.why_not, "no send was completed for 2 s"));
  for (unsigned i = 0; i < QUEUES; i++) eni.io->ops->route_close(eni.io, routes[i]);
  close_it(eni.io, eni.frames);
  netns_run("ip link del w0");
}

/* The engine builds into a frame of a queue, which is closed before it submits. */
static void test_a_lent_superframe_is_sent_by_the_sockets(void **state) {
  (void)state;
  struct harp_tx_superframe sent, given_back;
  if (!has_namespace) skip();
  build(&sent);
  build(&given_back);
  wake_answer = -ENETDOWN;
  send_one();
  wake_answer = 0;
  assert_int_equal(counters.driver_fallbacks, 1);
  assert_int_equal(eni.io->ops->tx_submit(eni.io, &sent), 0);
  eni.io->ops->tx_give_back(eni.io, &given_back);
  expect_fallback("the interface went down");
}

/* ---- receiving ---- */

enum { WORTHLESS = 3 * 512 /* more than the kernel has frames for */, AT_ONCE = 64, PAYLOAD_BYTES = 20 };

/* Sends a packet of this traffic class to our port from the other end: one whose length of UDP is wrong, or a
 * right one. */
static void arrive_marked(int from, bool is_right, uint8_t traffic_class) {
  uint8_t frame[14 + 20 + 8 + PAYLOAD_BYTES] = {
      [12] = 8, [14] = 0x45, [15] = traffic_class, [22] = 64, [23] = IPPROTO_UDP};
  struct sockaddr_storage to = address("10.9.0.1", eni.io->info.ports[0]);
  struct sockaddr_storage by = address("10.9.0.7", PEER_PORT);
  const struct sockaddr_in *local = (struct sockaddr_in *)&to, *peer = (struct sockaddr_in *)&by;
  assert_int_equal(harp_nic_mac(netns_index("v0"), frame), 0);
  frame[17] = 20 + 8 + PAYLOAD_BYTES;
  memcpy(frame + 26, &peer->sin_addr, 4);
  memcpy(frame + 30, &local->sin_addr, 4);
  memcpy(frame + 34, &peer->sin_port, 2);
  memcpy(frame + 36, &local->sin_port, 2);
  frame[39] = is_right ? 8 + PAYLOAD_BYTES : 7;
  assert_int_equal(send(from, frame, sizeof frame, 0), sizeof frame);
}

static void arrive(int from, bool is_right) {
  arrive_marked(from, is_right, HARP_ECN_NOT_ECT);
}

/* protocol: of the packets that it receives; 0: none. */
static int open_wire(uint16_t protocol) {
  struct sockaddr_ll at = {
      .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = (int)netns_index("v1")};
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
  return fd;
}

/* Takes what has come, as an engine does. */
static unsigned take_all(void) {
  struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
  unsigned all = 0;
  for (int turn = 0; turn < 2 * AT_ONCE; turn++) {
    unsigned n = eni.io->ops->rx(eni.io, got, HARP_RX_BATCH_MAX);
    if (n) eni.io->ops->rx_release(eni.io, got, n);
    all += n;
  }
  return all;
}

static void test_dropped_packets_return_their_frames(void **state) {
  (void)state;
  if (!has_namespace) skip();
  int wire = open_wire(0);
  for (unsigned i = 0; i < WORTHLESS; i++) {
    arrive(wire, false);
    if (i % AT_ONCE == AT_ONCE - 1) assert_int_equal(take_all(), 0);
  }
  assert_int_equal(counters.drops[HARP_DROP_SHORT], WORTHLESS);
  arrive(wire, true);
  assert_int_equal(take_all(), 1);
  close(wire);
}

/* Returns the traffic class of the next IPv4 packet to the peer that is seen on the wire. */
static int class_on_wire(int wire) {
  uint8_t frame[2048];
  do {
    assert_true(recv(wire, frame, sizeof frame, 0) > 34);
  } while (frame[23] != IPPROTO_UDP);
  return frame[15];
}

static void test_packets_carry_their_marks(void **state) {
  (void)state;
  struct harp_tx_superframe sf;
  if (!has_namespace) skip();
  int wire = open_wire(ETH_P_IP);
  for (unsigned ect = 0; ect < 2; ect++) {
    build(&sf);
    assert_false(sf.ect);
    sf.ect = ect;
    assert_int_equal(eni.io->ops->tx_submit(eni.io, &sf), 0);
    until_back(SEGMENTS);
    for (unsigned i = 0; i < SEGMENTS; i++)
      assert_int_equal(class_on_wire(wire), ect ? HARP_ECN_ECT0 : HARP_ECN_NOT_ECT);
  }
  close(wire);
}

static void test_marks_of_received_packets_are_reported(void **state) {
  (void)state;
  struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
  if (!has_namespace) skip();
  int wire = open_wire(0);
  for (uint8_t mark = 0; mark <= HARP_ECN_MASK; mark++) {
    unsigned n = 0;
    arrive_marked(wire, true, mark);
    for (int i = 0; !n && i < REAPS_MAX; i++) n = eni.io->ops->rx(eni.io, got, HARP_RX_BATCH_MAX);
    assert_int_equal(n, 1);
    assert_int_equal(got[0].ce, mark == HARP_ECN_CE);
    eni.io->ops->rx_release(eni.io, got, n);
  }
  close(wire);
}

static void test_a_queue_without_completions_is_refused(void **state) {
  (void)state;
  struct harp_error error = {0};
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  wake_is_ignored = true;
  int err = open_on(netns_index("v0"), "10.9.0.1", &io, &frames, HARP_IO_XDP_COPY, &error);
  if (err != -EIO) fail_msg("%d %s", err, error.text);
  wake_is_ignored = false;
  assert_non_null(strstr(error.text, "xdp generic copy: queue 0 completes no sends"));
  assert_non_null(strstr(error.text, "xdp native copy: queue 0 completes no sends"));
  close_it(NULL, frames);
}

/* The first of two engines gets the one queue, and ports among which some would lead there if there were
 * more; the second gets an error that names the owner, or uses sockets, with no more ports than those
 * need. */
static void test_engines_share_the_queues(void **state) {
  (void)state;
  if (!has_namespace) skip();
  struct harp_io *first, *second;
  uint8_t *frames[2];
  struct harp_error error = {0};
  sharer_count = 2;
  assert_int_equal(try_open(&first, &frames[0], HARP_IO_XDP_ANY, &error), 0);
  assert_int_equal(first->info.port_count, SHARED_PORTS);
  assert_string_equal(first->info.queues, "queue 0");
  sharer = 1;
  assert_int_not_equal(try_open(&second, &frames[1], HARP_IO_XDP_ANY, &error), 0);
  assert_non_null(strstr(error.text, "other engines of this process have all 1 queues"));
  close_it(NULL, frames[1]);
  assert_int_equal(try_open(&second, &frames[1], HARP_IO_XDP_AUTO, &error), 0);
  assert_string_equal(second->info.mode, "udp gso+gro");
  assert_string_not_equal(second->info.why_not, "");
  assert_int_equal(second->info.port_count, 1);
  close_it(second, frames[1]);
  close_it(first, frames[0]);
  sharer = sharer_count = 0;
}

/* Each has its part, whoever comes first, and ports that lead to the others' queues; one at least. */
static void test_processes_share_the_queues(void **state) {
  (void)state;
  if (!has_namespace) skip();
  static const char *const shares[] = {"queues 0-1", "queue 2", "queue 3"};
  struct harp_io *io[3];
  uint8_t *frames[4];
  struct harp_error error = {0};
  netns_run(
      "ip link add w0 numrxqueues 4 numtxqueues 4 type veth peer name w1 numrxqueues 4 numtxqueues 4 && "
      "ip address add 10.8.0.1/24 dev w0 && ip link set w0 up && ip link set w1 up");
  process_count = 3;
  for (process = 0; process < 3; process++) {
    assert_int_equal(
        open_on(netns_index("w0"), "10.8.0.1", &io[process], &frames[process], HARP_IO_XDP_ANY, &error), 0);
    assert_string_equal(io[process]->info.queues, shares[process]);
    assert_int_equal(io[process]->info.port_count, SHARED_PORTS);
  }
  close_it(io[2], frames[2]);
  process_count = 8; /* more than queues */
  process = UINT_MAX;
  assert_int_equal(open_on(netns_index("w0"), "10.8.0.1", &io[2], &frames[2], HARP_IO_XDP_ANY, &error), 0);
  assert_string_equal(io[2]->info.queues, shares[2]);
  assert_int_not_equal(
      open_on(netns_index("w0"), "10.8.0.1", &(struct harp_io *){0}, &frames[3], HARP_IO_XDP_ANY, &error), 0);
  assert_non_null(strstr(error.text, "other processes have all 4 queues"));
  close_it(NULL, frames[3]);
  for (unsigned i = 0; i < 3; i++) close_it(io[i], frames[i]);
  netns_run("ip link del w0");
  process = process_count = 0;
}

static void test_an_odd_queue_is_the_first_engines(void **state) {
  (void)state;
  if (!has_namespace) skip();
  static const char *const shares[] = {"queues 0-1", "queue 2"};
  struct harp_io *io[2];
  uint8_t *frames[2];
  struct harp_error error = {0};
  netns_run(
      "ip link add w0 numrxqueues 3 numtxqueues 3 type veth peer name w1 numrxqueues 3 numtxqueues 3 && "
      "ip address add 10.8.0.1/24 dev w0 && ip link set w0 up && ip link set w1 up");
  sharer_count = 2;
  for (sharer = 0; sharer < 2; sharer++) {
    assert_int_equal(
        open_on(netns_index("w0"), "10.8.0.1", &io[sharer], &frames[sharer], HARP_IO_XDP_ANY, &error), 0);
    assert_string_equal(io[sharer]->info.queues, shares[sharer]);
  }
  for (unsigned i = 0; i < 2; i++) close_it(io[i], frames[i]);
  netns_run("ip link del w0");
  sharer = sharer_count = 0;
}

#define ON_ENI(test) cmocka_unit_test_setup_teardown(test, open_eni, close_eni)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_loopback_has_generic_mode),
      cmocka_unit_test(test_too_few_ports_for_shared_queues),
      cmocka_unit_test(test_engines_share_the_queues),
      cmocka_unit_test(test_processes_share_the_queues),
      cmocka_unit_test(test_an_odd_queue_is_the_first_engines),
      cmocka_unit_test(test_waits_for_a_queue_that_is_being_released),
      cmocka_unit_test(test_waits_for_the_queue_of_a_killed_process),
      cmocka_unit_test(test_waits_for_a_queue_that_is_released_late),
      cmocka_unit_test(test_a_queue_that_stays_in_use_is_an_error),
      cmocka_unit_test(test_a_queue_without_completions_is_refused),
      ON_ENI(test_frames_that_are_sent_come_back),
      ON_ENI(test_sends_are_retried_after_eagain),
      ON_ENI(test_no_memory_is_tried_rarely),
      ON_ENI(test_what_a_full_socket_refuses_leaves_later),
      ON_ENI(test_falls_back_when_the_interface_is_gone),
      ON_ENI(test_falls_back_when_an_idle_interface_goes),
      ON_ENI(test_falls_back_without_completions),
      cmocka_unit_test(test_falls_back_when_one_queue_is_stuck),
      ON_ENI(test_dropped_packets_return_their_frames),
      ON_ENI(test_packets_carry_their_marks),
      ON_ENI(test_marks_of_received_packets_are_reported),
      ON_ENI(test_a_lent_superframe_is_sent_by_the_sockets),
  };
  return cmocka_run_group_tests(tests, enter, NULL);
}
