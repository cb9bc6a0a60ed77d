/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "fail.h"
#include "host/cpu.h"
#include "nccl/abi.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char help_text[] =
    "Usage: harp-perf --plugin PATH --mode MODE [options]\n"
    "       harp-perf --core-latency A,B\n"
    "\n"
    "Drives a NCCL net plugin (v4 to v12) the way NCCL's proxy thread does, without NCCL and without a GPU, "
    "and\n"
    "prints a table in the manner of nccl-tests.\n"
    "\n"
    "Traffic\n"
    "  --plugin PATH          the plugin's shared library\n"
    "  --abi N                use ncclNetPlugin_vN (default: the newest that the plugin exports)\n"
    "  --dev N                use the plugin's device N (default 0)\n"
    "  --mode stream          rank i sends to rank i + n/2; with two ranks, 0 to 1; an odd last rank looks "
    "on\n"
    "         bidir           the same pairs, both directions at once\n"
    "         pingpong        the same pairs, one message at a time to and fro: half round trip\n"
    "         ring            each rank sends to the next and receives from the previous\n"
    "         alltoall        each rank sends to every other\n"
    "         incast          every rank sends to rank 0\n"
    "  --sizes LIST           message sizes in bytes, comma list, suffixes K M G (powers of 1024); default\n"
    "                         8,1K,4K,32K,64K,128K,512K,1M: what NCCL sends (LL up to 64K, p2p 128K, Simple "
    "512K, 1M)\n"
    "  --min S --max S --factor F    instead of a list: from S to S, each F times the last (default 8, 1M, "
    "2)\n"
    "  --connections C        connections per pair and direction, 1 to 4096 (default 1)\n"
    "  --inflight N           messages outstanding per connection, 1 to 32 (default 8, as NCCL; v6 and older "
    "promise 8)\n"
    "  --wait-sent            with --mode pingpong: a rank waits until its send is done before it posts the\n"
    "                         receive, as a program does that sends, waits, then receives\n"
    "  --time SEC             how long to run each size, after a calibration of about a quarter of that "
    "(default 1)\n"
    "  --iters N              messages per connection and size, instead of --time\n"
    "  --interval-ms N        one size, by the clock: stop after --time however much has arrived, and report "
    "in JSON\n"
    "                         the bytes received in each N ms and on each connection; a plugin that fails or "
    "stalls\n"
    "                         meanwhile is reported too; SIGUSR1 to all ranks ends the run before --time\n"
    "  --pause-ms N           with --interval-ms or --hold: sleep so long between two looks at the "
    "connections, so "
    "that "
    "many\n"
    "                         ranks share few cores; each look posts what --inflight allows\n"
    "  --warmup N             untimed messages per connection before each size (default 32)\n"
    "  --hold SEC             wait so long after the first warm-up, with all connections open and idle\n"
    "  --check, --no-check    verify every byte of every message (default), or neither fill nor verify: for "
    "rates\n"
    "\n"
    "Ranks\n"
    "  --rank R --nranks N --rendezvous HOST:PORT\n"
    "                         who this is, and where the ranks meet: rank 0 listens there; a path that "
    "begins with /\n"
    "                         is a local socket, which processes of all network namespaces reach\n"
    "  --nranks N             alone: start all N ranks on this host (default 2)\n"
    "  Otherwise from the launcher's environment, in this order: RANK and WORLD_SIZE (torchrun),\n"
    "  OMPI_COMM_WORLD_RANK and _SIZE (Open MPI), PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID and "
    "SLURM_NTASKS.\n"
    "  The meeting place is then --rendezvous (the same on all ranks), or MASTER_ADDR:MASTER_PORT (the port "
    "after that\n"
    "  one under torchrun, whose own store listens on it), or, where Open MPI says that all ranks are on one "
    "host, a\n"
    "  local socket named after the job.  Example:\n"
    "      mpirun -np 2 -H gpu1,gpu2 harp-perf --plugin libnccl-net.so --mode stream --rendezvous "
    "gpu1:29500\n"
    "  --timeout SEC          give up when ranks don't meet or connect, or nothing moves, for so long "
    "(default 60)\n"
    "\n"
    "Output (rank 0)\n"
    "  --json FILE            one JSON object; `-`: on standard output instead of the table\n"
    "  --log LEVEL            show the plugin's log lines up to none, version, warn, info or trace on "
    "standard error\n"
    "                         (default: the environment's NCCL_DEBUG, else none)\n"
    "  --version              print the version\n"
    "\n"
    "Cores\n"
    "  --core-latency A,B     print how long a cache line takes from core A to core B and back, in "
    "nanoseconds: the\n"
    "                         least mean of batches within 20 ms; a virtual machine's cores may move apart "
    "and together\n"
    "\n"
    "Columns\n"
    "  count   messages received by all ranks together\n"
    "  time    mean time of one message per connection (with --mode pingpong: of half a round trip), "
    "microseconds\n"
    "  algbw   Gbit/s; stream, bidir, ring: payload received per second by each receiving rank; pingpong: "
    "size over\n"
    "          half a round trip; alltoall: as nccl-tests counts it, n messages per rank and round, its own "
    "included\n"
    "          incast: payload received per second by rank 0\n"
    "  busbw   Gbit/s that each rank's network carries in one direction: algbw, times (n-1)/n for alltoall\n"
    "  wrong   messages with a wrong byte or length, or with bytes written behind them; N/A with --no-check\n"
    "Percentiles: with --mode pingpong of half a round trip; with --mode incast, where all ranks are on one "
    "machine,\n"
    "of the time from a message's first offer to its arrival (its first 8 bytes carry the time and are not "
    "checked).\n"
    "Time runs from barrier to barrier. With checks on, filling and verifying are part of it.\n"
    "\n"
    "Exit code: 0, 1 wrong data, 2 usage, 3 plugin, 4 another rank, 5 this machine, 130 interrupted.\n";

