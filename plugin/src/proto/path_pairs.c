/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_pairs.h"

#include "base/assert.h"
#include "proto/send.h"

static bool is_in_use(const struct harp_path *p) {
  return p->state == HARP_PATH_UP || p->state == HARP_PATH_NEW;
}

/* Returns how many paths between two ENIs are in use, at least 1. Paths with a detour count only where there
 * are no others: else they carry nothing. */
static unsigned count_in_use(const struct harp_sender *s, const struct harp_flows *f) {
  unsigned straight = 0, all = 0;
  HARP_EACH_BIT (i, f->paths) {
    const struct harp_path *p = &s->paths[i];
    all += is_in_use(p), straight += is_in_use(p) && !p->detour;
  }
  return HARP_MAX(straight ? straight : all, 1u);
}

/* Notes how many paths share a queue, as far as is known: those that paid have one each. */
static void update_sharers(struct harp_sender *s, const struct harp_flows *f) {
  unsigned count = count_in_use(s, f);
  HARP_ASSERT(f->proven);
  HARP_EACH_BIT (i, f->paths) {
    struct harp_path *p = &s->paths[i];
    p->cc.sharers = (count + f->proven - 1) / f->proven;
  }
}

/* ---- states of one path ---- */

/* Puts a dormant path to use. It is NEW and probed; but a tcp path whose connection still has records under
 * way is UP as before: its flight ends with the connection alone. */
static void wake_path(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  if (p->is_tcp && p->inflight_bytes) {
    harp_path_pairs_resume(s, p, now);
    return;
  }
  harp_path_flight_give_up(s, p, now);
  harp_path_set_move(s, p, HARP_PATH_NEW, now);
  harp_path_probe_forget_ptos(&p->probe);
  harp_path_probing_begin(s, p, now);
}

/* Only probes are in flight on a new path. Those of a tcp path would pass for records that its connection
 * carries: the path would be UP when it is put to use again, without ever having answered. */
static void make_path_dormant(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  if (p->is_tcp && p->state == HARP_PATH_NEW) harp_path_flight_give_up(s, p, now);
  harp_path_set_move(s, p, HARP_PATH_DORMANT, now);
  if (!p->is_tcp && harp_path_pto_ns(p) <= now)
    harp_path_flight_give_up(s, p, now); /* or the timer would be due already */
}

/* The paths of a pair, a bit each, by what is to be expected of them. */
struct condition {
  uint64_t straight, detours; /* answer; and how their packets come to the receiver */
  uint64_t tried, silent;     /* new ones: probed just now; probed and silent */
  uint64_t dormant, dormant_detours;
};

static struct condition condition_of(const struct harp_sender *s, const struct harp_flows *f) {
  struct condition c = {0};
  HARP_EACH_BIT (i, f->paths) {
    const struct harp_path *p = &s->paths[i];
    uint64_t bit = harp_path_bit(p);
    if (p->state == HARP_PATH_UP && !p->probe.pto_count)
      *(p->detour ? &c.detours : &c.straight) |= bit;
    else if (p->state == HARP_PATH_NEW)
      *(p->probe.count < HARP_PATH_DOUBTFUL_PTOS ? &c.tried : &c.silent) |= bit;
    else if (p->state == HARP_PATH_DORMANT)
      *(p->detour ? &c.dormant_detours : &c.dormant) |= bit;
  }
  return c;
}

/* Wakes up to so many of the paths, the first ones; returns how many are left to be woken. */
static unsigned wake_first_paths(struct harp_sender *s, uint64_t among, unsigned most, harp_ns now) {
  for (; among && most; among &= among - 1, most--) wake_path(s, &s->paths[__builtin_ctzll(among)], now);
  return most;
}

/* Makes all of the paths dormant but the first few; returns how many of these are missing. */
static unsigned make_paths_dormant_but(struct harp_sender *s, uint64_t among, unsigned but, harp_ns now) {
  HARP_EACH_BIT (i, among) {
    if (but)
      but--;
    else
      make_path_dormant(s, &s->paths[i], now);
  }
  return but;
}

/* Returns the sum of the windows of the paths in use. */
static uint64_t window_sum(const struct harp_sender *s, const struct harp_flows *f) {
  uint64_t bytes = 0;
  HARP_EACH_BIT (i, f->paths) {
    const struct harp_path *p = &s->paths[i];
    if (is_in_use(p)) bytes += p->cc.window_bytes;
  }
  return bytes;
}

