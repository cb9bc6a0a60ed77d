/* SPDX-License-Identifier: Apache-2.0 */
/* The options of connections that carry records, over loopback; what the kernel reports of a connection, and
 * what is worked out where an older one reports less. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files.h"
#include "io/tcp_socket.h"

enum {
  BYTES = 1 << 20,
  PATIENCE_MS = 5000,
  LINUX_3_10 = 104, /* bytes of its struct tcp_info */
  LINUX_4_1 = 144,
  CURRENT = 256,
};

static socklen_t info_bytes = CURRENT;
static int listener, ours, theirs;
static uint64_t sent;

int getsockopt(int fd, int level, int option, void *value, socklen_t *bytes) {
  if (level == IPPROTO_TCP && option == TCP_INFO) *bytes = HARP_MIN(*bytes, info_bytes);
  return (int)syscall(SYS_getsockopt, fd, level, option, value, bytes);
}

static int set_up(void **state) {
  struct sockaddr_storage local = {0};
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  uint16_t port = 0;
  (void)state;
  memcpy(&local, &in, sizeof in);
  struct harp_tcp_options options = {.local = &local, .traffic_class = -1, .timeout_ns = HARP_SEC(8)};
  listener = harp_tcp_socket_listen(&options, 0, 0, &port);
  assert_true(listener >= 0);
  in.sin_port = htons(port);
  struct sockaddr_storage peer = local;
  memcpy(&peer, &in, sizeof in);
  ours = harp_tcp_socket_connect(&options, &peer);
  assert_true(ours >= 0);
  struct pollfd comes = {.fd = listener, .events = POLLIN};
  assert_int_equal(poll(&comes, 1, PATIENCE_MS), 1);
  theirs = harp_tcp_socket_accept(listener, &options);
  assert_true(theirs >= 0);
  sent = 0;
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  info_bytes = CURRENT;
  harp_files_close(ours);
  harp_files_close(theirs);
  harp_files_close(listener);
  return 0;
}

static struct harp_tcp_stats look(socklen_t bytes) {
  struct harp_tcp_stats f;
  info_bytes = bytes;
  harp_tcp_socket_read_stats(ours, sent, &f);
  return f;
}

static uint64_t queued(void) {
  int bytes = 0;
  assert_int_equal(ioctl(ours, TIOCOUTQ, &bytes), 0);
  return (uint64_t)bytes;
}

/* Sends until the kernel takes no more. */
static void fill(void) {
  static const uint8_t data[BYTES];
  ssize_t n;
  while ((n = send(ours, data, sizeof data, MSG_DONTWAIT)) > 0) sent += (uint64_t)n;
  assert_int_equal(errno, EAGAIN);
}

/* Receives until all that was sent has been acknowledged. */
static void receive_all(void) {
  static uint8_t data[BYTES];
  struct pollfd comes = {.fd = theirs, .events = POLLIN};
  while (queued()) {
    if (recv(theirs, data, sizeof data, MSG_DONTWAIT) > 0) continue;
    assert_true(poll(&comes, 1, PATIENCE_MS) >= 0);
  }
}

static void test_nothing_sent_is_nothing(void **state) {
  (void)state;
  const socklen_t kernels[] = {LINUX_3_10, LINUX_4_1, CURRENT};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(kernels); i++) {
    struct harp_tcp_stats f = look(kernels[i]);
    assert_in_range(f.acked_bytes, 0, 1); /* the SYN counts on newer ones */
    assert_int_equal(f.segments, 0);
    assert_int_equal(f.retransmitted, 0);
  }
}

static void test_round_trips_are_reported(void **state) {
  (void)state;
  fill();
  receive_all();
  assert_in_range(look(CURRENT).rtt_min_ns, 1, look(CURRENT).rtt_ns);
  assert_true(look(LINUX_4_1).rtt_ns && !look(LINUX_4_1).rtt_min_ns);
}

static void test_progress_is_seen_on_any_kernel(void **state) {
  (void)state;
  fill();
  assert_true(look(LINUX_3_10).acked_bytes < sent);
  receive_all();
  assert_int_equal(look(LINUX_3_10).acked_bytes, sent);
  assert_int_equal(look(LINUX_4_1).acked_bytes, sent + 1); /* the SYN */
}

/* About as many segments as there are: of the repeated ones a share is to be known. */
static void test_segments_are_worked_out(void **state) {
  (void)state;
  fill();
  receive_all();
  uint32_t counted = look(CURRENT).segments;
  assert_true(counted > 0);
  const socklen_t kernels[] = {LINUX_3_10, LINUX_4_1};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(kernels); i++) {
    uint32_t worked_out = look(kernels[i]).segments;
    assert_true(worked_out > 0);
    assert_in_range(worked_out, counted / 3, counted + 1);
  }
}

static int option(int fd, int level, int name) {
  int value = 0;
  socklen_t n = sizeof value;
  assert_int_equal(getsockopt(fd, level, name, &value, &n), 0);
  return value;
}

static void assert_times_out(int fd) {
  assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 2);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 8);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 8000);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
}

static void test_a_host_that_is_gone_breaks_either_end(void **state) {
  (void)state;
  assert_times_out(ours);
  assert_times_out(theirs);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      T(test_a_host_that_is_gone_breaks_either_end),
      T(test_nothing_sent_is_nothing),
      T(test_round_trips_are_reported),
      T(test_progress_is_seen_on_any_kernel),
      T(test_segments_are_worked_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
