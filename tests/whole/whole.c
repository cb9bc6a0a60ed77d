/* SPDX-License-Identifier: Apache-2.0 */
/* Runs two processes that exchange messages over the plugin as NCCL does, in a world (world.h): the whole
 * plugin, with its engines, threads, handshakes and sockets, repeated exactly by its seed.
 *
 *   whole PLUGIN WORD...   runs one plan; whole PLUGIN - reads plans from stdin, one a line
 *
 * Words of a plan, all optional:
 *   seed=N draw           what kernels and network do; draw: the seed chooses the words below too
 *   v6 mode=inline|thread driver=udp|tcp|udp+tcp enis=N messages=N streams=N window=N paths=N
 *   loss=PPM break=MS uneven
 *   fail=FUNCTION:N:once|on:ERRNO   the N-th call of process 0 fails, with "on" all later ones
 *   kill=N pause=N:MS jump=N        at the N-th call of process 0 it ends, is stopped, its wall clock jumps
 *   stop=N                          process 0 gives up after N calls of the plugin, as at an abort
 *   trace count                     prints each call of libc; how often process 0 called each
 *
 * A run is right when each process has moved all messages, or got an error with a WARN, or was the one that
 * was ended; when no WARN came without an error; when all bytes were right, and none beside them was written;
 * and when no file, thread or memory of the plugin's is left. Without a fault that excuses it, an error is
 * wrong. */
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl/abi.h"
#include "whole/world.h"

enum {
  STREAMS_MAX = 3,
  WINDOW_MAX = 4,
  BESIDE_BYTES = 64, /* behind a message: nothing is written there */
  ROOM_BYTES = (1 << 20) + BESIDE_BYTES,
  FAIL_EXIT = 1,
  CPU_LIMIT_S = 60, /* the most of a run: a loop without calls */
  PEER_TIMEOUT_S = 2,
  TIMEOUTS = 4, /* in which a wait ends */
};

#define KNOWN_NS HARP_SEC(1) /* until a peer hears of the end of a process */

static const struct harp_nccl_net_v12 *nets[PROCESSES];
static uintptr_t lows[PROCESSES], highs[PROCESSES];

struct request {
  void *at;
  unsigned message;
};

struct stream {
  void *send, *receive, *send_mr, *receive_mr;
  unsigned sent, received, sending, receiving;            /* messages that are done; that were begun */
  struct request sends[WINDOW_MAX], receives[WINDOW_MAX]; /* by message modulo the window */
};

static struct side {
  char handle[HARP_NCCL_HANDLE_BYTES];
  bool has_handle, has_ended, has_given_up, is_closed;
  int error, warns;
  char warn[300];
  const char *stage;
  unsigned calls;
  void *ctx, *listen;
  struct stream streams[STREAMS_MAX];
  bool is_connected;
  harp_ns ended_ns, moved_ns;
} sides[PROCESSES];

static uint8_t buffers[PROCESSES][2][STREAMS_MAX][WINDOW_MAX][ROOM_BYTES];
static harp_ns killed_ns, broken_ns;

/* ---- a caller ---- */

static int number_of_self(void) {
  return world.current->process;
}

static void on_log(enum harp_nccl_log_level level, unsigned long flags, const char *where, int line,
                   const char *form, ...) {
  struct side *s = &sides[number_of_self()];
  char text[300];
  va_list arguments;
  (void)flags, (void)where, (void)line;
  va_start(arguments, form);
  (void)vsnprintf(text, sizeof text, form, arguments);
  va_end(arguments);
  if (world.plan.is_traced)
    fprintf(stderr, "%12.6f %d    %s %s\n", (double)(world.now - HARP_SEC(1000)) / 1e9, number_of_self(),
            level == HARP_NCCL_LOG_WARN ? "WARN" : "info", text);
  if (level == HARP_NCCL_LOG_WARN && !s->warns++) memcpy(s->warn, text, sizeof text);
}

