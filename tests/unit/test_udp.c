/* SPDX-License-Identifier: Apache-2.0 */
/* The driver for UDP sockets, over loopback: every combination of offloads that a kernel may lack, both
 * versions of IP, by copy and by reference, what does not fit, ports, and the frames' accounts. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"

enum { TX_FRAMES = 2, GRO_SLOTS = 16, RX_SLOT_BYTES = 9216 }; /* as in udp.c */
enum { PAGE_BYTES = 4096, PATIENCE_MS = 5000, BLOCK_PORTS = 8, SUPERFRAMES = 40, HEAD_BYTES = 44 };
/* The payloads of a small packet, and of full ones with MTU 1500 and 9000. */
enum { SMALL_BYTES = 100, PACKET_BYTES = 1452, JUMBO_BYTES = 8876 };
enum { NO_OFFLOAD = HARP_IO_NO_GSO | HARP_IO_NO_GRO, NO_FEATURE = NO_OFFLOAD | HARP_IO_NO_GATHER };

static const struct harp_io_ops *const ops = &harp_io_udp;

struct end {
  struct harp_io *io;
  struct harp_counters counters;
  uint8_t *frames;
  struct sockaddr_storage addr;
};

static struct sockaddr_storage loopback(int family) {
  struct sockaddr_storage a = {.ss_family = (sa_family_t)family};
  if (family == AF_INET6)
    ((struct sockaddr_in6 *)&a)->sin6_addr = in6addr_loopback;
  else
    ((struct sockaddr_in *)&a)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

static int try_open(struct end *e, int family, uint32_t disable, unsigned ports, uint16_t low, uint16_t high,
                    struct harp_error *error) {
  memset(e, 0, sizeof *e);
  e->addr = loopback(family);
  size_t bytes = ops->frames_bytes(NULL);
  e->frames = aligned_alloc(PAGE_BYTES, harp_align_up(bytes, PAGE_BYTES));
  assert_non_null(e->frames);
  struct harp_io_config config = {
      .addr = &e->addr,
      .port_low = low,
      .port_high = high,
      .port_count = ports,
      .is_each_receiving = true,
      .frames = e->frames,
      .frames_bytes = bytes,
      .counters = &e->counters,
      .disable = disable,
  };
  int err = ops->open(&e->io, &config, error);
  if (err) free(e->frames);
  return err;
}

static void open_end(struct end *e, int family, uint32_t disable, unsigned ports) {
  struct harp_error error = {0};
  int err = try_open(e, family, disable, ports, 0, 0, &error);
  if (err) fail_msg("open: %d %s", err, error.text);
  assert_int_equal(e->io->info.port_count, ports);
}

static void close_end(struct end *e) {
  ops->close(e->io);
  free(e->frames);
}

static struct sockaddr_storage at_port(const struct end *e, unsigned port) {
  struct sockaddr_storage a = e->addr;
  uint16_t n = htons(e->io->info.ports[port]);
  if (a.ss_family == AF_INET6)
    ((struct sockaddr_in6 *)&a)->sin6_port = n;
  else
    ((struct sockaddr_in *)&a)->sin_port = n;
  return a;
}

static struct harp_io_route *route_to(struct end *from, unsigned port, const struct end *to,
                                      unsigned to_port) {
  struct sockaddr_storage a = at_port(to, to_port);
  struct harp_io_route *r = ops->route_open(from->io, port, &a, -1);
  assert_non_null(r);
  return r;
}

static uint8_t byte_of(unsigned superframe, unsigned segment, unsigned at) {
  enum { OF_SUPERFRAME = 131, OF_SEGMENT = 29, OF_BYTE = 7 }; /* odd: neighbours differ */
  return (uint8_t)(superframe * OF_SUPERFRAME + segment * OF_SEGMENT + at * OF_BYTE + (at >> 8));
}

/* Takes what has arrived, waiting for it; every superframe is handed to `each`. Returns how many packets. */
static unsigned receive(struct end *e, void (*each)(const uint8_t *packet, uint32_t bytes, void *arg),
                        void *arg) {
  struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
  struct pollfd fds[HARP_IO_FDS_MAX];
  unsigned count = ops->fds(e->io, fds), packets = 0;
  assert_int_equal(count, 1); /* several ports are polled together */
  if (poll(fds, count, PATIENCE_MS) <= 0) return 0;
  unsigned n = ops->rx(e->io, got, e->io->info.rx_batch);
  for (unsigned i = 0; i < n; i++) {
    assert_true(got[i].bytes > 0 && got[i].segment_bytes > 0 && got[i].segment_bytes <= got[i].bytes);
    for (uint32_t at = 0; at < got[i].bytes; at += got[i].segment_bytes, packets++) {
      uint32_t left = got[i].bytes - at;
      each(got[i].data + at, left < got[i].segment_bytes ? left : got[i].segment_bytes, arg);
    }
  }
  ops->rx_release(e->io, got, n);
  return packets;
}

/* ---- superframes, whole ---- */

struct expected {
  unsigned superframe, segment, count;
  uint32_t segment_bytes, last_bytes;
};

static void check_packet(const uint8_t *packet, uint32_t bytes, void *arg) {
  struct expected *x = arg;
  bool is_last = x->segment + 1 == x->count;
  assert_int_equal(bytes, is_last ? x->last_bytes : x->segment_bytes);
  for (uint32_t i = 0; i < bytes; i++)
    if (packet[i] != byte_of(x->superframe, x->segment, i))
      fail_msg("wrong byte %u of segment %u", i, x->segment);
  x->segment++;
}

static void send_superframe(struct end *e, struct harp_io_route *route, const struct expected *x,
                            bool gather) {
  static uint8_t payload[HARP_SEGMENTS_MAX][HARP_SUPERFRAME_MAX_BYTES];
  struct harp_tx_superframe sf;
  assert_true(ops->tx_take(e->io, route, x->segment_bytes, &sf));
  assert_true(sf.count_max >= x->count);
  sf.gather = gather;
  if (gather) sf.stride = sf.head_bytes = HEAD_BYTES;
  for (unsigned s = 0; s < x->count; s++) {
    uint32_t bytes = s + 1 == x->count ? x->last_bytes : x->segment_bytes;
    uint32_t built = gather ? HEAD_BYTES : bytes;
    for (uint32_t i = 0; i < built; i++) sf.base[(size_t)s * sf.stride + i] = byte_of(x->superframe, s, i);
    for (uint32_t i = built; i < bytes; i++) payload[s][i] = byte_of(x->superframe, s, i);
    sf.payload[s] = payload[s] + built;
    sf.payload_bytes[s] = bytes - built;
  }
  sf.last_bytes = x->last_bytes;
  sf.count = x->count;
  assert_int_equal(ops->tx_submit(e->io, &sf), 0);
}

static void exchange(int family, uint32_t disable_tx, uint32_t disable_rx, uint32_t segment_bytes) {
  enum { FROM_PORTS = 2, TO_PORTS = 3 };
  enum { FULL_EVERY = 3, COUNT_STEP = 7, LAST_STEP = 31, GATHERED_EVERY = 4 }; /* superframes of all kinds */
  struct end a, b;
  open_end(&a, family, disable_tx, FROM_PORTS);
  open_end(&b, family, disable_rx, TO_PORTS);
  struct harp_io_route *route = route_to(&a, FROM_PORTS - 1, &b, TO_PORTS - 1);
  for (unsigned n = 0; n < SUPERFRAMES; n++) {
    unsigned most = HARP_SUPERFRAME_MAX_BYTES / segment_bytes;
    if (most > a.io->info.segments_max) most = a.io->info.segments_max;
    struct expected x = {.superframe = n,
                         .count = n % FULL_EVERY ? 1 + n * COUNT_STEP % most : most,
                         .segment_bytes = segment_bytes};
    x.last_bytes = n % 2 ? segment_bytes : HEAD_BYTES + 1 + n * LAST_STEP % (segment_bytes - HEAD_BYTES - 1);
    send_superframe(&a, route, &x, a.io->info.gather && n % GATHERED_EVERY == 1);
    struct expected want = x;
    while (want.segment < want.count)
      if (!receive(&b, check_packet, &want)) fail_msg("%u of %u packets came", want.segment, want.count);
  }
  assert_int_equal(ops->reap(a.io), 0);
  ops->tx_flush(a.io);
  assert_int_equal(a.counters.tx_busy, 0);
  for (int i = 0; i < HARP_DROP_COUNT; i++) assert_int_equal(b.counters.drops[i], 0);
  ops->route_close(a.io, route);
  close_end(&a);
  close_end(&b);
}

static bool has_ip6(void) {
  struct end e;
  struct harp_error error = {0};
  if (try_open(&e, AF_INET6, 0, 1, 0, 0, &error)) return false;
  close_end(&e);
  return true;
}

static void every_combination(int family) {
  static const uint32_t sizes[] = {SMALL_BYTES, PACKET_BYTES, JUMBO_BYTES};
  for (uint32_t tx = 0; tx <= NO_FEATURE; tx++)
    for (uint32_t rx = 0; rx <= HARP_IO_NO_GRO; rx += HARP_IO_NO_GRO)
      for (unsigned s = 0; s < HARP_ARRAY_COUNT(sizes); s++) exchange(family, tx, rx, sizes[s]);
}

static void test_every_combination_over_ip4(void **state) {
  (void)state;
  every_combination(AF_INET);
}

static void test_every_combination_over_ip6(void **state) {
  (void)state;
  if (!has_ip6()) skip();
  every_combination(AF_INET6);
}

static void test_mode_names_what_is_used(void **state) {
  (void)state;
  static const char *const names[] = {"udp gso+gro", "udp sendmmsg+gro", "udp gso+recvmmsg",
                                      "udp sendmmsg+recvmmsg"};
  for (uint32_t disable = 0; disable <= NO_FEATURE; disable++) {
    struct end e;
    open_end(&e, AF_INET, disable, 1);
    const struct harp_io_info *info = &e.io->info;
    assert_string_equal(info->mode, names[disable & NO_OFFLOAD]);
    assert_int_equal(info->gather, !(disable & HARP_IO_NO_GATHER));
    assert_int_equal(!info->why_not[0], !(disable & NO_OFFLOAD));
    assert_int_equal(!!strstr(info->why_not, "GSO is switched off"), !!(disable & HARP_IO_NO_GSO));
    assert_int_equal(!!strstr(info->why_not, "GRO is switched off"), !!(disable & HARP_IO_NO_GRO));
    assert_int_equal(info->rx_batch, disable & HARP_IO_NO_GRO ? HARP_RX_BATCH_MAX : GRO_SLOTS);
    assert_true(info->buffer_bytes > 0);
    close_end(&e);
  }
}

/* ---- what does not fit ---- */

static void count_packet(const uint8_t *packet, uint32_t bytes, void *arg) {
  (void)packet;
  ((uint32_t *)arg)[0]++;
  ((uint32_t *)arg)[1] = bytes;
}

static int connect_raw(const struct end *to) {
  struct sockaddr_storage a = at_port(to, 0);
  int fd = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0);
  assert_int_equal(
      connect(fd, (struct sockaddr *)&a,
              a.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)),
      0);
  return fd;
}

