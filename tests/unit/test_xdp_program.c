/* SPDX-License-Identifier: Apache-2.0 */
/* The XDP program, run by the kernel on packets that this test makes (BPF_PROG_TEST_RUN), in both modes:
 * which are redirected, passed or dropped, and what is counted. Needs root; skipped without. */
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/xdp/bpf.h"
#include "io/xdp/header.h"
#include "io/xdp/program.h"
#include "lib/addresses.h"
#include "wire/packet.h"

enum {
  PORT = 43210,
  OUR_QUEUE = 0, /* where the kernel reports that a test packet came in */
  FRAME = 2048,
  PAYLOAD_AT = 128,
  PAYLOAD_BYTES = 128, /* bytes of a data packet's payload */
  MODES = 2,
  TYPE_AT = offsetof(struct ether_header, ether_type),
  TOKEN_PREFIX_END = offsetof(struct harp_wire_prefix, token) + 4, /* the end of a token's upper half */
};
#define IP4_AT(field)  (ETH_HLEN + (int)offsetof(struct iphdr, field))
#define IP6_AT(field)  (ETH_HLEN + (int)offsetof(struct ip6_hdr, field))
#define UDP4_AT(field) (ETH_HLEN + (int)sizeof(struct iphdr) + (int)offsetof(struct udphdr, field))
#define PREFIX         0x8badf00du
#define TOKEN          ((uint64_t)PREFIX << 32 | 0x12340005)

static const enum harp_xdp_mode modes[] = {HARP_XDP_NATIVE, HARP_XDP_GENERIC};
static const int families[] = {AF_INET, AF_INET6};
static int ports_fd, sockets_fd, socket_fd, program_fd[2];
static bool may_load;
static _Alignas(64) uint8_t frame[FRAME];

/* ---- the program and its tables ---- */

static int load(enum harp_xdp_mode mode, bool frags) {
  struct harp_xdp_program program;
  harp_xdp_program_write(&program, mode, ports_fd, sockets_fd);
  return harp_bpf_program_load(program.code, program.count, "harp_test", frags);
}