static uint32_t size_of(unsigned sender, unsigned stream, unsigned message) {
  static const uint32_t sizes[] = {8, 3000, 70000, 300000};
  if (!world.plan.is_uneven) return sizes[message % 4];
  struct rng rng = {world.plan.seed ^ (sender * 7919ull + stream * 104729ull + message)};
  return (uint32_t)rng_below(&rng, 1ull << rng_between(&rng, 0, 20));
}

static uint64_t pattern_of(unsigned sender, unsigned stream, unsigned message, uint32_t at) {
  return (at + 1) * 0x9E3779B97F4A7C15ull ^
         (sender * 31ull + stream * 7ull + message) * 0xBF58476D1CE4E5B9ull;
}

static void fill(uint8_t *to, uint32_t bytes, unsigned sender, unsigned stream, unsigned message) {
  for (uint32_t i = 0; i < bytes; i += 8) {
    uint64_t word = pattern_of(sender, stream, message, i);
    memcpy(to + i, &word, HARP_MIN(8u, bytes - i));
  }
}

static bool is_filled(const uint8_t *at, uint32_t bytes, unsigned sender, unsigned stream, unsigned message) {
  for (uint32_t i = 0; i < bytes; i += 8) {
    uint64_t word = pattern_of(sender, stream, message, i);
    if (memcmp(at + i, &word, HARP_MIN(8u, bytes - i)) != 0) return false;
  }
  return true;
}

static bool is_untouched(const uint8_t *at) {
  for (int i = 0; i < BESIDE_BYTES; i++)
    if (at[i] != 0xA5) return false;
  return true;
}

/* Takes the result of a call. Returns whether to go on. */
static bool is_well(struct side *s, const char *stage, enum harp_nccl_result result) {
  s->stage = stage;
  s->error = (int)result;
  if (result != HARP_NCCL_SUCCESS) return false;
  s->has_given_up = world.plan.stop_at && s == &sides[0] && ++s->calls >= world.plan.stop_at;
  return !s->has_given_up;
}

/* The other process is over: what it would have to do will not happen. */
static bool is_alone(const struct side *s) {
  const struct side *other = &sides[s == &sides[0]];
  return (other->has_ended && (other->error || other->has_given_up)) || killed_ns;
}

/* Lets time pass between two polls. Returns whether nothing has moved for too long. */
static bool nap(struct side *s, bool moved) {
  harp_ns limit =
      HARP_SEC(PEER_TIMEOUT_S) * TIMEOUTS + HARP_MS((harp_ns)world.plan.pause_ms + world.plan.break_ms);
  if (moved) s->moved_ns = world.now;
  pass_time(world.now - s->moved_ns > HARP_MS(1) ? HARP_US(200) : 1 + rng_below(&world.rng, HARP_US(20)));
  if (world.now - s->moved_ns < limit) return false;
  report("HANG in %s of process %d", s->stage, number_of_self());
  return true;
}

static bool connect_all(struct side *s, const struct harp_nccl_net_v12 *net) {
  unsigned n = (unsigned)number_of_self(), connected = 0, accepted = 0, alone = 0;
  static char handles[PROCESSES][STREAMS_MAX][HARP_NCCL_HANDLE_BYTES];
  for (unsigned i = 0; i < STREAMS_MAX; i++) memcpy(handles[n][i], sides[!n].handle, sizeof handles[n][i]);
  while (connected < world.plan.streams || accepted < world.plan.streams) {
    unsigned before = connected + accepted;
    if (connected < world.plan.streams) {
      void **to = &s->streams[connected].send;
      if (!is_well(s, "connect", net->connect(s->ctx, 0, handles[n][connected], to, NULL))) return false;
      connected += *to != NULL;
    }
    if (accepted < world.plan.streams) {
      void **to = &s->streams[accepted].receive;
      if (!is_well(s, "accept", net->accept(s->listen, to, NULL))) return false;
      accepted += *to != NULL;
    }
    if (connected == world.plan.streams && is_alone(s) && alone++ > 1000)
      return false; /* nobody will connect */
    if (nap(s, connected + accepted > before)) return false;
  }
  s->is_connected = true;
  return true;
}

