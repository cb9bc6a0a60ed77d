/* SPDX-License-Identifier: Apache-2.0 */
/* See path_ecn.h. */
#include "proto/path_ecn.h"

#include "base/assert.h"
#include "base/seq.h"

void harp_path_ecn_init(struct harp_path_ecn *e, bool is_used) {
  *e = (struct harp_path_ecn){.is_used = is_used};
}

void harp_path_ecn_on_silence(struct harp_path_ecn *e) {
  if (!e->is_used) return;
  e->is_withheld = e->is_test_wanted = true;
  e->is_test_due = false;
}

bool harp_path_ecn_on_answer(struct harp_path_ecn *e) {
  if (harp_likely(!e->is_test_wanted)) return false;
  e->is_test_wanted = false;
  e->is_test_due = true;
  return true;
}

void harp_path_ecn_on_acked(struct harp_path_ecn *e) {
  HARP_ASSERT(e->is_used);
  e->is_withheld = e->is_test_wanted = e->is_test_due = false;
}

bool harp_path_ecn_on_report(struct harp_path_ecn *e, uint32_t ce_bytes) {
  uint64_t sum = harp_seq_widen(ce_bytes, e->ce_bytes);
  HARP_ASSERT(e->ce_bytes <= e->ect_bytes);
  /* A sum below zero is far above what was sent. */
  if (sum < e->ce_bytes || sum > e->ect_bytes) return false;
  e->new_bytes += (uint32_t)(sum - e->ce_bytes);
  e->ce_bytes = sum;
  return true;
}
