/* SPDX-License-Identifier: Apache-2.0 */
/* Several drivers as one: routes and frames find their member, what any member receives comes out, no member
 * is forgotten while another is busy, and idle ones cost nothing but one question. */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/bundle.h"
#include "io/ready.h"

enum { MEMBERS = 3, PORTS = 2, PATIENCE_MS = 5000, ROUNDS = 50 };

struct end {
  struct harp_io *io;
  struct harp_counters counters;
  uint8_t *frames[MEMBERS];
  struct sockaddr_storage addr;
  struct harp_io_ready ready; /* all members' sockets */
};

static void open_end(struct end *e) {
  struct harp_error error = {0};
  memset(e, 0, sizeof *e);
  struct sockaddr_in *in = (struct sockaddr_in *)&e->addr;
  in->sin_family = AF_INET;
  in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  e->io = harp_io_bundle_make(&error);
  assert_non_null(e->io);
  assert_int_equal(harp_io_ready_open(&e->ready), 0);
  for (unsigned i = 0; i < MEMBERS; i++) {
    size_t bytes = harp_io_udp.frames_bytes(NULL);
    e->frames[i] = aligned_alloc(4096, harp_align_up(bytes, 4096));
    struct harp_io_config config = {.addr = &e->addr,
                                    .port_count = PORTS,
                                    .frames = e->frames[i],
                                    .frames_bytes = bytes,
                                    .counters = &e->counters,
                                    .ready = &e->ready,
                                    .ifname = "lo",
                                    .ifindex = 1};
    assert_int_equal(harp_io_bundle_add(e->io, &harp_io_udp, &config, &error), 0);
  }
}

static void close_end(struct end *e) {
  e->io->ops->close(e->io);
  harp_io_ready_close(&e->ready);
  for (unsigned i = 0; i < MEMBERS; i++) free(e->frames[i]);
}

static struct harp_io_route *route(struct end *from, struct end *to, unsigned member, unsigned port) {
  struct sockaddr_storage a = to->addr;
  ((struct sockaddr_in *)&a)->sin_port = htons(harp_io_bundle_member(to->io, member)->info.ports[port]);
  struct harp_io_route *r = from->io->ops->route_open(from->io, harp_io_bundle_port(member, port), &a, -1);
  assert_non_null(r);
  return r;
}

static void send_byte(struct end *e, struct harp_io_route *r, uint8_t byte) {
  struct harp_tx_superframe sf;
  assert_true(e->io->ops->tx_take(e->io, r, 64, &sf));
  memset(sf.base, byte, 64);
  sf.count = 1;
  sf.last_bytes = 64;
  assert_int_equal(e->io->ops->tx_submit(e->io, &sf), 0);
  e->io->ops->tx_flush(e->io);
}

/* Receives once, as a pass does. */
static unsigned receive_some(struct end *e, struct harp_rx_superframe got[HARP_RX_BATCH_MAX]) {
  struct epoll_event none[HARP_READY_EVENTS];
  assert_int_equal(harp_io_ready_refresh(&e->ready, false, 0, none), 0);
  return e->io->ops->rx(e->io, got, e->io->info.rx_batch);
}

/* Receives until `count` packets came; counts them by their first byte. */
static void receive(struct end *e, unsigned count, unsigned seen[256]) {
  struct pollfd fds[HARP_IO_FDS_MAX];
  struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
  while (count) {
    assert_int_equal(e->io->ops->fds(e->io, fds), 0);
    assert_true(poll(&(struct pollfd){.fd = e->ready.fd, .events = POLLIN}, 1, PATIENCE_MS) > 0);
    unsigned n = receive_some(e, got);
    for (unsigned i = 0; i < n; i++) {
      for (uint32_t at = 0; at < got[i].bytes; at += got[i].segment_bytes, count--) {
        assert_true(count > 0);
        seen[got[i].data[at]]++;
      }
    }
    if (n) e->io->ops->rx_release(e->io, got, n);
  }
}

