/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/path_health.h"

#include "base/assert.h"
#include "proto/send_parts.h"

/* A path that is silent for so long while another answers goes DOWN; at once if a standby path is to replace
 * it. */
#define PATH_DOWN_NS HARP_MS(30)
/* Intervals between probes of a path that is not UP. */
#define PROBE_FIRST_NS HARP_MS(2)  /* the first; each is twice the one before */
#define PROBE_MAX_NS   HARP_MS(50) /* at most, for the first PROBES_OFTEN probes */
#define PROBE_RARE_NS  HARP_SEC(1) /* at most, later, of a standby path, or without messages under way */
enum { PROBES_OFTEN = 100 };
/* Interval of probes on a path that is idle while there is work: they keep its RTT and state fresh. */
#define IDLE_PROBE_NS    HARP_MS(500)
#define STANDBY_PROBE_NS HARP_SEC(5)
/* Probe timeouts in a row. */
enum {
  DRAIN_PTOS = 2, /* the path is drained where others progress */
  /* Each gives up the whole flight, so that its ring cannot fill with probes; sooner if it is full already,
   * since the probe needs a record too. */
  GIVE_UP_PTOS = 6,
};

static uint64_t bit_of(const struct harp_path *p) {
  return 1ull << p->index;
}

static bool is_in_use(const struct harp_path *p) {
  return p->state == HARP_PATH_UP || p->state == HARP_PATH_NEW;
}

static bool has_work(const struct harp_sender *s) {
  return s->load.messages;
}

/* ---- states ---- */

/* Takes out the paths that make a detour at the receiver while others between the same ENIs do not. */
static void avoid_detours(struct harp_sender *s) {
  uint64_t straight = 0; /* pairs of ENIs that have an eligible path without, a bit each */
  HARP_EACH_BIT (i, s->eligible) {
    const struct harp_path *p = &s->paths[i];
    if (!p->detour) straight |= 1ull << p->pair;
  }
  HARP_EACH_BIT (i, s->eligible) {
    const struct harp_path *p = &s->paths[i];
    if (p->detour && straight >> p->pair & 1) s->eligible &= ~bit_of(p);
  }
}

/* Returns how many paths between two ENIs are in use, at least 1. Paths with a detour count only where there
 * are no others: else they carry nothing. */
static unsigned in_use(const struct harp_sender *s, const struct harp_flows *f) {
  unsigned straight = 0, all = 0;
  HARP_EACH_BIT (i, f->paths) {
    const struct harp_path *p = &s->paths[i];
    all += is_in_use(p), straight += is_in_use(p) && !p->detour;
  }
  return HARP_MAX(straight ? straight : all, 1u);
}

/* Notes how many paths share a queue, as far as is known: those that paid have one each. */
static void note_sharers(struct harp_sender *s, const struct harp_flows *f) {
  unsigned count = in_use(s, f);
  HARP_ASSERT(f->proven);
  HARP_EACH_BIT (i, f->paths) {
    struct harp_path *p = &s->paths[i];
    p->cc.sharers = (count + f->proven - 1) / f->proven;
  }
}

/* Works out anew which paths may carry data. */
static void choose_eligible(struct harp_sender *s) {
  uint64_t standby = 0;
  uint32_t locals = 0, remotes = 0; /* ENIs with a primary path that is UP, a bit each */
  s->eligible = 0;
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    if (p->state != HARP_PATH_UP) continue;
    if (p->standby) {
      standby |= bit_of(p);
      continue;
    }
    s->eligible |= bit_of(p);
    locals |= 1u << p->local_eni, remotes |= 1u << p->remote_eni;
  }
  HARP_EACH_BIT (i, standby) {
    const struct harp_path *p = &s->paths[i];
    if (!(locals >> p->local_eni & 1) && !(remotes >> p->remote_eni & 1)) s->eligible |= bit_of(p);
  }
  avoid_detours(s);
  harp_sender_choose_carriers(s);
}

/* Reports a change of state to the recorder and the statistics. The engine sees by these counters that it is
 * to look for outages of interfaces. */
static void report_state(struct harp_sender *s, const struct harp_path *p, enum harp_path_state to,
                         harp_ns now) {
  struct harp_trace_entry entry = {.event = HARP_EVENT_PATH_STATE, .path = p->index, .a = p->state, .b = to};
  harp_trace(s->trace, now, entry);
  if (to == HARP_PATH_DOWN) s->counters->path_down++;
  if (p->state == HARP_PATH_DOWN) s->counters->path_up++;
}

