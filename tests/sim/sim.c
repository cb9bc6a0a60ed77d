/* The seeded simulation: one seed is one random scenario of one connection, with faults for a while, then
 * none.
 *
 *   sim [--seeds N] [--seed0 N] [--jobs N]   run seeds seed0 .. seed0 + N - 1, print how many a second
 *   sim --seed N [--trace]                   run one again, with both ends' traces
 *   sim --transfer LINES [PATHS]             a fixed transfer, for counting instructions
 *
 * Safety is checked after every event (lib/duo.c). Liveness: once the faults have ended everything completes
 * within LIVE_NS, and then the connection falls silent, but for the probes of a path that stays dead. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/duo.h"
#include "proto/pairing.h"
#include "sim/transfer.h"

#define FAULTS_MAX_NS HARP_SEC(3)
#define LIVE_NS       HARP_SEC(20)
#define CALM_NS       HARP_SEC(2)
#define SILENCE_NS    HARP_SEC(2)
enum { TOTAL_MAX_BYTES = 4 << 20, LONG_MESSAGES = 11, SEED_ALARM_S = 60 };

static struct duo duo;
static char replay[96];

/* What happened in all seeds: shows that the scenarios reach what they are meant to. Shared by the processes.
 */
static struct tally {
  _Atomic uint64_t messages, data_packets, acks, network_drops, lost, spurious, timeouts, probes, early, down,
      up, duplicates, bad_crc, smaller, tails, striped;
} * tally;

static void on_signal(int number) {
  static const char text[] = "FAILED: ";
  (void)!write(2, text, sizeof text - 1);
  (void)!write(2, replay, strlen(replay));
  (void)!write(2, "\n", 1);
  signal(number, SIG_DFL);
  raise(number);
}

/* ---- a scenario out of a seed ---- */

static uint32_t draw_size(struct rng *r) {
  static const uint32_t around_early[] = {HARP_EARLY_MAX_BYTES - 1, HARP_EARLY_MAX_BYTES,
                                          HARP_EARLY_MAX_BYTES + 1};
  switch (rng_below(r, 12)) {
  case 0:
    return 0;
  case 1:
    return (uint32_t)rng_between(r, 1, 8);
  case 2:
    return around_early[rng_below(r, 3)];
  case 3:
    return (uint32_t)rng_between(r, 1, 32) * HARP_LINE_BYTES; /* as NCCL's LL128 does */
  case 4:
    return (uint32_t)rng_between(r, 1, 64) * 16; /* as its LL does */
  case 5:
  case 6:
    return (uint32_t)rng_between(r, 20000, 140000);
  case 7:
    return rng_below(r, 8) ? (uint32_t)rng_between(r, 1, 300000) : (uint32_t)rng_between(r, 1, 2 << 20);
  default:
    return (uint32_t)rng_below(r, 1u << rng_between(r, 1, 15));
  }
}

static uint32_t draw_ppm(struct rng *r, uint32_t max_ppm, unsigned one_in) {
  if (rng_below(r, one_in)) return 0;
  return (uint32_t)rng_below(r, rng_below(r, 2) ? max_ppm : max_ppm / 20) + 1;
}

static harp_ns draw_delay(struct rng *r) {
  static const harp_ns top[] = {HARP_US(20), HARP_US(200), HARP_MS(2), HARP_MS(20)};
  return HARP_US(1) + rng_below(r, top[rng_below(r, HARP_ARRAY_COUNT(top))]);
}

static void draw_link(struct rng *r, struct simnet_link *l, harp_ns start, harp_ns heal) {
  l->loss_ppm = draw_ppm(r, 300000, 3);
  l->duplicate_ppm = draw_ppm(r, 500000, 4);
  l->corrupt_ppm = draw_ppm(r, 100000, 5);
  l->truncate_ppm = draw_ppm(r, 50000, 8);
  l->burst_ppm = draw_ppm(r, 10000, 6);
  l->burst_packets = (uint32_t)rng_between(r, 2, 200);
  l->late_ppm = draw_ppm(r, 100000, 5);
  l->late_ns = rng_below(r, HARP_MS(10));
  if (!rng_below(r, 3)) l->jitter_ns = 1 + rng_below(r, 2 * l->delay_ns);
  if (!rng_below(r, 4)) {
    l->own.rate_bytes_s = rng_between(r, 4, 1000) * 1000000;
    if (rng_below(r, 2)) l->own.queue_bytes = (uint32_t)rng_between(r, 20000, 400000);
  }
  if (!rng_below(r, 8)) { /* dark for a while, once or flapping */
    harp_ns from = start + rng_below(r, HARP_MS(200));
    for (uint64_t n = rng_between(r, 1, 4); n--;) {
      harp_ns to = from + rng_below(r, HARP_MS(400));
      simnet_darken(l, from, HARP_MIN(to, heal));
      from = to + rng_below(r, HARP_MS(100));
    }
  }
}