/* Begins what the window allows of one stream, and tests what is under way. */
static bool move_stream(struct side *s, const struct harp_nccl_net_v12 *net, unsigned i) {
  struct stream *st = &s->streams[i];
  unsigned n = (unsigned)number_of_self(), window = world.plan.window;
  while (st->receiving < world.plan.messages && st->receiving < st->received + window) {
    struct request *r = &st->receives[st->receiving % window];
    void *to = buffers[n][1][i][st->receiving % window], *none = NULL;
    size_t bytes = ROOM_BYTES - BESIDE_BYTES;
    int tag = 0;
    memset(to, 0xA5, size_of(!n, i, st->receiving) + BESIDE_BYTES);
    if (!is_well(s, "irecv", net->irecv(st->receive, 1, &to, &bytes, &tag, &st->receive_mr, &none, &r->at)))
      return false;
    if (!r->at) break;
    st->receiving++;
  }
  while (st->sending < world.plan.messages && st->sending < st->sent + window) {
    struct request *r = &st->sends[st->sending % window];
    uint8_t *from = buffers[n][0][i][st->sending % window];
    uint32_t bytes = size_of(n, i, st->sending);
    fill(from, bytes, n, i, st->sending);
    if (!is_well(s, "isend", net->isend(st->send, from, bytes, 0, st->send_mr, NULL, &r->at))) return false;
    if (!r->at) break;
    st->sending++;
  }
  for (int done = 1; done && st->sent < st->sending;) {
    if (!is_well(s, "test of isend", net->test(st->sends[st->sent % window].at, &done, NULL))) return false;
    if (!done) break;
    memset(buffers[n][0][i][st->sent % window], 0x5A, size_of(n, i, st->sent)); /* it is ours again */
    st->sent++;
  }
  for (int done = 1; done && st->received < st->receiving;) {
    int got = -1;
    unsigned m = st->received;
    const uint8_t *at = buffers[n][1][i][m % window];
    if (!is_well(s, "test of irecv", net->test(st->receives[m % window].at, &done, &got))) return false;
    if (!done) continue;
    uint32_t bytes = size_of(!n, i, m);
    if (got != (int)bytes || !is_filled(at, bytes, !n, i, m) || !is_untouched(at + bytes))
      report("WRONG BYTES of message %u to process %u", m, n);
    st->received++;
  }
  return true;
}

static bool move_all(struct side *s, const struct harp_nccl_net_v12 *net) {
  for (;;) {
    unsigned done = 0, after = 0, all = 2 * world.plan.streams * world.plan.messages;
    for (unsigned i = 0; i < world.plan.streams; i++) {
      done += s->streams[i].sent + s->streams[i].received;
      if (!move_stream(s, net, i)) return false;
      after += s->streams[i].sent + s->streams[i].received;
    }
    if (after == all) return true;
    if (nap(s, after > done)) return false;
  }
}

static void work(struct side *s, const struct harp_nccl_net_v12 *net) {
  struct harp_nccl_comm_config_v10 config = {-1};
  struct side *other = &sides[s == &sides[0]];
  int n = number_of_self();
  if (!is_well(s, "init", net->init(&s->ctx, 1, &config, on_log, NULL))) return;
  if (!is_well(s, "listen", net->listen(s->ctx, 0, s->handle, &s->listen))) return;
  s->has_handle = true;
  while (!other->has_handle)
    if (is_alone(s) || nap(s, false)) return;
  if (!connect_all(s, net)) return;
  for (unsigned i = 0; i < world.plan.streams; i++) {
    struct stream *st = &s->streams[i];
    if (!is_well(s, "regMr",
                 net->regMr(st->send, buffers[n][0][i], sizeof buffers[n][0][i], 1, &st->send_mr)) ||
        !is_well(s, "regMr",
                 net->regMr(st->receive, buffers[n][1][i], sizeof buffers[n][1][i], 1, &st->receive_mr)))
      return;
  }
  (void)move_all(s, net);
}

