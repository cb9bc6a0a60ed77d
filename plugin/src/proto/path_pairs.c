/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_pairs.h"

#include "base/assert.h"
#include "proto/send.h"

/* The paths for large messages are put to sleep after so long without one: longer than most pauses of a job
 * that computes. */
#define REST_NS HARP_SEC(120)
/* They stay awake so long for a test of a connection: longer than one has to prove itself. */
#define TEST_NS HARP_SEC(4)
/* The mean time between two probes of standby pairs; each time is half of it to one and a half. What tracks
 * flows (a firewall, a cloud) forgets one after 30 s that was answered once, and after 120 s one that both
 * sides probed at about the same time, so that it knows 4 to 16 of a peer's.
 */
#define STANDBY_PROBE_NS HARP_SEC(15)
enum {
  FEW_STANDBY = 2, /* the standby pairs that are tried at first: one of them may be dead as well */
  ALL_STANDBY = HARP_PATHS_MAX,
};

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

/* Sets how many paths share a queue, as far as is known: those that paid have one each. */
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
  uint64_t straight, detours;        /* the paths that answer, by the way of their packets at the receiver */
  uint64_t tried, silent;            /* the new paths that were probed just now, and that are silent */
  uint64_t dormant, dormant_detours; /* the dormant paths, by the way that their packets took last */
};

/* Returns after how many probes a new path is doubtful. */
static unsigned doubtful_count(const struct harp_path *p) {
  return p->blocked ? HARP_PATH_LATE_PROBES : HARP_PATH_DOUBTFUL_PTOS + 0u;
}

