/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/carrier_report.h"

struct harp_carrier_report harp_carrier_report_of(const struct harp_session *c) {
  const struct harp_sender *s = c->sender;
  const struct harp_carrier_trial *t = &s->carriers.trial;
  uint64_t large = s->carriers.by_class[HARP_TX_LARGE], tcp = harp_path_set_tcp(s->paths, large);
  return (struct harp_carrier_report){
      .takes_tcp = tcp != 0,
      .takes_datagrams = large != tcp,
      .has_choice = s->carriers.has_choice,
      .prefers_datagrams = t->datagrams,
      .verdict = t->verdict,
      .time_percent = t->time_percent,
      .cpu_percent = t->cpu_percent,
  };
}

unsigned harp_carrier_trials(const struct harp_session *c) {
  return c->sender->carriers.trial.count;
}
