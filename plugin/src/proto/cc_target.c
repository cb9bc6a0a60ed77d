/* SPDX-License-Identifier: Apache-2.0 */
/* The default: additive increase, multiplicative decrease on a target delay and on a target loss.
 *
 * Sources: the target delay, its scaling by the window and windows below one packet are Swift's (Kumar et
 * al., SIGCOMM 2020); the drain of the queue is BBR's (draft-ietf-ccwg-bbr); the mode beside flows that fill
 * a queue is Copa's (Arun and Balakrishnan, NSDI 2018); loss is judged by Page's CUSUM test (1954), and
 * counts once for what was sent before the last decrease (RFC 9002, 7.3.2); a window that is not in use does
 * not grow (RFC 7661).
 *
 * Operating point. The window keeps a queue of a quarter of the base RTT up to BASE_SHARE_NS, TARGET_NS, and
 * more for a small window, so that windows become equal; more again for few packets where the queue is known
 * to hold that (few_packets_ns); and loses TOLERATED_Q16 more than the path does by itself. Responses:
 *   1. Growth, once a round while the window is in use: a quarter of a packet for STEP_RTT_NS, less for few
 *      packets; a 128th of the window at most for a base RTT up to SHARE_RTT_NS, more for a longer one.
 *      Slow start doubles, and ends at the target delay or at a loss that counts.
 *   2. Delay: the lowest RTT of DECIDE_NS decides, since hosts delay single rounds; for few packets the
 *      lowest of DECIDE_SAMPLES. RTTs are without what acknowledgements waited (rtt.h): two directions would
 *      take each other's queue for their own. The window shrinks by DELAY_PERCENT of the excess, by half at
 *      most, and by three quarters between two drains. Where that was not enough, and two drains in a row
 *      leave a quarter of the queue, another flow fills it, or the route is longer: delay does not count for
 *      COMPETE_PERIODS; the next drains show a longer route.
 *   3. Loss: when CUSUM finds more than is tolerated, the window shrinks to BETA_PERCENT, or to what came
 *      through. The queue at that moment bounds the target from then on, so that delay acts before a short
 *      queue overflows. Drains let go of that bound; soon where the window is at its least and the queue is
 *      longer all the same, since flows that have not lost know of no bound and would take the rate.
 *   4. Marks (ECN): the share of bytes that came marked is smoothed over MARKED_ROUNDS, and a round with a
 *      mark takes half of that share from the window (DCTCP, RFC 8257). It ends slow start.
 *   5. Drains: at each multiple of their period of the clock that the hosts share all flows
 *      send three quarters of what arrived, for DRAIN_NS; a flow that comes later in the period does not,
 *      since the others do not then. A queue runs empty, a policer passes everything: the RTT and loss that
 *      remain are the path's (rtt.h, base_loss.h), of what was sent in a drain, whenever it is acknowledged.
 *      Where hosts share no clock, the base loss is not used, and TOLERATED_OWN_Q16 is tolerated.
 *   6. A window of less than a packet is kept by the pace: a packet each HARP_CC_LEAST_NS at least. A path
 *      that was idle begins with what that would have let go meanwhile, BUSY_MAX_BYTES at most.
 *   7. The least window follows the RTT: where a pause of a host has raised it, that ends with the pause.
 *
 * In congestion the window stays where growth and decreases are equal: at a loss of 1 % with a window of
 * one to four packets, of 0.5 % with eight, of 0.1 % with 32. base_loss.c relies on that. No timers. */
#include "base/assert.h"
#include "proto/cc.h"
#include "proto/rtt.h"

/* The constants. "Model" means a value of our own, set by the model networks of docs/reference/networks.md.
 *
 * Constant              value          effect, and source or reason */