/* The one transition function of a path: NEW -> UP, UP -> DOWN, DOWN -> UP; to DORMANT and from there to
 * NEW. */
static void move_to(struct harp_sender *s, struct harp_path *p, enum harp_path_state to, harp_ns now) {
  static const bool allowed[4][4] = {
      [HARP_PATH_NEW] = {[HARP_PATH_UP] = true, [HARP_PATH_DORMANT] = true},
      [HARP_PATH_UP] = {[HARP_PATH_DOWN] = true, [HARP_PATH_DORMANT] = true},
      [HARP_PATH_DOWN] = {[HARP_PATH_UP] = true},
      [HARP_PATH_DORMANT] = {[HARP_PATH_NEW] = true},
  };
  HARP_ASSERT(allowed[p->state][to]);
  report_state(s, p, to, now);
  p->state = to;
  choose_eligible(s);
}

void harp_path_health_want_probe(struct harp_sender *s, struct harp_path *p, bool wanted) {
  HARP_ASSERT(!wanted || p->state != HARP_PATH_DORMANT);
  p->probe_due = wanted;
  s->probes_due = wanted ? s->probes_due | bit_of(p) : s->probes_due & ~bit_of(p);
}

void harp_path_health_note_size(struct harp_sender *s, const struct harp_path *p) {
  s->sizing = p->size_probe_ns == HARP_NEVER ? s->sizing & ~bit_of(p) : s->sizing | bit_of(p);
}

static void restart_size(struct harp_sender *s, struct harp_path *p) {
  harp_path_restart_size(p);
  harp_path_health_note_size(s, p);
}

static void give_up(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  struct harp_loss_result r = {0};
  harp_loss_give_up(p, &r, s->trace, now);
  if (p->state != HARP_PATH_UP && p->state != HARP_PATH_DORMANT) return;
  s->counters->lost_packets += r.lost_packets;
  p->lost_packets += r.lost_packets;
}

static void begin_probing(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  HARP_ASSERT(p->state == HARP_PATH_NEW || p->state == HARP_PATH_DOWN);
  p->proof_number = p->next_number;
  p->probe_count = 0;
  p->probed_ns = now;
  harp_path_health_want_probe(s, p, true);
  harp_path_health_touch(s, p);
}

static void restart_window(struct harp_path *p) {
  harp_cc_init(&p->cc, p->cc.ops, p->cc.packet_bytes, p->cc.window_max_bytes, p->cc.sharers);
  harp_path_restart_speed(p);
}

/* ---- which are in use ---- */

/* Puts a dormant path to use: it is NEW and probed. */
static void wake(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  give_up(s, p, now);
  move_to(s, p, HARP_PATH_NEW, now);
  p->pto_count = 0;
  p->drained = false;
  begin_probing(s, p, now);
}

static void make_dormant(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  harp_path_health_want_probe(s, p, false);
  move_to(s, p, HARP_PATH_DORMANT, now);
  if (harp_path_pto_ns(p) <= now) give_up(s, p, now); /* or the timer would be due already */
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
    uint64_t bit = bit_of(p);
    if (p->state == HARP_PATH_UP && !p->pto_count)
      *(p->detour ? &c.detours : &c.straight) |= bit;
    else if (p->state == HARP_PATH_NEW)
      *(p->probe_count < DRAIN_PTOS ? &c.tried : &c.silent) |= bit;
    else if (p->state == HARP_PATH_DORMANT)
      *(p->detour ? &c.dormant_detours : &c.dormant) |= bit;
  }
  return c;
}

/* Wakes up to so many of the paths, the first ones; returns how many are left to be woken. */
static unsigned wake_some(struct harp_sender *s, uint64_t among, unsigned most, harp_ns now) {
  for (; among && most; among &= among - 1, most--) wake(s, &s->paths[__builtin_ctzll(among)], now);
  return most;
}