static void *run_side(void *word) {
  struct side *s = word;
  const struct harp_nccl_net_v12 *net = nets[number_of_self()];
  s->moved_ns = world.now;
  work(s, net);
  if (s->error && !s->warns)
    report("AN ERROR WITHOUT A WARN in %s of process %d", s->stage, number_of_self());
  if (!s->error && s->warns && !is_alone(s))
    report("A WARN WITHOUT AN ERROR of process %d", number_of_self());
  s->has_ended = true;
  s->ended_ns = world.now;
  const char *stage = s->stage;
  s->stage = "closing";
  for (unsigned i = 0; i < STREAMS_MAX; i++) {
    struct stream *st = &s->streams[i];
    if (st->send_mr) net->deregMr(st->send, st->send_mr);
    if (st->receive_mr) net->deregMr(st->receive, st->receive_mr);
    if (st->send) net->closeSend(st->send);
    if (st->receive) net->closeRecv(st->receive);
  }
  if (s->listen) net->closeListen(s->listen);
  if (s->ctx) net->finalize(s->ctx);
  s->stage = stage;
  s->is_closed = true;
  world.has_changed = true;
  return NULL;
}

/* ---- the judge ---- */

static bool is_dead(unsigned n) {
  return world.processes[n].is_dead;
}

static bool are_closed(void *word) {
  (void)word;
  for (unsigned n = 0; n < PROCESSES; n++)
    if (!sides[n].is_closed && !is_dead(n)) return false;
  return true;
}

static bool are_clean(void *word) {
  (void)word;
  for (unsigned i = 1; i < world.fiber_count; i++)
    if (!world.fibers[i].is_over && !is_dead((unsigned)world.fibers[i].process)) return false;
  for (unsigned n = 0; n < PROCESSES; n++)
    if (!is_dead(n) && kernel_count_files(&world.processes[n])) return false;
  return true;
}

static void judge_rest(unsigned n) {
  const struct process *p = &world.processes[n];
  unsigned files = kernel_count_files(p), threads = 0;
  for (unsigned i = 1; i < world.fiber_count; i++)
    threads += !world.fibers[i].is_over && world.fibers[i].process == (int)n;
  if (files) report("%u FILES ARE LEFT in process %u", files, n);
  if (threads) report("%u THREADS ARE LEFT in process %u", threads, n);
  if (p->allocations) report("%ld BLOCKS OF MEMORY ARE LEFT in process %u", p->allocations, n);
  if (p->mappings > 0) report("%ld MAPPINGS ARE LEFT in process %u", p->mappings, n);
}

static void judge(void) {
  const struct plan *plan = &world.plan;
  harp_ns limit = HARP_SEC(PEER_TIMEOUT_S) * 2 * TIMEOUTS + HARP_MS((harp_ns)plan->pause_ms + plan->break_ms);
  if (!wait_for(are_closed, NULL, world.now + HARP_SEC(300)))
    report("HANG in a call of %s", sides[sides[0].is_closed || is_dead(0)].stage);
  (void)wait_for(are_clean, NULL, world.now + limit);
  bool is_excused =
      plan->failing >= 0 || killed_ns || plan->stop_at || plan->break_ms >= 1000 * PEER_TIMEOUT_S;
  for (unsigned n = 0; n < PROCESSES; n++) {
    const struct side *s = &sides[n];
    if (is_dead(n)) continue;
    judge_rest(n);
    bool is_cut_off = plan->break_ms > 900 && !s->is_connected; /* TCP repeats a SYN after 1 and 3 s */
    if (s->error && !is_excused && !is_cut_off)
      report("AN ERROR in %s of process %u: %s", s->stage, n, s->warn);
    if (s->has_given_up || !killed_ns || !s->is_connected) continue;
    if (s->ended_ns > killed_ns + KNOWN_NS && !plan->break_ms && !plan->loss_ppm)
      report("LATE: process %u hears of the end after %llu ms", n,
             (unsigned long long)((s->ended_ns - killed_ns) / HARP_MS(1)));
  }
}

