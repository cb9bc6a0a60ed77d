/* SPDX-License-Identifier: Apache-2.0 */
/* A data packet whose fields all differ, for tests of its encodings. */
#ifndef HARP_TESTS_PACKETS_H
#define HARP_TESTS_PACKETS_H

#include "wire/packet.h"

enum { PACKET_SEED = 0x1badcafe, PACKET_OFFSET_BYTES = 10 * HARP_LINE_BYTES };
#define PACKET_NUMBER 0x00000003fffffffeull

/* Returns the last packet of a message, with a payload of `length` bytes. */
static inline struct harp_packet data_packet(uint32_t length) {
  return (struct harp_packet){
      .type = HARP_PACKET_DATA,
      .flags = HARP_FLAG_ACK_SOON,
      .path = 5,
      .token = 0x0123456789abcdef,
      .data = {.time = 0x11121314,
               .message = 0x21222324,
               .line = 0x31323334,
               .offset = PACKET_OFFSET_BYTES,
               .size = PACKET_OFFSET_BYTES + length,
               .length = length,
               .stream = 0x0789},
  };
}

#endif
