/* SPDX-License-Identifier: Apache-2.0 */
/* The seeded simulation: one seed is one random scenario of one connection, with faults for a while, then
 * none.
 *
 *   sim [--seeds N] [--seed0 N] [--jobs N]   run seeds seed0 .. seed0 + N - 1, print how many a second
 *   ... --ride 0|1                           with no acknowledgement on data, or with all that can be there
 *   ... --check-steps N                      check the ends' whole state every N events: twice as quick by 16
 *   sim --seed N [--trace]                   run one again, with both ends' traces
 *   sim --transfer LINES [PATHS [ENIS]]             a fixed transfer, for counting instructions
 *
 * Safety is checked after every event (lib/duo.c). Liveness: once the faults have ended everything completes
 * within LIVE_NS (longer where the receiver's window is small), and then the connection falls silent, but for
 * the probes of a path that stays dead. */
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/duo_tcp.h"
#include "sim/scenario.h"
#include "sim/transfer.h"

#define LIVE_NS HARP_SEC(20)
/* A window of 64 KiB lets 2 MB/s over paths of 16 ms. */
#define LIVE_SMALL_WINDOW_NS HARP_SEC(80)
#define CALM_NS              HARP_SEC(2)
#define SILENCE_NS           HARP_SEC(2)
enum {
  SEED_CPU_S = 60,
  DEAD_PROBES = 24,
  LOST_SIZE_PROBES = 2,
  UNSETTLED_PACKETS = 12,
  KEPT_BYTES = 32 << 20
};

static struct duo duo;
static char replay[96];
static int ride = -1; /* whether acknowledgements ride on data: the seed's value, or 0 or 1 */

/* What happened in all seeds: shows that the scenarios reach what they are meant to. Shared by the
 * processes. */
static struct tally {
  _Atomic uint64_t messages, data_packets, acks, network_drops, lost, spurious, timeouts, probes, early, down,
      up, duplicates, bad_crc, with_macs, bad_macs, smaller, tails, striped, streams, failed, both_ways,
      superframes, alone, rides, prompts, with_tcp, tcp_alone, records, in_place, scrapped, connections,
      ended, broken, trials, changes;
} * tally;

static void on_signal(int number) {
  static const char text[] = "FAILED: ";
  (void)!write(2, text, sizeof text - 1);
  (void)!write(2, replay, strlen(replay));
  (void)!write(2, "\n", 1);
  signal(number, SIG_DFL);
  raise(number);
}

/* ---- one seed ---- */

static uint64_t live_packets(const struct scenario *s) {
  uint64_t n = 0;
  for (unsigned i = 0; i < duo.config.path_count; i++) {
    if (!(s->dead >> i & 1)) n += duo.path_packets[i];
  }
  return n;
}

static uint64_t lost_packets(void) {
  return duo.ends[0].counters.lost_packets + duo.ends[1].counters.lost_packets;
}

/* A probe may carry lines that are on their way already; where their stream was closed meanwhile and its id
 * is in use again, the receiver refuses them. */
static uint64_t refused_copies(const struct scenario *s) {
  if (!s->churns) return 0;
  return duo.ends[0].counters.drops[HARP_DROP_WINDOW] + duo.ends[1].counters.drops[HARP_DROP_WINDOW];
}

_Noreturn static void not_live(void) {
  for (unsigned i = 0; i < duo.stream_count; i++) {
    const struct duo_stream *s = &duo.streams[i];
    if (duo_is_finished(s)) continue;
    duo_fail(&duo, "not live: stream %u, way %u, id %u: %u of %u sent, %u received, states %d and %d", i,
             s->config.way, s->config.id, s->sent_count, s->count, s->received_count, s->tx_state,
             s->rx_state);
  }
  duo_fail(&duo, "not live");
}

/* Returns whether an end announces a small window, or the connections of a network with TCP hold little. */
static bool has_small_window(void) {
  uint32_t least = duo_tcp_count(&duo) ? duo.config.tcp.room_bytes : UINT32_MAX;
  for (unsigned i = 0; i < DUO_ENDS; i++) {
    const struct duo_end *e = &duo.ends[i];
    least = HARP_MIN(least, e->window_bytes);
    if (e->receiver) least = HARP_MIN(least, e->receiver->window_bytes); /* announced, and on its way */
  }
  return least <= 64 << 10;
}

