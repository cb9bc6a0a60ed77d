/* SPDX-License-Identifier: Apache-2.0 */
/* The options of connections that carry records, over loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/files.h"
#include "io/tcp_socket.h"

static int option(int fd, int level, int name) {
  int value = 0;
  socklen_t n = sizeof value;
  assert_int_equal(getsockopt(fd, level, name, &value, &n), 0);
  return value;
}

static void assert_times_out(int fd) {
  assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 2);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 2);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 8000);
  assert_int_equal(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
}

static void a_host_that_is_gone_breaks_either_end(void **state) {
  (void)state;
  struct sockaddr_storage local = {0};
  struct sockaddr_in *in = (struct sockaddr_in *)&local;
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct harp_tcp_options options = {.local = &local, .traffic_class = -1, .timeout_ns = HARP_SEC(8)};
  uint16_t port = 0;
  int listener = harp_tcp_socket_listen(&options, 0, 0, &port);
  assert_true(listener >= 0);
  in->sin_port = htons(port);
  struct sockaddr_storage there = local;
  int client = harp_tcp_socket_connect(&options, &there);
  assert_true(client >= 0);
  assert_int_equal(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 5000), 1);
  int server = harp_tcp_socket_accept(listener, &options);
  assert_true(server >= 0);
  assert_times_out(client);
  assert_times_out(server);
  harp_files_close(client), harp_files_close(server), harp_files_close(listener);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_host_that_is_gone_breaks_either_end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