/* An empty datagram and one larger than a slot are counted, and the next one arrives. */
static void test_what_is_empty_or_too_large_is_counted(void **state) {
  (void)state;
  enum { LARGE_BYTES = 60000, LAST_BYTES = 77 };
  static uint8_t big[LARGE_BYTES];
  for (uint32_t disable = 0; disable <= HARP_IO_NO_GRO; disable += HARP_IO_NO_GRO) {
    struct end e;
    uint32_t seen[2] = {0};
    open_end(&e, AF_INET, disable, 1);
    int fd = connect_raw(&e);
    assert_int_equal(send(fd, big, 0, 0), 0);
    assert_int_equal(send(fd, big, sizeof big, 0), sizeof big);
    assert_int_equal(send(fd, big, RX_SLOT_BYTES, 0), RX_SLOT_BYTES);
    assert_int_equal(send(fd, big, LAST_BYTES, 0), LAST_BYTES);
    while (!seen[0] || seen[1] != LAST_BYTES) {
      unsigned before = seen[0];
      uint64_t dropped = e.counters.drops[HARP_DROP_SHORT];
      receive(&e, count_packet, seen);
      if (seen[0] == before && e.counters.drops[HARP_DROP_SHORT] == dropped) fail_msg("nothing more came");
    }
    /* With GRO a slot takes any datagram. */
    assert_int_equal(seen[0], disable ? 2 : 3);
    assert_int_equal(e.counters.drops[HARP_DROP_SHORT], disable ? 2 : 1);
    close(fd);
    close_end(&e);
  }
}