static const char *const mode_names[HARP_MODE_COUNT] = {"stream", "bidir",    "pingpong",
                                                        "ring",   "alltoall", "incast"};
static const size_t default_size_bytes[] = {8,         1024,       4096,       32 * 1024,
                                            64 * 1024, 128 * 1024, 512 * 1024, 1024 * 1024};
enum { DEFAULT_INFLIGHT = HARP_NCCL_STEPS, DEFAULT_WARMUP = 32, DEFAULT_TIMEOUT_S = 60 };

const char *harp_mode_name(enum harp_mode mode) {
  return mode_names[mode];
}

static int parse_u64(const char *what, const char *text, uint64_t low, uint64_t high, uint64_t *value) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || end == text || *end || text[0] == '-' || v < low || v > high)
    return harp_fail(HARP_EXIT_USAGE, "%s %s: expected a whole number from %llu to %llu", what, text,
                     (unsigned long long)low, (unsigned long long)high);
  *value = v;
  return 0;
}

static int parse_int(const char *what, const char *text, int low, int high, int *value) {
  uint64_t v;
  if (parse_u64(what, text, (uint64_t)low, (uint64_t)high, &v)) return -1;
  *value = (int)v;
  return 0;
}

static int parse_seconds(const char *what, const char *text, double *value) {
  char *end;
  double v = strtod(text, &end);
  if (end == text || *end || !(v > 0 && v <= 86400))
    return harp_fail(HARP_EXIT_USAGE, "%s %s: expected seconds, more than 0 and at most 86400", what, text);
  *value = v;
  return 0;
}

/* Parses `length` characters as a size with an optional suffix. */
static int parse_size(const char *text, size_t length, size_t *bytes) {
  char copy[32];
  if (length && length < sizeof copy) {
    memcpy(copy, text, length);
    copy[length] = 0;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(copy, &end, 10);
    int shift = 0;
    if (end != copy && *end && end[1] == 0) {
      if (strchr("kK", *end))
        shift = 10;
      else if (strchr("mM", *end))
        shift = 20;
      else if (strchr("gG", *end))
        shift = 30;
      if (shift) end++;
    }
    if (!errno && end != copy && !*end && copy[0] != '-' && v <= HARP_MESSAGE_BYTES_MAX >> shift) {
      *bytes = (size_t)v << shift;
      return 0;
    }
  }
  return harp_fail(HARP_EXIT_USAGE, "size %.*s: expected bytes up to 1G, such as 8, 64K or 1M",
                   (int)HARP_MIN(length, 64), text);
}

