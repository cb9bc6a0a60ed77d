/* SPDX-License-Identifier: Apache-2.0 */
/* The cork: small messages that follow one another travel together, since a superframe costs a system call
 * however little it holds.
 *
 * Owns and alone writes struct harp_send_cork, a part of struct harp_sender. Called by send_choose.c. Rules:
 *
 *   1. While more was sent within HARP_US(10) and is not acknowledged than waits to be sent, the rest waits
 *      for more (Nagle's rule, RFC 896, by bytes and time: what was sent earlier may stay unacknowledged for
 *      long, where nobody waits for it).
 *   2. A superframe's worth of lines waits for nothing more.
 *   3. The first few packets never wait, so that single messages go at once.
 *   4. Nothing waits for longer than HARP_US(10). */
#ifndef HARP_SEND_CORK_H
#define HARP_SEND_CORK_H

#include "proto/tx_stream.h"

enum { HARP_CORK_BYTES = 61440 }; /* about a superframe: no reason to wait for more */

struct harp_sender;

struct harp_send_cork {
  harp_ns until_ns; /* the time until which small messages wait for others; HARP_NEVER: none waits */
};

static inline void harp_send_cork_init(struct harp_send_cork *k) {
  k->until_ns = HARP_NEVER;
}

/* Returns whether the cork is out, and stays so: enough waits for a superframe. */
static inline bool harp_send_cork_is_out(const struct harp_send_cork *k, const struct harp_tx_load *load) {
  return k->until_ns == HARP_NEVER && (uint64_t)load->waiting_lines * HARP_LINE_BYTES >= HARP_CORK_BYTES;
}

/* Returns whether what waits is to wait for more. `among`: the paths of small messages, a bit each. */
bool harp_send_cork_holds(struct harp_sender *s, uint64_t among, harp_ns now);

#endif