/* The target delay. */
#define TARGET_NS      HARP_US(50)  /* the queue at the operating point: most delays of hosts are shorter */
#define BASE_SHARE_NS  HARP_US(50)  /* the most queue for a long RTT: flows with a short one keep a share */
#define SCALING_NS     HARP_US(100) /* the queue added for a window of 32 KiB, by its root (Swift) */
#define SCALING_MAX_NS HARP_US(400) /* the most queue added so: 255 flows of an incast (model) */
#define SHALLOW_MIN_NS HARP_US(64)  /* a shorter queue at a loss does not bound the target (model) */
#define SHALLOW_MAX_NS HARP_MS(1)   /* a longer one does not, either (model) */
#define ROOM_MIN_NS    HARP_MS(4)   /* a longer queue is that of a low rate: switches hold some MiB */
#define ROOM_MAX_NS    HARP_MS(16)  /* the most of a long queue that is used (model) */
#define DECIDE_NS      HARP_US(500) /* the time of a decision: longer than a pause of a host, 20 to 300 us */
#define RTT_MAX_NS     HARP_MS(100) /* a longer RTT counts as this */
enum {
  DELAY_PERCENT = 80, /* a decrease takes this part of the excess of the RTT (Swift's beta) */
  DECIDE_SAMPLES = 8, /* the RTTs for a decision with a window of less than MANY_PACKETS (model) */
  SAMPLES_MIN = 4,    /* the RTTs for a round with a window of less than FEW_PACKETS (model) */
  FEW_PACKETS = 8,
  MANY_PACKETS = 24, /* with so many a pause of a host leaves the link busy, and acknowledgements are few */
  ROOM_SHARE = 3, /* the part of a long queue beyond ROOM_MIN_NS that a window of few packets uses (model) */
  COMPETE_PERIODS = 16, /* delay does not count beside others for so many periods: 2 s */
};

/* Growth and bursts. */
#define STEP_RTT_NS    HARP_US(256) /* a step of growth is for so long: flows of all RTTs grow alike */
#define SHARE_RTT_NS   HARP_MS(2)   /* a longer base RTT raises the bound of growth in proportion (model) */
#define SHARE_MAX_NS   HARP_MS(16)  /* it does up to this: eight times the bound, 1/16 of the window */
#define BURST_NS       HARP_US(40)  /* the most of the window's rate in one burst; a quarter at most */
#define BURST_SHORT_NS HARP_US(10)  /* the same after a loss or a mark, since queues may be short */
#define SHORT_FOR_NS   HARP_SEC(2)  /* bursts stay short for so long after it */
enum {
  FAST_SHARE = 64,            /* the part of the window that a round well below the ceiling adds (model) */
  STARVED_SHARE = 32,         /* the same of a window below half a packet, which no congestion needs */
  BUSY_PACKETS = 8,           /* a smaller window grows by the time without packets that has passed */
  BUSY_MAX_BYTES = 32 * 1024, /* it grows up to this */
};

/* Loss. */
enum {
  BETA_PERCENT = 80,         /* what a loss leaves of the window: policers stay 0.9 full (RFC 9438: 70) */
  TOLERATED_Q16 = 262,       /* 0.4 %: the loss without a response, beside 5/4 of the base loss (model) */
  TOLERATED_OWN_Q16 = 983,   /* 1.5 %: the same where hosts share no clock; 1 % of random loss is borne */
  TOLERATED_MAX_Q16 = 49152, /* 75 %: the most loss without a response */
  TIMEOUTS_Q16 = 8192,       /* 12.5 %: timeouts do not count from this base loss on */
  EXCESS_SHARE = 512,        /* the part of a window, or 4 packets, whose excess counts without a base loss */
  EXCESS_OWN_MAX = 6,        /* the packets of excess that count where hosts share no clock */
  EXCESS_KNOWN_MIN = 4,    /* the packets of excess that count beside a base loss, which is a rough value, */
  EXCESS_KNOWN_MAX = 12,   /* those with a window of 24 or more, */
  EXCESS_KNOWN_SHARE = 32, /* or this part of the window */
  FORGET_SHARE = 2,        /* each drain raises the bound of rule 3 by this part of it */
};

/* Marks (RFC 8257). */
enum {
  MARKED_ROUNDS = 16,     /* the rounds over which the share of marked bytes is smoothed: g is 1/16 */
  MARKED_MIN_PACKETS = 2, /* marks leave so many: a network may mark all (RFC 8257, 3.5) */
};

/* Drains. cc.h has their period. */
#define DRAIN_NS HARP_MS(4)  /* the length of a drain: longer than clocks differ, 3 ms */
#define EMPTY_NS HARP_US(10) /* another flow fills a queue if a drain leaves more, and EMPTY_PACKETS */
enum {
  DRAIN_RTTS = 16,   /* the least period of drains in base RTTs: they take a fifth of the time */
  DRAIN_ROUNDS = 3,  /* the least rounds of a drain; the first two show packets that were sent before it */
  EMPTY_PACKETS = 2, /* the time of so many packets at the rate before the drain, half an RTT at most */
};

