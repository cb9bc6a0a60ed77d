/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that are products of parameters, with the bounds of each kind; rows.c has the others. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "networks/bounds.h"
#include "networks/rows.h"

static struct row rows[ROWS_MAX];
static unsigned row_count;

static HARP_PRINTF(4, 5) void add(const char *group, const char *reference, struct bounds b,
                                  const char *format, ...) {
  struct row *r = &rows[row_count++];
  *r = (struct row){.group = group, .reference = reference, .bounds = b};
  va_list list;
  va_start(list, format);
  vsnprintf(r->params, sizeof r->params, format, list);
  va_end(list);
}

/* A bottleneck: a policer, or a queue. */
struct place {
  bool is_policer;
  double size; /* KiB of its bucket, or us of its queue */
};

static const struct place places[] = {{true, 8},   {true, 64},   {true, 1024},  {false, 20},   {false, 50},
                                      {false, 80}, {false, 200}, {false, 2000}, {false, 30000}};
static const double rates[] = {1, 10, 25, 100};
enum { INCAST = 255 /* flows that end at one host */ };
static const unsigned flows[] = {1, 2, 4, 64, INCAST}, mtus[] = {1500, 9000}, rtts[] = {30, 100, 1000};

static const char *place_key(const struct place *p) {
  return p->is_policer ? "bucket_kb" : "queue_us";
}

enum { SHORT_US = 100 /* shorter queues need not carry the whole rate */ };

/* A network of the product. */
struct combination {
  const struct place *place;
  double rate;
  unsigned flows, mtu, rtt_us;
};

static double bytes_of_us(double rate, double us) {
  return rate * 125 * us;
}

static double place_bytes(const struct place *p, double rate) {
  return p->is_policer ? p->size * 1024 : bytes_of_us(rate, p->size);
}

/* Returns how many packets pipe and queue hold; a bucket holds none back. */
static double packets_held(const struct combination *n) {
  double queued = n->place->is_policer ? 0 : place_bytes(n->place, n->rate);
  return (bytes_of_us(n->rate, n->rtt_us) + queued) / n->mtu;
}

/* Returns whether a congestion control can do well: one packet of each flow fits into pipe and queue, and
 * queue or bucket hold 20 us of the rate. */
static bool is_feasible(const struct combination *n) {
  return packets_held(n) >= n->flows && place_bytes(n->place, n->rate) >= bytes_of_us(n->rate, 20);
}

/* Returns the time in us that a packet of each flow takes at the rate. */
static double round_us(const struct combination *n) {
  return n->flows * n->mtu / bytes_of_us(n->rate, 1);
}

/* What a feasible network is to reach. */
static struct bounds target_of(const struct combination *n) {
  struct bounds b = {FAIR, .lost_max = n->place->is_policer ? 2 : 1};
  if (n->place->is_policer) {
    b.rate_min = 0.85;
    return b;
  }
  if (n->place->size >= SHORT_US || n->place->size >= n->rtt_us) b.rate_min = 0.9;
  b.queue_max_us = HARP_MAX(HARP_MAX((double)STANDING_US, n->place->size / STANDING_SHARE), round_us(n));
  return b;
}

/* ---- where the target is missed: each kind has bounds of its own, which guard what is reached ---- */

enum {
  LEAST_PACE_US = 4000, /* a flow sends a packet in this time at least */
  FEW = 4,              /* flows */
};

/* What all flows send at least takes three quarters of the rate, or more than it. */
static bool is_paced(const struct combination *n) {
  return round_us(n) >= 0.75 * LEAST_PACE_US;
}

static struct bounds bounds_of_paced(const struct combination *n) {
  double beyond_percent = 100 * (1 - LEAST_PACE_US / round_us(n));
  struct bounds b = {.rate_min = 0.9, .lost_max = 1 + HARP_MAX(0.65 * beyond_percent, 0.0), .jain_min = 0.8};
  if (beyond_percent < 0) b.queue_max_us = n->place->size / 3;
  return b;
}

/* Pipe and queue hold fewer than two packets of each flow. */
static bool is_scarce(const struct combination *n) {
  return packets_held(n) < 2 * n->flows;
}

/* Pipe and queue hold fewer than three packets of each of many flows. */
static bool is_scarce_of_many(const struct combination *n) {
  return n->flows > FEW && packets_held(n) < 3 * n->flows;
}

static struct bounds bounds_of_scarce(const struct combination *n) {
  return (struct bounds){.rate_min = 0.7, .lost_max = n->flows > FEW ? 22 : 6};
}

