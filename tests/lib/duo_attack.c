/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/duo_attack.h"

#include <string.h>

#include "wire/crc32c.h"

static bool is_attacked(struct duo *d) {
  return d->faults && rng_chance(&d->attack_rng, d->config.attack_ppm);
}

/* Changes one byte behind the version of the first `bytes` bytes, or of the first few, which decide most, and
 * corrects the CRC. Returns which byte. */
static uint32_t change_byte(struct duo *d, uint8_t *wire, uint32_t bytes) {
  enum { FROM = offsetof(struct harp_wire_prefix, type), FEW = HARP_ACK_HEADER_BYTES };
  struct harp_be32 crc;
  uint32_t to = rng_below(&d->attack_rng, 2) ? bytes : FEW;
  uint32_t at = (uint32_t)rng_between(&d->attack_rng, FROM, to - 1);
  uint32_t before = harp_crc32c(0, wire + HARP_CRC_FROM_BYTE, bytes - HARP_CRC_FROM_BYTE);
  wire[at] ^= (uint8_t)rng_between(&d->attack_rng, 1, UINT8_MAX);
  uint32_t after = harp_crc32c(0, wire + HARP_CRC_FROM_BYTE, bytes - HARP_CRC_FROM_BYTE);
  memcpy(&crc, wire, sizeof crc);
  crc = harp_to_be32(harp_from_be32(crc) ^ before ^ after);
  memcpy(wire, &crc, sizeof crc);
  return at;
}

void duo_attack_packet(struct duo *d, const struct duo_end *e, unsigned path, const uint8_t *wire,
                       uint32_t bytes) {
  static uint8_t forged[SIMNET_DATAGRAM_MAX_BYTES];
  struct harp_packet p;
  if (!is_attacked(d) || harp_packet_decode(wire, bytes, &p)) return;
  memcpy(forged, wire, bytes);
  change_byte(d, forged, HARP_CRC_FROM_BYTE + (uint32_t)harp_packet_crc_bytes(&p));
  simnet_inject(&d->net, (enum simnet_way)e->index, path, forged, bytes, d->now);
}

int duo_attack_head(struct duo *d, uint8_t *head) {
  return is_attacked(d) ? (int)change_byte(d, head, HARP_RECORD_HEAD_BYTES) : -1;
}
