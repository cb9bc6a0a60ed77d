/* SPDX-License-Identifier: Apache-2.0 */
/* See header.h. */
#include "io/xdp/header.h"

#include <netinet/in.h>
#include <string.h>

#include "base/address.h"
#include "base/endian.h"

enum {
  ETHERTYPE_AT = 12,
  IP_AT = 14,
  V4_UDP_AT = IP_AT + 20,
  V6_UDP_AT = IP_AT + 40,
  HOP_LIMIT = 64,
  DONT_FRAGMENT = 0x40,
};

static void put16(uint8_t *at, uint32_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

static uint32_t get16(const uint8_t *at) {
  return (uint32_t)at[0] << 8 | at[1];
}

/* Sums 16-bit words in network order; an odd byte counts as the high one. At most 64 KB. */
static uint64_t sum_words(const uint8_t *at, uint32_t bytes) {
  uint64_t sum = 0;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    sum += (word & 0xffffffff) + (word >> 32); /* little-endian halves: swapped at the end */
  }
  for (; bytes >= 2; bytes -= 2, at += 2) sum += (uint64_t)at[0] | (uint64_t)at[1] << 8;
  if (bytes) sum += at[0];
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return (sum & 0xff) << 8 | sum >> 8;
}

static uint32_t fold_sum(uint64_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return ~(uint32_t)sum & 0xffff;
}

static void init_v4(struct harp_xdp_header *h, const struct sockaddr_storage *local,
                    const struct sockaddr_storage *peer, int traffic_class) {
  uint8_t *ip = h->text + IP_AT;
  put16(h->text + ETHERTYPE_AT, 0x0800);
  ip[0] = 0x45;
  ip[1] = (uint8_t)traffic_class;
  ip[6] = DONT_FRAGMENT;
  ip[8] = HOP_LIMIT;
  ip[9] = IPPROTO_UDP;
  memcpy(ip + 12, harp_address_ip(local), 4);
  memcpy(ip + 16, harp_address_ip(peer), 4);
  put16(h->text + V4_UDP_AT, harp_address_port(local));
  put16(h->text + V4_UDP_AT + 2, harp_address_port(peer));
  h->bytes = HARP_XDP_HEADER_V4_BYTES;
  h->sum = (uint32_t)sum_words(ip, 20);
}

static void init_v6(struct harp_xdp_header *h, const struct sockaddr_storage *local,
                    const struct sockaddr_storage *peer, int traffic_class) {
  uint8_t *ip = h->text + IP_AT;
  put16(h->text + ETHERTYPE_AT, 0x86dd);
  put16(ip, 0x6000u | (uint32_t)traffic_class << 4 | HARP_XDP_FLOW_LABEL >> 16);
  put16(ip + 2, HARP_XDP_FLOW_LABEL & 0xffff);
  ip[6] = IPPROTO_UDP;
  ip[7] = HOP_LIMIT;
  memcpy(ip + 8, harp_address_ip(local), 16);
  memcpy(ip + 24, harp_address_ip(peer), 16);
  put16(h->text + V6_UDP_AT, harp_address_port(local));
  put16(h->text + V6_UDP_AT + 2, harp_address_port(peer));
  h->bytes = HARP_XDP_HEADER_V6_BYTES;
  h->sum = (uint32_t)(sum_words(ip + 8, 32) + sum_words(h->text + V6_UDP_AT, 4) + IPPROTO_UDP);
}

void harp_xdp_header_init(struct harp_xdp_header *h, const uint8_t local_mac[6], const uint8_t next_mac[6],
                          const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                          int traffic_class) {
  memset(h, 0, sizeof *h);
  memcpy(h->text, next_mac, 6);
  memcpy(h->text + 6, local_mac, 6);
  if (peer->ss_family == AF_INET6)
    init_v6(h, local, peer, traffic_class);
  else
    init_v4(h, local, peer, traffic_class);
}

void harp_xdp_header_write(const struct harp_xdp_header *h, uint8_t *payload, uint32_t payload_bytes) {
  uint8_t *frame = payload - h->bytes, *ip = frame + IP_AT, *udp = payload - 8;
  uint32_t udp_bytes = 8 + payload_bytes;
  memcpy(frame, h->text, h->bytes);
  put16(udp + 4, udp_bytes);
  if (h->bytes == HARP_XDP_HEADER_V4_BYTES) {
    put16(ip + 2, 20 + udp_bytes);
    put16(ip + 10, fold_sum((uint64_t)h->sum + 20 + udp_bytes));
    return;
  }
  put16(ip + 4, udp_bytes);
  uint32_t sum = fold_sum((uint64_t)h->sum + 2ull * udp_bytes + sum_words(payload, payload_bytes));
  put16(udp + 6, sum ? sum : 0xffff);
}

int harp_xdp_header_traffic_class(const uint8_t *frame) {
  const uint8_t *ip = frame + IP_AT;
  return get16(frame + ETHERTYPE_AT) == 0x0800 ? ip[1] : (int)(get16(ip) >> 4 & 0xff);
}

uint32_t harp_xdp_header_read(const uint8_t *frame, uint32_t linear, uint32_t bytes,
                              uint32_t *payload_bytes) {
  if (linear < HARP_XDP_HEADER_V4_BYTES) return 0;
  uint32_t type = get16(frame + ETHERTYPE_AT);
  uint32_t udp_at = type == 0x0800 ? V4_UDP_AT : type == 0x86dd ? V6_UDP_AT : 0;
  if (!udp_at || linear < udp_at + 8) return 0;
  uint32_t udp_bytes = get16(frame + udp_at + 4);
  uint32_t ip_bytes = type == 0x0800 ? get16(frame + IP_AT + 2) : 40 + get16(frame + IP_AT + 4);
  if (udp_bytes < 8 || udp_bytes > bytes - udp_at || ip_bytes != udp_at - IP_AT + udp_bytes) return 0;
  *payload_bytes = udp_bytes - 8;
  return udp_at + 8;
}