/* Nobody listens there any more: the refusal that comes back harms neither this nor other destinations. */
static void test_a_port_without_listener(void **state) {
  (void)state;
  enum { ROUNDS = 8, SEGMENTS = 3, SEGMENT_BYTES = 500, TAIL_BYTES = 300 };
  struct end a, b, gone;
  open_end(&a, AF_INET, 0, 1);
  open_end(&b, AF_INET, 0, 1);
  open_end(&gone, AF_INET, 0, 1);
  struct harp_io_route *to_gone = route_to(&a, 0, &gone, 0), *to_b = route_to(&a, 0, &b, 0);
  close_end(&gone);
  for (unsigned n = 0; n < ROUNDS; n++) {
    struct expected x = {
        .superframe = n, .count = SEGMENTS, .segment_bytes = SEGMENT_BYTES, .last_bytes = TAIL_BYTES};
    struct expected want = x;
    send_superframe(&a, to_gone, &x, false);
    send_superframe(&a, to_b, &x, false);
    while (want.segment < want.count)
      if (!receive(&b, check_packet, &want)) fail_msg("%u of %u packets came", want.segment, want.count);
  }
  struct harp_rx_superframe got[1];
  assert_int_equal(ops->rx(a.io, got, 1), 0);
  ops->route_close(a.io, to_gone);
  ops->route_close(a.io, to_b);
  close_end(&a);
  close_end(&b);
}