/* Queue or bucket hold fewer than eight packets, or the bucket less than a quarter of what a round trip
 * brings.
 */
static bool is_short(const struct combination *n) {
  double bytes = place_bytes(n->place, n->rate), round_trip = bytes_of_us(n->rate, n->rtt_us);
  return bytes < 8 * n->mtu || (n->place->is_policer && bytes < round_trip / 4);
}

static struct bounds bounds_of_short(const struct combination *n) {
  if (n->place->is_policer) return (struct bounds){.rate_min = 0.45, .lost_max = n->flows > FEW ? 12 : 2};
  if (n->flows == 1) return (struct bounds){.rate_min = 0.57, .lost_max = 1.5};
  return (struct bounds){.rate_min = 0.3, .lost_max = n->flows > FEW ? 14 : 6};
}

/* Several flows share a policer over a round trip of 100 us at least, or a queue shorter than that or than
 * the round trip: no delay shows them what they share. */
static bool is_uneven(const struct combination *n) {
  if (n->flows == 1) return false;
  return n->place->is_policer ? n->rtt_us >= SHORT_US : n->place->size < HARP_MAX(n->rtt_us, SHORT_US);
}

/* Many flows that begin at once over a millisecond fill a queue that holds no packet of each: a third is lost
 * at first, and that is taken for the path's own loss for many seconds. */
static bool is_flooded(const struct combination *n) {
  return n->flows == INCAST && n->rtt_us >= 1000 &&
         place_bytes(n->place, n->rate) < (double)n->flows * n->mtu;
}

static struct bounds bounds_of_uneven(const struct combination *n) {
  struct bounds b = target_of(n);
  if (is_flooded(n)) b.lost_max = 6;
  b.jain_min = n->rtt_us < 1000 ? 0.44 : 0; /* farther away one may have nearly all */
  return b;
}

/* The receive window of 16 MiB, which counts more than payload, ends what one flow, or all that come to one
 * host, have under way in small packets. */
static bool is_windowed(const struct combination *n) {
  enum { WINDOWED_BYTES = 12000000 };
  bool is_one_window = n->flows == 1 || n->flows == INCAST;
  return is_one_window && n->mtu <= 1500 && bytes_of_us(n->rate, n->rtt_us) > WINDOWED_BYTES;
}

static struct bounds bounds_of_windowed(const struct combination *n) {
  struct bounds b = target_of(n);
  b.rate_min = n->flows == 1 ? 0.74 : 0.69;
  return b;
}

/* An incast that is measured 1 s after its start, and not 3 s (network.c). */
static bool is_early(const struct combination *n) {
  return n->flows == INCAST && n->rate >= 100;
}

static struct bounds bounds_of_early(const struct combination *n) {
  struct bounds b = is_uneven(n) ? bounds_of_uneven(n) : target_of(n);
  if (n->place->is_policer) b.lost_max = 4;
  b.jain_min = HARP_MIN(b.jain_min, n->place->is_policer ? 0.45 : 0.85);
  return b;
}

/* A few flows with windows of megabytes: shares drift for seconds before growth, a step for each 256 us,
 * makes them equal. */
static bool is_drifting(const struct combination *n) {
  return n->flows > 1 && n->flows <= FEW && n->rtt_us >= 1000 && n->rate >= 25;
}

/* Pipe and queue hold fewer than four packets of each of many flows, or a long pipe fewer than one. */
static bool is_tight(const struct combination *n) {
  bool is_thin = n->rtt_us >= 1000 && round_us(n) > n->rtt_us;
  return n->flows > FEW && (is_thin || packets_held(n) < 4 * n->flows);
}

static struct bounds bounds_of_nearly_fair(const struct combination *n) {
  struct bounds b = target_of(n);
  b.jain_min = 0.8;
  return b;
}

/* The bounds of feasible networks; the first that fits holds. */
static const struct kind {
  const char *group;
  bool (*fits)(const struct combination *n);
  struct bounds (*bounds_of)(const struct combination *n);
} kinds[] = {
    {"paced", is_paced, bounds_of_paced},          {"scarce", is_scarce, bounds_of_scarce},
    {"short", is_short, bounds_of_short},          {"scarce", is_scarce_of_many, bounds_of_scarce},
    {"windowed", is_windowed, bounds_of_windowed}, {"early", is_early, bounds_of_early},
    {"uneven", is_uneven, bounds_of_uneven},       {"drifting", is_drifting, bounds_of_nearly_fair},
    {"tight", is_tight, bounds_of_nearly_fair},
};

