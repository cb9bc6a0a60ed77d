/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of an engine: a ring of its last events (base/trace.h), in memory that harpctl can read
 * at any time (host/stats_file.h). dump.h writes it into files. All calls under the engine's lock. */
#ifndef HARP_RECORDER_H
#define HARP_RECORDER_H

#include "base/trace.h"

struct harp_engine;
struct harp_link;
struct harp_peer;

/* The recorder of an engine. */
struct harp_recorder {
  struct harp_trace trace;    /* the trace of events of no peer; its ring is NULL where nothing is recorded */
  harp_ns dumped_ns;          /* the time of the last dump; 0: none was made */
  uint64_t refused, deferred; /* the counts of superframes at the last look */
};

/* Records what an engine with an entry in the statistics does, from now on. */
void harp_recorder_join(struct harp_engine *e);

/* The same for a peer. */
void harp_recorder_add_peer(struct harp_peer *peer);

/* Learns that a link was opened, or is about to end. */
void harp_recorder_trace_link(const struct harp_link *link, bool is_open);

/* Records an event of the engine itself, or of a peer. */
void harp_recorder_trace(const struct harp_engine *e, harp_ns now, struct harp_trace_entry entry);
void harp_recorder_trace_peer(const struct harp_peer *peer, harp_ns now, struct harp_trace_entry entry);

/* Records what the kernel refused in a pass. */
void harp_recorder_trace_refused(struct harp_engine *e, harp_ns now);

#endif