/* ---- plans ---- */

static void draw(struct plan *p) {
  static const char *const drivers[] = {"udp", "tcp", "udp+tcp", "auto"};
  struct rng rng = {p->seed ^ 0x57484F4C45ull};
  p->is_threaded = rng_below(&rng, 2);
  p->is_uneven = true;
  (void)snprintf(p->driver, sizeof p->driver, "%s", drivers[rng_below(&rng, 4)]);
  p->enis = 1 + (unsigned)rng_below(&rng, ENIS_MAX);
  p->paths = 1 + (unsigned)rng_below(&rng, 3);
  p->streams = 1 + (unsigned)rng_below(&rng, STREAMS_MAX);
  p->window = 1 + (unsigned)rng_below(&rng, WINDOW_MAX);
  p->messages = 1 + (unsigned)rng_below(&rng, 40);
  p->mtu = rng_below(&rng, 2) ? 1500 : 9000;
  p->room_bytes = 4096u << rng_below(&rng, 8);
  p->buffer_bytes = 65536u << rng_below(&rng, 6);
  if (rng_below(&rng, 2)) p->loss_ppm = (uint32_t)rng_below(&rng, 30000);
  if (!rng_below(&rng, 4)) p->break_ms = (unsigned)rng_below(&rng, 1500);
  long at = (long)(1ull << rng_between(&rng, 4, 15)) + (long)rng_below(&rng, 1000);
  switch (rng_below(&rng, 6)) {
  case 0:
    p->kill_at = at;
    break;
  case 1:
    p->stop_at = 1 + (unsigned)rng_below(&rng, 1ull << rng_between(&rng, 1, 10));
    break;
  case 2:
    p->pause_at = at;
    p->pause_ms = 1u << rng_between(&rng, 0, 13);
    break;
  case 3:
    p->jump_at = at;
    break;
  default:
    break;
  }
  p->is_v6 = !rng_below(&rng, 3);
}

static bool take_failure(struct plan *p, char *text) {
  char *rest, *function = strtok_r(text, ":", &rest), *n = strtok_r(NULL, ":", &rest),
              *lasts = strtok_r(NULL, ":", &rest), *code = strtok_r(NULL, ":", &rest);
  p->failing = function ? function_find(function) : -1;
  if (!code || p->failing < 0) return false;
  p->fails_at = atoi(n);
  p->fails_on = strcmp(lasts, "on") == 0;
  p->fails_with = atoi(code);
  return true;
}