/* An infeasible network is compared with Reno in it: target 0.97 of its rate, 0.1 % more lost. */
static struct bounds bounds_of_infeasible(const struct combination *n) {
  enum { FEW_PACKETS = 3 };
  if (is_paced(n)) return (struct bounds){.of_rate_min = 0.86, .more_lost_max = 11};
  if (n->place->is_policer && n->flows > FEW) return (struct bounds){.of_rate_min = 0.8, .more_lost_max = 9};
  if (n->place->is_policer) return (struct bounds){.of_rate_min = 0.92, .more_lost_max = 0.3};
  if (place_bytes(n->place, n->rate) < FEW_PACKETS * n->mtu)
    return (struct bounds){.of_rate_min = 0.65, .more_lost_max = 0.1};
  return (struct bounds){.of_rate_min = 0.92, .more_lost_max = 0.1};
}

static void add_combination(const struct combination *n) {
  const char *group = "feasible", *reference = NULL;
  struct bounds b = target_of(n);
  if (is_feasible(n)) {
    for (unsigned i = HARP_ARRAY_COUNT(kinds); i--;) {
      if (!kinds[i].fits(n)) continue;
      group = kinds[i].group;
      b = kinds[i].bounds_of(n);
    }
  } else {
    group = "infeasible";
    reference = "cc=reno";
    b = bounds_of_infeasible(n);
  }
  add(group, reference, b, "%s=%g rate=%g flows=%u%s mtu=%u rtt_us=%u", place_key(n->place), n->place->size,
      n->rate, n->flows, n->flows == INCAST ? " incast=1 depth=2" : "", n->mtu, n->rtt_us);
}

static void add_product(void) {
  for (unsigned p = 0; p < HARP_ARRAY_COUNT(places); p++)
    for (unsigned r = 0; r < HARP_ARRAY_COUNT(rates); r++)
      for (unsigned f = 0; f < HARP_ARRAY_COUNT(flows); f++)
        for (unsigned m = 0; m < HARP_ARRAY_COUNT(mtus); m++)
          for (unsigned t = 0; t < HARP_ARRAY_COUNT(rtts); t++) {
            if (places[p].is_policer && place_bytes(&places[p], rates[r]) < mtus[m])
              continue; /* never passes */
            add_combination(&(struct combination){&places[p], rates[r], flows[f], mtus[m], rtts[t]});
          }
}

/* A network with random loss. */
struct lossy {
  double percent, rate;
  unsigned mtu, rtt_us;
};

/* Share of the lossless rate that is to be reached after 4 s. */
static double target_of_lossy(const struct lossy *l) {
  bool is_long = l->rtt_us >= 1000;
  return l->percent < 3 ? (is_long ? 0.8 : 0.95) : is_long ? 0.6 : 0.8;
}

/* The queue holds two packets: a window that grows on trial loses more, as in congestion, and the next trial
 * is 10 s later. */
static bool is_learned_late(const struct lossy *l) {
  return l->percent >= 1 && l->rate <= 1 && l->rtt_us >= 1000 && l->mtu > 1500;
}

/* Windows of megabytes grow for longer than 4 s, and a queue of two packets makes half of the seeds slow. */
static double share_of_lossy(const struct lossy *l) {
  if (l->rate <= 1 && l->percent >= 1 && l->mtu > 1500) return 0.75;
  if (l->rtt_us >= 1000 && l->rate >= 100 && l->percent >= 3) return l->mtu > 1500 ? 0.4 : 0.1;
  if (l->rtt_us >= 1000 && l->rate >= 25 && l->percent >= 3 && l->mtu <= 1500) return 0.15;
  if (l->rtt_us >= 1000 && l->rate >= 100) return 0.45;
  return target_of_lossy(l);
}

/* At 1 Gbit/s the queue of 100 us holds eight packets, or two, beside a base loss that is a rough value. */
static double more_lost_of_lossy(const struct lossy *l) {
  if (l->rate > 1 || l->percent < 1) return 1;
  return l->mtu > 1500 ? 4 : 2;
}

static void add_lossy(const struct lossy *l) {
  static const char format[] = "loss=%g rate=%g mtu=%u rtt_us=%u seconds=%d warm=%d";
  double more_lost = l->percent + more_lost_of_lossy(l);
  struct bounds b = {.of_rate_min = share_of_lossy(l), .more_lost_max = more_lost};
  struct bounds soon = {.lost_max = more_lost}, late = {.of_rate_min = 0.4, .more_lost_max = more_lost};
  bool is_late = is_learned_late(l);
  add("loss", is_late ? NULL : "loss=0", is_late ? soon : b, format, l->percent, l->rate, l->mtu, l->rtt_us,
      5, 4);
  if (is_late) add("loss", "loss=0", late, format, l->percent, l->rate, l->mtu, l->rtt_us, 21, 20);
}