/* Divides a window equally among the paths in use. Where no path answered, new ones begin in slow start. */
static void divide_window(struct harp_sender *s, const struct harp_flows *f, uint64_t bytes, bool answered) {
  unsigned count = count_in_use(s, f);
  HARP_EACH_BIT (i, f->paths) {
    struct harp_path *p = &s->paths[i];
    if (!is_in_use(p)) continue;
    if (p->state == HARP_PATH_NEW) {
      harp_path_pairs_restart_window(p);
      p->cc.slow_start = !answered;
    }
    harp_cc_set_window(&p->cc, bytes / count);
    harp_path_speed_update(p);
  }
}

/* Wakes paths when fewer answer, or were probed just now, than are wanted. */
static void wake_missing(struct harp_sender *s, const struct harp_flows *f, const struct condition *c,
                         harp_ns now) {
  unsigned straight = harp_popcount(c->straight | c->tried);
  if (straight >= f->wanted) return;
  unsigned missing = wake_first_paths(s, c->dormant, f->wanted - straight, now);
  unsigned detours = harp_popcount(c->detours);
  if (missing > detours) wake_first_paths(s, c->dormant_detours, missing - detours, now);
}

/* Makes paths dormant where more answer than are wanted. */
static void make_surplus_dormant(struct harp_sender *s, const struct harp_flows *f, const struct condition *c,
                                 harp_ns now) {
  if (harp_popcount(c->straight | c->detours) < f->wanted) return;
  unsigned missing = make_paths_dormant_but(s, c->straight, f->wanted, now);
  make_paths_dormant_but(s, c->detours, missing, now);
  if (!missing) make_paths_dormant_but(s, c->tried | c->silent, 0, now);
}

static void settle_pair_paths(struct harp_sender *s, const struct harp_flows *f, harp_ns now) {
  HARP_ASSERT(f->wanted && f->wanted <= f->count);
  if (f->count == 1) return;
  struct condition c = condition_of(s, f);
  unsigned count = count_in_use(s, f);
  uint64_t bytes = window_sum(s, f);
  wake_missing(s, f, &c, now);
  make_surplus_dormant(s, f, &c, now);
  update_sharers(s, f);
  if (count_in_use(s, f) != count) divide_window(s, f, bytes, c.straight | c.detours);
}

void harp_path_pairs_settle(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  settle_pair_paths(s, &s->pairs.flows[p->pair], now);
}

bool harp_path_pairs_other_answers(const struct harp_sender *s, const struct harp_path *p) {
  struct condition c = condition_of(s, &s->pairs.flows[p->pair]);
  return ((c.straight | c.detours) & ~harp_path_bit(p)) != 0;
}

void harp_path_pairs_restart_window(struct harp_path *p) {
  harp_cc_init(&p->cc, p->cc.ops, p->cc.packet_bytes, p->cc.window_max_bytes, p->cc.sharers);
  harp_path_speed_restart(p);
}

void harp_path_pairs_add(struct harp_sender *s, uint64_t paths, uint64_t speed_bytes_s) {
  HARP_EACH_BIT (i, paths) s->paths[i].pair = (uint8_t)s->pairs.count;
  harp_flows_init(&s->pairs.flows[s->pairs.count++], paths, speed_bytes_s);
}

void harp_path_pairs_init(struct harp_sender *s, harp_ns now) {
  for (unsigned i = 0; i < s->path_count; i++) {
    struct harp_path *p = &s->paths[i];
    if (s->pairs.flows[p->pair].paths & (harp_path_bit(p) - 1))
      harp_path_set_move(s, p, HARP_PATH_DORMANT, now);
    else
      harp_path_probing_begin(s, p, now);
  }
  for (unsigned i = 0; i < s->pairs.count; i++) update_sharers(s, &s->pairs.flows[i]);
  for (unsigned i = 0; i < s->path_count; i++) harp_path_pairs_restart_window(&s->paths[i]);
}

void harp_path_pairs_resume(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  HARP_ASSERT(p->is_tcp && p->inflight_bytes);
  harp_path_set_move(s, p, HARP_PATH_UP, now);
  harp_path_timers_on_changed(s, p);
}

/* ---- flows ---- */

void harp_path_pairs_on_round(struct harp_sender *s, const struct harp_path *p,
                              const struct harp_cc_sample *sample) {
  harp_flows_on_round(&s->pairs.flows[p->pair], harp_cc_held_back(&p->cc, sample));
}

void harp_path_pairs_on_search(struct harp_sender *s, const struct harp_experiment *e, harp_ns now) {
  struct harp_flows *f = &s->pairs.flows[e->pair];
  if (harp_flows_on_phase(f, e)) settle_pair_paths(s, f, now);
}

bool harp_path_pairs_on_verdict(struct harp_sender *s, const struct harp_experiment *e, harp_ns now) {
  struct harp_flows *f = &s->pairs.flows[e->pair];
  bool changed = harp_flows_on_verdict(f, e, now);
  (void)!harp_flows_on_phase(f, e);
  settle_pair_paths(s, f, now);
  return changed;
}
