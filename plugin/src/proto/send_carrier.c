/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/send_carrier.h"

#include "proto/send.h"

void harp_send_carriers_init(struct harp_send_carriers *c) {
  *c = (struct harp_send_carriers){.large_since_ns = HARP_NEVER};
  harp_carrier_trial_init(&c->trial);
}

/* Takes the tcp path out of those of small messages, and one of both out of those of large ones: the tcp path
 * `i` and the path `k` run between the same ENIs. */
static void divide_classes(struct harp_send_carriers *c, unsigned i, unsigned k) {
  bool datagrams = harp_carrier_trial_takes_datagrams(&c->trial);
  c->has_choice = !c->avoided;
  c->by_class[HARP_TX_SMALL] &= ~(1ull << i);
  c->by_class[HARP_TX_LARGE] &= ~(1ull << (datagrams || c->avoided >> i & 1 ? i : k));
}

static void choose_carriers(struct harp_sender *s) {
  struct harp_send_carriers *c = &s->carriers;
  uint64_t tcp = harp_path_set_tcp(s->paths, s->set.eligible);
  c->by_class[HARP_TX_SMALL] = c->by_class[HARP_TX_LARGE] = s->set.eligible;
  c->has_choice = false;
  HARP_EACH_BIT (i, tcp) {
    const struct harp_path *p = &s->paths[i];
    HARP_EACH_BIT (k, s->set.eligible & ~tcp) {
      const struct harp_path *q = &s->paths[k];
      if (q->local_eni == p->local_eni && q->remote_eni == p->remote_eni) divide_classes(c, i, k);
    }
  }
}

void harp_send_carriers_on_paths_changed(struct harp_sender *s) {
  harp_carrier_trial_give_up(&s->carriers.trial);
  s->carriers.large_since_ns = HARP_NEVER;
  choose_carriers(s);
}

void harp_send_carriers_avoid(struct harp_sender *s, unsigned path, bool is_avoided) {
  struct harp_send_carriers *c = &s->carriers;
  HARP_ASSERT(s->paths[path].is_tcp);
  c->avoided = is_avoided ? c->avoided | 1ull << path : c->avoided & ~(1ull << path);
  harp_send_carriers_on_paths_changed(s);
}

static void report_trial(struct harp_sender *s, bool changed, harp_ns now) {
  s->counters->carrier_trials++;
  s->counters->carrier_changes += changed;
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_TRIAL,
                                       .count = harp_carrier_trial_takes_datagrams(&s->carriers.trial),
                                       .a = s->carriers.trial.time_percent,
                                       .b = s->carriers.trial.cpu_percent});
}

void harp_send_carriers_on_acked(struct harp_sender *s, uint32_t acked_bytes, harp_ns now) {
  struct harp_send_carriers *c = &s->carriers;
  if (!c->has_choice) return;
  harp_ns since_ns = c->large_since_ns;
  c->large_since_ns = s->load.large ? now : HARP_NEVER;
  if (since_ns == HARP_NEVER) return;
  struct harp_carrier_slice more = {acked_bytes, now - since_ns, c->sender_ns};
  c->sender_ns = 0;
  enum harp_carrier_phase phase = c->trial.phase;
  bool datagrams = c->trial.datagrams;
  if (!harp_carrier_trial_feed(&c->trial, &more)) return;
  if (phase != HARP_CARRIER_IN_USE && c->trial.phase == HARP_CARRIER_IN_USE)
    report_trial(s, datagrams != c->trial.datagrams, now);
  choose_carriers(s);
}