/* Makes all of the paths dormant but the first few; returns how many of these are missing. */
static unsigned make_dormant_but(struct harp_sender *s, uint64_t among, unsigned but, harp_ns now) {
  HARP_EACH_BIT (i, among) {
    if (but)
      but--;
    else
      make_dormant(s, &s->paths[i], now);
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
  unsigned count = in_use(s, f);
  HARP_EACH_BIT (i, f->paths) {
    struct harp_path *p = &s->paths[i];
    if (!is_in_use(p)) continue;
    if (p->state == HARP_PATH_NEW) {
      restart_window(p);
      p->cc.slow_start = !answered;
    }
    harp_cc_set_window(&p->cc, bytes / count);
    harp_path_note_speed(p);
  }
}

/* Wakes paths when fewer answer, or were probed just now, than are wanted. */
static void wake_missing(struct harp_sender *s, const struct harp_flows *f, const struct condition *c,
                         harp_ns now) {
  unsigned straight = harp_popcount(c->straight | c->tried);
  if (straight >= f->wanted) return;
  unsigned missing = wake_some(s, c->dormant, f->wanted - straight, now);
  unsigned detours = harp_popcount(c->detours);
  if (missing > detours) wake_some(s, c->dormant_detours, missing - detours, now);
}

/* Makes paths dormant where more answer than are wanted. */
static void make_surplus_dormant(struct harp_sender *s, const struct harp_flows *f, const struct condition *c,
                                 harp_ns now) {
  if (harp_popcount(c->straight | c->detours) < f->wanted) return;
  unsigned missing = make_dormant_but(s, c->straight, f->wanted, now);
  make_dormant_but(s, c->detours, missing, now);
  if (!missing) make_dormant_but(s, c->tried | c->silent, 0, now);
}

/* Wakes paths between two ENIs and makes others dormant until as many answer as are wanted. What they may
 * have in flight stays the same. */
static void settle(struct harp_sender *s, const struct harp_flows *f, harp_ns now) {
  HARP_ASSERT(f->wanted && f->wanted <= f->count);
  if (f->count == 1) return;
  struct condition c = condition_of(s, f);
  unsigned count = in_use(s, f);
  uint64_t bytes = window_sum(s, f);
  wake_missing(s, f, &c, now);
  make_surplus_dormant(s, f, &c, now);
  note_sharers(s, f);
  if (in_use(s, f) != count) divide_window(s, f, bytes, c.straight | c.detours);
}

void harp_path_health_note_detour(struct harp_sender *s, struct harp_path *p, bool detour, harp_ns now) {
  if (harp_likely(p->detour == detour)) return;
  p->detour = detour;
  choose_eligible(s);
  settle(s, &s->flows[p->pair], now);
}

void harp_path_health_init(struct harp_sender *s, harp_ns now) {
  s->eligible = s->probes_due = s->sizing = s->tcp = s->avoided = 0;
  for (unsigned i = 0; i < s->path_count; i++)
    if (s->paths[i].is_tcp) s->tcp |= 1ull << i;
  s->blocked = s->tcp;
  harp_sender_choose_carriers(s);
  s->timers_ns = HARP_NEVER;
  for (unsigned i = 0; i < s->path_count; i++) {
    struct harp_path *p = &s->paths[i];
    if (s->flows[p->pair].paths & (bit_of(p) - 1))
      move_to(s, p, HARP_PATH_DORMANT, now);
    else
      begin_probing(s, p, now);
  }
  for (unsigned i = 0; i < s->pair_count; i++) note_sharers(s, &s->flows[i]);
  for (unsigned i = 0; i < s->path_count; i++) restart_window(&s->paths[i]);
}

/* Probes the idle standby paths over the same ENIs, which may have failed with it. Paths that carry data need
 * no probe. */
static void probe_standby(struct harp_sender *s, const struct harp_path *p) {
  for (unsigned i = 0; i < s->path_count; i++) {
    struct harp_path *q = &s->paths[i];
    bool shares_eni = q->local_eni == p->local_eni || q->remote_eni == p->remote_eni;
    bool carries = s->eligible & bit_of(q) || q->inflight_bytes;
    if (shares_eni && q->state == HARP_PATH_UP && !carries) harp_path_health_want_probe(s, q, true);
  }
}

void harp_path_health_down(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  if (p->state != HARP_PATH_UP) {
    p->proof_number = p->next_number; /* what was sent on it before proves nothing any more */
    return;
  }
  probe_standby(s, p);
  give_up(s, p, now);
  move_to(s, p, HARP_PATH_DOWN, now);
  if (s->path_count > 1) restart_size(s, p);
  begin_probing(s, p, now);
  settle(s, &s->flows[p->pair], now);
  harp_path_health_touch(s, p);
}

/* A path answers again after all were silent: probes the others, which may answer again too. */
static void probe_silent(struct harp_sender *s) {
  for (unsigned i = 0; i < s->path_count; i++) {
    struct harp_path *q = &s->paths[i];
    if (q->state != HARP_PATH_DORMANT && harp_path_silent(q) && !harp_flight_full(&q->flight))
      harp_path_health_want_probe(s, q, true);
  }
}

void harp_path_health_on_answer(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  bool was_poor = p->pto_count || p->state != HARP_PATH_UP;
  p->last_ack_ns = p->pto_from_ns = now;
  p->pto_count = 0;
  p->drained = false;
  if (harp_unlikely(p->probe_due)) {
    harp_path_health_want_probe(s, p, false);
    harp_path_health_touch(s, p);
  }
  if (harp_unlikely(p->state != HARP_PATH_UP)) {
    if (p->state == HARP_PATH_DOWN) restart_window(p);
    move_to(s, p, HARP_PATH_UP, now);
    harp_path_health_touch(s, p);
  }
  if (harp_unlikely(s->stalled_since_ns)) {
    s->stalled_since_ns = 0;
    probe_silent(s);
  }
  if (harp_unlikely(was_poor)) settle(s, &s->flows[p->pair], now);
}

/* Reports what was acknowledged on a path to the flows of its pair of ENIs. */
static void note_flow(struct harp_sender *s, const struct harp_path *p, const struct harp_cc_sample *sample) {
  struct harp_flows *f = &s->flows[p->pair];
  bool busy = false;
  HARP_EACH_BIT (i, f->paths & s->eligible) {
    busy = s->paths[i].inflight_bytes;
    if (busy) break;
  }
  harp_flows_on_acked(f, sample->acked_bytes, busy, sample->now);
  if (!sample->round_end) return;
  bool held_back = harp_cc_held_back(&p->cc, sample);
  if (harp_flows_on_round(f, held_back, p->rtt.smoothed_ns, sample->now)) settle(s, f, sample->now);
}

/* Traces a cut of the window by more than an eighth; the trace of acknowledgements shows smaller ones. */
static void trace_window_cut(const struct harp_sender *s, const struct harp_path *p, uint32_t from_bytes,
                             harp_ns now) {
  if (harp_likely(p->cc.window_bytes >= from_bytes - from_bytes / 8)) return;
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_WINDOW,
                                       .path = p->index,
                                       .a = p->cc.window_bytes,
                                       .b = (uint32_t)(p->rtt.smoothed_ns / HARP_US(1))});
}