static void darken_both(struct simnet *n, unsigned path, harp_ns from, harp_ns to) {
  simnet_darken(&n->links[SIMNET_DATA][path], from, to);
  simnet_darken(&n->links[SIMNET_ACKS][path], from, to);
}

struct scenario {
  bool clean;    /* no fault at all: nothing may be sent twice */
  bool longer;   /* more than the window of lines holds */
  harp_ns heal;  /* when the faults end */
  uint64_t dead; /* bit i: path i dies for good */
};

/* Two hosts with ENIs, joined as a connection would join them. Returns the number of paths. */
static unsigned draw_hosts(struct rng *r, struct duo_config *c, uint32_t lines) {
  struct harp_pairing pairings[HARP_PATHS_MAX];
  struct harp_endpoint e[2];
  for (unsigned k = 0; k < 2; k++) {
    e[k] = (struct harp_endpoint){.eni_count = (uint16_t)rng_between(r, 1, rng_below(r, 4) ? 4 : 8),
                                  .path_count = (uint16_t)rng_between(r, 1, rng_below(r, 2) ? 2 : 16)};
    for (unsigned i = 0; i < e[k].eni_count; i++)
      e[k].enis[i] = (struct harp_endpoint_eni){
          .family = 4, .port_count = 16, .speed_mbps = (uint32_t)rng_below(r, 3) * 1000};
  }
  unsigned count = harp_pairing_make(&e[0], &e[1], pairings);
  for (unsigned i = 0; i < count; i++) {
    c->paths[i] = (struct harp_path_config){.lines_max = lines,
                                            .local_eni = pairings[i].client_eni,
                                            .remote_eni = pairings[i].server_eni,
                                            .standby = pairings[i].standby};
  }
  return count;
}

static unsigned draw_paths(struct rng *r, struct duo_config *c) {
  static const uint32_t sizes[] = {8, 11, 26, 69};
  uint32_t lines = sizes[rng_below(r, 4)];
  if (!rng_below(r, 5)) return draw_hosts(r, c, lines);
  unsigned count = rng_below(r, 2) ? 1 : (unsigned)rng_between(r, 1, 4);
  for (unsigned i = 0; i < count; i++) {
    c->paths[i].lines_max = rng_below(r, 4) ? lines : sizes[rng_below(r, 4)];
    c->paths[i].local_eni = c->paths[i].remote_eni = (uint8_t)i;
  }
  return count;
}

/* Whole ENIs fail, of either side: for a while, flapping, or for good; a pair of them lives. */
static void draw_eni_faults(struct rng *r, struct scenario *s) {
  const struct harp_path_config *live = &duo.config.paths[rng_below(r, duo.config.path_count)];
  for (unsigned k = 0; k < 16; k++) {
    bool local = k < 8, for_good = rng_below(r, 2);
    if ((k & 7) == (local ? live->local_eni : live->remote_eni) || rng_below(r, 2)) continue;
    unsigned ways = (unsigned)rng_between(r, 1, 3); /* both, or one direction */
    harp_ns from = duo.now + rng_below(r, HARP_MS(50));
    for (uint64_t n = for_good ? 1 : rng_between(r, 1, 4); n--;) {
      harp_ns to = for_good ? HARP_NEVER : HARP_MIN(from + rng_below(r, HARP_MS(200)), s->heal);
      for (unsigned i = 0; i < duo.config.path_count; i++) {
        const struct harp_path_config *p = &duo.config.paths[i];
        if ((local ? p->local_eni : p->remote_eni) != (k & 7)) continue;
        for (unsigned way = 0; way < SIMNET_WAYS; way++) {
          if (ways >> way & 1) simnet_darken(&duo.net.links[way][i], from, to);
        }
        if (for_good) s->dead |= 1ull << i;
      }
      from = to + rng_below(r, HARP_MS(100));
    }
  }
}

static uint32_t near_wrap(struct rng *r, bool wrap, uint32_t span) {
  return wrap ? 0u - (uint32_t)rng_below(r, span) : (uint32_t)rng_next(r);
}

