/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how long one path has not answered, and times its probes: the probe timeout (RFC 9002) of a path
 * that is UP, and the probes of one that is not.
 *
 * Owns and alone writes struct harp_path_probe, a part of struct harp_path. Called by the sender. Rules:
 *
 *   1. The probe timeout runs while the path owes something: packets in flight, or room in a tcp path's
 *      kernel. It starts over with the first of them, with an acknowledgement, with a timeout and with its
 *      probe.
 *   2. It lasts for the RTT, four times its variation and a margin. The first timeouts in a row double it,
 *      those after HARP_PROBE_DOUBLINGS_FIRST do not for a while, then each doubles it again, up to
 *      HARP_PTO_MAX_NS.
 *   3. A path whose timeouts in a row reach HARP_PATH_SILENT_PTOS is silent: only probes go out on it.
 *   4. A path whose flight has moved to others is silent, too, until something is acknowledged.
 *   5. A path that is not UP works when a packet is acknowledged that was sent since it began to be
 *      probed. */
#ifndef HARP_PATH_PROBE_H
#define HARP_PATH_PROBE_H

#include "base/base.h"
#include "proto/probe_constants.h"

struct harp_path;

struct harp_path_probe {
  harp_ns last_ack_ns; /* the time when something was acknowledged last */
  /* The start of the probe timeout: the latest of the first packet in flight, the block, an
   * acknowledgement, a timeout and its probe. */
  harp_ns pto_from_ns;
  harp_ns silent_ns;     /* the value of pto_from_ns before the first timeout in a row */
  uint32_t pto_count;    /* the timeouts in a row: no acknowledgement came between them */
  bool has_moved_flight; /* its flight was given up while others progress: only probes are sent */

  /* while not UP */
  uint64_t proof_number; /* an acknowledgement of this number or a later one shows that the path works */
  harp_ns probed_ns;     /* the time when the last probe fell due, then when it was sent */
  uint32_t count;        /* the probes since it left UP, or was new */
};

void harp_path_probe_init(struct harp_path_probe *b, uint64_t first_number, harp_ns now);

/* Returns how often the interval of probes has doubled after so many in a row without an answer: often at
 * first, then for a while not, then on. */
unsigned harp_path_probe_doublings(uint32_t count);

/* Returns the probe timeout's deadline, HARP_NEVER when the path owes nothing. */
harp_ns harp_path_pto_ns(const struct harp_path *p);

/* Begins to probe a path that is not UP: packets from this number on prove that it works. */
void harp_path_probe_begin(struct harp_path_probe *b, uint64_t next_number, harp_ns now);

/* Has only packets from this number on prove that the path works. */
static inline void harp_path_probe_renew_proof(struct harp_path_probe *b, uint64_t next_number) {
  b->proof_number = next_number;
}

/* Learns that the next probe of a path that is not UP falls due. */
static inline void harp_path_probe_on_interval(struct harp_path_probe *b, harp_ns now) {
  b->count++;
  b->probed_ns = now;
}

/* Learns that a probe falls due, or is sent: the next one keeps its distance. */
static inline void harp_path_probe_on_probe(struct harp_path_probe *b, harp_ns now) {
  b->probed_ns = now;
}

/* Starts the probe timeout over. */
static inline void harp_path_probe_restart_pto(struct harp_path_probe *b, harp_ns now) {
  b->pto_from_ns = now;
}

/* Learns of a probe timeout: it starts over even if the probe cannot leave at once. */
void harp_path_probe_on_pto(struct harp_path_probe *b, harp_ns now);

/* Forgets timeouts: the path is about to be probed as a new one. */
void harp_path_probe_forget_ptos(struct harp_path_probe *b);

/* Learns that the path's flight moved to others. */
void harp_path_probe_on_flight_moved(struct harp_path_probe *b);

/* Learns that the kernel of a tcp path progresses. */
static inline void harp_path_probe_on_progress(struct harp_path_probe *b, harp_ns now) {
  b->pto_from_ns = now;
  b->pto_count = 0;
}

/* Learns of an acknowledgement of something new. */
static inline void harp_path_probe_on_answer(struct harp_path_probe *b, harp_ns now) {
  b->last_ack_ns = b->pto_from_ns = now;
  b->pto_count = 0;
  b->has_moved_flight = false;
}

#endif
