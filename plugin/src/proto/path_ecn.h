/* SPDX-License-Identifier: Apache-2.0 */
/* ECN of one path (RFC 3168): whether its packets leave as ECN-capable (ECT), and how many bytes of them the
 * receiver has reported as marked (CE). The congestion control responds; this only measures.
 *
 * Owned by a path. Called by its sender, from the thread that runs the engine's pass; nobody else writes a
 * field of it. Source of the validation: RFC 9000, section 13.4.2, less strict where HARP loses nothing by
 * it: a network that clears the mark only shows no congestion, so that nothing needs to be found out about
 * it. What must be found out is a network that drops ECT packets:
 *
 * 1. A path begins with ECT packets.
 * 2. After HARP_PATH_SILENT_PTOS probes or probe timeouts in a row without an answer, ECT is withheld: all
 *    packets of the path leave without.
 * 3. At the next answer one probe leaves as ECT, the test: most silences are outages.
 * 4. ECT is used again as soon as a packet that was sent as ECT is acknowledged: the test, or one that was
 *    only late. A test that is lost is not repeated before the next silence.
 * 5. Acknowledgements that go alone are never ECT (RFC 3168, section 6.1.4): what answers a probe gets
 *    through. The engine sends them. */
#ifndef HARP_PATH_ECN_H
#define HARP_PATH_ECN_H

#include "base/base.h"

struct harp_path_ecn {
  bool is_used;        /* the setting; false on a tcp path */
  bool is_withheld;    /* rule 2 */
  bool is_test_wanted; /* rule 3: the path has not answered yet */
  bool is_test_due;    /* rule 3: the next probe is the test */
  bool was_test;       /* the last packet sent was the test: its superframe ends with it */
  uint64_t ect_bytes;  /* the bytes sent as ECT since the path's start, with headers */
  uint64_t ce_bytes;   /* the part of ect_bytes that the receiver has reported as marked */
  uint32_t new_bytes;  /* the part of ce_bytes reported since harp_path_ecn_take_new */
};

void harp_path_ecn_init(struct harp_path_ecn *e, bool is_used);

/* Learns that packets of so many bytes are sent; returns whether as ECT. `may_test`: it is a probe, and none
 * of a larger size. */
static inline bool harp_path_ecn_on_sent(struct harp_path_ecn *e, bool may_test, uint64_t bytes) {
  e->was_test = e->is_test_due && may_test;
  if (harp_unlikely(e->was_test)) e->is_test_due = false;
  if (!e->was_test && (!e->is_used || e->is_withheld)) return false;
  e->ect_bytes += bytes;
  return true;
}

/* HARP_PATH_SILENT_PTOS probes or probe timeouts in a row were not answered. */
void harp_path_ecn_on_silence(struct harp_path_ecn *e);

/* The path has answered after probe timeouts. Returns whether the caller is to send a probe: the test. */
bool harp_path_ecn_on_answer(struct harp_path_ecn *e);

/* A packet that was sent as ECT was newly acknowledged. */
void harp_path_ecn_on_acked(struct harp_path_ecn *e);

/* Takes the sum of the newest acknowledgement: bytes that came marked, modulo 2^32. Returns false, and
 * changes nothing, when no receiver can have counted that: less than before, or more than was sent as ECT. */
bool harp_path_ecn_on_report(struct harp_path_ecn *e, uint32_t ce_bytes) HARP_MUST_CHECK;

/* Returns the bytes reported as marked since the last call. */
static inline uint32_t harp_path_ecn_take_new(struct harp_path_ecn *e) {
  uint32_t bytes = e->new_bytes;
  e->new_bytes = 0;
  return bytes;
}

#endif
