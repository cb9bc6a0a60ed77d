/* SPDX-License-Identifier: Apache-2.0 */
/* A bottleneck of a network: a rate behind a queue that drops its tail, a policer, or a shaper.
 *
 * A policer is a token bucket: it holds nothing back, and drops what its tokens do not cover (RFC 2697
 * without colours; in the form of the virtual scheduling algorithm of ITU-T I.371). A shaper is one with a
 * queue for what its tokens do not cover, as Linux' tbf. Several routes may share a wire. Bytes are those of
 * the IP packet. Time within a wire is in picoseconds, since a packet at 100 Gbit/s takes a fraction of a
 * nanosecond more or less. */
#ifndef HARP_MODELS_WIRE_H
#define HARP_MODELS_WIRE_H

#include "base/base.h"

struct wire {
  uint64_t ps_per_byte;  /* 0: no bottleneck */
  uint64_t queue_bytes;  /* the bytes of packets that wait or are being sent; 0: it polices */
  uint64_t bucket_bytes; /* so many pass at once; 0: each packet takes its time */
  harp_ns mark_ns;       /* packets that wait longer are marked (ECN); 0: none are */
  /* state */
  uint64_t busy_ps; /* until then the packets that have passed take the rate */
  /* counted */
  uint64_t packets, bytes, drops; /* the packets and bytes that came, and the packets that were dropped */
  uint64_t queue_max_ns;
};

/* Returns the picoseconds that a byte takes at a rate. */
uint64_t wire_ps_per_byte(double gbit_s);

/* Lets a packet pass that arrives now: returns when it leaves, HARP_NEVER when it is dropped. Packets come in
 * the order of time. */
harp_ns wire_pass(struct wire *w, uint32_t bytes, harp_ns now);

/* Holds back what comes from now on for so long. */
void wire_hold(struct wire *w, harp_ns for_ns, harp_ns now);

/* Takes away what is being held back or sent. */
void wire_clear(struct wire *w);

/* Returns whether an ECN-capable packet that came now would be marked. */
bool wire_marks(const struct wire *w, harp_ns now);

/* Returns how long a packet that came now would wait. 0 for a policer. */
harp_ns wire_queue_ns(const struct wire *w, harp_ns now);

#endif