static bool parse(struct plan *p, const char *text, bool *counts) {
  char words[512], *rest;
  (void)snprintf(words, sizeof words, "%s", text);
  *p = (struct plan){
      .seed = 1, .failing = -1, .enis = 1, .messages = 8, .streams = 1, .window = 1, .paths = 2};
  p->mtu = 9000;
  p->room_bytes = 256 << 10;
  p->buffer_bytes = 208 << 10;
  strcpy(p->driver, "auto");
  for (char *word = strtok_r(words, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
    char *value = strchr(word, '=');
    long number = value ? atol(value + 1) : 0;
    if (value) *value++ = 0;
    if (!strcmp(word, "seed"))
      p->seed = (uint64_t)number;
    else if (!strcmp(word, "draw"))
      draw(p);
    else if (!strcmp(word, "mode"))
      p->is_threaded = value && !strcmp(value, "thread");
    else if (!strcmp(word, "driver") && value)
      (void)snprintf(p->driver, sizeof p->driver, "%.15s", value);
    else if (!strcmp(word, "enis"))
      p->enis = (unsigned)number;
    else if (!strcmp(word, "messages"))
      p->messages = (unsigned)number;
    else if (!strcmp(word, "streams"))
      p->streams = (unsigned)number;
    else if (!strcmp(word, "window"))
      p->window = (unsigned)number;
    else if (!strcmp(word, "paths"))
      p->paths = (unsigned)number;
    else if (!strcmp(word, "loss"))
      p->loss_ppm = (unsigned)number;
    else if (!strcmp(word, "break"))
      p->break_ms = (unsigned)number;
    else if (!strcmp(word, "v6"))
      p->is_v6 = true;
    else if (!strcmp(word, "uneven"))
      p->is_uneven = true;
    else if (!strcmp(word, "kill"))
      p->kill_at = number;
    else if (!strcmp(word, "jump"))
      p->jump_at = number;
    else if (!strcmp(word, "stop"))
      p->stop_at = (unsigned)number;
    else if (!strcmp(word, "trace"))
      p->is_traced = true;
    else if (!strcmp(word, "count"))
      *counts = true;
    else if (!strcmp(word, "pause") && value && strchr(value, ':'))
      p->pause_at = number, p->pause_ms = (unsigned)atol(strchr(value, ':') + 1);
    else if (strcmp(word, "fail") || !value || !take_failure(p, value))
      return false;
  }
  return p->enis >= 1 && p->enis <= ENIS_MAX && p->streams >= 1 && p->streams <= STREAMS_MAX &&
         p->window >= 1 && p->window <= WINDOW_MAX;
}

static void set_environment(const struct plan *p) {
  char paths[16];
  (void)snprintf(paths, sizeof paths, "%u", p->paths);
  setenv("HARP_IFNAME", p->enis == 2 ? "=eth0,eth1" : "=eth0", 1);
  setenv("HARP_PATHS", paths, 1);
  setenv("HARP_PEER_TIMEOUT", "2", 1);
  setenv("HARP_STALL_TIME", "3600", 1);
  setenv("HARP_ENGINE", p->is_threaded ? "thread" : "inline", 1);
  setenv("HARP_DRIVER", p->driver, 1);
}

static void break_links(void *word, uint64_t number) {
  (void)word, (void)number;
  broken_ns = world.now;
  kernel_break(HARP_MS((harp_ns)world.plan.break_ms));
}

static void note_kill(void) {
  killed_ns = world.now;
}

/* In a child process: the world, from its beginning to its end. */
static int run_plan(const struct plan *plan, bool counts) {
  world.plan = *plan;
  world.rng.state = plan->seed;
  world.on_kill = note_kill;
  simnet_reset(&world.net, plan->seed + 1);
  for (int n = 0; n < PROCESSES; n++) {
    world.processes[n].low = lows[n];
    world.processes[n].high = highs[n];
    for (unsigned i = 0; i < ENIS_MAX; i++) {
      struct simnet_link *l = &world.net.links[n][i];
      *l = (struct simnet_link){.delay_ns = HARP_US(20), .jitter_ns = HARP_US(5), .loss_ppm = plan->loss_ppm};
      l->own.rate_bytes_s = 3000000000ull;
      if (plan->is_uneven)
        l->duplicate_ppm = 1000, l->corrupt_ppm = 1000, l->late_ppm = 1000, l->late_ns = HARP_MS(3);
    }
  }
  set_environment(plan);
  world.current = fiber_new(PROCESSES, NULL, NULL);
  for (int n = 0; n < PROCESSES; n++) fiber_new(n, run_side, &sides[n]);
  if (plan->break_ms) at_time(world.now + rng_below(&world.rng, HARP_MS(30)), break_links, NULL, 0);
  judge();
  printf("%s hash=%016llx calls=%ld ms=%llu %s: %s%s%s\n", world.trouble[0] ? "FAILURE" : "ok",
         (unsigned long long)world.hash, world.call_count,
         (unsigned long long)((world.now - HARP_SEC(1000)) / HARP_MS(1)),
         sides[0].error || sides[1].error ? "error" : "well", world.trouble, sides[0].warns ? " | 0: " : "",
         sides[0].warn);
  if (counts) functions_print(stdout);
  fflush(stdout);
  return world.trouble[0] ? FAIL_EXIT : 0;
}

static void describe(const struct plan *p, const char *text) {
  printf("  of: %s (mode=%s driver=%s enis=%u messages=%u streams=%u window=%u paths=%u mtu=%u room=%u "
         "buffer=%u "
         "loss=%u break=%u kill=%ld pause=%ld:%u jump=%ld stop=%u%s)\n",
         text, p->is_threaded ? "thread" : "inline", p->driver, p->enis, p->messages, p->streams, p->window,
         p->paths, p->mtu, p->room_bytes, p->buffer_bytes, p->loss_ppm, p->break_ms, p->kill_at, p->pause_at,
         p->pause_ms, p->jump_at, p->stop_at, p->is_v6 ? " v6" : "");
}

static int fork_plan(const char *text) {
  struct plan plan;
  bool counts = false;
  int status;
  if (!parse(&plan, text, &counts)) {
    fprintf(stderr, "whole: no plan: %s\n", text);
    return 2;
  }
  pid_t child = fork();
  if (!child) {
    const struct itimerval limit = {.it_value = {.tv_sec = CPU_LIMIT_S}};
    setitimer(ITIMER_VIRTUAL, &limit, NULL);
    _exit(run_plan(&plan, counts));
  }
  if (child < 0 || waitpid(child, &status, 0) < 0) return 2;
  if (WIFSIGNALED(status))
    printf("FAILURE by signal %d%s\n", WTERMSIG(status),
           WTERMSIG(status) == SIGVTALRM ? ": a loop without end" : "");
  if (status) describe(&plan, text);
  fflush(stdout);
  return status != 0;
}

static int on_object(struct dl_phdr_info *info, size_t bytes, void *word) {
  int n = *(int *)word;
  uintptr_t low = UINTPTR_MAX, high = 0;
  (void)bytes;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    low = HARP_MIN(low, at);
    high = HARP_MAX(high, at + info->dlpi_phdr[i].p_memsz);
  }
  if ((uintptr_t)nets[n] < low || (uintptr_t)nets[n] >= high) return 0;
  lows[n] = low;
  highs[n] = high;
  return 1;
}