void harp_path_health_account(struct harp_sender *s, struct harp_path *p, const struct harp_loss_result *r,
                              uint32_t inflight_bytes, harp_ns rtt_ns, harp_ns now) {
  s->counters->spurious_losses += r->spurious_packets;
  s->counters->lost_packets += r->lost_packets;
  p->lost_packets += r->lost_packets;
  if (!r->acked_bytes && !r->lost_bytes) return;
  struct harp_cc_sample sample = {
      .now = now,
      .rtt_ns = rtt_ns,
      .rtt_min_ns = p->rtt.min_ns,
      .acked_bytes = r->acked_bytes,
      .lost_bytes = r->lost_bytes,
      .inflight_bytes = inflight_bytes,
      .peer_limited = p->to->inflight_bytes + r->acked_bytes >= p->to->bytes / 2,
      .round_end = r->advanced && p->largest_acked >= p->round_end_number,
  };
  if (p->is_tcp) harp_tcp_speeds_on_flight(&s->speeds, r->flight_bytes, rtt_ns);
  if (sample.round_end) harp_path_on_round(p);
  if (s->pair_count < s->path_count) note_flow(s, p, &sample);
  uint32_t window = p->cc.window_bytes;
  p->cc.ops->on_ack(&p->cc, &sample);
  trace_window_cut(s, p, window, now);
}

/* ---- timers ---- */