static void draw_config(struct rng *r, struct duo_config *c, bool clean) {
  static const uint32_t frames[] = {1, 4, 16, 64};
  static const uint32_t windows[] = {64 << 10, 512 << 10, 4 << 20};
  bool wrap = !rng_below(r, 4);
  c->path_count = draw_paths(r, c);
  c->first_line = near_wrap(r, wrap, 2000);
  c->first_message = near_wrap(r, wrap, 40);
  c->first_number = near_wrap(r, wrap, 500);
  c->window_max_bytes = windows[rng_below(r, 3)];
  c->cc = rng_below(r, 3) ? &harp_cc_delay : &harp_cc_reno;
  c->superframe_packets = frames[rng_below(r, 4)];
  c->in_flight_max = rng_below(r, 4) ? 32 : (uint32_t)rng_between(r, 1, 32);
  c->pad = rng_below(r, 2);
  if (clean) return;
  c->refuse_ppm = draw_ppm(r, 50000, 6);
  c->pause_ppm = draw_ppm(r, 5000, 5);
  c->pause_ns = HARP_US(10) + rng_below(r, HARP_MS(5));
  c->down_ppm = draw_ppm(r, 10000, 12);
}

static void draw_network(struct rng *r, struct scenario *s) {
  unsigned paths = duo.config.path_count;
  for (unsigned i = 0; i < paths; i++) {
    harp_ns delay = draw_delay(r);
    if (s->clean) delay = HARP_MIN(delay, HARP_MS(1));
    for (unsigned way = 0; way < SIMNET_WAYS; way++) {
      struct simnet_link *l = &duo.net.links[way][i];
      l->delay_ns = rng_below(r, 2) ? delay : delay / 2 + 1;
      if (!s->clean) draw_link(r, l, duo.now, s->heal);
    }
  }
  if (s->clean) return;
  if (!rng_below(r, 10)) { /* a route with a smaller MTU */
    struct simnet_link *l = &duo.net.links[SIMNET_DATA][rng_below(r, paths)];
    l->mtu_bytes = rng_below(r, 2) ? 1500 : HARP_DATA_HEADER_BYTES + HARP_PACKET_MIN_LINES * HARP_LINE_BYTES;
    l->mtu_from_ns = duo.now + rng_below(r, HARP_MS(5));
  }
  if (paths > 1 && !rng_below(r, 3)) {
    draw_eni_faults(r, s);
  } else if (paths > 1 && !rng_below(r, 4)) {
    unsigned live = (unsigned)rng_below(r, paths);
    for (unsigned i = 0; i < paths; i++) {
      if (i == live || rng_below(r, 2)) continue;
      harp_ns from = duo.now + rng_below(r, HARP_MS(20));
      if (rng_below(r, 2))
        simnet_darken(&duo.net.links[rng_below(r, 2)][i], from, HARP_NEVER);
      else
        darken_both(&duo.net, i, from, HARP_NEVER);
      s->dead |= 1ull << i;
    }
  }
  if (!rng_below(r, 64)) { /* silence that no timer may grow tired of */
    harp_ns from = duo.now + rng_below(r, HARP_MS(2));
    s->heal += HARP_SEC(300);
    for (unsigned i = 0; i < paths; i++) darken_both(&duo.net, i, from, from + HARP_SEC(300));
  }
}

/* Loses one line again and again, until all of the window behind it was sent. */
static bool stubborn_loss(void *context, enum simnet_way way, unsigned path, uint64_t nth,
                          const uint8_t *wire, uint32_t bytes, harp_ns now) {
  const uint32_t *line = context;
  struct harp_packet p;
  (void)path, (void)nth, (void)now;
  if (!duo.faults || way != SIMNET_DATA || duo.sender->sent_line - duo.sender->delivered == HARP_WINDOW_LINES)
    return true;
  if (harp_packet_decode(wire, bytes, &p) || p.type != HARP_PACKET_DATA) return true;
  return *line - p.data.line >= harp_lines_of(p.data.length);
}

/* 22 MiB, all posted at once, so that the sender runs into the edge of the window. */
static void draw_long(struct rng *r) {
  static uint32_t line;
  line = duo.config.first_line + (uint32_t)rng_below(r, HARP_WINDOW_LINES / 8);
  duo.net.filter = stubborn_loss;
  duo.net.filter_context = &line;
  for (uint32_t k = 0; k < LONG_MESSAGES; k++) {
    uint32_t bytes = (uint32_t)rng_between(r, DUO_MESSAGE_MAX_BYTES - 1000, DUO_MESSAGE_MAX_BYTES);
    duo_add(&duo, bytes, bytes, duo.now, duo.now);
  }
}

