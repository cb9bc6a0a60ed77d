/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/experiment_report.h"

static const char *under_way(const struct harp_experiments *x) {
  static const char *const names[HARP_QUESTIONS] = {
      [HARP_QUESTION_FLOWS] = "flows",
      [HARP_QUESTION_CARRIER] = "carrier",
  };
  if (harp_experiment_is_under_way(&x->trial)) return names[x->trial.question];
  return harp_experiment_is_under_way(&x->search) ? names[HARP_QUESTION_FLOWS] : "none";
}

struct harp_experiment_report harp_experiment_report_of(const struct harp_session *c) {
  const struct harp_sender *s = c->sender;
  const struct harp_experiments *x = &s->experiments;
  uint64_t large = s->carriers.by_class[HARP_TX_LARGE], tcp = harp_path_set_tcp(s->paths, large);
  return (struct harp_experiment_report){
      .takes_tcp = tcp != 0,
      .takes_datagrams = (large & ~tcp) != 0,
      .has_choice = x->has_choice,
      .prefers_datagrams = x->datagrams,
      .under_way = under_way(x),
      .carrier = x->carrier_report,
  };
}