/* A send that the kernel refuses is an error, counted, and the frame is free again. */
static void test_refused_send(void **state) {
  (void)state;
  for (uint32_t disable = 0; disable <= HARP_IO_NO_GSO; disable++) {
    struct end e;
    struct harp_tx_superframe sf;
    open_end(&e, AF_INET, disable, 1);
    struct sockaddr_storage nowhere = at_port(&e, 0);
    ((struct sockaddr_in *)&nowhere)->sin_addr.s_addr = htonl(0x08080808); /* no way from 127.0.0.1 */
    struct harp_io_route *route = ops->route_open(e.io, 0, &nowhere, -1);
    for (unsigned n = 1; n <= 3 * TX_FRAMES; n++) {
      assert_true(ops->tx_take(e.io, route, SMALL_BYTES, &sf));
      memset(sf.base, 0, 2 * SMALL_BYTES);
      sf.count = 2;
      sf.last_bytes = SMALL_BYTES;
      assert_true(ops->tx_submit(e.io, &sf) < 0);
      assert_int_equal(e.counters.tx_busy, n);
    }
    ops->route_close(e.io, route);
    close_end(&e);
  }
}

/* ---- frames ---- */

static void test_frames_are_accounted_for(void **state) {
  (void)state;
  struct end e;
  open_end(&e, AF_INET, 0, 1);
  struct harp_io_route *route = route_to(&e, 0, &e, 0);
  struct harp_tx_superframe sf[TX_FRAMES + 1];
  for (unsigned round = 0; round < 3; round++) {
    for (unsigned i = 0; i < TX_FRAMES; i++) {
      assert_true(ops->tx_take(e.io, route, PACKET_BYTES, &sf[i]));
      assert_int_equal(sf[i].count_max, HARP_SUPERFRAME_MAX_BYTES / PACKET_BYTES);
      memset(sf[i].base, (int)i, HARP_SUPERFRAME_MAX_BYTES);
      for (unsigned j = 0; j < i; j++) assert_ptr_not_equal(sf[i].base, sf[j].base);
    }
    assert_false(ops->tx_take(e.io, route, PACKET_BYTES, &sf[TX_FRAMES]));
    for (unsigned i = 0; i < TX_FRAMES; i++) {
      assert_int_equal(sf[i].base[HARP_SUPERFRAME_MAX_BYTES - 1], i);
      ops->tx_give_back(e.io, &sf[i]);
    }
  }
  assert_true(ops->tx_take(e.io, route, HARP_SUPERFRAME_MAX_BYTES / HARP_SEGMENTS_MAX / 2, &sf[0]));
  assert_int_equal(sf[0].count_max, HARP_SEGMENTS_MAX);
  ops->tx_give_back(e.io, &sf[0]);
  ops->route_close(e.io, route);
  close_end(&e);
}

