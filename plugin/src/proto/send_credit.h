/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of a sender that lack credit, and the probes that request it.
 *
 * Owns and alone writes struct harp_send_credit, a part of struct harp_sender, and of a stream the fields
 * that tx_stream.h lists for it. Called by the sender's other files, under the engine's lock. Rules:
 *
 *   1. A stream whose next message lacks credit is listed. It leaves the list when it is looked at with
 *      credit, or is closed.
 *   2. Credit is requested after a while: the acknowledgements that announced it may all have been lost while
 *      other streams went on. A large message behind small ones requests it at once, since the receiver
 *      delays credit then (recv.c).
 *   3. One probe requests the credit of all streams. It goes on a path that answers: the probe of another
 *      one, which may be DOWN, does not take the request along, nor does a size probe. The interval of each
 *      stream doubles; one whose time has nearly come is included. */
#ifndef HARP_SEND_CREDIT_H
#define HARP_SEND_CREDIT_H

#include "proto/tx_stream.h"

struct harp_sender;

struct harp_send_credit {
  struct harp_tx_stream *waiting_first; /* the list of streams that lack credit, or did a while ago */
  harp_ns probe_ns;                     /* the time to request credit; HARP_NEVER: no stream waits */
  bool is_wanted;                       /* the next probe of `path` requests the credit of all streams */
  uint8_t path;                         /* a path that answers */
};

static inline void harp_send_credit_init(struct harp_send_credit *c) {
  *c = (struct harp_send_credit){.probe_ns = HARP_NEVER};
}

/* Lists a stream that lacks credit. */
void harp_send_credit_begin_waiting(struct harp_send_credit *c, struct harp_tx_stream *st, harp_ns now);
/* Does that if the stream lacks credit. */
static inline void harp_send_credit_on_stream(struct harp_send_credit *c, struct harp_tx_stream *st,
                                              harp_ns now) {
  if (harp_unlikely(harp_tx_stream_lacks_credit(st))) harp_send_credit_begin_waiting(c, st, now);
}
/* Removes a stream that is being closed. */
void harp_send_credit_on_closed(struct harp_send_credit *c, struct harp_tx_stream *st);

/* Requests credit: probe_ns has passed. */
void harp_send_credit_on_time(struct harp_sender *s, harp_ns now);

/* Returns whether the next probe of a path is to request credit. */
static inline bool harp_send_credit_is_wanted_on(const struct harp_send_credit *c, unsigned path) {
  return c->is_wanted && c->path == path;
}

/* Returns whether the probe that is being sent on a path requests credit, once for each request. */
static inline bool harp_send_credit_take_request(struct harp_send_credit *c, unsigned path) {
  if (!harp_send_credit_is_wanted_on(c, path)) return false;
  c->is_wanted = false;
  return true;
}

#endif