/* ---- windows ---- */

/* Returns the least window: a packet each HARP_CC_LEAST_NS. */
static uint64_t least_q8(const struct harp_cc *cc) {
  return HARP_MAX((uint64_t)cc->packet_bytes * 256 * cc->target.rtt_ns / HARP_CC_LEAST_NS, 256u);
}

static void set_window(struct harp_cc *cc, uint64_t window_q8) {
  uint64_t most_q8 = (uint64_t)cc->window_max_bytes << 8;
  uint64_t floor_q8 = least_q8(cc);
  cc->target.raised_from_q8 = window_q8;
  cc->target.raised_to_q8 = window_q8 < floor_q8 ? floor_q8 : 0;
  cc->window_q8 = HARP_MIN(HARP_MAX(window_q8, floor_q8), most_q8);
  cc->window_bytes = (uint32_t)(cc->window_q8 >> 8);
}

static void target_init(struct harp_cc *cc) {
  cc->target.loss_queue_ns = cc->target.lowest_ns = HARP_NEVER;
  cc->target.marked_q16 = 1u << 16; /* RFC 8257, 3.3: the first mark counts in full */
  harp_base_loss_restart(&cc->target.base_loss);
}

/* Returns the square root: two steps of Newton's method from a power of two, to 1 %. */
static uint32_t root_of(uint32_t n) {
  n |= 1;
  uint32_t r = 1u << (32 - (unsigned)__builtin_clz(n)) / 2;
  r = (r + n / r) / 2;
  return (r + n / r) / 2;
}

/* Returns the queue that a window of few packets may have in addition. At 100 Mbit/s a packet takes 120 us:
 * the other terms leave two or three packets, which are sent while a host pauses, and each of which would be
 * acknowledged by itself. A sender can tell this case from its share of an incast only by a queue of many
 * milliseconds. */
static harp_ns few_packets_ns(const struct harp_cc *cc) {
  harp_ns room_ns = HARP_MIN(cc->target.room_ns, ROOM_MAX_NS);
  uint32_t many_bytes = MANY_PACKETS * cc->packet_bytes, bytes = cc->window_bytes * cc->sharers;
  if (room_ns <= ROOM_MIN_NS || bytes >= many_bytes) return 0;
  return (room_ns - ROOM_MIN_NS) / ROOM_SHARE * (many_bytes - bytes) / many_bytes;
}

/* Returns how much of a queue that lost packets may be in use: 13/32 to 19/32, more for smaller windows. With
 * one share for all two flows took turns with most of the rate, for half a second each. */
static harp_ns shallow_ns(harp_ns loss_queue_ns, harp_ns scaling_ns) {
  harp_ns share_ns = loss_queue_ns * 13 / 32 + loss_queue_ns * scaling_ns / SCALING_MAX_NS;
  return HARP_MIN(share_ns, loss_queue_ns * 19 / 32);
}

/* Returns the RTT at the operating point. */
static harp_ns target_ns(const struct harp_cc *cc, harp_ns base_ns) {
  harp_ns share_ns = HARP_MIN(base_ns / 4, BASE_SHARE_NS);
  harp_ns loss_queue_ns = cc->target.loss_queue_ns;
  uint32_t root = HARP_MAX(root_of(cc->window_bytes * cc->sharers), 1u);
  harp_ns scaling_ns = HARP_MIN(SCALING_NS * 181 / root, SCALING_MAX_NS);
  harp_ns queue_ns = TARGET_NS + scaling_ns + few_packets_ns(cc);
  if (loss_queue_ns == HARP_NEVER) return base_ns + share_ns + queue_ns;
  queue_ns = HARP_MIN(queue_ns, loss_queue_ns / 5 + loss_queue_ns * 5 / 4 * scaling_ns / SCALING_MAX_NS);
  queue_ns = HARP_MIN(share_ns + queue_ns, HARP_MAX(queue_ns, shallow_ns(loss_queue_ns, scaling_ns)));
  return base_ns + queue_ns;
}

static void remember_ceiling(struct harp_cc *cc) {
  cc->target.ceiling_bytes = cc->window_bytes;
  cc->slow_start = false;
}

/* ---- growth ---- */