/* Several ports, all full: none starves, and one call returns no more than was requested. */
static void test_ports_take_turns(void **state) {
  (void)state;
  enum { PORTS = 4, PORT_PACKETS = 6, PACKETS = PORTS * PORT_PACKETS, CALLS_MAX = 1000 };
  for (uint32_t disable = 0; disable <= HARP_IO_NO_GRO; disable += HARP_IO_NO_GRO) {
    struct end a, b;
    unsigned seen[PORTS] = {0}, total = 0;
    open_end(&a, AF_INET, HARP_IO_NO_GSO, 1);
    open_end(&b, AF_INET, disable, PORTS);
    for (unsigned p = 0; p < PORTS; p++) {
      struct harp_io_route *route = route_to(&a, 0, &b, p);
      for (unsigned n = 0; n < PORT_PACKETS; n++) {
        struct harp_tx_superframe sf;
        uint32_t bytes = SMALL_BYTES + p * PORT_PACKETS + n; /* all differ, so that they don't merge */
        assert_true(ops->tx_take(a.io, route, bytes, &sf));
        memset(sf.base, (int)p, bytes);
        sf.count = 1;
        sf.last_bytes = bytes;
        assert_int_equal(ops->tx_submit(a.io, &sf), 0);
      }
      ops->route_close(a.io, route);
    }
    for (unsigned calls = 0; total < PACKETS; calls++) {
      struct harp_rx_superframe got[HARP_RX_BATCH_MAX];
      unsigned n = ops->rx(b.io, got, 1);
      assert_true(n <= 1);
      if (!n && calls > CALLS_MAX) fail_msg("%u of %u came", total, PACKETS);
      if (!n) continue;
      seen[got[0].data[0]]++;
      total++;
      if (total == PORTS && !disable)
        for (unsigned p = 0; p < PORTS; p++) assert_int_equal(seen[p], 1);
      ops->rx_release(b.io, got, n);
    }
    for (unsigned p = 0; p < PORTS; p++) assert_int_equal(seen[p], PORT_PACKETS);
    close_end(&a);
    close_end(&b);
  }
}

/* ---- ports ---- */

