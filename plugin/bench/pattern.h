/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of checked messages, generated on the fly: a 64-bit word per position, key + position * step,
 * where the key depends on flow and message. Detects bytes that are lost, moved, repeated or of another
 * message. Pure functions. */
#ifndef HARP_BENCH_PATTERN_H
#define HARP_BENCH_PATTERN_H

#include "base/base.h"

/* Returns the key of message number `sequence` of connection `index` from rank `from` to rank `to`. */
uint64_t harp_pattern_key(int from, int to, unsigned index, uint64_t sequence);

/* Writes the message. `data` is aligned to 8 bytes. */
void harp_pattern_fill(void *data, size_t bytes, uint64_t key);

/* Returns whether every byte is right. */
bool harp_pattern_check(const void *data, size_t bytes, uint64_t key);

/* Returns the offset of the first wrong byte, `bytes` when all are right. Slow. */
size_t harp_pattern_find_wrong(const void *data, size_t bytes, uint64_t key);

/* Returns the expected byte at `offset`. */
uint8_t harp_pattern_byte(size_t offset, uint64_t key);

#endif
