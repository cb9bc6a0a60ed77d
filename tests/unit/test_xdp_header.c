/* SPDX-License-Identifier: Apache-2.0 */
/* The headers that the xdp driver writes and reads: every byte of a packet against the RFCs,
 * checksums against a plain sum, and frames whose lengths lie. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/xdp/header.h"
#include "lib/addresses.h"
#include "models/rng.h"

enum { PAYLOAD_AT = 128, FRAME = 2048 };

static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1}, next_mac[6] = {2, 0, 0, 0, 0, 2};
static _Alignas(64) uint8_t frame[FRAME];

/* The sum of 16-bit words in network order, as RFC 1071 defines it, one by one. */
static uint32_t plain_sum(const uint8_t *at, uint32_t bytes) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < bytes; i++) sum += i % 2 ? at[i] : (uint32_t)at[i] << 8;
  return sum;
}

static uint32_t folded(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

static struct harp_xdp_header header_of(int family, int traffic_class) {
  struct harp_xdp_header h;
  bool v6 = family == AF_INET6;
  struct sockaddr_storage local = address(v6 ? "fd00::1" : "10.0.0.1", 40000);
  struct sockaddr_storage peer = address(v6 ? "fd00::2" : "10.0.0.2", 50000);
  harp_xdp_header_init(&h, our_mac, next_mac, &local, &peer, traffic_class);
  return h;
}

/* Writes a packet of random payload; returns where its frame begins. */
static uint8_t *write_packet(const struct harp_xdp_header *h, uint32_t payload_bytes, uint64_t seed) {
  struct rng rng = {seed};
  memset(frame, 0xee, sizeof frame);
  for (uint32_t i = 0; i < payload_bytes; i++) frame[PAYLOAD_AT + i] = (uint8_t)rng_next(&rng);
  harp_xdp_header_write(h, frame + PAYLOAD_AT, payload_bytes);
  return frame + PAYLOAD_AT - h->bytes;
}

static void test_ip4(void **state) {
  (void)state;
  struct harp_xdp_header h = header_of(AF_INET, 0x28);
  for (uint32_t bytes = 0; bytes < 1473; bytes += 23) {
    const uint8_t *f = write_packet(&h, bytes, bytes + 1), *ip = f + 14, *udp = ip + 20;
    assert_int_equal(h.bytes, 42);
    assert_memory_equal(f, next_mac, 6);
    assert_memory_equal(f + 6, our_mac, 6);
    static const uint8_t begin[] = {0x08, 0x00, 0x45, 0x28};
    assert_memory_equal(f + 12, begin, sizeof begin);
    assert_int_equal(ip[2] << 8 | ip[3], 28 + bytes);
    assert_int_equal(ip[6] << 8 | ip[7], 0x4000); /* don't fragment */
    assert_int_equal(ip[9], 17);
    assert_int_equal(folded(plain_sum(ip, 20)), 0xffff);
    static const uint8_t ports[] = {40000 >> 8, 40000 & 0xff, 50000 >> 8, 50000 & 0xff};
    assert_memory_equal(udp, ports, 4);
    assert_int_equal(udp[4] << 8 | udp[5], 8 + bytes);
    assert_int_equal(udp[6] << 8 | udp[7], 0); /* no checksum */
  }
}

static void test_ip6(void **state) {
  (void)state;
  struct harp_xdp_header h = header_of(AF_INET6, 0xb9);
  for (uint32_t bytes = 0; bytes < 1453; bytes++) { /* every length: the sum has a tail of its own */
    const uint8_t *f = write_packet(&h, bytes, bytes + 1), *ip = f + 14, *udp = ip + 40;
    assert_int_equal(h.bytes, 62);
    assert_int_equal(ip[0] >> 4, 6);
    assert_int_equal((ip[0] & 15) << 4 | ip[1] >> 4, 0xb9);
    assert_int_equal((ip[1] & 15) << 16 | ip[2] << 8 | ip[3], HARP_XDP_FLOW_LABEL);
    assert_int_equal(ip[4] << 8 | ip[5], 8 + bytes);
    assert_int_equal(ip[6], 17);
    uint32_t sum = plain_sum(ip + 8, 32) + plain_sum(udp, 8) + 8 + bytes + 17;
    sum = folded(sum) + folded(plain_sum(frame + PAYLOAD_AT, bytes));
    assert_int_equal(folded(sum), 0xffff);
    assert_int_not_equal(udp[6] << 8 | udp[7], 0); /* 0 would mean that there is none */
  }
}

static void test_what_was_written_is_read(void **state) {
  (void)state;
  static const int families[] = {AF_INET, AF_INET6};
  for (int i = 0; i < 2; i++) {
    struct harp_xdp_header h = header_of(families[i], 0);
    uint32_t got = 0;
    const uint8_t *f = write_packet(&h, 1000, 7);
    assert_int_equal(harp_xdp_header_read(f, h.bytes + 1000, h.bytes + 1000, &got), h.bytes);
    assert_int_equal(got, 1000);
    /* padding behind */
    assert_int_equal(harp_xdp_header_read(f, h.bytes + 1000, h.bytes + 1018, &got), h.bytes);
    assert_int_equal(got, 1000);
    /* the rest in other frames */
    assert_int_equal(harp_xdp_header_read(f, 100, h.bytes + 1000, &got), h.bytes);
    assert_int_equal(got, 1000);
  }
}

static void test_every_traffic_class_is_read(void **state) {
  (void)state;
  static const int families[] = {AF_INET, AF_INET6};
  for (int i = 0; i < 2; i++) {
    for (int traffic_class = 0; traffic_class < 256; traffic_class++) {
      struct harp_xdp_header h = header_of(families[i], traffic_class);
      assert_int_equal(harp_xdp_header_traffic_class(write_packet(&h, 10, 7)), traffic_class);
    }
  }
}

static void test_lengths_that_lie_are_refused(void **state) {
  (void)state;
  static const int families[] = {AF_INET, AF_INET6};
  for (int i = 0; i < 2; i++) {
    struct harp_xdp_header h = header_of(families[i], 0);
    uint32_t got;
    uint8_t *f = write_packet(&h, 100, 7), *udp = f + h.bytes - 8;
    for (uint32_t cut = 0; cut < h.bytes; cut++) assert_int_equal(harp_xdp_header_read(f, cut, cut, &got), 0);
    for (uint32_t cut = h.bytes; cut < h.bytes + 100; cut++)
      assert_int_equal(harp_xdp_header_read(f, cut, cut, &got), 0);
    udp[4] = 0, udp[5] = 7; /* less than its own header */
    assert_int_equal(harp_xdp_header_read(f, h.bytes + 100, h.bytes + 100, &got), 0);
    udp[4] = 0xff, udp[5] = 0xff;
    assert_int_equal(harp_xdp_header_read(f, h.bytes + 100, h.bytes + 100, &got), 0);
    f = write_packet(&h, 100, 7);
    f[14 + (families[i] == AF_INET ? 3 : 5)] ^= 1; /* IP and UDP disagree */
    assert_int_equal(harp_xdp_header_read(f, h.bytes + 100, h.bytes + 100, &got), 0);
    f = write_packet(&h, 100, 7);
    f[12] = 0x88; /* another Ethernet type */
    assert_int_equal(harp_xdp_header_read(f, h.bytes + 100, h.bytes + 100, &got), 0);
  }
}

static void test_random_frames_never_lead_outside(void **state) {
  (void)state;
  struct rng rng = {1};
  for (int i = 0; i < 200000; i++) {
    uint32_t bytes = (uint32_t)rng_below(&rng, 120), got = 0;
    uint8_t *f = malloc(bytes + 1); /* its own, so that the ASan build sees an access behind it */
    assert_non_null(f);
    for (uint32_t k = 0; k < bytes; k++) f[k] = (uint8_t)rng_next(&rng);
    if (bytes > 14) {
      static const uint8_t types[3][2] = {{8, 0}, {0x86, 0xdd}, {0, 0}};
      memcpy(f + 12, types[rng_below(&rng, 3)], 2);
    }
    if (bytes > 40 && rng_chance(&rng, 500000))
      f[14 + 20 + 4] = f[14 + 40 + 4 < bytes ? 14 + 40 + 4 : 12] = 0;
    uint32_t at = harp_xdp_header_read(f, bytes, bytes, &got);
    if (at) assert_true(at + got <= bytes);
    free(f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ip4),
      cmocka_unit_test(test_ip6),
      cmocka_unit_test(test_what_was_written_is_read),
      cmocka_unit_test(test_every_traffic_class_is_read),
      cmocka_unit_test(test_lengths_that_lie_are_refused),
      cmocka_unit_test(test_random_frames_never_lead_outside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