/* Loads one more copy of the plugin, of a file of its own. */
static void load(const char *path, int n) {
  char name[64], data[65536];
  FILE *from = fopen(path, "r");
  FILE *to = tmpfile();
  size_t bytes;
  while (from && to && (bytes = fread(data, 1, sizeof data, from))) fwrite(data, 1, bytes, to);
  if (!from || !to || fflush(to)) exit(2);
  (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fileno(to));
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "whole: %s\n", dlerror());
    exit(2);
  }
  nets[n] = dlsym(library, "ncclNetPlugin_v12");
  dl_iterate_phdr(on_object, &n);
}

int main(int count, char **words) {
  char text[512] = "";
  int rc = 0;
  if (count < 3) {
    fprintf(stderr, "usage: whole PLUGIN -|WORD...\n");
    return 2;
  }
  for (int n = 0; n < PROCESSES; n++) load(words[1], n);
  if (strcmp(words[2], "-") == 0) {
    while (fgets(text, sizeof text, stdin)) rc |= fork_plan(strtok(text, "\n"));
    _exit(rc); /* the plugin's destructors are for a process that used it */
  }
  for (int i = 2; i < count; i++) {
    size_t used = strlen(text);
    (void)snprintf(text + used, sizeof text - used, "%s ", words[i]);
  }
  _exit(fork_plan(text));
}
