/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the interfaces that a sender's paths join: which work, and which let nothing through.
 *
 * Read by the engine, which compares the reports of all its sessions before it reports an outage
 * (engine/watch/outage.h). */
#ifndef HARP_ENI_REPORT_H
#define HARP_ENI_REPORT_H

#include "proto/send.h"

enum harp_eni_side { HARP_ENI_LOCAL, HARP_ENI_REMOTE };

/* A bit for each interface of one side, by its index in the endpoint. */
struct harp_eni_report {
  uint32_t used;  /* a path over it has been UP once */
  uint32_t works; /* a path over it is UP */
  uint32_t fails; /* a path over it is DOWN */
};

/* Reports on the interfaces of one side. Paths over a local interface in `void_locals` prove nothing; nor do
 * any while no path is UP, or none has answered since one fell silent: the peer may be gone. */
struct harp_eni_report harp_eni_report_of(const struct harp_sender *s, enum harp_eni_side side,
                                          uint32_t void_locals);

#endif
