/* SPDX-License-Identifier: Apache-2.0 */
/* What a network reads of the product, and sets in it, beyond what an engine does: the only file here that
 * knows more than the interfaces of sender, receiver and streams. */
#ifndef HARP_MODELS_PROBE_H
#define HARP_MODELS_PROBE_H

#include "proto/path_report.h"

/* Returns the congestion control of that name; of "default": what the product takes where none is named. */
const struct harp_cc_ops *probe_cc(const char *name);

struct harp_path_report probe_path(struct harp_sender *s, struct harp_receiver *r, unsigned path_count,
                                   unsigned path);

/* Tells a sender how far its host's clock is from that of the others, and whether the hosts have none in
 * common.
 */
void probe_set_clock(struct harp_sender *s, harp_ns offset_ns, bool is_own, harp_ns now);

#endif