static void test_every_member_and_port(void **state) {
  (void)state;
  struct end a, b;
  struct harp_io_route *routes[MEMBERS][PORTS];
  unsigned seen[256] = {0};
  open_end(&a);
  open_end(&b);
  for (unsigned m = 0; m < MEMBERS; m++)
    for (unsigned p = 0; p < PORTS; p++) routes[m][p] = route(&a, &b, m, p);
  for (unsigned round = 0; round < ROUNDS; round++) {
    for (unsigned m = 0; m < MEMBERS; m++)
      for (unsigned p = 0; p < PORTS; p++) send_byte(&a, routes[m][p], (uint8_t)(m * PORTS + p));
    receive(&b, MEMBERS * PORTS, seen);
  }
  for (unsigned i = 0; i < MEMBERS * PORTS; i++) assert_int_equal(seen[i], ROUNDS);
  for (unsigned m = 0; m < MEMBERS; m++)
    for (unsigned p = 0; p < PORTS; p++) a.io->ops->route_close(a.io, routes[m][p]);
  close_end(&a);
  close_end(&b);
}

/* A member that always has something does not keep the others from being polled. */
static void test_a_busy_member_starves_none(void **state) {
  (void)state;
  struct end a, b;
  struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
  open_end(&a);
  open_end(&b);
  struct harp_io_route *busy = route(&a, &b, 0, 0), *rare = route(&a, &b, 2, 1);
  send_byte(&a, rare, 1);
  unsigned calls = 0;
  for (bool found = false; !found; calls++) {
    assert_true(calls < 2 * MEMBERS + 2);
    send_byte(&a, busy, 0);
    unsigned n = receive_some(&b, got);
    for (unsigned i = 0; i < n; i++) found |= got[i].data[0] == 1;
    if (n) b.io->ops->rx_release(b.io, got, n);
  }
  a.io->ops->route_close(a.io, busy);
  a.io->ops->route_close(a.io, rare);
  close_end(&a);
  close_end(&b);
}

/* A frame that is not sent goes back to the member that lent it. */
static void test_frames_go_back_to_their_member(void **state) {
  (void)state;
  struct end a;
  struct harp_tx_superframe sf;
  open_end(&a);
  struct harp_io_route *r = route(&a, &a, 1, 0);
  for (unsigned i = 0; i < ROUNDS; i++) { /* far more than a member has */
    assert_true(a.io->ops->tx_take(a.io, r, 1000, &sf));
    a.io->ops->tx_give_back(a.io, &sf);
  }
  a.io->ops->route_close(a.io, r);
  close_end(&a);
}

/* What one member cannot, the engine must not do on any route. */
static void test_info_is_what_all_can(void **state) {
  (void)state;
  struct end a;
  struct harp_error error = {0};
  open_end(&a);
  assert_true(a.io->info.gather);
  uint8_t *frames = aligned_alloc(4096, harp_align_up(harp_io_udp.frames_bytes(NULL), 4096));
  struct harp_io_config config = {.addr = &a.addr,
                                  .port_count = 1,
                                  .frames = frames,
                                  .frames_bytes = harp_io_udp.frames_bytes(NULL),
                                  .counters = &a.counters,
                                  .ifname = "lo",
                                  .ifindex = 1,
                                  .disable = HARP_IO_NO_GATHER};
  assert_int_equal(harp_io_bundle_add(a.io, &harp_io_udp, &config, &error), 0);
  assert_false(a.io->info.gather);
  assert_true(a.io->info.buffer_bytes < UINT32_MAX);
  close_end(&a);
  free(frames);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_member_and_port),
      cmocka_unit_test(test_a_busy_member_starves_none),
      cmocka_unit_test(test_frames_go_back_to_their_member),
      cmocka_unit_test(test_info_is_what_all_can),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