static void add_losses(void) {
  static const double losses[] = {0.1, 1, 3};
  for (unsigned l = 0; l < HARP_ARRAY_COUNT(losses); l++)
    for (unsigned r = 0; r < HARP_ARRAY_COUNT(rates); r++)
      for (unsigned m = 0; m < HARP_ARRAY_COUNT(mtus); m++)
        for (unsigned t = 0; t < HARP_ARRAY_COUNT(rtts); t++)
          add_lossy(&(struct lossy){losses[l], rates[r], mtus[m], rtts[t]});
}

static void add_beside_tcp(void) {
  static const struct {
    struct place place;
    double rate_min[2], tcp_min[2]; /* at a round trip of 100 and of 500 us; target: 0.2 */
  } beside[] = {
      {{true, 64}, {0.2, 0.2}, {0.2, 0.07}},      {{true, 256}, {0.2, 0.2}, {0.2, 0.2}},
      {{true, 1024}, {0.2, 0.2}, {0.2, 0.2}},     {{false, 20}, {0.2, 0.2}, {0.2, 0.2}},
      {{false, 50}, {0.2, 0.2}, {0.2, 0.2}},      {{false, 80}, {0.2, 0.2}, {0.2, 0.2}},
      {{false, 100}, {0.2, 0.2}, {0.2, 0.2}},     {{false, 200}, {0.2, 0.1}, {0.2, 0.2}},
      {{false, 500}, {0.12, 0.2}, {0.2, 0.2}},    {{false, 2000}, {0.2, 0.2}, {0.2, 0.2}},
      {{false, 30000}, {0.15, 0.03}, {0.2, 0.2}},
  };
  static const unsigned beside_rtts[] = {100, 500};
  for (unsigned p = 0; p < HARP_ARRAY_COUNT(beside); p++)
    for (unsigned t = 0; t < HARP_ARRAY_COUNT(beside_rtts); t++) {
      const struct place *place = &beside[p].place;
      bool is_deep = !place->is_policer && place->size >= 30000;
      add("cubic", NULL, (struct bounds){.rate_min = beside[p].rate_min[t], .tcp_min = beside[p].tcp_min[t]},
          "cubic=1 %s=%g rate=%d rtt_us=%u seconds=%d", place_key(place), place->size, is_deep ? 1 : 10,
          beside_rtts[t], is_deep ? 20 : 6);
    }
}

/* Queues that mark packets (ECN) long before they are full: nothing need be lost. */
static void add_marks(void) {
  static const struct {
    unsigned queue_us, mark_us;
    double rate_min; /* a mark behind less than half of the round trip costs rate (RFC 8257, 5) */
  } queues[] = {{80, 20, 0.8}, {200, 50, 0.9}, {2000, 100, 0.9}};
  static const double mark_rates[] = {10, 25};
  static const unsigned mark_flows[] = {1, 4};
  for (unsigned q = 0; q < HARP_ARRAY_COUNT(queues); q++)
    for (unsigned r = 0; r < HARP_ARRAY_COUNT(mark_rates); r++)
      for (unsigned f = 0; f < HARP_ARRAY_COUNT(mark_flows); f++)
        for (unsigned m = 0; m < HARP_ARRAY_COUNT(mtus); m++) {
          struct bounds b = {FAIR, .rate_min = queues[q].rate_min, .lost_max = 0.1};
          b.queue_max_us = queues[q].mark_us;
          add("marks", NULL, b, "queue_us=%u mark_us=%u rate=%g flows=%u mtu=%u rtt_us=100 seconds=3 warm=1",
              queues[q].queue_us, queues[q].mark_us, mark_rates[r], mark_flows[f], mtus[m]);
        }
}

