/* SPDX-License-Identifier: Apache-2.0 */
#include "models/probe.h"

#include <string.h>

const struct harp_cc_ops *probe_cc(const char *name) {
  static const char *const defaults[] = {"target", "delay"};
  if (strcmp(name, "default")) return harp_cc_find(name);
  const struct harp_cc_ops *found = NULL;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(defaults) && !found; i++) found = harp_cc_find(defaults[i]);
  return found;
}

struct harp_path_report probe_path(struct harp_sender *s, struct harp_receiver *r, unsigned path_count,
                                   unsigned path) {
  struct harp_session session = {.path_count = path_count, .sender = s, .receiver = r};
  return harp_path_report_of(&session, path);
}

void probe_set_clock(struct harp_sender *s, harp_ns offset_ns, bool is_own, harp_ns now) {
  (void)now;
  harp_sender_set_clock(s, offset_ns, is_own);
}