static struct condition condition_of(const struct harp_sender *s, const struct harp_flows *f) {
  struct condition c = {0};
  HARP_EACH_BIT (i, f->paths) {
    const struct harp_path *p = &s->paths[i];
    uint64_t bit = harp_path_bit(p);
    if (p->state == HARP_PATH_UP && !p->probe.pto_count)
      *(p->detour ? &c.detours : &c.straight) |= bit;
    else if (p->state == HARP_PATH_NEW)
      *(p->probe.count < doubtful_count(p) ? &c.tried : &c.silent) |= bit;
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

static void update_pair(struct harp_sender *s, const struct harp_flows *f, harp_ns now) {
  HARP_ASSERT(f->wanted && f->wanted <= f->count);
  if (f->count == 1 || s->pairs.asleep >> (f - s->pairs.flows) & 1) return;
  struct condition c = condition_of(s, f);
  unsigned count = count_in_use(s, f);
  uint64_t bytes = window_sum(s, f);
  wake_missing(s, f, &c, now);
  make_surplus_dormant(s, f, &c, now);
  update_sharers(s, f);
  if (count_in_use(s, f) != count) divide_window(s, f, bytes, c.straight | c.detours);
}

void harp_path_pairs_update(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  update_pair(s, &s->pairs.flows[p->pair], now);
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

/* ---- pairs that are asleep ---- */

static void wake_pair(struct harp_sender *s, unsigned pair, harp_ns now) {
  struct harp_flows *f = &s->pairs.flows[pair];
  s->pairs.asleep &= ~(1ull << pair);
  update_sharers(s, f);
  (void)wake_first_paths(s, f->paths, f->wanted, now);
}

void harp_path_pairs_on_large(struct harp_sender *s, harp_ns now) {
  s->pairs.rest_ns = now + REST_NS;
  HARP_EACH_BIT (i, s->pairs.asleep & s->pairs.for_large) wake_pair(s, i, now);
}

void harp_path_pairs_test(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  HARP_ASSERT(p->is_tcp);
  if (s->pairs.asleep >> p->pair & 1) {
    s->pairs.rest_ns = HARP_MAX(s->pairs.rest_ns, now + TEST_NS);
    wake_pair(s, p->pair, now);
  } else if (p->state == HARP_PATH_UP && !harp_path_owes(p)) {
    harp_path_set_request_probe(s, p);
  }
}

static bool runs_beside(const struct harp_path *p, const struct harp_path *q) {
  return p->local_eni == q->local_eni && p->remote_eni == q->remote_eni;
}

static const struct harp_path *first_of_pair(const struct harp_sender *s, unsigned pair) {
  return &s->paths[__builtin_ctzll(s->pairs.flows[pair].paths)];
}

/* Wakes the tcp paths beside datagrams: all of them, since these may be silent between any two ENIs. */
static void wake_tcp(struct harp_sender *s, harp_ns now) {
  HARP_EACH_BIT (i, s->pairs.asleep & s->pairs.for_large) wake_pair(s, i, now);
}

/* Wakes a standby pair, or probes a path of it that is idle. Returns whether it did. */
static bool try_standby(struct harp_sender *s, unsigned pair, harp_ns now) {
  if (s->pairs.asleep >> pair & 1) {
    wake_pair(s, pair, now);
    return true;
  }
  HARP_EACH_BIT (i, s->pairs.flows[pair].paths & ~s->set.eligible) {
    const struct harp_path *p = &s->paths[i];
    if (p->state != HARP_PATH_UP || harp_path_owes(p)) continue;
    harp_path_set_request_probe(s, p);
    return true;
  }
  return false;
}

/* Tries so many of these standby pairs: first those that were checked last (rule 8), whose flows are known to
 * what tracks them. */
static void try_standbys(struct harp_sender *s, uint64_t among, unsigned most, harp_ns now) {
  for (unsigned n = 1; n <= s->pairs.count && most; n++) {
    unsigned pair = (s->pairs.next_standby + s->pairs.count - n) % s->pairs.count;
    if (among >> pair & 1) most -= try_standby(s, pair, now);
  }
}

/* Returns the standby pairs of which neither ENI has a primary path that is UP, a bit each. */
static uint64_t needed_standby(const struct harp_sender *s) {
  uint32_t locals = 0, remotes = 0;
  uint64_t needed = 0;
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    if (p->standby || p->state != HARP_PATH_UP) continue;
    locals |= 1u << p->local_eni, remotes |= 1u << p->remote_eni;
  }
  HARP_EACH_BIT (i, s->pairs.standby) {
    const struct harp_path *p = first_of_pair(s, i);
    if (!(locals >> p->local_eni & 1) && !(remotes >> p->remote_eni & 1)) needed |= 1ull << i;
  }
  return needed;
}

static void wake_needed_standby(struct harp_sender *s, harp_ns now) {
  HARP_EACH_BIT (i, s->pairs.asleep & needed_standby(s)) wake_pair(s, i, now);
}

/* Returns the standby pairs that share the ENI of our side, or of the other, with a path; a bit each. */
static uint64_t standby_over(const struct harp_sender *s, const struct harp_path *p, bool is_local) {
  uint64_t pairs = 0;
  HARP_EACH_BIT (i, s->pairs.standby) {
    const struct harp_path *q = first_of_pair(s, i);
    if (is_local ? q->local_eni == p->local_eni : q->remote_eni == p->remote_eni) pairs |= 1ull << i;
  }
  return pairs;
}

/* Returns how many standby pairs are waited for: whether they answer shows whether the peer is there. */
static unsigned count_tried(const struct harp_sender *s) {
  uint64_t tried = 0;
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    bool is_asked = p->state == HARP_PATH_NEW || s->set.probes_due >> i & 1 || harp_path_owes(p);
    if (p->standby && p->state != HARP_PATH_DORMANT && is_asked) tried |= 1ull << p->pair;
  }
  return harp_popcount(tried);
}

static bool is_every_eligible_silent(const struct harp_sender *s) {
  HARP_EACH_BIT (i, s->set.eligible) {
    if (!harp_path_is_silent(&s->paths[i])) return false;
  }
  return true;
}

/* A path that is not UP has its replacements woken once: they sleep again if they do not answer. Where
 * nothing is under way the silence of a path that is UP holds up nothing, and hundreds of peers may be silent
 * at once because their hosts, or ours, lack a core: no connection is opened, and a few standby pairs are
 * tried. */
void harp_path_pairs_on_silence(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  bool is_up = p->state == HARP_PATH_UP;
  if (p->standby) return;
  if (!is_up && p->probe.count == HARP_PATH_LATE_PROBES) wake_needed_standby(s, now);
  bool is_needed = s->load.messages;
  bool is_silent = is_up ? is_needed && p->probe.pto_count >= HARP_PATH_CONNECT_PTOS
                         : p->probe.count >= HARP_PATH_LATE_PROBES;
  if (is_silent && is_every_eligible_silent(s)) wake_tcp(s, now);
  if (!is_up || p->probe.pto_count < HARP_PATH_DOUBTFUL_PTOS) return;
  bool may_all_fail = is_needed && p->probe.pto_count >= HARP_PATH_STANDBY_PTOS;
  unsigned tried = count_tried(s), most = may_all_fail ? ALL_STANDBY : FEW_STANDBY;
  if (tried < most) try_standbys(s, standby_over(s, p, true) | standby_over(s, p, false), most - tried, now);
}

void harp_path_pairs_on_down(struct harp_sender *s, const struct harp_path *p, harp_ns now) {
  HARP_ASSERT(p->state == HARP_PATH_DOWN);
  if (!s->set.eligible) wake_tcp(s, now);
  wake_needed_standby(s, now);
  if (p->standby) return;
  try_standbys(s, standby_over(s, p, true), FEW_STANDBY, now);
  try_standbys(s, standby_over(s, p, false), FEW_STANDBY, now);
}

/* Returns whether datagrams answer between the ENIs of a tcp path. */
static bool datagrams_answer(const struct harp_sender *s, const struct harp_path *p) {
  HARP_EACH_BIT (i, s->set.eligible) {
    const struct harp_path *q = &s->paths[i];
    if (!q->is_tcp && runs_beside(q, p) && !harp_path_is_silent(q)) return true;
  }
  return false;
}

/* A path that is DOWN may be all that shows an outage: its pair stays awake. So does one of tcp paths while
 * records are under way on a connection: its timeouts would put the path to use again. */
static bool put_pair_to_sleep(struct harp_sender *s, unsigned pair, harp_ns now) {
  uint64_t used = 0;
  HARP_EACH_BIT (i, s->pairs.flows[pair].paths) {
    const struct harp_path *p = &s->paths[i];
    bool is_under_way = p->is_tcp && p->state != HARP_PATH_NEW && p->inflight_bytes;
    if (p->state == HARP_PATH_DOWN || is_under_way) return false;
    if (is_in_use(&s->paths[i])) used |= 1ull << i;
  }
  s->pairs.asleep |= 1ull << pair;
  (void)make_paths_dormant_but(s, used, 0, now);
  return true;
}

/* Returns whether the paths of a pair that are in use have been probed for long, and none has answered, while
 * others do. */
static bool is_of_no_use(const struct harp_sender *s, unsigned pair) {
  HARP_EACH_BIT (i, s->pairs.flows[pair].paths) {
    const struct harp_path *p = &s->paths[i];
    if (p->state != HARP_PATH_DORMANT &&
        (p->state != HARP_PATH_NEW || p->probe.count < HARP_PATH_LATE_PROBES))
      return false;
  }
  return s->set.eligible;
}

static uint32_t next_random(struct harp_path_pairs *pairs) {
  pairs->random = pairs->random * 1664525u + 1013904223u; /* Numerical Recipes */
  return pairs->random >> 8;
}

static void set_standby_probe(struct harp_path_pairs *pairs, harp_ns now) {
  pairs->standby_probe_ns =
      now + STANDBY_PROBE_NS / 2 + next_random(pairs) % (STANDBY_PROBE_NS / HARP_MS(1)) * HARP_MS(1);
}

/* Checks the next standby pair in turn; returns whether there is one to check. */
static bool check_next_standby(struct harp_sender *s, harp_ns now) {
  struct harp_path_pairs *pairs = &s->pairs;
  set_standby_probe(pairs, now);
  for (unsigned n = 0, first = pairs->next_standby; n < pairs->count; n++) {
    unsigned pair = (first + n) % pairs->count;
    bool is_standby = pairs->standby >> pair & 1 && !first_of_pair(s, pair)->is_tcp;
    if (!is_standby || !try_standby(s, pair, now)) continue;
    pairs->next_standby = pair + 1;
    return true;
  }
  return false;
}

bool harp_path_pairs_rest(struct harp_sender *s, harp_ns now) {
  struct harp_path_pairs *pairs = &s->pairs;
  bool any = false, is_small = !s->load.messages && now >= pairs->rest_ns;
  HARP_EACH_BIT (i, pairs->for_large & ~pairs->asleep) {
    if (is_small && datagrams_answer(s, first_of_pair(s, i))) any |= put_pair_to_sleep(s, i, now);
  }
  HARP_EACH_BIT (i, pairs->standby & ~pairs->asleep & ~needed_standby(s)) {
    if (is_of_no_use(s, i)) any |= put_pair_to_sleep(s, i, now);
  }
  if (pairs->standby_probe_ns <= now) any |= check_next_standby(s, now);
  return any;
}

/* Returns whether datagrams run between the ENIs of a tcp path. */
static bool has_datagrams_beside(const struct harp_sender *s, const struct harp_path *p) {
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *q = &s->paths[i];
    if (!q->is_tcp && runs_beside(q, p)) return true;
  }
  return false;
}

