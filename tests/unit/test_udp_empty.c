/* SPDX-License-Identifier: Apache-2.0 */
/* Empty datagrams to the UDP driver's ports cost a bounded number of drops per call and no other packets. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"

enum {
  PORTS = 2,
  ROUNDS = 5, /* on each port: an empty datagram, then a superframe */
  SUPERFRAME_PACKETS = 4,
  PACKETS = PORTS * ROUNDS * SUPERFRAME_PACKETS,
  PACKET_BYTES = 1068,
  LAST_PACKET_BYTES = PACKET_BYTES - 100, /* the last packet of a superframe */
  CALL_DROPS_MAX = 64,                    /* more than one rx call may drop */
  WAIT_MS = 10000,
};

struct driver {
  struct harp_io *io;
  uint8_t *frames;
  struct harp_counters counters;
  struct sockaddr_in addr;
};

static void open_driver(struct driver *d, uint32_t disable) {
  struct harp_error error = {0};
  memset(d, 0, sizeof *d);
  d->addr.sin_family = AF_INET;
  d->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  size_t bytes = harp_io_udp.frames_bytes(NULL);
  d->frames = malloc(bytes);
  struct sockaddr_storage addr = {0};
  memcpy(&addr, &d->addr, sizeof d->addr);
  struct harp_io_config config = {.addr = &addr,
                                  .port_count = PORTS,
                                  .frames = d->frames,
                                  .frames_bytes = bytes,
                                  .counters = &d->counters,
                                  .disable = disable};
  assert_int_equal(harp_io_udp.open(&d->io, &config, &error), 0);
  assert_int_equal(d->io->info.port_count, PORTS);
}

static void close_driver(struct driver *d) {
  d->io->ops->close(d->io);
  free(d->frames);
}

static struct sockaddr_storage port_of(const struct driver *d, unsigned port) {
  struct sockaddr_storage a = {0};
  struct sockaddr_in in = d->addr;
  in.sin_port = htons(d->io->info.ports[port]);
  memcpy(&a, &in, sizeof in);
  return a;
}

static uint8_t byte_of(unsigned packet, size_t i) {
  return (uint8_t)(packet * 29 + i * 7 + (i >> 8));
}

/* Sends packets [first, first + count), the last one short, as one superframe. */
static void send_packets(struct driver *d, struct harp_io_route *route, unsigned first, unsigned count) {
  struct harp_tx_superframe sf;
  assert_true(d->io->ops->tx_take(d->io, route, PACKET_BYTES, &sf));
  assert_true(sf.count_max >= count);
  for (unsigned k = 0; k < count; k++) {
    uint32_t bytes = k + 1 == count ? LAST_PACKET_BYTES : PACKET_BYTES;
    uint8_t *at = sf.base + (size_t)k * sf.stride;
    for (uint32_t i = 0; i < bytes; i++) at[i] = byte_of(first + k, i);
    sf.last_bytes = bytes;
    sf.count++;
  }
  assert_int_equal(d->io->ops->tx_submit(d->io, &sf), 0);
  d->io->ops->tx_flush(d->io);
}

static void wait_readable(struct driver *d) {
  struct pollfd fds[HARP_IO_FDS_MAX];
  unsigned n = d->io->ops->fds(d->io, fds);
  assert_true(poll(fds, n, WAIT_MS) > 0);
}

/* Splits the superframes of one rx call into packets; marks those that are intact. */
static unsigned receive_once(struct driver *d, bool seen[PACKETS]) {
  struct harp_rx_superframe batch[HARP_RX_BATCH_MAX];
  unsigned n = d->io->ops->rx(d->io, batch, d->io->info.rx_batch), packets = 0;
  for (unsigned b = 0; b < n; b++) {
    for (uint32_t at = 0; at < batch[b].bytes; at += batch[b].segment_bytes) {
      uint32_t bytes = HARP_MIN(batch[b].segment_bytes, batch[b].bytes - at), good;
      for (unsigned k = 0; k < PACKETS; k++) {
        if (seen[k]) continue;
        for (good = 0; good < bytes && batch[b].data[at + good] == byte_of(k, good); good++) continue;
        if (good == bytes) seen[k] = true, packets++;
        if (good == bytes) break;
      }
    }
  }
  if (n) d->io->ops->rx_release(d->io, batch, n);
  return packets;
}

/* Empty datagrams in front of a port's packets, and on the other port too: each packet still arrives as it
 * was sent. */
static void send_beside_empty_datagrams(uint32_t disable) {
  struct driver a, b;
  bool seen[PACKETS] = {false};
  static const uint8_t nothing[1];
  open_driver(&a, disable);
  open_driver(&b, disable);
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  for (unsigned p = 0, sent = 0; p < PORTS; p++) {
    struct sockaddr_storage to = port_of(&b, p);
    struct harp_io_route *route = a.io->ops->route_open(a.io, p, &to, -1);
    for (unsigned i = 0; i < ROUNDS; i++) {
      assert_int_equal(sendto(fd, nothing, 0, 0, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
      send_packets(&a, route, sent, SUPERFRAME_PACKETS);
      sent += SUPERFRAME_PACKETS;
    }
    a.io->ops->route_close(a.io, route);
  }
  wait_readable(&b);
  for (unsigned got = 0; got < PACKETS;) {
    wait_readable(&b);
    got += receive_once(&b, seen);
  }
  assert_int_equal(b.counters.drops[HARP_DROP_SHORT], PORTS * ROUNDS);
  close(fd);
  close_driver(&a);
  close_driver(&b);
}

static void test_empty_datagrams_displace_nothing(void **state) {
  (void)state;
  send_beside_empty_datagrams(0);
  send_beside_empty_datagrams(HARP_IO_NO_GSO | HARP_IO_NO_GRO);
}

/* One rx call returns after a bounded number of drops, so that a flood does not block the engine's pass. */
static void test_a_flood_is_dropped_over_several_calls(void **state) {
  (void)state;
  struct driver b;
  struct harp_rx_superframe batch[HARP_RX_BATCH_MAX];
  static const uint8_t nothing[1];
  enum { FLOOD = 400 };
  open_driver(&b, 0);
  struct sockaddr_storage to = port_of(&b, 0);
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  for (unsigned i = 0; i < FLOOD; i++)
    assert_int_equal(sendto(fd, nothing, 0, 0, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
  wait_readable(&b);
  assert_int_equal(b.io->ops->rx(b.io, batch, b.io->info.rx_batch), 0);
  assert_in_range(b.counters.drops[HARP_DROP_SHORT], 1, CALL_DROPS_MAX);
  for (unsigned i = 0; i < FLOOD && b.counters.drops[HARP_DROP_SHORT] < FLOOD; i++)
    assert_int_equal(b.io->ops->rx(b.io, batch, b.io->info.rx_batch), 0);
  assert_int_equal(b.counters.drops[HARP_DROP_SHORT], FLOOD);
  close(fd);
  close_driver(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_empty_datagrams_displace_nothing),
      cmocka_unit_test(test_a_flood_is_dropped_over_several_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
