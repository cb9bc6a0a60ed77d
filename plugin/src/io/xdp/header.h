/* SPDX-License-Identifier: Apache-2.0 */
/* The Ethernet, IP and UDP headers around a packet: a template per route, written before each packet, and
 * read off received frames. Pure functions; the xdp driver calls them. Sources: RFC 791, 8200, 768, 1071. */
#ifndef HARP_IO_XDP_HEADER_H
#define HARP_IO_XDP_HEADER_H

#include <sys/socket.h>

#include "base/base.h"

enum {
  HARP_XDP_HEADER_V4_BYTES = 14 + 20 + 8,
  HARP_XDP_HEADER_V6_BYTES = 14 + 40 + 8,
  HARP_XDP_HEADER_MAX_BYTES = HARP_XDP_HEADER_V6_BYTES,
  HARP_XDP_DATA_HEADER_BYTES = 44, /* HARP's own, behind these: payload follows, aligned to a cache line */
  HARP_XDP_FLOW_LABEL = 0x48415,   /* of IPv6 packets of the xdp driver; tells them from those of sockets */
};

struct harp_xdp_header {
  uint8_t text[HARP_XDP_HEADER_MAX_BYTES];
  uint32_t bytes;
  uint32_t sum; /* of the IPv4 header without its length and checksum, or of IPv6's pseudo header without
                   lengths */
};

/* Makes the template for packets from `local` (with port) to `peer`. traffic_class: DSCP << 2, or -1. */
void harp_xdp_header_init(struct harp_xdp_header *h, const uint8_t local_mac[6], const uint8_t next_mac[6],
                          const struct sockaddr_storage *local, const struct sockaddr_storage *peer,
                          int traffic_class);

/* Writes the headers of a packet of `payload_bytes` at `payload - h->bytes`. Over IPv4 the UDP checksum is
 * left out, as RFC 768 allows: the packet has its own. Over IPv6 it is computed, as RFC 8200 demands. */
void harp_xdp_header_write(const struct harp_xdp_header *h, uint8_t *payload, uint32_t payload_bytes);

/* Finds the UDP payload of a received frame of `bytes` bytes whose first `linear` are at `frame`. Returns its
 * offset, and its length; 0 when the lengths in the headers do not fit the frame. */
uint32_t harp_xdp_header_read(const uint8_t *frame, uint32_t linear, uint32_t bytes, uint32_t *payload_bytes);

#endif
