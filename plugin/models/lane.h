/* SPDX-License-Identifier: Apache-2.0 */
/* What is under way from one end of a path to the other, in the order of arrival: a ring, with one source of
 * events for its head.
 *
 * A parcel that arrives earlier than one sent before it overtakes it: a route that became shorter. */
#ifndef HARP_MODELS_LANE_H
#define HARP_MODELS_LANE_H

#include "models/agenda.h"
#include "wire/packet.h"

/* A packet without payload. */
struct trip;
struct parcel {
  harp_ns at_ns; /* arrives */
  uint64_t number;
  struct trip *trip; /* trip.h; NULL: it goes straight to the other end */
  uint32_t bytes;    /* on a trip: of its IP packet */
  uint8_t hop;
  union {
    struct {
      uint32_t time, message, line, offset, size, length;
      uint16_t stream;
      uint8_t type, flags;
      bool ce;
    } data;
    struct harp_packet *ack;
    harp_ns sent_ns; /* the time when a segment of TCP was sent */
    uint64_t order;  /* the order of its sending */
  };
};

struct lane {
  struct source source; /* first, so that its owner is found from it */
  struct agenda *agenda;
  struct parcel *ring;
  uint32_t room, head, count; /* room: a power of two */
};

void lane_init(struct lane *l, struct agenda *a, source_fire fire);
void lane_fini(struct lane *l);

void lane_push(struct lane *l, const struct parcel *p);

/* Drops all parcels, whose acknowledgements are given back where they are any. */
void lane_clear(struct lane *l, bool is_acks);

/* Takes the next parcel that has arrived; false: none has, and the source is set to the next one. */
bool lane_take(struct lane *l, struct parcel *p, harp_ns now);

/* Takes an acknowledgement's memory, zeroed the first time, and gives it back. */
struct harp_packet *lane_acquire(void);
void lane_release(struct harp_packet *p);

#endif
