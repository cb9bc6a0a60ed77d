/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/flows.h"

#include "base/assert.h"

void harp_flows_init(struct harp_flows *f, uint64_t paths, uint64_t speed_bytes_s) {
  HARP_ASSERT(paths);
  *f = (struct harp_flows){.paths = paths,
                           .speed_bytes_s = speed_bytes_s,
                           .count = harp_popcount(paths),
                           .wanted = 1,
                           .proven = 1};
}

void harp_flows_on_round(struct harp_flows *f, bool held_back) {
  if (held_back)
    f->pressure = HARP_MIN(f->pressure + HARP_FLOWS_PRESSURE_ROUND, HARP_FLOWS_PRESSURE_MAX + 0u);
  else if (f->pressure)
    f->pressure--;
}

bool harp_flows_want_more(const struct harp_flows *f, harp_ns now) {
  return f->proven < f->count && f->pressure >= HARP_FLOWS_PRESSURE_ON && now >= f->evidence.next_ns;
}

struct harp_experiment harp_flows_plan(const struct harp_flows *f, unsigned pair, harp_ns round_ns,
                                       harp_ns growth_ns, unsigned hurry) {
  harp_ns flows_ns = HARP_MAX(HARP_EXPERIMENT_FLOWS_NS, HARP_EXPERIMENT_FLOWS_ROUNDS * round_ns);
  return (struct harp_experiment){
      .question = HARP_QUESTION_FLOWS,
      .pair = pair,
      .from = f->proven,
      .to = HARP_MIN(2 * f->proven, f->count),
      .flows_ns = flows_ns,
      .adapt_ns = HARP_MAX(flows_ns, growth_ns),
      .hurry = hurry,
      .full_bytes = f->speed_bytes_s - f->speed_bytes_s / HARP_FLOWS_FULL_PARTS,
  };
}

bool harp_flows_on_phase(struct harp_flows *f, const struct harp_experiment *e) {
  unsigned wanted = f->wanted;
  f->wanted = harp_experiment_tries(e) ? e->to : f->proven;
  return f->wanted != wanted;
}

bool harp_flows_on_verdict(struct harp_flows *f, const struct harp_experiment *e, harp_ns now) {
  HARP_ASSERT(e->question == HARP_QUESTION_FLOWS && e->from == f->proven);
  if (!harp_evidence_add(&f->evidence, e, now)) return false;
  f->wanted = f->proven = e->to;
  return true;
}