static void run_seed(uint64_t seed, bool trace) {
  snprintf(replay, sizeof replay, "SEED=%" PRIu64 ", replay with: build/sim --seed %" PRIu64 " --trace", seed,
           seed);
  snprintf(duo.label, sizeof duo.label, "%s", replay);
  struct scenario s = scenario_start(&duo, seed, trace, ride);
  duo.trace_out = stdout;

  if (!duo_run(&duo, s.heal)) {
    duo_heal(&duo);
    if (!duo_run(&duo, duo.now + (has_small_window() ? LIVE_SMALL_WINDOW_NS : LIVE_NS))) not_live();
  }
  if (s.clean && lost_packets() > refused_copies(&s))
    duo_fail(&duo, "%" PRIu64 " packets called lost in a clean network", lost_packets());

  duo_heal(&duo);
  harp_ns calm = HARP_MAX(duo.now, s.heal) + CALM_NS;
  if (duo_tcp_count(&duo)) calm += duo.config.tcp.timeout_ns; /* until then a silent connection ends */
  while (duo_step(&duo, calm)) {
  }
  /* Probes of a dead path go on, and with each one a live path may look for its packet size. Where that is
   * lost, its timeout has all paths in use probed and answered. */
  uint64_t before = live_packets(&s), allowed = 0;
  if (s.dead) allowed += DEAD_PROBES + 2 * LOST_SIZE_PROBES * (duo.config.path_count - 1);
  allowed += UNSETTLED_PACKETS * duo_tcp_unsettled(&duo); /* connections come back ever more rarely */
  /* So may each where an end wakes for its connections: a probe, that of its timeout, what acknowledges it.
   */
  if (duo_tcp_count(&duo)) allowed += 3 * DUO_ENDS * (duo.config.path_count - duo_tcp_count(&duo));
  while (duo_step(&duo, calm + SILENCE_NS)) {
  }
  if (live_packets(&s) - before > allowed)
    duo_fail(&duo, "%" PRIu64 " packets after all was done", live_packets(&s) - before);
  duo_check_buffers(&duo);
}

/* ---- many ---- */

static void count_end(const struct duo_end *e) {
  const struct harp_counters *c = &e->counters;
  bool smaller = false;
  for (unsigned i = 0; e->sender && i < duo.config.path_count; i++)
    smaller |= e->sender->paths[i].size.lines < e->sender->paths[i].size.lines_max;
  tally->lost += c->lost_packets;
  tally->spurious += c->spurious_losses;
  tally->timeouts += c->probe_timeouts;
  tally->probes += c->probes;
  tally->early += c->early_messages;
  tally->down += c->path_down;
  tally->up += c->path_up;
  tally->duplicates += c->drops[HARP_DROP_DUPLICATE];
  tally->bad_crc += c->drops[HARP_DROP_CRC];
  tally->bad_macs += c->drops[HARP_DROP_MAC];
  tally->trials += c->experiments;
  tally->changes += c->experiment_changes;
  tally->smaller += smaller;
  tally->tails += c->tail_duplicates;
  tally->prompts += e->prompts;
  if (duo.config.is_one_way) return;
  tally->superframes += e->superframes;
  tally->alone += e->acks_alone;
  tally->rides += e->rides;
}

static void count_seed(void) {
  tally->messages += duo.count;
  tally->streams += duo.stream_count;
  for (unsigned i = 0; i < duo.stream_count; i++) tally->failed += duo.streams[i].failed;
  tally->data_packets += duo.data_packets;
  tally->acks += duo.ack_packets;
  tally->network_drops += duo.net.dropped;
  tally->striped += duo.config.path_count > 4;
  tally->with_macs += duo.config.macs;
  tally->both_ways += !duo.config.is_one_way;
  for (unsigned i = 0; i < DUO_ENDS; i++) count_end(&duo.ends[i]);
  struct duo_tcp_tally t = duo_tcp_tally(&duo);
  tally->with_tcp += duo_tcp_count(&duo) != 0;
  tally->tcp_alone += duo_tcp_count(&duo) == duo.config.path_count;
  tally->records += t.records;
  tally->in_place += t.in_place;
  tally->scrapped += t.scrapped;
  tally->connections += t.connections;
  tally->ended += t.ended;
  tally->broken += t.broken;
}