/* Returns which part of a window a round of a short RTT adds at most: a 128th, less where packets are few,
 * since many flows together must not grow by more than their queue holds. Below a packet its root, which
 * still makes windows equal. */
static uint32_t growth_share(const struct harp_cc *cc) {
  uint32_t packets_q8 = (uint32_t)HARP_MIN(cc->window_q8 / cc->packet_bytes, 1u << 20);
  if (packets_q8 < 128) return STARVED_SHARE;
  if (packets_q8 < 256) return root_of(packets_q8 << 8);
  return packets_q8 < 1024 ? 256 - (packets_q8 - 256) / 6 : 128;
}

/* Returns the most that a round adds. With a long RTT rounds are few: a window that grows by a 128th would
 * take half a minute to double. */
static uint64_t step_max_q8(const struct harp_cc *cc) {
  harp_ns rtt_ns = HARP_MIN(HARP_MAX(cc->target.base_ns, SHARE_RTT_NS), SHARE_MAX_NS);
  return cc->window_q8 / growth_share(cc) * rtt_ns / SHARE_RTT_NS;
}

static bool is_below_ceiling(const struct harp_cc *cc) {
  return cc->window_bytes < cc->target.ceiling_bytes - cc->target.ceiling_bytes / 10;
}

/* Returns whether the window limits the path: it was in use, and at least 4/7 of it was settled in the round.
 * With a known base loss, at least 4/5 of a large window: losses do not shrink it then, and neither does
 * delay where messages end and the queue runs empty, so that at 10 % of loss the queue grew to four times the
 * target. */
static bool is_in_use(const struct harp_cc *cc) {
  bool is_unbounded = !cc->slow_start && cc->window_bytes >= MANY_PACKETS * cc->packet_bytes &&
                      harp_base_loss_is_known(&cc->target.base_loss);
  uint32_t settled_bytes = cc->round_acked_bytes + cc->round_lost_bytes;
  return cc->round_limited && 4 * cc->window_bytes <= (is_unbounded ? 5 : 7) * settled_bytes;
}

/* Returns what a round adds to the window. */
static uint64_t step_q8(const struct harp_cc *cc) {
  uint64_t window_q8 = cc->window_q8, packet_q8 = (uint64_t)cc->packet_bytes << 8;
  if (cc->slow_start) return window_q8;
  if (cc->target.base_loss.is_trial) return (window_q8 / FAST_SHARE + 1) * cc->target.rounds;
  if (window_q8 >= 16 * packet_q8 && is_below_ceiling(cc) && !cc->target.was_mark)
    return window_q8 / FAST_SHARE + 1;
  uint64_t step = packet_q8 / 4 * HARP_MAX(cc->target.rtt_ns, STEP_RTT_NS) / STEP_RTT_NS;
  if (cc->target.was_delay) step *= 4;                              /* no loss is near */
  if (!cc->target.was_mark) step = HARP_MIN(step, step_max_q8(cc)); /* marks bound the queue */
  step = HARP_MAX(step, window_q8 / 1024);
  return (step / cc->sharers + 1) * cc->target.rounds;
}

/* ---- loss ---- */

static uint32_t tolerated_q16(const struct harp_cc *cc) {
  uint32_t base_q16 = cc->target.base_loss.share_q16;
  if (cc->target.clock.is_own) return TOLERATED_OWN_Q16;
  return HARP_MIN(TOLERATED_Q16 + base_q16 + base_q16 / 4, TOLERATED_MAX_Q16 + 0u);
}

/* Returns how many bytes may be lost beyond what is tolerated: one packet to four by the window, more of a
 * very large one, which loses so many by chance; more where the path loses by itself, since the estimate is
 * rough. */
static uint32_t excess_max_bytes(const struct harp_cc *cc) {
  uint32_t packet = cc->packet_bytes, window = cc->window_bytes;
  if (cc->target.clock.is_own) return HARP_MAX(HARP_MIN(window / 8, EXCESS_OWN_MAX * packet), packet);
  if (harp_base_loss_is_known(&cc->target.base_loss)) {
    uint32_t most = HARP_MAX(EXCESS_KNOWN_MAX * packet, window / EXCESS_KNOWN_SHARE);
    return HARP_MAX(HARP_MIN(window / 2, most), EXCESS_KNOWN_MIN * packet);
  }
  uint32_t most = HARP_MAX(4 * packet, window / EXCESS_SHARE);
  return HARP_MAX(HARP_MIN(window / 16, most), packet) - packet / 2;
}

