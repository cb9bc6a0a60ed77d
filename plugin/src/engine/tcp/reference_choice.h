/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how the payload of large records reaches the kernel: as a copy, or as references to its pages. It
 * takes the method that costs the engine's thread less time for a byte. That differs between processors:
 * sending 512 KB by reference costs 0.7 of a copy's time on Zen 4, and 1.2 of it on Zen 5
 * (docs/explanation/decisions/0016-payload-by-reference.md).
 *
 * Rules:
 * 1. Records of like size form a class. Each class chooses for itself.
 * 2. A class sends in turns of HARP_REFERENCE_TURN_BYTES. All records of a turn use one method. The time of
 *    the calls that hand them to the kernel, divided by their bytes, is the cost of the turn. The first
 *    records are not counted: what the kernel does for the turn before falls into them.
 * 3. The first turns alternate. The least cost of a method's turns is its cost then: a turn that was
 *    interrupted costs more, none costs less.
 * 4. Afterwards the cheaper method has all turns but one in HARP_REFERENCE_TRIAL_TURNS, which the other
 *    method has. A turn moves its method's cost by a quarter of the difference, and counts as twice that cost
 *    at most.
 * 5. References must be cheaper by HARP_REFERENCE_MARGIN: a connection that holds none can be closed instead
 *    of reset.
 *
 * Owned by the engine, used under its lock by tcp_bytes.c. No clock, no system call. */
#ifndef HARP_REFERENCE_CHOICE_H
#define HARP_REFERENCE_CHOICE_H

#include "base/base.h"

enum {
  HARP_REFERENCE_CLASSES = 4,
  /* The least payload of the first class, in bytes: a smaller one is copied, since a copy of it costs less
   * than three system calls on every processor measured. Each further class begins at twice the size. */
  HARP_REFERENCE_MIN_BYTES = 48 << 10,
  HARP_REFERENCE_TURN_BYTES = 4 << 20,
  HARP_REFERENCE_UNCOUNTED_BYTES = 1 << 20, /* a turn's first bytes: as much as a socket buffer holds */
  HARP_REFERENCE_FIRST_TURNS = 6,           /* three turns of each method */
  HARP_REFERENCE_TRIAL_TURNS = 64,          /* trials cost 1 % if the other method costs 1.6 times as much */
  HARP_REFERENCE_MARGIN = 16,               /* references must be cheaper by a 16th */
};

struct harp_reference_class {
  bool by_reference;      /* the method of this turn */
  uint32_t bytes;         /* the bytes handed over in this turn */
  uint32_t counted_bytes; /* the bytes whose time is in counted_ns */
  harp_ns counted_ns;
  uint32_t cost[2]; /* the ns for a MiB as a copy, and by reference; 0: unknown */
  uint32_t turns;   /* the number of turns that have ended */
};

struct harp_reference_choice {
  struct harp_reference_class classes[HARP_REFERENCE_CLASSES];
};

/* Returns whether a record with so much payload, at least HARP_REFERENCE_MIN_BYTES, goes by reference now. */
bool harp_reference_choice_method(const struct harp_reference_choice *c, uint32_t payload_bytes);

/* Counts bytes of a record that was sent by a method, and the time of the calls that took them. Returns
 * whether the class of the record has ended its first turns by this: its cheaper method is known from now on.
 */
bool harp_reference_choice_on_sent(struct harp_reference_choice *c, uint32_t payload_bytes, bool by_reference,
                                   uint32_t sent_bytes, harp_ns took_ns);

/* Returns the class of a record, for its costs and for log lines. */
unsigned harp_reference_choice_class(uint32_t payload_bytes);

/* Returns the least payload of a class in bytes. */
static inline uint32_t harp_reference_class_min_bytes(unsigned k) {
  return (uint32_t)HARP_REFERENCE_MIN_BYTES << k;
}

#endif