static void print_tally(void) {
  printf("%" PRIu64 " messages on %" PRIu64 " streams (%" PRIu64 " of them failed), %" PRIu64
         " data packets, %" PRIu64 " acknowledgements; the network lost %" PRIu64 "\n",
         tally->messages, tally->streams, tally->failed, tally->data_packets, tally->acks,
         tally->network_drops);
  printf("called lost %" PRIu64 " (%" PRIu64 " of them wrongly), probe timeouts %" PRIu64 ", probes %" PRIu64
         ", duplicates %" PRIu64 ", bad checksums %" PRIu64 "\n",
         tally->lost, tally->spurious, tally->timeouts, tally->probes, tally->duplicates, tally->bad_crc);
  printf("early messages %" PRIu64 ", paths down %" PRIu64 " and up %" PRIu64
         ", seeds that end with smaller packets %" PRIu64 "\n",
         tally->early, tally->down, tally->up, tally->smaller);
  printf("with MACs: seeds %" PRIu64 ", wrong MACs %" PRIu64 "\n", tally->with_macs, tally->bad_macs);
  printf("tails sent twice %" PRIu64 ", seeds with 5 to 64 paths %" PRIu64
         ", acknowledgements sent at once on request %" PRIu64 "\n",
         tally->tails, tally->striped, tally->prompts);
  printf("both ways at once: seeds %" PRIu64 ", superframes %" PRIu64
         ", of them acknowledgements alone %" PRIu64 ", acknowledgements that rode on data %" PRIu64 "\n",
         tally->both_ways, tally->superframes, tally->alone, tally->rides);
  printf("tcp paths: seeds %" PRIu64 " (%" PRIu64 " without others), records %" PRIu64
         ", read in place %" PRIu64 ", to scrap %" PRIu64 ", ends of connections %" PRIu64 ", %" PRIu64
         " of them early, %" PRIu64 " over what is no record\n",
         tally->with_tcp, tally->tcp_alone, tally->records, tally->in_place, tally->scrapped,
         tally->connections, tally->ended, tally->broken);
  printf("experiments %" PRIu64 ", of them %" PRIu64 " that changed something\n", tally->trials,
         tally->changes);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Ends the process by SIGPROF when the next seed takes so much processor time: it never comes to its end. */
static void limit_seed(void) {
  (void)setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = SEED_CPU_S}, NULL);
}

static void run_share(uint64_t seed0, uint64_t seeds, unsigned job, unsigned jobs) {
  mallopt(M_MMAP_THRESHOLD, KEPT_BYTES); /* else each seed takes its large blocks from the kernel and */
  mallopt(M_TRIM_THRESHOLD, KEPT_BYTES); /* returns them */
  for (uint64_t i = job; i < seeds; i += jobs) {
    limit_seed();
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

static int run_transfer(uint32_t lines, unsigned paths, unsigned enis) {
  if (lines < HARP_PACKET_MIN_LINES || lines > HARP_PACKET_MAX_LINES || !paths || paths > 8 || !enis ||
      enis > paths)
    return fprintf(stderr, "no such size, more than 8 paths, or more ENIs than paths\n"), 2;
  uint64_t packets = transfer_run(lines, paths, enis);
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
                          i + 2 < argc ? (unsigned)strtoul(argv[i + 2], NULL, 0) : 1,
                          i + 3 < argc ? (unsigned)strtoul(argv[i + 3], NULL, 0) : 1);
    else if (!strcmp(argv[i], "--seeds"))
      seeds = strtoull(value, NULL, 0), i++;
    else if (!strcmp(argv[i], "--seed0"))
      seed0 = strtoull(value, NULL, 0), i++;
    else if (!strcmp(argv[i], "--ride"))
      ride = atoi(value), i++;
    else if (!strcmp(argv[i], "--check-steps"))
      duo.check_steps = (unsigned)strtoul(value, NULL, 0), i++;
    else if (!strcmp(argv[i], "--jobs"))
      jobs = (unsigned)strtoul(value, NULL, 0), i++;
    else
      return fprintf(stderr, "usage: sim [--seeds N] [--seed0 N] [--jobs N] [--ride 0|1] [--check-steps N] | "
                             "--seed N [--trace] "
                             "| --transfer LINES [PATHS [ENIS]]\n"),
             2;
  }
  signal(SIGABRT, on_signal);
  signal(SIGSEGV, on_signal);
  signal(SIGPROF, on_signal);
  if (!single) return run_many(seed0, seeds, jobs ? jobs : 1);
  limit_seed();
  run_seed(one, trace);
  printf("seed %" PRIu64 " passed: %u messages, %" PRIu64 " data packets, %" PRIu64
         " acknowledgements, %" PRIu64 " lost\n",
         one, duo.count, duo.data_packets, duo.ack_packets, lost_packets());
  duo_fini(&duo);
  return 0;
}