static harp_ns probe_interval_ns(const struct harp_sender *s, const struct harp_path *p) {
  harp_ns most_ns =
      !has_work(s) || p->standby || p->probe_count >= PROBES_OFTEN ? PROBE_RARE_NS : PROBE_MAX_NS;
  return HARP_MIN(PROBE_FIRST_NS << HARP_MIN(p->probe_count, 10u), most_ns);
}

/* Returns when the path needs attention by time alone. */
static harp_ns timer_ns(const struct harp_sender *s, const struct harp_path *p) {
  if (p->state == HARP_PATH_DORMANT)
    return p->inflight_bytes ? HARP_MIN(p->loss_deadline_ns, harp_path_pto_ns(p)) : HARP_NEVER;
  if (p->state != HARP_PATH_UP)
    return p->probe_due && !p->blocked ? HARP_NEVER : p->probed_ns + probe_interval_ns(s, p);
  /* A probe that is due leaves at once, but on a path that takes nothing. */
  if (p->probe_due && !p->blocked) return p->loss_deadline_ns;
  if (harp_path_owes(p)) return HARP_MIN(p->loss_deadline_ns, harp_path_pto_ns(p));
  if (s->path_count == 1 || !has_work(s)) return HARP_NEVER;
  return p->last_ack_ns + (s->eligible & bit_of(p) ? IDLE_PROBE_NS : STANDBY_PROBE_NS);
}

void harp_path_health_touch(struct harp_sender *s, const struct harp_path *p) {
  s->timers_ns = HARP_MIN(s->timers_ns, timer_ns(s, p));
}

/* Whether another path had something acknowledged that was sent after this one fell silent: then the peer is
 * reachable. */
static bool others_progress(const struct harp_sender *s, const struct harp_path *p) {
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *q = &s->paths[i];
    if (q != p && q->state == HARP_PATH_UP && q->any_acked && !harp_path_silent(q) &&
        q->rack_sent_ns > p->silent_ns)
      return true;
  }
  return false;
}

static bool all_silent(const struct harp_sender *s) {
  for (unsigned i = 0; i < s->path_count; i++) {
    if (!harp_path_silent(&s->paths[i])) return false;
  }
  return true;
}

static void note_stall(struct harp_sender *s, harp_ns now) {
  if (!s->stalled_since_ns && has_work(s) && all_silent(s)) s->stalled_since_ns = now;
}

/* Probes the other paths that have nothing in flight: whether they answer shows whether the peer is there. At
 * the first timeout, which a peer that is only slow causes too, those that carry no data are left alone. */
static void probe_idle(struct harp_sender *s, const struct harp_path *p) {
  uint64_t among = p->pto_count < DRAIN_PTOS ? s->eligible : ~0ull;
  for (unsigned i = 0; i < s->path_count; i++) {
    struct harp_path *q = &s->paths[i];
    if (q == p || q->state != HARP_PATH_UP || harp_path_owes(q) || !(among & bit_of(q))) continue;
    if (!harp_flight_full(&q->flight)) harp_path_health_want_probe(s, q, true);
  }
}

void harp_path_health_probe_quiet(struct harp_sender *s, harp_ns quiet_ns, harp_ns now) {
  uint32_t checked = 0; /* ENIs of ours over which packets came or that are about to be probed, a bit each */
  for (unsigned i = 0; i < s->path_count; i++) {
    const struct harp_path *p = &s->paths[i];
    if (p->state == HARP_PATH_UP && (p->inflight_bytes || now - p->last_ack_ns < quiet_ns))
      checked |= 1u << p->local_eni;
  }
  for (unsigned i = 0; i < s->path_count; i++) {
    struct harp_path *p = &s->paths[i];
    if (p->state != HARP_PATH_UP || checked >> p->local_eni & 1) continue;
    harp_path_health_want_probe(s, p, true);
    checked |= 1u << p->local_eni;
  }
}

static void shrink(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  uint32_t lines = p->lines;
  if (!harp_path_shrink(p, now)) return;
  harp_path_health_note_size(s, p);
  harp_trace(
      s->trace, now,
      (struct harp_trace_entry){.event = HARP_EVENT_PATH_SIZE, .path = p->index, .a = lines, .b = p->lines});
}

/* Whether no other path may carry data until this one is DOWN: none that may answers, nor one between the
 * same ENIs. */