/* Shrinks the window for loss. */
static void decrease_for_loss(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  uint64_t settled = (uint64_t)cc->round_acked_bytes + cc->round_lost_bytes;
  uint64_t keep_q10 = BETA_PERCENT * 1024 / 100;
  if (cc->round_lost_bytes > 4 * cc->packet_bytes)
    keep_q10 = HARP_MAX(HARP_MIN(keep_q10, cc->round_acked_bytes * 1024ull / settled), 256u);
  bool was_slow_start = cc->slow_start;
  if (t->queue_max_ns >= SHALLOW_MIN_NS) t->loss_queue_ns = t->queue_max_ns;
  t->room_ns = HARP_MIN(t->room_ns, t->queue_max_ns);
  remember_ceiling(cc);
  if (was_slow_start) t->ceiling_bytes = (uint32_t)(t->ceiling_bytes * keep_q10 >> 10);
  set_window(cc, cc->window_q8 * keep_q10 >> 10);
  t->hold_rounds = 2;
  t->excess_bytes = 0;
  t->cut_ns = s->now;
  t->was_delay = t->was_mark = false;
}

/* Returns whether a packet sent then was sent in a drain, after the queue that stood before it had gone. */
static bool is_of_drain(const struct harp_cc *cc, harp_ns sent_ns) {
  const struct harp_cc_target *t = &cc->target;
  return t->is_drain_open && sent_ns >= t->drain_empty_ns && sent_ns < t->drain_to_ns;
}

static unsigned part_of_drain(const struct harp_cc *cc, harp_ns sent_ns) {
  harp_ns part = (sent_ns - cc->target.drain_began_ns) / (DRAIN_NS / HARP_BASE_LOSS_PARTS);
  return (unsigned)HARP_MIN(part, (harp_ns)HARP_BASE_LOSS_PARTS - 1);
}

/* Random loss is known now: earlier decreases were wrong. */
static void base_loss_changed(struct harp_cc *cc, bool was_believed) {
  if (!was_believed && harp_base_loss_is_believed(&cc->target.base_loss)) cc->slow_start = true;
}

/* Feeds the search for a base loss. */
static void account_base_loss(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  harp_ns acked_sent_ns = s->now - HARP_MIN(s->now, t->rtt_ns);
  bool was_believed = harp_base_loss_is_believed(&t->base_loss);
  uint32_t acked_bytes = s->acked_bytes, lost_bytes = s->lost_bytes;
  if (acked_bytes && is_of_drain(cc, acked_sent_ns)) {
    harp_base_loss_on_drained(&t->base_loss, part_of_drain(cc, acked_sent_ns), acked_bytes, 0);
    acked_bytes = 0;
  }
  if (lost_bytes && is_of_drain(cc, s->lost_sent_ns)) {
    harp_base_loss_on_drained(&t->base_loss, part_of_drain(cc, s->lost_sent_ns), 0, lost_bytes);
    lost_bytes = 0;
  }
  if (lost_bytes && s->lost_sent_ns <= t->cut_ns) return;
  if (t->drain_from_ns || t->hold_rounds) return;
  struct harp_base_loss_sample settled = {
      .now = s->now,
      .packet_bytes = cc->packet_bytes,
      .acked_bytes = acked_bytes,
      .lost_bytes = lost_bytes,
      .window_q8 = cc->window_q8,
      .is_below_ceiling = !cc->slow_start && !t->was_delay && is_below_ceiling(cc),
      .is_cut_by_loss = !cc->slow_start && !t->was_delay && !t->clock.is_own,
      .is_lossy_alone = s->is_lossy_alone,
  };
  if (harp_base_loss_on_settled(&t->base_loss, &settled)) base_loss_changed(cc, was_believed);
}

/* Judges a drain whose packets are settled. */
static void judge_drain(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  bool was_believed = harp_base_loss_is_believed(&t->base_loss);
  t->is_judge_due = false;
  if (harp_base_loss_judge_drains(&t->base_loss, cc->packet_bytes, s->now))
    base_loss_changed(cc, was_believed);
}

