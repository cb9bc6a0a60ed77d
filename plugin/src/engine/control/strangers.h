/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers: connections to an engine's ports that have not proved a secret. Anyone can make them, so that
 * they are bounded in what they take:
 *
 *   1. Files and memory: an engine has at most HARP_STRANGERS_MAX at its listeners, and
 *      HARP_STRANGERS_FEW_FILES where its process has few files left. The oldest go.
 *   2. Time, at the ports that are open as long as the engine is: after HARP_STRANGERS_BURST of them it
 *      accepts one in HARP_STRANGER_NS; the others wait in the kernel. One that proves a secret does not
 *      count. A listener of NCCL's accepts all that come, since NCCL waits for one among them.
 *
 * Owned by the engine; under its lock. */
#ifndef HARP_STRANGERS_H
#define HARP_STRANGERS_H

#include "base/base.h"

enum { HARP_STRANGERS_BURST = 256 };
#define HARP_STRANGER_NS HARP_MS(1) /* each costs about 20 us, of a thread that may have a part of a core */

struct harp_pending_peer;

struct harp_strangers {
  struct harp_pending_peer *first, *last; /* at the listeners, oldest first */
  unsigned count;
  harp_ns spent_until_ns; /* the time that those that were accepted may take */
};

/* Adds a pending peer; removes it, if it is there. */
void harp_strangers_add(struct harp_strangers *s, struct harp_pending_peer *p);
void harp_strangers_remove(struct harp_strangers *s, struct harp_pending_peer *p);

/* Returns the one that has to go, so that the owner of this new file can be one; NULL: none has to. */
struct harp_pending_peer *harp_strangers_surplus(const struct harp_strangers *s, int fd);

/* Returns whether one more may be accepted now. */
static inline bool harp_strangers_may_come(const struct harp_strangers *s, harp_ns now) {
  return s->spent_until_ns < now + HARP_STRANGERS_BURST * HARP_STRANGER_NS;
}

/* Learns that one was accepted; that one proved a secret. */
static inline void harp_strangers_on_accepted(struct harp_strangers *s, harp_ns now) {
  s->spent_until_ns = HARP_MAX(s->spent_until_ns, now) + HARP_STRANGER_NS;
}
static inline void harp_strangers_on_proved(struct harp_strangers *s) {
  s->spent_until_ns -= HARP_STRANGER_NS;
}

#endif