static void draw_messages(struct rng *r) {
  uint32_t count = (uint32_t)rng_between(r, 20, 60), total = 0;
  harp_ns send = duo.now, recv = duo.now;
  harp_ns send_gap = rng_below(r, 3) ? 0 : draw_delay(r), recv_gap = rng_below(r, 3) ? 0 : draw_delay(r);
  recv += rng_below(r, 3) ? 0 : draw_delay(r);
  for (uint32_t k = 0; k < count; k++) {
    uint32_t bytes = draw_size(r);
    if (total + bytes > TOTAL_MAX_BYTES) bytes %= 1000;
    total += bytes;
    duo_add(&duo, bytes, bytes + (rng_below(r, 2) ? 0 : (uint32_t)rng_below(r, 5000)), send, recv);
    if (send_gap) send += rng_below(r, 2 * send_gap);
    if (recv_gap) recv += rng_below(r, 2 * recv_gap);
  }
}

/* ---- one seed ---- */

static uint64_t live_packets(const struct scenario *s) {
  uint64_t n = 0;
  for (unsigned i = 0; i < duo.config.path_count; i++) {
    if (!(s->dead >> i & 1)) n += duo.path_packets[i];
  }
  return n;
}

static void run_seed(uint64_t seed, bool trace) {
  struct rng r = {seed * 0x2545F4914F6CDD1Dull + 99};
  struct scenario s = {.clean = !rng_below(&r, 10)};
  struct duo_config c = {.seed = seed, .trace = trace};
  snprintf(replay, sizeof replay, "SEED=%" PRIu64 ", replay with: build/sim --seed %" PRIu64 " --trace", seed,
           seed);
  snprintf(duo.label, sizeof duo.label, "%s", replay);
  draw_config(&r, &c, s.clean);
  duo_start(&duo, &c);
  duo.trace_out = stdout;
  s.longer = !s.clean && !rng_below(&r, 200);
  s.heal = duo.now + rng_below(&r, FAULTS_MAX_NS);
  draw_network(&r, &s);
  if (s.longer)
    draw_long(&r);
  else
    draw_messages(&r);

  if (!duo_run(&duo, s.heal)) {
    simnet_heal(&duo.net);
    duo.faults = false;
    if (!duo_run(&duo, duo.now + LIVE_NS))
      duo_fail(&duo, "not live: %u of %u sent, %u received", duo.sent_count, duo.count, duo.received_count);
  }
  duo_check_buffers(&duo);
  if (s.clean && duo.tx.counters.lost_packets)
    duo_fail(&duo, "%" PRIu64 " packets called lost in a clean network", duo.tx.counters.lost_packets);

  simnet_heal(&duo.net);
  duo.faults = false;
  harp_ns calm = HARP_MAX(duo.now, s.heal) + CALM_NS;
  while (duo_step(&duo, calm)) {
  }
  uint64_t before = live_packets(&s), allowed = s.dead ? 4 : 0;
  while (duo_step(&duo, calm + SILENCE_NS)) {
  }
  if (live_packets(&s) - before > allowed)
    duo_fail(&duo, "%" PRIu64 " packets after all was done", live_packets(&s) - before);
  duo_check_buffers(&duo);
}

/* ---- many ---- */

static void count_seed(void) {
  const struct harp_counters *tx = &duo.tx.counters, *rx = &duo.rx.counters;
  bool smaller = false;
  for (unsigned i = 0; i < duo.config.path_count; i++)
    smaller |= duo.sender->paths[i].lines < duo.sender->paths[i].lines_max;
  tally->messages += duo.count;
  tally->data_packets += duo.data_packets;
  tally->acks += duo.ack_packets;
  tally->network_drops += duo.net.dropped;
  tally->lost += tx->lost_packets;
  tally->spurious += tx->spurious_losses;
  tally->timeouts += tx->probe_timeouts;
  tally->probes += tx->probes;
  tally->early += rx->early_messages;
  tally->down += tx->path_down;
  tally->up += tx->path_up;
  tally->duplicates += rx->drops[HARP_DROP_DUPLICATE];
  tally->bad_crc += rx->drops[HARP_DROP_CRC] + tx->drops[HARP_DROP_CRC];
  tally->smaller += smaller;
  tally->tails += tx->tail_duplicates;
  tally->striped += duo.config.path_count > 4;
}