static void account_loss(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  account_base_loss(cc, s);
  if (t->drain_from_ns || (s->lost_bytes && s->lost_sent_ns <= t->cut_ns)) return;
  uint32_t credit = (uint32_t)((uint64_t)(s->acked_bytes + s->lost_bytes) * tolerated_q16(cc) >> 16);
  t->excess_bytes += s->lost_bytes;
  t->excess_bytes -= HARP_MIN(t->excess_bytes, credit);
  if (s->lost_bytes && t->excess_bytes >= excess_max_bytes(cc)) decrease_for_loss(cc, s);
}

/* ---- delay ---- */

static void decide_by_delay(struct harp_cc *cc, const struct harp_cc_sample *s, harp_ns wanted_ns) {
  struct harp_cc_target *t = &cc->target;
  harp_ns rtt_ns = t->lowest_ns;
  t->lowest_ns = HARP_NEVER;
  t->decide_samples = 0;
  t->decide_at_ns = s->now + HARP_MAX(DECIDE_NS, 2 * t->rtt_ns);
  if (rtt_ns <= wanted_ns || t->compete_periods) return;
  if (cc->window_q8 <= t->floor_q8) {
    t->is_futile = true;
    return;
  }
  uint64_t less_q8 = cc->window_q8 * (rtt_ns - wanted_ns) / rtt_ns * DELAY_PERCENT / 100;
  remember_ceiling(cc);
  t->was_delay = t->is_stale = true;
  t->was_mark = false;
  harp_base_loss_on_queue(&t->base_loss);
  set_window(cc, HARP_MAX(cc->window_q8 - HARP_MIN(less_q8, cc->window_q8 / 2), t->floor_q8));
}

/* Takes the marks of a round into account. Returns whether they keep the window from growing: not where it is
 * at the least that marks leave, or a network that marks all packets would keep a window below that. */
static bool decide_by_marks(struct harp_cc *cc, harp_ns now) {
  struct harp_cc_target *t = &cc->target;
  uint32_t settled = HARP_MAX(cc->round_acked_bytes, 1u), marked = HARP_MIN(t->marked_bytes, settled);
  uint32_t now_q16 = (uint32_t)(((uint64_t)marked << 16) / settled);
  uint64_t least_q8 = (uint64_t)MARKED_MIN_PACKETS * cc->packet_bytes << 8;
  t->marked_q16 += now_q16 / MARKED_ROUNDS - t->marked_q16 / MARKED_ROUNDS;
  t->marked_bytes = 0;
  if (!marked) return false;
  t->marked_ns = now;
  cc->slow_start = false;
  if (cc->window_q8 <= least_q8) return false;
  remember_ceiling(cc);
  t->was_delay = t->was_mark = true;
  harp_base_loss_on_queue(&t->base_loss);
  set_window(cc, HARP_MAX(cc->window_q8 - (cc->window_q8 * t->marked_q16 >> 17), least_q8));
  return true;
}

static void on_round(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  bool is_known = cc->round_rtt_min_ns != HARP_NEVER && s->rtt_min_ns != HARP_NEVER;
  harp_ns wanted_ns = is_known ? target_ns(cc, s->rtt_min_ns) : 0;
  if (is_known) cc->queue_ns = wanted_ns - s->rtt_min_ns;
  bool is_queued = is_known && cc->round_rtt_min_ns > wanted_ns && !t->compete_periods;
  if (is_queued) cc->slow_start = false;
  bool is_marked = (t->marked_bytes || t->marked_q16) && decide_by_marks(cc, s->now);
  if (!is_marked && is_in_use(cc) && !t->hold_rounds && !is_queued)
    set_window(cc, cc->window_q8 + step_q8(cc));
  if (!is_known) return;
  if (!t->is_stale) {
    t->lowest_ns = HARP_MIN(t->lowest_ns, cc->round_rtt_min_ns);
    t->decide_samples += t->samples;
  }
  t->is_stale = false;
  bool is_enough = t->decide_samples >= DECIDE_SAMPLES || cc->window_bytes >= MANY_PACKETS * cc->packet_bytes;
  if (s->now >= t->decide_at_ns && t->lowest_ns != HARP_NEVER && is_enough) decide_by_delay(cc, s, wanted_ns);
}

/* ---- drains ---- */

/* Returns the period of drains: DRAIN_RTTS base RTTs at least, so that drains take a fifth of the time, where
 * no other flow fills the queue. Each period is a multiple of all shorter ones: paths with unlike round trips
 * that share a queue drain at common moments. */