/* Finds a run of ports of which all are free. */
static uint16_t free_block(void) {
  enum { FIRST = 30001, END = 60000, STEP = 997 };
  for (unsigned low = FIRST; low < END; low += STEP) {
    struct end e;
    struct harp_error error = {0};
    if (try_open(&e, AF_INET, 0, BLOCK_PORTS, (uint16_t)low, (uint16_t)(low + BLOCK_PORTS - 1), &error))
      continue;
    close_end(&e);
    return (uint16_t)low;
  }
  fail_msg("no run of %d free ports", BLOCK_PORTS);
  return 0;
}

static void test_port_range(void **state) {
  (void)state;
  enum { PORTS = 3, LEFT = BLOCK_PORTS - 2 * PORTS };
  uint16_t low = free_block(), high = (uint16_t)(low + BLOCK_PORTS - 1);
  struct end a, b, c;
  struct harp_error error = {0};
  char expected[64];
  assert_int_equal(try_open(&a, AF_INET, 0, PORTS, low, high, &error), 0);
  assert_int_equal(try_open(&b, AF_INET, 0, PORTS, low, high, &error), 0);
  for (unsigned i = 0; i < PORTS; i++) {
    assert_int_equal(a.io->info.ports[i], low + i);
    assert_int_equal(b.io->info.ports[i], low + PORTS + i);
  }
  /* Too few are left: the error contains the range, and none of those tried stays bound. */
  assert_int_equal(try_open(&c, AF_INET, 0, PORTS, low, high, &error), -EADDRINUSE);
  snprintf(expected, sizeof expected, "cannot bind %u of the UDP ports %u to %u: ", PORTS, low, high);
  assert_non_null(strstr(error.text, expected));
  assert_int_equal(try_open(&c, AF_INET, 0, LEFT, low, high, &error), 0);
  assert_int_equal(c.io->info.ports[LEFT - 1], high);
  close_end(&a);
  close_end(&c);
  assert_int_equal(try_open(&a, AF_INET, 0, PORTS + LEFT, low, high, &error), 0);
  close_end(&a);
  close_end(&b);
}

static void test_highest_port(void **state) {
  (void)state;
  struct end a, b;
  struct harp_error error = {0};
  int err = try_open(&a, AF_INET, 0, 1, UINT16_MAX, UINT16_MAX, &error);
  if (err == -EADDRINUSE) skip();
  assert_int_equal(err, 0);
  assert_int_equal(a.io->info.ports[0], UINT16_MAX);
  assert_int_equal(try_open(&b, AF_INET, 0, 1, UINT16_MAX, UINT16_MAX, &error), -EADDRINUSE);
  close_end(&a);
}

/* One may get it later. */
static void test_an_address_that_no_interface_has(void **state) {
  (void)state;
  struct end e = {.addr = loopback(AF_INET)};
  struct harp_error error = {0};
  ((struct sockaddr_in *)&e.addr)->sin_addr.s_addr = htonl(0xC0000201); /* 192.0.2.1 is nobody's */
  size_t bytes = ops->frames_bytes(NULL);
  uint8_t *frames = malloc(bytes);
  struct harp_io_config config = {
      .addr = &e.addr, .port_count = 1, .frames = frames, .frames_bytes = bytes, .counters = &e.counters};
  assert_int_equal(ops->open(&e.io, &config, &error), 0);
  assert_int_not_equal(e.io->info.ports[0], 0);
  e.io->ops->close(e.io);
  free(frames);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_combination_over_ip4),
      cmocka_unit_test(test_every_combination_over_ip6),
      cmocka_unit_test(test_mode_names_what_is_used),
      cmocka_unit_test(test_what_is_empty_or_too_large_is_counted),
      cmocka_unit_test(test_a_port_without_listener),
      cmocka_unit_test(test_refused_send),
      cmocka_unit_test(test_frames_are_accounted_for),
      cmocka_unit_test(test_ports_take_turns),
      cmocka_unit_test(test_highest_port),
      cmocka_unit_test(test_an_address_that_no_interface_has),
      cmocka_unit_test(test_port_range),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
