/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_set.h"

#include "base/assert.h"
#include "proto/send.h"

/* ---- paths that may carry data ---- */

/* Takes out the paths that make a detour at the receiver while others between the same ENIs do not. */
static void exclude_detours(struct harp_sender *s) {
  uint64_t straight = 0; /* pairs of ENIs that have an eligible path without, a bit each */
  HARP_EACH_BIT (i, s->set.eligible) {
    const struct harp_path *p = &s->paths[i];
    if (!p->detour) straight |= 1ull << p->pair;
  }
  HARP_EACH_BIT (i, s->set.eligible) {
    const struct harp_path *p = &s->paths[i];
    if (p->detour && straight >> p->pair & 1) s->set.eligible &= ~harp_path_bit(p);
  }
}

static void choose_eligible_paths(struct harp_sender *s) {
  uint64_t standby = 0;
  uint32_t locals = 0, remotes = 0; /* ENIs with a primary path that is UP, a bit each */
  s->set.eligible = 0;
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    if (p->state != HARP_PATH_UP) continue;
    if (p->standby) {
      standby |= harp_path_bit(p);
      continue;
    }
    s->set.eligible |= harp_path_bit(p);
    locals |= 1u << p->local_eni, remotes |= 1u << p->remote_eni;
  }
  HARP_EACH_BIT (i, standby) {
    const struct harp_path *p = &s->paths[i];
    if (!(locals >> p->local_eni & 1) && !(remotes >> p->remote_eni & 1)) s->set.eligible |= harp_path_bit(p);
  }
  exclude_detours(s);
}

/* Returns the pairs of ENIs that have an eligible path, a bit each. */
static uint64_t eligible_pairs(const struct harp_sender *s) {
  uint64_t pairs = 0;
  HARP_EACH_BIT (i, s->set.eligible) pairs |= 1ull << s->paths[i].pair;
  return pairs;
}

/* Returns the pairs of tcp paths that are DOWN while datagrams between the same ENIs may carry data. */
static uint64_t silent_pairs(const struct harp_sender *s) {
  uint64_t pairs = 0;
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    if (!p->is_tcp || p->state != HARP_PATH_DOWN) continue;
    HARP_EACH_BIT (k, s->set.eligible) {
      const struct harp_path *q = &s->paths[k];
      if (!q->is_tcp && q->local_eni == p->local_eni && q->remote_eni == p->remote_eni)
        pairs |= 1ull << p->pair;
    }
  }
  return pairs;
}

/* Chooses carriers among the eligible paths, and ends experiments whose pairs have changed. A pair whose
 * search was stopped makes paths DORMANT when it is updated next: here they change their states. */
static void eligible_paths_changed(struct harp_sender *s) {
  const struct harp_experiment *search = &s->experiments.search;
  choose_eligible_paths(s);
  bool has_choice = harp_send_carriers_choose(s);
  if (!harp_experiments_on_pairs(&s->experiments, eligible_pairs(s), silent_pairs(s), has_choice)) return;
  (void)!harp_flows_on_phase(&s->pairs.flows[search->pair], search);
  (void)harp_send_carriers_choose(s);
}

/* ---- states ---- */

/* Reports a change of state to the recorder and the statistics. The engine sees by these counters that it is
 * to look for outages of interfaces. */
static void report_state(struct harp_sender *s, const struct harp_path *p, enum harp_path_state to,
                         harp_ns now) {
  struct harp_trace_entry entry = {.event = HARP_EVENT_PATH_STATE, .path = p->index, .a = p->state, .b = to};
  harp_trace(s->trace, now, entry);
  if (to == HARP_PATH_DOWN) s->counters->path_down++;
  if (p->state == HARP_PATH_DOWN) s->counters->path_up++;
}

/* The one transition function of a path. */
void harp_path_set_move(struct harp_sender *s, struct harp_path *p, enum harp_path_state to, harp_ns now) {
  static const bool allowed[4][4] = {
      [HARP_PATH_NEW] = {[HARP_PATH_UP] = true, [HARP_PATH_DORMANT] = true},
      [HARP_PATH_UP] = {[HARP_PATH_DOWN] = true, [HARP_PATH_DORMANT] = true},
      [HARP_PATH_DOWN] = {[HARP_PATH_UP] = true},
      [HARP_PATH_DORMANT] = {[HARP_PATH_NEW] = true, [HARP_PATH_UP] = true},
  };
  HARP_ASSERT(allowed[p->state][to]);
  report_state(s, p, to, now);
  p->state = to;
  if (to == HARP_PATH_DORMANT) harp_path_set_withdraw_probe(s, p);
  eligible_paths_changed(s);
}

void harp_path_set_on_detour(struct harp_sender *s, struct harp_path *p, bool detour) {
  p->detour = detour;
  eligible_paths_changed(s);
}

/* ---- paths that ask for attention ---- */

void harp_path_set_request_probe(struct harp_sender *s, const struct harp_path *p) {
  HARP_ASSERT(p->state != HARP_PATH_DORMANT);
  s->set.probes_due |= harp_path_bit(p);
}

void harp_path_set_withdraw_probe(struct harp_sender *s, const struct harp_path *p) {
  s->set.probes_due &= ~harp_path_bit(p);
}

void harp_path_set_on_size(struct harp_sender *s, const struct harp_path *p) {
  if (harp_path_size_is_searched(&p->size))
    s->set.sizing |= harp_path_bit(p);
  else
    s->set.sizing &= ~harp_path_bit(p);
}