static harp_ns period_ns(const struct harp_cc *cc) {
  harp_ns every_ns = HARP_DRAIN_EVERY_NS;
  if (cc->target.was_filled || cc->target.compete_periods) return every_ns;
  while (every_ns < HARP_DRAIN_EVERY_MAX_NS && every_ns / DRAIN_RTTS < cc->target.base_ns) every_ns *= 2;
  return every_ns;
}

/* Begins a drain when a period of the shared clock has begun, unless the drain of the others is over: what
 * they queue and lose would be taken for the path's own. */
static void maybe_begin_drain(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  harp_ns shared_ns = s->now + t->clock.offset_ns;
  harp_ns every_ns = cc->drain_every_ns = period_ns(cc);
  uint64_t period = shared_ns / every_ns;
  if (period == t->period) return;
  uint64_t settled = t->settled.bytes + 1ull, delivered = settled - t->settled.lost_bytes;
  t->settled = (struct harp_loss_count){0};
  t->period = period;
  t->floor_q8 = cc->window_q8 / 4;
  if (t->compete_periods) t->compete_periods--;
  bool is_late = shared_ns % every_ns > DRAIN_NS + t->rtt_ns;
  if (is_late || (cc->slow_start && !t->cut_ns) || s->rtt_min_ns == HARP_NEVER || !t->round_rtt_ns) return;
  if (t->is_judge_due) judge_drain(cc, s);
  t->drain_from_ns = t->drain_began_ns = s->now;
  t->drain_to_ns = HARP_NEVER;
  t->is_drain_open = t->is_judge_due = true;
  t->drain_rounds = 0;
  t->drain_lowest_ns = HARP_NEVER;
  t->drain_from_q8 = cc->window_q8;
  t->drain_rtt_ns = HARP_MAX(t->round_rtt_ns, s->rtt_min_ns);
  t->drain_empty_ns = s->now + t->drain_rtt_ns;
  uint64_t delivered_q8 = cc->window_q8 * (delivered * 1024 / settled) >> 10;
  set_window(cc, delivered_q8 * 3 / 4 * s->rtt_min_ns / t->drain_rtt_ns);
}

/* Returns whether the drain left a quarter of the queue that stood before, and more than hosts and few
 * packets add.
 */
static bool has_left_queue(const struct harp_cc *cc, harp_ns usual_ns) {
  const struct harp_cc_target *t = &cc->target;
  harp_ns queue_ns = t->drain_rtt_ns - HARP_MIN(usual_ns, t->drain_rtt_ns);
  harp_ns packets_ns = 256ull * EMPTY_PACKETS * cc->packet_bytes * t->drain_rtt_ns / t->drain_from_q8;
  harp_ns little_ns = usual_ns / 8 + EMPTY_NS + HARP_MIN(packets_ns, t->drain_rtt_ns / 2);
  return t->drain_lowest_ns > usual_ns + HARP_MAX(little_ns, queue_ns / 4);
}

/* Ends it: the window comes back as far as the target allows, and grows anew where the route is longer. Two
 * drains in a row that left a queue: another flow fills it; one may have met a pause of a host. */
static void end_drain(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  harp_ns wanted_ns = target_ns(cc, s->rtt_min_ns);
  set_window(cc, t->drain_from_q8 * HARP_MIN(wanted_ns, t->drain_rtt_ns) / t->drain_rtt_ns);
  bool is_longer = t->base_ns && s->rtt_min_ns > t->base_ns + t->base_ns / 2;
  if (is_longer) cc->slow_start = true;
  harp_ns usual_ns = HARP_MIN(t->usual_base_ns, s->rtt_min_ns);
  if (is_longer || !usual_ns) usual_ns = s->rtt_min_ns;
  if (is_longer) t->compete_periods = 0;
  bool is_filled =
      (t->is_futile || t->drain_rtt_ns > wanted_ns) && !is_longer && has_left_queue(cc, usual_ns);
  if (is_filled && t->was_filled) t->compete_periods = COMPETE_PERIODS;
  t->was_filled = is_filled;
  t->is_futile = false;
  t->usual_base_ns = usual_ns + (s->rtt_min_ns - usual_ns) / 64;
  if (harp_base_loss_is_believed(&t->base_loss) && cc->window_bytes < 2 * cc->packet_bytes)
    cc->slow_start = true;
  harp_base_loss_on_drain_end(&t->base_loss);
  t->base_ns = s->rtt_min_ns;
  t->drain_from_ns = 0;
  t->drain_to_ns = s->now;
  if (t->loss_queue_ns != HARP_NEVER) t->loss_queue_ns += t->loss_queue_ns / FORGET_SHARE;
  if (t->loss_queue_ns > SHALLOW_MAX_NS) t->loss_queue_ns = HARP_NEVER;
  t->queue_max_ns -= t->queue_max_ns / 8;
}