static bool is_for_large(const struct harp_sender *s, const struct harp_path *p) {
  return p->is_tcp && has_datagrams_beside(s, p);
}

void harp_path_pairs_init(struct harp_sender *s, uint32_t seed, harp_ns now) {
  s->pairs.rest_ns = 0;
  s->pairs.random = seed;
  set_standby_probe(&s->pairs, now);
  if (s->pairs.count) s->pairs.next_standby = next_random(&s->pairs) % s->pairs.count;
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    s->pairs.for_large |= (uint64_t)is_for_large(s, p) << p->pair;
    s->pairs.standby |= (uint64_t)p->standby << p->pair;
  }
  s->pairs.asleep = s->pairs.for_large | s->pairs.standby;
  for (unsigned i = 0; i < s->path_count; i++) {
    struct harp_path *p = &s->paths[i];
    if (s->pairs.flows[p->pair].paths & (harp_path_bit(p) - 1) || s->pairs.asleep >> p->pair & 1)
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

/* Returns whether the network holds a tcp path back: its kernel took no more in this round, or still has
 * bytes to send. The RTT tells nothing: the kernel's queue may never be empty, and is then part of the base
 * RTT. */
static bool is_held_by_kernel(const struct harp_path *p) {
  return p->blocked || p->cc.round_limited || p->speed.tcp.is_standing;
}

void harp_path_pairs_on_round(struct harp_sender *s, const struct harp_path *p,
                              const struct harp_cc_sample *sample) {
  harp_flows_on_round(&s->pairs.flows[p->pair],
                      p->is_tcp ? is_held_by_kernel(p) : harp_cc_is_held_back(&p->cc, sample));
}

harp_ns harp_path_pairs_round_ns(const struct harp_sender *s, unsigned pair) {
  harp_ns round_ns = 0;
  HARP_EACH_BIT (i, s->pairs.flows[pair].paths & s->set.eligible)
    round_ns = HARP_MAX(round_ns, s->paths[i].rtt.smoothed_ns);
  return round_ns;
}

void harp_path_pairs_on_search(struct harp_sender *s, const struct harp_experiment *e, harp_ns now) {
  struct harp_flows *f = &s->pairs.flows[e->pair];
  if (harp_flows_on_phase(f, e)) update_pair(s, f, now);
}

bool harp_path_pairs_on_verdict(struct harp_sender *s, const struct harp_experiment *e, harp_ns now) {
  struct harp_flows *f = &s->pairs.flows[e->pair];
  bool changed = harp_flows_on_verdict(f, e, now);
  (void)!harp_flows_on_phase(f, e);
  update_pair(s, f, now);
  return changed;
}