static int add_size(struct harp_options *opt, size_t bytes) {
  if (opt->size_count == HARP_SIZES_MAX)
    return harp_fail(HARP_EXIT_USAGE, "more than %d message sizes", HARP_SIZES_MAX);
  opt->size_bytes[opt->size_count++] = bytes;
  return 0;
}

static int parse_size_list(struct harp_options *opt, const char *text) {
  opt->size_count = 0;
  for (;;) {
    size_t length = strcspn(text, ","), bytes;
    if (parse_size(text, length, &bytes) || add_size(opt, bytes)) return -1;
    if (!text[length]) return 0;
    text += length + 1;
  }
}

static int make_size_range(struct harp_options *opt, size_t min, size_t max, double factor) {
  if (!min || min > max) return harp_fail(HARP_EXIT_USAGE, "--min must be at least 1 and at most --max");
  opt->size_count = 0;
  for (double bytes = (double)min; bytes <= (double)max; bytes *= factor)
    if (add_size(opt, (size_t)bytes)) return -1;
  return 0;
}

static int parse_cores(struct harp_options *opt, const char *text) {
  unsigned first, second;
  int end = 0;
  sscanf(text, "%5u,%5u%n", &first, &second, &end);
  if (!end || text[end] || first == second || first >= HARP_CPU_MAX || second >= HARP_CPU_MAX)
    return harp_fail(HARP_EXIT_USAGE, "--core-latency %s: expected two different cores, such as 0,1", text);
  opt->cores[0] = (uint16_t)first;
  opt->cores[1] = (uint16_t)second;
  opt->core_latency = true;
  return 0;
}

static int parse_mode(const char *text, enum harp_mode *mode) {
  for (int i = 0; i < HARP_MODE_COUNT; i++)
    if (!strcmp(text, mode_names[i])) {
      *mode = (enum harp_mode)i;
      return 0;
    }
  return harp_fail(HARP_EXIT_USAGE, "--mode %s: expected stream, bidir, pingpong, ring, alltoall or incast",
                   text);
}

static int parse_log_level(const char *text) {
  static const struct {
    const char *name;
    int level;
  } levels[] = {{"none", HARP_NCCL_LOG_NONE},
                {"version", HARP_NCCL_LOG_VERSION},
                {"warn", HARP_NCCL_LOG_WARN},
                {"info", HARP_NCCL_LOG_INFO},
                {"trace", HARP_NCCL_LOG_TRACE}};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(levels); i++)
    if (!strcasecmp(text, levels[i].name)) return levels[i].level;
  return -1;
}