/* ---- events ---- */

static void rtt_measured(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  harp_ns short_ns = HARP_MAX(t->cut_ns, t->marked_ns);
  bool is_short = short_ns && s->now - short_ns < SHORT_FOR_NS;
  t->rtt_ns = HARP_MIN(s->rtt_ns, RTT_MAX_NS);
  t->samples++;
  if (t->raised_to_q8 == cc->window_q8 && least_q8(cc) * HARP_RTT_PAST_TIMES < cc->window_q8)
    set_window(cc, t->raised_from_q8); /* a host had paused: the least is less again */
  cc->bursts =
      HARP_MAX((uint32_t)(t->rtt_ns / (is_short ? BURST_SHORT_NS : BURST_NS)), HARP_CC_BURSTS_MIN + 0u);
  if (s->rtt_min_ns < s->rtt_ns) t->queue_max_ns = HARP_MAX(t->queue_max_ns, s->rtt_ns - s->rtt_min_ns);
  t->room_ns = HARP_MAX(t->room_ns, t->queue_max_ns);
}

static void target_on_ack(struct harp_cc *cc, const struct harp_cc_sample *s) {
  struct harp_cc_target *t = &cc->target;
  bool round_end = harp_cc_round(cc, s);
  t->marked_bytes += s->ce_bytes;
  t->settled.bytes += s->acked_bytes + s->lost_bytes;
  t->settled.lost_bytes += s->lost_bytes;
  if (s->rtt_ns) rtt_measured(cc, s);
  account_loss(cc, s);
  if (!t->drain_from_ns) maybe_begin_drain(cc, s);
  if (!round_end) return;
  t->rounds++;
  if (cc->round_rtt_min_ns != HARP_NEVER) t->round_rtt_ns = cc->round_rtt_min_ns;
  if (t->hold_rounds) t->hold_rounds--;
  if (t->is_judge_due && !t->drain_from_ns && s->now >= t->drain_to_ns + t->rtt_ns) judge_drain(cc, s);
  if (t->drain_from_ns) {
    t->drain_rounds++;
    if (t->drain_rounds > 1) t->drain_lowest_ns = HARP_MIN(t->drain_lowest_ns, cc->round_rtt_min_ns);
    if (t->drain_rounds >= DRAIN_ROUNDS && s->now - t->drain_from_ns >= DRAIN_NS) end_drain(cc, s);
  } else {
    if (t->samples < SAMPLES_MIN && cc->window_bytes < FEW_PACKETS * cc->packet_bytes) return;
    on_round(cc, s);
  }
  t->samples = t->rounds = 0;
  harp_cc_round_restart(cc);
}

/* Two timeouts in a row are no sign of congestion where the path loses much by itself: of a small window they
 * are frequent, and would keep it small. */
static void target_on_timeout(struct harp_cc *cc) {
  if (cc->target.base_loss.share_q16 >= TIMEOUTS_Q16) return;
  cc->target.drain_from_ns = 0;
  cc->target.is_drain_open = false;
  remember_ceiling(cc);
  set_window(cc, cc->window_q8 / 2);
}

/* Lets go at once what the pace of the least window would have let go while the path was idle. For windows of
 * few packets only: larger ones are what the path has, and several that grow at once overflow a bucket. */
static void target_on_busy(struct harp_cc *cc, harp_ns idle_ns) {
  if (cc->window_bytes >= BUSY_PACKETS * cc->packet_bytes) return;
  uint64_t packets = HARP_MIN(idle_ns / HARP_CC_LEAST_NS, BUSY_MAX_BYTES / (uint64_t)cc->packet_bytes);
  uint64_t window_q8 = (packets * cc->packet_bytes << 8) / cc->sharers;
  if (cc->target.rtt_ns && window_q8 > cc->window_q8) set_window(cc, window_q8);
}

const struct harp_cc_ops harp_cc_target = {"target", target_init, target_on_ack, target_on_timeout,
                                           target_on_busy};
