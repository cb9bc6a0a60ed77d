/* SPDX-License-Identifier: Apache-2.0 */
/* Which carrier the large messages of a session take, and what the last trial has found; for statistics and
 * the log. Read by the engine, from the thread that runs its pass. */
#ifndef HARP_CARRIER_REPORT_H
#define HARP_CARRIER_REPORT_H

#include "proto/session.h"

struct harp_carrier_report {
  bool takes_tcp, takes_datagrams; /* large messages do, now; neither: no path is up */
  bool has_choice;                 /* trials decide */
  bool prefers_datagrams;          /* trials have so decided */
  enum harp_carrier_verdict verdict;
  uint32_t time_percent, cpu_percent; /* harp_carrier_trial */
};

/* Reports on a session that has a sender. */
struct harp_carrier_report harp_carrier_report_of(const struct harp_session *c);

/* Returns how many trials of a carrier have ended. */
unsigned harp_carrier_trials(const struct harp_session *c);

#endif