static int open_all(void **state) {
  (void)state;
  ports_fd = harp_bpf_map_make(HARP_BPF_MAP_HASH, sizeof(struct harp_xdp_port_key),
                               sizeof(struct harp_xdp_port_value), 16, "ports");
  sockets_fd = harp_bpf_map_make(HARP_BPF_MAP_XSKMAP, 4, 4, 4, "sockets");
  socket_fd = socket(HARP_AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
  may_load = ports_fd >= 0 && sockets_fd >= 0 && socket_fd >= 0;
  for (int i = 0; i < 2 && may_load; i++) {
    program_fd[i] = load(modes[i], true);
    if (program_fd[i] < 0) fail_msg("the kernel refuses the program: %s", strerror(-program_fd[i]));
  }
  return 0;
}

static struct sockaddr_storage ours(int family, uint16_t port) {
  return address(family == AF_INET6 ? "fd00::1" : "10.0.0.1", port);
}

static struct harp_xdp_port_key key_of(int family) {
  struct harp_xdp_port_key key = {.port = htons(PORT)};
  struct sockaddr_storage a = ours(family, PORT);
  if (family == AF_INET6)
    memcpy(key.address, &((struct sockaddr_in6 *)&a)->sin6_addr, 16);
  else
    memcpy(key.address + 12, &((struct sockaddr_in *)&a)->sin_addr, 4);
  return key;
}

/* Our port is in the table for these queues, and our queue has a socket or not. */
static void set_tables(uint64_t queues, bool has_socket) {
  struct harp_xdp_port_value value = {.queues = queues, .token_prefix = htonl(PREFIX)};
  uint32_t queue = OUR_QUEUE;
  for (int i = 0; i < 2; i++) {
    struct harp_xdp_port_key key = key_of(families[i]);
    assert_int_equal(harp_bpf_map_write(ports_fd, &key, &value, false), 0);
  }
  (void)harp_bpf_map_delete(sockets_fd, &queue);
  if (has_socket) assert_int_equal(harp_bpf_map_write(sockets_fd, &queue, &socket_fd, false), 0);
}

static struct harp_xdp_port_value counted(int family) {
  struct harp_xdp_port_key key = key_of(family);
  struct harp_xdp_port_value value;
  assert_int_equal(harp_bpf_map_read(ports_fd, &key, &value), 0);
  return value;
}

/* ---- packets ---- */

/* Puts the headers that the xdp driver writes around the payload at PAYLOAD_AT; returns the frame. */
static uint8_t *wrap(int family, uint16_t port, uint32_t payload_bytes) {
  static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
  struct harp_xdp_header header;
  struct sockaddr_storage from = address(family == AF_INET6 ? "fd00::2" : "10.0.0.2", 40000),
                          to = ours(family, port);
  harp_xdp_header_init(&header, mac, mac, &from, &to, 0);
  harp_xdp_header_write(&header, frame + PAYLOAD_AT, payload_bytes);
  return frame + PAYLOAD_AT - header.bytes;
}

static uint32_t header_bytes(int family) {
  return family == AF_INET6 ? HARP_XDP_HEADER_V6_BYTES : HARP_XDP_HEADER_V4_BYTES;
}

/* Writes a packet of some type, as the engine does; returns its length. */
static uint32_t put_packet(enum harp_packet_type type, uint64_t token) {
  static const uint8_t payload[PAYLOAD_BYTES];
  struct harp_packet p = {.type = type, .token = token};
  uint8_t *at = frame + PAYLOAD_AT;
  if (type == HARP_PACKET_ACK) {
    p.ack.range_count = 1;
    return (uint32_t)harp_packet_encode_ack(at, &p, 1, 2);
  }
  p.data.size = p.data.length = PAYLOAD_BYTES;
  if (type == HARP_PACKET_PROBE)
    harp_packet_encode_probe(at, &p, 1, 2);
  else
    harp_packet_encode_data(at, &p, 1, 2, payload);
  return HARP_DATA_HEADER_BYTES + PAYLOAD_BYTES;
}

static uint32_t run(int mode, const uint8_t *packet, uint32_t bytes) {
  union bpf_attr a;
  memset(&a, 0, sizeof a);
  a.test.prog_fd = (uint32_t)program_fd[mode];
  a.test.data_in = (uint64_t)(uintptr_t)packet;
  a.test.data_size_in = bytes;
  a.test.repeat = 1;
  if (syscall(SYS_bpf, BPF_PROG_TEST_RUN, &a, sizeof a)) fail_msg("cannot run the program");
  return a.test.retval;
}

/* Asserts the action for a packet to our port, in both modes. */
static void expect(int family, uint32_t payload_bytes, uint32_t action) {
  const uint8_t *packet = wrap(family, PORT, payload_bytes);
  for (int mode = 0; mode < 2; mode++)
    assert_int_equal(run(mode, packet, header_bytes(family) + payload_bytes), action);
}

/* ---- tests ---- */

static void test_the_verifier_takes_it_without_frags_too(void **state) {
  (void)state;
  if (!may_load) skip();
  for (int i = 0; i < 2; i++) {
    int fd = load(modes[i], false);
    assert_true(fd >= 0);
    close(fd);
  }
}

static void test_every_type_with_our_prefix_goes_to_the_socket(void **state) {
  (void)state;
  static const enum harp_packet_type types[] = {HARP_PACKET_DATA, HARP_PACKET_PROBE, HARP_PACKET_ACK};
  if (!may_load) skip();
  set_tables(1ull << OUR_QUEUE, true);
  for (int f = 0; f < 2; f++) {
    for (unsigned t = 0; t < HARP_ARRAY_COUNT(types); t++) {
      expect(families[f], put_packet(types[t], TOKEN), XDP_REDIRECT);
      /* The engine drops it: only the lower half is wrong. */
      expect(families[f], put_packet(types[t], TOKEN ^ 0xffffffff), XDP_REDIRECT);
    }
    assert_int_equal(counted(families[f]).redirected, MODES * HARP_ARRAY_COUNT(types) * 2);
    assert_int_equal(counted(families[f]).dropped, 0);
  }
}

static void test_another_prefix_is_dropped_and_counted(void **state) {
  (void)state;
  if (!may_load) skip();
  set_tables(1ull << OUR_QUEUE, true);
  for (int f = 0; f < 2; f++) {
    for (int bit = 32; bit < 64; bit++)
      expect(families[f], put_packet(HARP_PACKET_DATA, TOKEN ^ 1ull << bit), XDP_DROP);
    assert_int_equal(counted(families[f]).dropped, MODES * 32);
    assert_int_equal(counted(families[f]).redirected, 0);
  }
}

/* The kernel's socket receives it, and the engine drops it as short. */
static void test_too_short_for_a_prefix_passes(void **state) {
  (void)state;
  if (!may_load) skip();
  set_tables(1ull << OUR_QUEUE, true);
  for (int f = 0; f < 2; f++) {
    (void)put_packet(HARP_PACKET_DATA, ~TOKEN);
    expect(families[f], 0, XDP_PASS);
    expect(families[f], TOKEN_PREFIX_END - 1, XDP_PASS);
    expect(families[f], TOKEN_PREFIX_END, XDP_DROP);
    (void)put_packet(HARP_PACKET_DATA, TOKEN);
    expect(families[f], TOKEN_PREFIX_END - 1, XDP_PASS);
    expect(families[f], TOKEN_PREFIX_END, XDP_REDIRECT);
    assert_int_equal(counted(families[f]).dropped, 2);
  }
}

static void test_the_token_counts_only_where_the_packet_is_ours(void **state) {
  (void)state;
  if (!may_load) skip();
  for (int f = 0; f < 2; f++) {
    set_tables(1ull << (OUR_QUEUE + 1), true); /* it came in on a queue that is not the port's */
    uint32_t bytes = put_packet(HARP_PACKET_DATA, ~TOKEN);
    expect(families[f], bytes, XDP_PASS);
    set_tables(1ull << OUR_QUEUE, true);
    for (int mode = 0; mode < 2; mode++)
      assert_int_equal(run(mode, wrap(families[f], PORT + 1, bytes), header_bytes(families[f]) + bytes),
                       XDP_PASS);
    assert_int_equal(counted(families[f]).dropped, 0);
  }
}

static void test_a_queue_without_a_socket_passes(void **state) {
  (void)state;
  if (!may_load) skip();
  set_tables(1ull << OUR_QUEUE, false);
  for (int f = 0; f < 2; f++) expect(families[f], put_packet(HARP_PACKET_DATA, TOKEN), XDP_PASS);
}

/* Packets of a socket, which may be superframes: generic mode passes them to the kernel, whatever
 * their token. */
static void test_packets_of_sockets(void **state) {
  (void)state;
  if (!may_load) skip();
  set_tables(1ull << OUR_QUEUE, true);
  for (int wrong = 0; wrong < 2; wrong++) {
    uint32_t bytes = put_packet(HARP_PACKET_DATA, wrong ? ~TOKEN : TOKEN);
    for (int f = 0; f < 2; f++) {
      uint8_t *packet = wrap(families[f], PORT, bytes);
      packet[f ? IP6_AT(ip6_flow) + 2 : UDP4_AT(check)] ^= 1; /* another flow label; a UDP checksum */
      uint32_t native = run(0, packet, header_bytes(families[f]) + bytes);
      assert_int_equal(native, wrong ? XDP_DROP : XDP_REDIRECT);
      assert_int_equal(run(1, packet, header_bytes(families[f]) + bytes), XDP_PASS);
    }
  }
}

static void test_other_traffic_passes(void **state) {
  (void)state;
  static const struct {
    int family, at;
    uint8_t value;
  } changes[] = {
      {AF_INET, TYPE_AT, 0x88},
      {AF_INET, ETH_HLEN, 0x46}, /* an option */
      {AF_INET, IP4_AT(frag_off), 0x20},
      {AF_INET, IP4_AT(frag_off) + 1, 1},
      {AF_INET, IP4_AT(protocol), IPPROTO_TCP},
      {AF_INET, IP4_AT(daddr) + 3, 9},
      {AF_INET6, TYPE_AT + 1, 0xde},
      {AF_INET6, IP6_AT(ip6_nxt), IPPROTO_TCP},
      {AF_INET6, IP6_AT(ip6_nxt), IPPROTO_FRAGMENT},
      {AF_INET6, IP6_AT(ip6_dst), 1},
      {AF_INET6, IP6_AT(ip6_dst) + 15, 9},
  };
  if (!may_load) skip();
  set_tables(1ull << OUR_QUEUE, true);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(changes); i++) {
    uint32_t bytes = put_packet(HARP_PACKET_DATA, ~TOKEN);
    uint8_t *packet = wrap(changes[i].family, PORT, bytes);
    packet[changes[i].at] = changes[i].value;
    for (int mode = 0; mode < 2; mode++)
      assert_int_equal(run(mode, packet, header_bytes(changes[i].family) + bytes), XDP_PASS);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_verifier_takes_it_without_frags_too),
      cmocka_unit_test(test_every_type_with_our_prefix_goes_to_the_socket),
      cmocka_unit_test(test_another_prefix_is_dropped_and_counted),
      cmocka_unit_test(test_too_short_for_a_prefix_passes),
      cmocka_unit_test(test_the_token_counts_only_where_the_packet_is_ours),
      cmocka_unit_test(test_a_queue_without_a_socket_passes),
      cmocka_unit_test(test_packets_of_sockets),
      cmocka_unit_test(test_other_traffic_passes),
  };
  return cmocka_run_group_tests(tests, open_all, NULL);
}