static bool standby_is_needed(const struct harp_sender *s, const struct harp_path *p) {
  struct condition pair = condition_of(s, &s->flows[p->pair]);
  if ((pair.straight | pair.detours) & ~bit_of(p)) return false;
  HARP_EACH_BIT (i, s->eligible & ~bit_of(p)) {
    if (!harp_path_silent(&s->paths[i])) return false;
  }
  return (s->eligible & bit_of(p)) != 0;
}

/* Requests an acknowledgement, and gives the path's flight to others where it is in doubt. That of a tcp path
 * is given up only with its connection, when the path goes DOWN; and its flight has room for few probes. */
static void probe_or_drain(struct harp_sender *s, struct harp_path *p, bool elsewhere, harp_ns now) {
  harp_path_health_want_probe(s, p, !p->is_tcp || !harp_flight_full(&p->flight));
  if (p->is_tcp) return;
  if (elsewhere && p->pto_count >= DRAIN_PTOS && !p->drained) {
    p->drained = true;
    restart_size(s, p);
    give_up(s, p, now);
  } else if (p->pto_count >= HARP_PATH_SILENT_PTOS && !p->drained) {
    shrink(s, p, now);
  }
  if (p->pto_count >= GIVE_UP_PTOS || harp_flight_full(&p->flight)) give_up(s, p, now);
}

static void on_pto(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  HARP_ASSERT(p->state == HARP_PATH_UP && p->pto_from_ns <= now);
  harp_trace(s->trace, now,
             (struct harp_trace_entry){.event = HARP_EVENT_PTO,
                                       .path = p->index,
                                       .a = p->pto_count,
                                       .b = (uint32_t)((now - p->pto_from_ns) / HARP_US(1))});
  s->counters->probe_timeouts++;
  p->probe_timeouts++;
  if (!p->pto_count) p->silent_ns = p->pto_from_ns;
  p->pto_count++;
  p->pto_from_ns = now; /* the timeout starts over even if the probe cannot leave at once */
  uint32_t window = p->cc.window_bytes;
  if (p->pto_count == 2) p->cc.ops->on_timeout(&p->cc);
  trace_window_cut(s, p, window, now);
  bool elsewhere = s->path_count > 1 && others_progress(s, p);
  bool long_silent = now - p->silent_ns >= PATH_DOWN_NS || standby_is_needed(s, p);
  if (elsewhere && p->pto_count >= DRAIN_PTOS && long_silent) {
    harp_path_health_down(s, p, now);
    return;
  }
  probe_or_drain(s, p, elsewhere, now);
  if (s->path_count > 1 && !elsewhere) probe_idle(s, p);
  settle(s, &s->flows[p->pair], now);
  note_stall(s, now);
}

/* The next probe of a path that is not UP. */
static void on_probe_time(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  give_up(s, p, now);
  p->probe_count++;
  p->probed_ns = now;
  harp_path_health_want_probe(s, p, true);
  if (p->probe_count >= DRAIN_PTOS) settle(s, &s->flows[p->pair], now);
  if (p->probe_count >= HARP_PATH_SILENT_PTOS) note_stall(s, now);
}

static void on_path_timeout(struct harp_sender *s, struct harp_path *p, harp_ns now) {
  bool carried = p->state == HARP_PATH_UP || p->state == HARP_PATH_DORMANT;
  if (carried && p->loss_deadline_ns <= now) {
    struct harp_loss_result r = {0};
    uint32_t inflight = p->inflight_bytes;
    harp_loss_detect(p, &r, s->trace, now);
    harp_path_health_account(s, p, &r, inflight, 0, now);
  }
  if (timer_ns(s, p) > now) return;
  if (p->state == HARP_PATH_DORMANT)
    give_up(s, p, now);
  else if (p->state != HARP_PATH_UP)
    on_probe_time(s, p, now);
  else if (harp_path_owes(p))
    on_pto(s, p, now);
  else
    harp_path_health_want_probe(s, p, true);
}

void harp_path_health_on_timeout(struct harp_sender *s, harp_ns now) {
  if (harp_likely(s->timers_ns > now)) return;
  for (unsigned i = 0; i < s->path_count; i++) on_path_timeout(s, &s->paths[i], now);
  s->timers_ns = HARP_NEVER;
  for (unsigned i = 0; i < s->path_count; i++)
    s->timers_ns = HARP_MIN(s->timers_ns, timer_ns(s, &s->paths[i]));
}
