/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual clock, and which source of events fires next: a binary heap of sources.
 *
 * Each source has one time at which it fires: the next arrival of a lane, the timer of an end. Setting the
 * time again replaces it, so the heap holds as many entries as there are sources, however many packets are
 * under way. Sources with equal times fire in the order in which their times were set: no flow goes first for
 * its index. */
#ifndef HARP_MODELS_AGENDA_H
#define HARP_MODELS_AGENDA_H

#include "base/base.h"

#define AGENDA_BEGIN_NS HARP_MS(1) /* where virtual time begins: 0 means "never" to the core */

struct source;
typedef void (*source_fire)(struct source *s, harp_ns now);

struct source {
  harp_ns at_ns; /* HARP_NEVER: not in the heap */
  uint64_t order;
  uint32_t place; /* in the heap */
  source_fire fire;
};

struct agenda {
  struct source **heap;
  uint32_t count, room;
  uint64_t order;
  uint64_t fired;
  harp_ns now;
};

void agenda_init(struct agenda *a, harp_ns now);
void agenda_fini(struct agenda *a);

/* Prepares a source that fires never; it keeps its memory in place while the agenda lives. */
void source_init(struct source *s, source_fire fire);

/* Sets when the source fires; HARP_NEVER removes it. Times in the past fire at once. */
void agenda_set(struct agenda *a, struct source *s, harp_ns at_ns);

/* Fires every source that is due before `until_ns`, then moves the clock there. */
void agenda_run(struct agenda *a, harp_ns until_ns);

#endif
