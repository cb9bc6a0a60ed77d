/* SPDX-License-Identifier: Apache-2.0 */
/* Which paths of a sender carry small messages and which carry large ones.
 *
 * Owns and alone writes struct harp_send_carriers, a part of struct harp_sender. Called by the sender's other
 * files, under the engine's lock. Rules, for two ENIs that have eligible paths over both carriers; elsewhere
 * messages of both classes take all eligible paths:
 *
 *   1. Small messages take datagrams, which cost less for each message.
 *   2. Large messages take the carrier that the trial has found (carrier_trial.h), or tries.
 *   3. A tcp path that is avoided (carrier.h) carries none, and there is no trial meanwhile.
 *   4. A change of the eligible paths, or of those that are avoided, ends a trial that is under way.
 *   5. A trial is fed what is acknowledged while large messages are under way. */
#ifndef HARP_SEND_CARRIER_H
#define HARP_SEND_CARRIER_H

#include "proto/carrier_trial.h"
#include "proto/tx_stream.h"

struct harp_sender;

struct harp_send_carriers {
  uint64_t by_class[HARP_TX_CLASSES]; /* eligible paths for messages of a class, a bit each */
  uint64_t avoided;                   /* tcp paths that large messages avoid, a bit each */
  bool has_choice;                    /* large messages have the choice of a carrier, and a trial makes it */
  struct harp_carrier_trial trial;
  harp_ns large_since_ns; /* large messages are under way, and counted up to then; HARP_NEVER: none are */
  harp_ns sender_ns;      /* what the caller took to send, since then */
};

void harp_send_carriers_init(struct harp_send_carriers *c);

/* Works out by_class and has_choice, and ends a trial, after the eligible paths have changed. */
void harp_send_carriers_on_paths_changed(struct harp_sender *s);

/* Has large messages avoid a tcp path, or use it again. */
void harp_send_carriers_avoid(struct harp_sender *s, unsigned path, bool is_avoided);

/* Notes that large messages may be under way, or may be no more. */
static inline void harp_send_carriers_on_posted(struct harp_send_carriers *c, const struct harp_tx_load *load,
                                                harp_ns now) {
  if (c->large_since_ns == HARP_NEVER && load->large) c->large_since_ns = now;
}
static inline void harp_send_carriers_on_closed(struct harp_send_carriers *c,
                                                const struct harp_tx_load *load) {
  if (!load->large) c->large_since_ns = HARP_NEVER;
}

/* Feeds the trial what was acknowledged. */
void harp_send_carriers_on_acked(struct harp_sender *s, uint32_t acked_bytes, harp_ns now);

/* Adds what the caller's core took to send. */
static inline void harp_send_carriers_on_sender_time(struct harp_send_carriers *c, harp_ns ns) {
  c->sender_ns += ns;
}

#endif
