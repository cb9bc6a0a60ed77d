/* SPDX-License-Identifier: Apache-2.0 */
/* The Ethernet, IP and UDP headers around a packet: made once per route as a template, copied before each
 * packet sent, parsed from each frame received. Pure functions; the xdp driver calls them. Sources: RFC 791,
 * 8200, 768, 1071. */
#ifndef HARP_IO_XDP_HEADER_H
#define HARP_IO_XDP_HEADER_H

#include <sys/socket.h>

#include "base/base.h"

enum {
  HARP_XDP_HEADER_V4_BYTES = 14 + 20 + 8,
  HARP_XDP_HEADER_V6_BYTES = 14 + 40 + 8,
  HARP_XDP_HEADER_MAX_BYTES = HARP_XDP_HEADER_V6_BYTES,
  /* HARP's own header after these; drivers align the payload that follows to a cache line. */
  HARP_XDP_DATA_HEADER_BYTES = 44,
  /* The flow label of IPv6 packets that an xdp driver sends; packets of sockets have another one. */
  HARP_XDP_FLOW_LABEL = 0x48415,
};

struct harp_xdp_header {
  uint8_t text[HARP_XDP_HEADER_MAX_BYTES];
  uint32_t bytes;
  /* Partial Internet checksum: of the IPv4 header without length and checksum, or of the IPv6 pseudo-header
   * and the UDP ports without lengths. */
  uint32_t sum;
};

/* Makes the template for packets from `local` to `peer`, both with their ports and of one IP version.
 * `next_mac` is the next hop's. traffic_class: all eight bits. */
void harp_xdp_header_init(struct harp_xdp_header *h, const uint8_t local_mac[6], const uint8_t next_mac[6],
                          const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                          int traffic_class);

/* Writes the headers of a packet of `payload_bytes` at `payload - h->bytes`. The UDP checksum is 0 over IPv4,
 * which RFC 768 allows, because a HARP packet has its own; over IPv6 it is computed, as RFC 8200 requires. */
void harp_xdp_header_write(const struct harp_xdp_header *h, uint8_t *payload, uint32_t payload_bytes);

/* Returns the traffic class of a received frame whose headers harp_xdp_header_read has accepted. */
int harp_xdp_header_traffic_class(const uint8_t *frame);

/* Finds the UDP payload of a received frame of `bytes` bytes, the first `linear` of them at `frame`. Returns
 * its offset and stores its length; returns 0 when the headers contradict the frame's length. */
uint32_t harp_xdp_header_read(const uint8_t *frame, uint32_t linear, uint32_t bytes, uint32_t *payload_bytes);

#endif
