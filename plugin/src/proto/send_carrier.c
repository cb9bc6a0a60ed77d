/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_parts.h"

/* Between two ENIs that have paths over both carriers, small messages go over datagrams, which cost less for
 * each message, and large ones over what the trial has found, unless the tcp path is avoided. */
static void divide(struct harp_sender *s) {
  bool datagrams = harp_carrier_trial_takes_datagrams(&s->trial);
  s->by_class[HARP_TX_SMALL] = s->by_class[HARP_TX_LARGE] = s->eligible;
  s->has_choice = false;
  HARP_EACH_BIT (i, s->eligible & s->tcp) {
    const struct harp_path *p = &s->paths[i];
    HARP_EACH_BIT (k, s->eligible & ~s->tcp) {
      const struct harp_path *q = &s->paths[k];
      if (q->local_eni != p->local_eni || q->remote_eni != p->remote_eni) continue;
      s->has_choice = !s->avoided;
      s->by_class[HARP_TX_SMALL] &= ~(1ull << i);
      s->by_class[HARP_TX_LARGE] &= ~(1ull << (datagrams || s->avoided >> i & 1 ? i : k));
    }
  }
}

void harp_sender_choose_carriers(struct harp_sender *s) {
  harp_carrier_trial_give_up(&s->trial);
  s->large_since_ns = HARP_NEVER;
  divide(s);
}

void harp_sender_note_large(struct harp_sender *s, harp_ns now) {
  if (s->large_since_ns == HARP_NEVER && s->load.large) s->large_since_ns = now;
}

static void report(struct harp_sender *s, bool changed, harp_ns now) {
  s->counters->carrier_trials++;
  s->counters->carrier_changes += changed;
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_TRIAL,
                                       .count = harp_carrier_trial_takes_datagrams(&s->trial),
                                       .a = s->trial.time_percent,
                                       .b = s->trial.cpu_percent});
}

void harp_sender_measure(struct harp_sender *s, uint32_t acked_bytes, harp_ns now) {
  if (!s->has_choice) return;
  harp_ns since_ns = s->large_since_ns;
  s->large_since_ns = s->load.large ? now : HARP_NEVER;
  if (since_ns == HARP_NEVER) return;
  struct harp_carrier_slice more = {acked_bytes, now - since_ns, s->sender_ns};
  s->sender_ns = 0;
  enum harp_carrier_phase phase = s->trial.phase;
  bool datagrams = s->trial.datagrams;
  if (!harp_carrier_trial_feed(&s->trial, &more)) return;
  if (phase != HARP_CARRIER_IN_USE && s->trial.phase == HARP_CARRIER_IN_USE)
    report(s, datagrams != s->trial.datagrams, now);
  divide(s);
}
