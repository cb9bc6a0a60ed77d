/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/flows.h"

#include "base/assert.h"

/* The rate is taken over so much time with something in flight, and over so many round trips. */
#define PERIOD_NS HARP_MS(8)
enum { PERIOD_ROUNDS = 4 };
/* A period that takes so long belongs to an application that does not need what it has. */
#define PERIOD_MAX_NS     HARP_SEC(1)
#define MORE_WAIT_NS      HARP_MS(100)
#define MORE_WAIT_MAX_NS  HARP_SEC(30)
#define FEWER_WAIT_NS     HARP_MS(250)
#define FEWER_WAIT_MAX_NS HARP_SEC(60)
enum { PRESSURE_ROUND = 2, PRESSURE_ON = 8, PRESSURE_MAX = 16 };

void harp_flows_init(struct harp_flows *f, uint64_t paths, uint64_t speed_bytes_s, harp_ns now) {
  *f = (struct harp_flows){.paths = paths,
                           .speed_bytes_s = speed_bytes_s,
                           .count = harp_popcount(paths),
                           .wanted = 1,
                           .proven = 1,
                           .seen_ns = now,
                           .began_ns = now,
                           .more_wait_ns = MORE_WAIT_NS,
                           .fewer_wait_ns = FEWER_WAIT_NS};
}

static void begin_period(struct harp_flows *f, bool warm, harp_ns now) {
  f->warm = warm;
  f->bytes = f->busy_ns = 0;
  f->began_ns = now;
}

static void begin_trial(struct harp_flows *f, unsigned wanted, uint64_t rate_bytes_s) {
  HARP_ASSERT(!f->before && wanted && wanted <= f->count && wanted != f->wanted);
  f->before = f->wanted;
  f->rate_bytes_s = rate_bytes_s;
  f->wanted = wanted;
}

/* More paths must bring a quarter of what they would under a cap of each flow, and an eighth at least; fewer
 * may cost a sixteenth. */
static bool paid(const struct harp_flows *f, uint64_t rate_bytes_s) {
  uint64_t was = f->rate_bytes_s;
  if (f->wanted < f->before) return rate_bytes_s >= was - was / 16;
  return rate_bytes_s >= was + HARP_MAX(was / 8, was * (f->wanted - f->before) / f->before / 4);
}

/* A trial that fails is made again ever more rarely; after one that paid, the opposite waits anew. */
static void end_trial(struct harp_flows *f, uint64_t rate_bytes_s, harp_ns now) {
  bool more = f->wanted > f->before;
  harp_ns *wait_ns = more ? &f->more_wait_ns : &f->fewer_wait_ns;
  harp_ns most_ns = more ? MORE_WAIT_MAX_NS : FEWER_WAIT_MAX_NS;
  if (paid(f, rate_bytes_s)) {
    f->proven = f->wanted;
    *wait_ns = more ? MORE_WAIT_NS : FEWER_WAIT_NS;
    f->fewer_ns = now + f->fewer_wait_ns;
    if (!more) f->more_ns = now + f->more_wait_ns;
  } else {
    f->proven = f->wanted = f->before;
    *(more ? &f->more_ns : &f->fewer_ns) = now + *wait_ns;
    *wait_ns = HARP_MIN(2 * *wait_ns, most_ns);
  }
  f->before = 0;
}

static bool wants_more(const struct harp_flows *f, uint64_t rate_bytes_s, harp_ns now) {
  return f->pressure >= PRESSURE_ON && f->wanted < f->count && now >= f->more_ns &&
         (!f->speed_bytes_s || rate_bytes_s < f->speed_bytes_s - f->speed_bytes_s / 8);
}

/* At the end of a period. */
static void decide(struct harp_flows *f, harp_ns now) {
  uint64_t rate_bytes_s = f->bytes * HARP_MS(1) / HARP_MAX(f->busy_ns / 1000, 1u);
  if (f->before) end_trial(f, rate_bytes_s, now);
  if (wants_more(f, rate_bytes_s, now))
    begin_trial(f, HARP_MIN(HARP_MAX(2 * f->wanted, f->proven), f->count), rate_bytes_s);
  else if (f->wanted > 1 && now >= f->fewer_ns)
    begin_trial(f, (f->wanted + 1) / 2, rate_bytes_s);
}

bool harp_flows_on_round(struct harp_flows *f, bool held_back, harp_ns rtt_ns, harp_ns now) {
  unsigned wanted = f->wanted;
  if (held_back)
    f->pressure = HARP_MIN(f->pressure + PRESSURE_ROUND, PRESSURE_MAX + 0u);
  else if (f->pressure)
    f->pressure--;
  if (f->busy_ns < HARP_MAX(PERIOD_NS, PERIOD_ROUNDS * rtt_ns)) {
    if (now - f->began_ns < HARP_MAX(PERIOD_MAX_NS, 2 * PERIOD_ROUNDS * rtt_ns)) return false;
    f->wanted = 1; /* one is enough; `proven` remembers */
    f->before = 0;
    begin_period(f, true, now);
    return f->wanted != wanted;
  }
  unsigned proven = f->proven;
  if (f->warm) decide(f, now);
  begin_period(f, f->wanted == wanted, now);
  return f->wanted != wanted || f->proven != proven;
}