/* Hosts that pause, and clocks that are wrong, on networks of each kind; `--again` does it to all rows. */
static void add_hosts(void) {
  static const char *const hosts[] = {"jitter_us=300", "clock_ms=3", "clock_own=1",
                                      "clock_ms=3 clock_step_s=1"};
  static const char *const networks[] = {
      "queue_us=100 seconds=3",
      "flows=4 queue_us=100 seconds=4 warm=2",
      "flows=4 queue_us=2000 seconds=4 warm=2",
      "flows=8 bucket_kb=256 seconds=4 warm=2",
      "flows=64 bucket_kb=256 seconds=6 warm=4",
      "flows=64 queue_us=100 seconds=6 warm=4",
      "flows=4 queue_us=80 rate=100 mtu=9000 seconds=3 warm=2",
      "flows=255 incast=1 depth=2 rate=25 queue_kb=2048 rtt_us=50 mtu=9000 seconds=1.5",
  };
  for (unsigned h = 0; h < HARP_ARRAY_COUNT(hosts); h++)
    for (unsigned n = 0; n < HARP_ARRAY_COUNT(networks); n++)
      add("hosts", NULL, (struct bounds){LOST_ANY}, "%s %s", hosts[h], networks[n]);
  /* hosts that stop for 2 s: measured from 100 ms after it */
  static const char *const stops[] = {"flows=64 queue_us=100", "flows=8 queue_us=100 rate=1"};
  for (unsigned n = 0; n < HARP_ARRAY_COUNT(stops); n++)
    add("hosts", NULL, (struct bounds){LOST_ANY, .rate_min = 0.9, .p99_max = 10},
        "at_s=1 stop_ms=2000 %s jitter_us=20 seconds=3.4 warm=3.1", stops[n]);
  add("hosts", NULL, (struct bounds){.lost_max = 1, FAIR, .p99_max = 1.7},
      "jitter_us=20 flows=255 incast=1 depth=2 rate=25 queue_kb=2048 rtt_us=50 mtu=9000 seconds=1.5");
  add("hosts", NULL, (struct bounds){LOST_QUEUE, .queue_max_us = 131072},
      "clock_own=1 flows=16 rate=1 queue_kb=65536 seconds=20");
}

/* Rows of the products that are in the quick suite. */
static const char *const quick[] = {
    "bucket_kb=64 rate=10 flows=1 mtu=1500 rtt_us=100",
    "bucket_kb=64 rate=10 flows=1 mtu=9000 rtt_us=100",
    "bucket_kb=1024 rate=25 flows=4 mtu=1500 rtt_us=1000",
    "queue_us=20 rate=10 flows=4 mtu=1500 rtt_us=100",
    "queue_us=50 rate=10 flows=4 mtu=1500 rtt_us=100",
    "queue_us=80 rate=10 flows=4 mtu=9000 rtt_us=100",
    "queue_us=80 rate=1 flows=64 mtu=9000 rtt_us=100",
    "queue_us=200 rate=25 flows=4 mtu=1500 rtt_us=1000",
    "queue_us=2000 rate=10 flows=4 mtu=1500 rtt_us=100",
    "loss=0.1 rate=10 mtu=1500 rtt_us=100 seconds=5 warm=4",
    "loss=1 rate=10 mtu=1500 rtt_us=100 seconds=5 warm=4",
    "loss=3 rate=10 mtu=1500 rtt_us=100 seconds=5 warm=4",
    "loss=1 rate=10 mtu=1500 rtt_us=1000 seconds=5 warm=4",
    "queue_us=80 mark_us=20 rate=10 flows=4 mtu=1500 rtt_us=100 seconds=3 warm=1",
    "queue_us=200 mark_us=50 rate=25 flows=4 mtu=9000 rtt_us=100 seconds=3 warm=1",
    "cubic=1 queue_us=100 rate=10 rtt_us=100 seconds=6",
    "cubic=1 queue_us=2000 rate=10 rtt_us=100 seconds=6",
    "cubic=1 bucket_kb=256 rate=10 rtt_us=500 seconds=6",
    "jitter_us=300 flows=4 queue_us=100 seconds=4 warm=2",
    "jitter_us=20 flows=255 incast=1 depth=2 rate=25 queue_kb=2048 rtt_us=50 mtu=9000 seconds=1.5",
    "at_s=1 stop_ms=2000 flows=64 queue_us=100 jitter_us=20 seconds=3.4 warm=3.1",
    "clock_ms=3 flows=8 bucket_kb=256 seconds=4 warm=2",
    "clock_own=1 flows=8 bucket_kb=256 seconds=4 warm=2",
};

static bool is_in_quick(const char *params) {
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(quick); i++) {
    if (!strcmp(quick[i], params)) return true;
  }
  return false;
}

const struct row *rows_all(unsigned *count) {
  if (!row_count) {
    const struct row *special = rows_special(&row_count);
    memcpy(rows, special, row_count * sizeof *special);
    add_losses();
    add_beside_tcp();
    add_marks();
    add_hosts();
    add_product();
    for (unsigned i = 0; i < row_count; i++) rows[i].is_quick |= is_in_quick(rows[i].params);
  }
  *count = row_count;
  return rows;
}
