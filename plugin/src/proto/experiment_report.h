/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the large messages of a session, and the findings of the last experiments; for statistics and
 * the log. Read by the engine, from the thread that runs its pass. */
#ifndef HARP_EXPERIMENT_REPORT_H
#define HARP_EXPERIMENT_REPORT_H

#include "proto/session.h"

struct harp_experiment_report {
  bool takes_tcp, takes_datagrams; /* the carriers that large messages take now; neither: no path is up */
  bool has_choice;                 /* experiments decide between the carriers */
  bool prefers_datagrams;          /* experiments have decided for datagrams */
  const char *under_way;           /* what is tried or measured now, in a word */
  struct harp_trial_report carrier;
};

/* Reports on a session that has a sender. */
struct harp_experiment_report harp_experiment_report_of(const struct harp_session *c);

#endif