static void print_tally(void) {
  printf("%" PRIu64 " messages, %" PRIu64 " data packets, %" PRIu64
         " acknowledgements; the network lost %" PRIu64 "\n",
         tally->messages, tally->data_packets, tally->acks, tally->network_drops);
  printf("called lost %" PRIu64 " (%" PRIu64 " of them wrongly), probe timeouts %" PRIu64 ", probes %" PRIu64
         ", duplicates %" PRIu64 ", bad checksums %" PRIu64 "\n",
         tally->lost, tally->spurious, tally->timeouts, tally->probes, tally->duplicates, tally->bad_crc);
  printf("early messages %" PRIu64 ", paths down %" PRIu64 " and up %" PRIu64
         ", seeds that end with smaller packets %" PRIu64 "\n",
         tally->early, tally->down, tally->up, tally->smaller);
  printf("tails sent twice %" PRIu64 ", seeds with 5 to 64 paths %" PRIu64 "\n", tally->tails,
         tally->striped);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_share(uint64_t seed0, uint64_t seeds, unsigned job, unsigned jobs) {
  for (uint64_t i = job; i < seeds; i += jobs) {
    alarm(SEED_ALARM_S);
    run_seed(seed0 + i, false);
    count_seed();
  }
  duo_fini(&duo);
}

static int run_many(uint64_t seed0, uint64_t seeds, unsigned jobs) {
  double start = now_s();
  tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (tally == MAP_FAILED) return perror("mmap"), 1;
  for (unsigned job = 0; job < jobs; job++) {
    pid_t pid = fork();
    if (pid < 0) return perror("fork"), 1;
    if (!pid) {
      run_share(seed0, seeds, job, jobs);
      exit(0);
    }
  }
  int status, bad = 0;
  while (wait(&status) > 0) bad |= status != 0;
  double seconds = now_s() - start;
  if (bad) return 1;
  print_tally();
  printf("%" PRIu64 " seeds from %" PRIu64 " in %.1f s: %.0f seeds/s with %u processes\n", seeds, seed0,
         seconds, (double)seeds / seconds, jobs);
  return 0;
}

static int run_transfer(uint32_t lines, unsigned paths) {
  if (lines < HARP_PACKET_MIN_LINES || lines > HARP_PACKET_MAX_LINES || !paths || paths > 8)
    return fprintf(stderr, "no such size, or more than 8 paths\n"), 2;
  uint64_t packets = transfer_run(lines, paths);
  if (!packets) return fprintf(stderr, "packets were called lost\n"), 1;
  printf("%" PRIu64 " data packets\n", packets);
  return 0;
}

int main(int argc, char **argv) {
  uint64_t seed0 = 1, seeds = 10000, one = 0;
  unsigned jobs = 2;
  bool trace = false, single = false;
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--trace"))
      trace = true;
    else if (!strcmp(argv[i], "--seed"))
      one = strtoull(value, NULL, 0), single = true, i++;
    else if (!strcmp(argv[i], "--transfer"))
      return run_transfer((uint32_t)strtoul(value, NULL, 0),
                          i + 2 < argc ? (unsigned)strtoul(argv[i + 2], NULL, 0) : 1);
    else if (!strcmp(argv[i], "--seeds"))
      seeds = strtoull(value, NULL, 0), i++;
    else if (!strcmp(argv[i], "--seed0"))
      seed0 = strtoull(value, NULL, 0), i++;
    else if (!strcmp(argv[i], "--jobs"))
      jobs = (unsigned)strtoul(value, NULL, 0), i++;
    else
      return fprintf(stderr, "usage: sim [--seeds N] [--seed0 N] [--jobs N] | --seed N [--trace] | "
                             "--transfer LINES [PATHS]\n"),
             2;
  }
  signal(SIGABRT, on_signal);
  signal(SIGSEGV, on_signal);
  signal(SIGALRM, on_signal);
  if (!single) return run_many(seed0, seeds, jobs ? jobs : 1);
  alarm(SEED_ALARM_S);
  run_seed(one, trace);
  printf("seed %" PRIu64 " passed: %u messages, %" PRIu64 " data packets, %" PRIu64
         " acknowledgements, %" PRIu64 " lost\n",
         one, duo.count, duo.data_packets, duo.ack_packets, duo.tx.counters.lost_packets);
  duo_fini(&duo);
  return 0;
}