static int set_address(struct harp_options *opt, const char *host, const char *port) {
  int n =
      snprintf(opt->rendezvous, sizeof opt->rendezvous, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
  if (n < 0 || (size_t)n >= sizeof opt->rendezvous)
    return harp_fail(HARP_EXIT_USAGE, "rendezvous address too long: %.64s...", host);
  return 0;
}

/* Finds the meeting place that MASTER_ADDR and MASTER_PORT give. */
static int address_from_master(struct harp_options *opt) {
  const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
  if (!host || !port) return 0;
  uint64_t number;
  if (parse_u64("MASTER_PORT", port, 1, 65534, &number)) return -1;
  const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (store && !strcasecmp(store, "true")) number++; /* torchrun's own store listens on the port itself */
  char text[8];
  snprintf(text, sizeof text, "%u", (unsigned)number);
  return set_address(opt, host, text);
}

/* Names a local socket after Open MPI's job where all its ranks are on this host. */
static void address_from_local_job(struct harp_options *opt) {
  const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *job = getenv("PMIX_NAMESPACE");
  if (!local || atoi(local) != opt->nranks || !job) return;
  snprintf(opt->rendezvous, sizeof opt->rendezvous, "@harp-perf.%.64s", job);
}

static int rank_from_environment(struct harp_options *opt) {
  static const char *const names[][2] = {{"RANK", "WORLD_SIZE"},
                                         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                         {"PMI_RANK", "PMI_SIZE"},
                                         {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(names); i++) {
    const char *rank = getenv(names[i][0]), *nranks = getenv(names[i][1]);
    if (!rank || !nranks) continue;
    int n;
    if (parse_int(names[i][1], nranks, 2, HARP_RANKS_MAX, &n) ||
        parse_int(names[i][0], rank, 0, n - 1, &opt->rank))
      return -1;
    if (opt->nranks && opt->nranks != n)
      return harp_fail(HARP_EXIT_USAGE, "--nranks %d, but %s is %d", opt->nranks, names[i][1], n);
    opt->nranks = n;
    if (!opt->rendezvous[0] && address_from_master(opt)) return -1;
    if (!opt->rendezvous[0]) address_from_local_job(opt);
    return 0;
  }
  return 0;
}

static int complete_ranks(struct harp_options *opt) {
  if (opt->rank < 0 && rank_from_environment(opt)) return -1;
  if (opt->rank < 0) { /* no launcher: all ranks start here */
    if (!opt->nranks) opt->nranks = 2;
    if (opt->rendezvous[0]) return harp_fail(HARP_EXIT_USAGE, "--rendezvous without --rank and --nranks");
    return 0;
  }
  if (!opt->nranks) return harp_fail(HARP_EXIT_USAGE, "--rank without --nranks");
  if (opt->rank >= opt->nranks)
    return harp_fail(HARP_EXIT_USAGE, "--rank %d: expected 0 to %d", opt->rank, opt->nranks - 1);
  if (!opt->rendezvous[0])
    return harp_fail(HARP_EXIT_USAGE,
                     "where do the ranks meet? Give --rendezvous HOST:PORT on all of them, HOST being "
                     "rank 0's, or set MASTER_ADDR and MASTER_PORT");
  return 0;
}

/* The samples and counts of a timed run go over the rendezvous in one frame, which bounds what may be
 * requested. */
static int check_timed_run(const struct harp_options *opt) {
  if (opt->pause_ms && !opt->interval_ms && !opt->hold_s)
    return harp_fail(HARP_EXIT_USAGE, "--pause-ms takes --interval-ms or --hold");
  if (!opt->interval_ms) return 0;
  if (opt->iterations || opt->size_count != 1)
    return harp_fail(HARP_EXIT_USAGE, "--interval-ms takes --time and one size");
  if (opt->mode == HARP_PINGPONG)
    return harp_fail(HARP_EXIT_USAGE, "--interval-ms is for modes that stream, not for pingpong");
  if (opt->time_s * 1e3 / opt->interval_ms > HARP_SAMPLES_MAX)
    return harp_fail(HARP_EXIT_USAGE, "--interval-ms %u: more than %d samples in %g s", opt->interval_ms,
                     HARP_SAMPLES_MAX, opt->time_s);
  uint64_t flows = 2 * (uint64_t)opt->nranks * (uint64_t)opt->nranks * opt->connections;
  if (flows > HARP_TIMED_RUN_FLOWS_MAX)
    return harp_fail(HARP_EXIT_USAGE, "--interval-ms with %d ranks takes at most %d connections", opt->nranks,
                     HARP_TIMED_RUN_FLOWS_MAX / 2 / opt->nranks / opt->nranks);
  return 0;
}

enum {
  OPT_PLUGIN = 256,
  OPT_ABI,
  OPT_DEV,
  OPT_MODE,
  OPT_SIZES,
  OPT_MIN,
  OPT_MAX,
  OPT_FACTOR,
  OPT_CONNECTIONS,
  OPT_INFLIGHT,
  OPT_WAIT_SENT,
  OPT_HOLD,
  OPT_TIME,
  OPT_ITERS,
  OPT_INTERVAL,
  OPT_PAUSE,
  OPT_WARMUP,
  OPT_CHECK,
  OPT_NO_CHECK,
  OPT_RANK,
  OPT_NRANKS,
  OPT_RENDEZVOUS,
  OPT_TIMEOUT,
  OPT_JSON,
  OPT_LOG,
  OPT_CORE_LATENCY,
  OPT_HELP,
  OPT_VERSION
};

static const struct option long_options[] = {
    {"plugin", required_argument, NULL, OPT_PLUGIN},
    {"abi", required_argument, NULL, OPT_ABI},
    {"dev", required_argument, NULL, OPT_DEV},
    {"mode", required_argument, NULL, OPT_MODE},
    {"sizes", required_argument, NULL, OPT_SIZES},
    {"min", required_argument, NULL, OPT_MIN},
    {"max", required_argument, NULL, OPT_MAX},
    {"factor", required_argument, NULL, OPT_FACTOR},
    {"connections", required_argument, NULL, OPT_CONNECTIONS},
    {"inflight", required_argument, NULL, OPT_INFLIGHT},
    {"wait-sent", no_argument, NULL, OPT_WAIT_SENT},
    {"hold", required_argument, NULL, OPT_HOLD},
    {"time", required_argument, NULL, OPT_TIME},
    {"iters", required_argument, NULL, OPT_ITERS},
    {"interval-ms", required_argument, NULL, OPT_INTERVAL},
    {"pause-ms", required_argument, NULL, OPT_PAUSE},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"check", no_argument, NULL, OPT_CHECK},
    {"no-check", no_argument, NULL, OPT_NO_CHECK},
    {"rank", required_argument, NULL, OPT_RANK},
    {"nranks", required_argument, NULL, OPT_NRANKS},
    {"rendezvous", required_argument, NULL, OPT_RENDEZVOUS},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"json", required_argument, NULL, OPT_JSON},
    {"log", required_argument, NULL, OPT_LOG},
    {"core-latency", required_argument, NULL, OPT_CORE_LATENCY},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

/* The three options that make a range of sizes, before they are put together. */
struct size_range {
  bool given;
  size_t min_bytes, max_bytes;
  double factor;
};

static int apply_option(struct harp_options *opt, struct size_range *range, int id, const char *arg) {
  int number;
  switch (id) {
  case OPT_PLUGIN:
    opt->plugin_path = arg;
    return 0;
  case OPT_ABI:
    return parse_int("--abi", arg, 4, 12, &opt->abi);
  case OPT_DEV:
    return parse_int("--dev", arg, 0, HARP_NCCL_DEVICES_MAX - 1, &opt->dev);
  case OPT_MODE:
    return parse_mode(arg, &opt->mode);
  case OPT_SIZES:
    return parse_size_list(opt, arg);
  case OPT_MIN:
    range->given = true;
    return parse_size(arg, strlen(arg), &range->min_bytes);
  case OPT_MAX:
    range->given = true;
    return parse_size(arg, strlen(arg), &range->max_bytes);
  case OPT_FACTOR: {
    char *end;
    range->given = true;
    range->factor = strtod(arg, &end);
    if (end == arg || *end || !(range->factor >= 1.1 && range->factor <= 1024))
      return harp_fail(HARP_EXIT_USAGE, "--factor %s: expected a number from 1.1 to 1024", arg);
    return 0;
  }
  case OPT_CONNECTIONS:
    if (parse_int("--connections", arg, 1, HARP_CONNECTIONS_MAX, &number)) return -1;
    opt->connections = (unsigned)number;
    return 0;
  case OPT_INFLIGHT:
    if (parse_int("--inflight", arg, 1, HARP_INFLIGHT_MAX, &number)) return -1;
    opt->inflight = (unsigned)number;
    return 0;
  case OPT_HOLD:
    return parse_seconds("--hold", arg, &opt->hold_s);
  case OPT_WAIT_SENT:
    opt->wait_sent = true;
    return 0;
  case OPT_TIME:
    return parse_seconds("--time", arg, &opt->time_s);
  case OPT_ITERS:
    return parse_u64("--iters", arg, 1, UINT64_C(1) << 40, &opt->iterations);
  case OPT_INTERVAL:
    if (parse_int("--interval-ms", arg, 1, 60000, &number)) return -1;
    opt->interval_ms = (unsigned)number;
    return 0;
  case OPT_PAUSE:
    if (parse_int("--pause-ms", arg, 1, 60000, &number)) return -1;
    opt->pause_ms = (unsigned)number;
    return 0;
  case OPT_WARMUP:
    return parse_u64("--warmup", arg, 0, UINT64_C(1) << 40, &opt->warmup);
  case OPT_CHECK:
    opt->check = true;
    return 0;
  case OPT_NO_CHECK:
    opt->check = false;
    return 0;
  case OPT_RANK:
    return parse_int("--rank", arg, 0, HARP_RANKS_MAX - 1, &opt->rank);
  case OPT_NRANKS:
    return parse_int("--nranks", arg, 2, HARP_RANKS_MAX, &opt->nranks);
  case OPT_RENDEZVOUS:
    if (strlen(arg) >= sizeof opt->rendezvous)
      return harp_fail(HARP_EXIT_USAGE, "--rendezvous %.64s...: too long", arg);
    strcpy(opt->rendezvous, arg);
    return 0;
  case OPT_TIMEOUT:
    return parse_seconds("--timeout", arg, &opt->timeout_s);
  case OPT_JSON:
    opt->json_path = arg;
    return 0;
  case OPT_LOG:
    opt->log_level = parse_log_level(arg);
    return opt->log_level >= 0
               ? 0
               : harp_fail(HARP_EXIT_USAGE, "--log %s: expected none, version, warn, info or trace", arg);
  case OPT_CORE_LATENCY:
    return parse_cores(opt, arg);
  default:
    return harp_fail(HARP_EXIT_USAGE, "try harp-perf --help"); /* getopt said which option */
  }
}

int harp_options_parse(struct harp_options *opt, int argc, char **argv) {
  *opt = (struct harp_options){.mode = HARP_MODE_COUNT,
                               .connections = 1,
                               .inflight = DEFAULT_INFLIGHT,
                               .time_s = 1,
                               .warmup = DEFAULT_WARMUP,
                               .check = true,
                               .timeout_s = DEFAULT_TIMEOUT_S,
                               .rank = -1};
  struct size_range range = {.min_bytes = 8, .max_bytes = 1024 * 1024, .factor = 2};
  const char *debug = getenv("NCCL_DEBUG");
  opt->log_level = debug ? parse_log_level(debug) : HARP_NCCL_LOG_NONE;
  if (opt->log_level < 0)
    opt->log_level = HARP_NCCL_LOG_NONE; /* not our variable: not ours to complain about */
  for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
    if (id == OPT_HELP) {
      fputs(help_text, stdout);
      return 1;
    }
    if (id == OPT_VERSION) {
      puts("harp-perf " HARP_VERSION);
      return 1;
    }
    if (apply_option(opt, &range, id, optarg)) return -1;
  }
  if (optind < argc)
    return harp_fail(HARP_EXIT_USAGE, "unexpected argument %s; try harp-perf --help", argv[optind]);
  if (opt->core_latency) return 0;
  if (!opt->plugin_path) return harp_fail(HARP_EXIT_USAGE, "--plugin is missing; try harp-perf --help");
  if (opt->mode == HARP_MODE_COUNT)
    return harp_fail(HARP_EXIT_USAGE, "--mode is missing; try harp-perf --help");
  if (opt->wait_sent && opt->mode != HARP_PINGPONG)
    return harp_fail(HARP_EXIT_USAGE, "--wait-sent is for --mode pingpong");
  if (range.given && opt->size_count)
    return harp_fail(HARP_EXIT_USAGE, "--sizes and --min/--max/--factor exclude each other");
  if (range.given && make_size_range(opt, range.min_bytes, range.max_bytes, range.factor)) return -1;
  if (!opt->size_count)
    for (size_t i = 0; i < HARP_ARRAY_COUNT(default_size_bytes); i++)
      if (add_size(opt, default_size_bytes[i])) return -1;
  return complete_ranks(opt) || check_timed_run(opt) ? -1 : 0;
}

static uint64_t hash_add(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 29;
}

uint64_t harp_options_fingerprint(const struct harp_options *opt) {
  uint64_t hash = hash_add(1, opt->mode);
  for (unsigned i = 0; i < opt->size_count; i++) hash = hash_add(hash, opt->size_bytes[i]);
  hash = hash_add(hash, opt->connections);
  hash = hash_add(hash, opt->inflight);
  hash = hash_add(hash, opt->iterations);
  hash = hash_add(hash, opt->interval_ms);
  hash = hash_add(hash, opt->pause_ms);
  if (opt->interval_ms) hash = hash_add(hash, (uint64_t)(opt->time_s * 1e6));
  hash = hash_add(hash, opt->warmup);
  hash = hash_add(hash, opt->wait_sent);
  return hash_add(hash, opt->check);
}
