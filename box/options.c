/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "log.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MS_MAX 3600e3

const char *const box_op_names[BOX_OP_COUNT] = {"allreduce", "allgather", "reducescatter", "broadcast",
                                                "reduce",    "sendrecv",  "alltoall"};
const char *const box_redop_names[BOX_REDOP_COUNT] = {"sum", "prod", "max", "min", "avg"};

static const char help_text[] =
    "Usage: harp-nccl --lib libnccl.so.2 [options]\n"
    "\n"
    "Runs an official NCCL between processes of this machine without a GPU, and prints a table in the manner "
    "of\n"
    "nccl-tests. Threads play the GPUs; NCCL's loader, bootstrap, proxy and net plugins are its own. "
    "Variables of\n"
    "NCCL and of the plugin are taken from the environment.\n"
    "\n"
    "Ranks\n"
    "  --lib PATH          an official libnccl.so.2, of the wheels nvidia-nccl-cu11, -cu12 or -cu13;\n"
    "                      given twice, a plan can use two at once\n"
    "  --ranks N           processes, each with a GPU of its own (default 2)\n"
    "  --netns LIST        network namespaces of the ranks, in turn (default: this one, over loopback)\n"
    "  --cores LIST        the core of each rank, in turn (default: not pinned)\n"
    "  --nap US            NCCL's threads sleep so long where they poll in vain, so that ranks can share "
    "cores\n"
    "\n"
    "Work\n"
    "  --op NAME           allreduce, allgather, reducescatter, broadcast, reduce, sendrecv or alltoall\n"
    "  --type NAME         int8, uint8, int32, uint32, int64, uint64, half, float (default), double, "
    "bfloat16,\n"
    "                      f8e4m3 or f8e5m2\n"
    "  --redop NAME        sum (default), prod, max, min or avg\n"
    "  --sizes LIST        bytes, with suffixes K M G (powers of 1024)\n"
    "  --min S --max S --factor F\n"
    "                      instead of a list: from S to S, each F times the last (default 8, 64M, 2)\n"
    "  --step LIST         instead: an allreduce for each bucket of a training step. A bucket is MS:SIZE, "
    "ready "
    "MS\n"
    "                      after the step began, in that order; the rows' time is that of a step\n"
    "  --compute MS        of a step: it ends no earlier, and when all buckets are reduced\n"
    "  --root R            the root of broadcast and reduce (default 0)\n"
    "  --comms N           communicators that are used at once, 1 to 16 (default 1)\n"
    "  --cycles N          make and destroy the communicators N times, or repeat the plan (default 1)\n"
    "  --plan STEPS        instead: communicators that come and go, by the steps below\n"
    "\n"
    "Steps of a plan, with ; between them (in brackets the first NCCL that has the call)\n"
    "  init A [ranks=2,0] [count=N] [lib=N]\n"
    "                      make N communicators, of all ranks or of these in this order, with the N-th "
    "--lib\n"
    "  split B from=A colours=0,0,1,- [keys=...] [share]\n"
    "                      ncclCommSplit (2.18): a colour, or none, for each rank of the job\n"
    "  shrink B from=A without=1 [share] [abort]\n"
    "                      ncclCommShrink (2.27), with NCCL_SHRINK_ABORT\n"
    "  grow B from=A with=3\n"
    "                      ncclCommGrow (2.29)\n"
    "  run A B ... [op=NAME]\n"
    "                      one operation of each size in all of them at once; every element is checked\n"
    "  start A [ranks=0,2] [op=NAME]\n"
    "                      an operation that nobody waits for; it can't end if not all ranks take part\n"
    "  kill A ranks=1      kill a rank between two operations\n"
    "  lose A ranks=1      kill a rank in an operation; the others repeat it until NCCL shows an error\n"
    "  finalize A, destroy A, abort A, revoke A (2.28), suspend A, resume A (2.29)\n"
    "                      the calls of these names\n"
    "\n"
    "Measuring\n"
    "  --iters N           timed operations of each size (default 20; 0: none)\n"
    "  --time SEC          instead: as many as fit\n"
    "  --warmup N          operations before that (default 3)\n"
    "  --settle SEC        the largest size for so long first: what connections learn is known then\n"
    "  --check             verify every element of the result\n"
    "  --rounds N          verified operations of each size before what is timed (default 1)\n"
    "\n"
    "Failure\n"
    "  --kill RANK:MS      kill a rank while the largest size is repeated, and report what the others "
    "notice\n"
    "  --patience SEC      abort a communicator that shows no error for so long (default 10)\n"
    "  --timeout SEC       end everything after so long (default 600)\n"
    "\n"
    "Output\n"
    "  --json              one JSON object a line instead of the table\n"
    "\n"
    "Exit codes: 0; 2 usage; 3 a call of NCCL failed; 4 wrong data; 5 something can't be had; 124 timeout;\n"
    "128 and the signal that a rank died of.\n";

static int wrong(const char *option, const char *value) {
  box_log("%s does not take %s; see --help", option, value);
  return -1;
}

static int read_number(const char *option, const char *text, double least, double most, double *out) {
  char *end;
  errno = 0;
  *out = strtod(text, &end);
  if (errno || end == text || *end || !(*out >= least && *out <= most)) return wrong(option, text);
  return 0;
}

static int read_int(const char *option, const char *text, int least, int most, int *out) {
  double value = 0;
  if (read_number(option, text, least, most, &value) || value != (double)(int)value)
    return wrong(option, text);
  *out = (int)value;
  return 0;
}

static int read_size(const char *option, const char *text, size_t *out) {
  static const char units[] = "KMG";
  char *end;
  unsigned long long value = strtoull(text, &end, 10);
  const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;
  if (unit) value <<= 10 * (unit - units + 1);
  if (end == text || (*end && (!unit || end[1])) || !value || value > (8ull << 30))
    return wrong(option, text);
  *out = value;
  return 0;
}

static int read_name(const char *option, const char *text, const char *const *names, int count, int *out) {
  for (*out = 0; *out < count; ++*out)
    if (!strcmp(names[*out], text)) return 0;
  return wrong(option, text);
}

/* Calls `each` with the words of a comma list; the text is changed. */
static int read_list(const char *option, char *text, struct box_options *o,
                     int (*each)(struct box_options *o, const char *option, char *word)) {
  for (char *rest, *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
    if (each(o, option, word)) return -1;
  return 0;
}
static int add_namespace(struct box_options *o, const char *option, char *word) {
  if (o->namespace_count == BOX_RANKS_MAX) return wrong(option, "so many names");
  o->namespaces[o->namespace_count++] = word;
  return 0;
}
static int add_core(struct box_options *o, const char *option, char *word) {
  if (o->core_count == BOX_RANKS_MAX) return wrong(option, "so many cores");
  return read_int(option, word, 0, 1023, &o->cores[o->core_count++]);
}
static int add_size(struct box_options *o, const char *option, char *word) {
  if (o->size_count == BOX_SIZES_MAX) return wrong(option, "so many sizes");
  return read_size(option, word, &o->sizes[o->size_count++]);
}
/* A bucket of a training step: the time at which it is ready, and its size. */
static int add_bucket(struct box_options *o, const char *option, char *word) {
  char *colon = strchr(word, ':');
  if (!colon) return wrong(option, word);
  *colon = 0;
  if (o->size_count == BOX_SIZES_MAX) return wrong(option, "so many buckets");
  double *ready_ms = &o->ready_ms[o->size_count];
  if (read_number(option, word, 0, STEP_MS_MAX, ready_ms)) return -1;
  if (o->size_count && *ready_ms < ready_ms[-1])
    return wrong(option, "a bucket before the one in front of it");
  return add_size(o, option, colon + 1);
}

static int read_kill(struct box_options *o, char *text) {
  char *colon = strchr(text, ':');
  if (!colon) return wrong("--kill", text);
  *colon = 0;
  return read_int("--kill", text, 0, BOX_RANKS_MAX - 1, &o->killed_rank) ||
                 read_int("--kill", colon + 1, 0, 1000000, &o->kill_ms)
             ? -1
             : 0;
}

enum { HELP = 'h', FIRST = 256 };
enum word {
  LIB = FIRST,
  RANKS,
  NETNS,
  CORES,
  NAP,
  OP,
  TYPE,
  REDOP,
  SIZES,
  STEP,
  COMPUTE,
  MIN,
  MAX,
  FACTOR,
  ROOT,
  COMMS,
  CYCLES,
  PLAN,
  ITERS,
  TIME,
  WARMUP,
  SETTLE,
  CHECK,
  ROUNDS,
  KILL,
  PATIENCE,
  TIMEOUT,
  JSON
};
static const struct option words[] = {
    {"lib", 1, 0, LIB},         {"ranks", 1, 0, RANKS},       {"netns", 1, 0, NETNS},
    {"cores", 1, 0, CORES},     {"nap", 1, 0, NAP},           {"op", 1, 0, OP},
    {"type", 1, 0, TYPE},       {"redop", 1, 0, REDOP},       {"sizes", 1, 0, SIZES},
    {"min", 1, 0, MIN},         {"max", 1, 0, MAX},           {"factor", 1, 0, FACTOR},
    {"root", 1, 0, ROOT},       {"comms", 1, 0, COMMS},       {"cycles", 1, 0, CYCLES},
    {"iters", 1, 0, ITERS},     {"time", 1, 0, TIME},         {"warmup", 1, 0, WARMUP},
    {"settle", 1, 0, SETTLE},   {"check", 0, 0, CHECK},       {"rounds", 1, 0, ROUNDS},
    {"kill", 1, 0, KILL},       {"patience", 1, 0, PATIENCE}, {"timeout", 1, 0, TIMEOUT},
    {"json", 0, 0, JSON},       {"plan", 1, 0, PLAN},         {"step", 1, 0, STEP},
    {"compute", 1, 0, COMPUTE}, {"help", 0, 0, HELP},         {0, 0, 0, 0}};

/* From the smallest to the largest, each `factor` times the one before. */
struct sweep {
  size_t least, most;
  int factor;
};

static int read_type(struct box_options *o, const char *text) {
  o->type = box_type_by_name(text);
  return o->type == BOX_TYPE_COUNT ? wrong("--type", text) : 0;
}

static int take_work(struct box_options *o, int word, char *text, struct sweep *sweep) {
  int found = 0, rc = 0;
  switch (word) {
  case OP:
    rc = read_name("--op", text, box_op_names, BOX_OP_COUNT, &found);
    o->op = (enum box_op)found;
    return rc;
  case REDOP:
    rc = read_name("--redop", text, box_redop_names, BOX_REDOP_COUNT, &found);
    o->redop = (enum box_redop)found;
    return rc;
  case TYPE:
    return read_type(o, text);
  case SIZES:
    return read_list("--sizes", text, o, add_size);
  case STEP:
    o->is_step = true;
    return read_list("--step", text, o, add_bucket);
  case COMPUTE:
    return read_number("--compute", text, 0, STEP_MS_MAX, &o->compute_ms);
  case MIN:
    return read_size("--min", text, &sweep->least);
  case MAX:
    return read_size("--max", text, &sweep->most);
  case FACTOR:
    return read_int("--factor", text, 2, 1 << 20, &sweep->factor);
  case ROOT:
    return read_int("--root", text, 0, BOX_RANKS_MAX - 1, &o->root);
  case COMMS:
    return read_int("--comms", text, 1, BOX_COMMS_MAX, &o->communicators);
  default:
    return read_int("--cycles", text, 1, 1000000, &o->cycles);
  }
}

static int take_option(struct box_options *o, int word, char *text, struct sweep *sweep) {
  switch (word) {
  case LIB:
    if (o->library_count == BOX_LIBRARIES_MAX) return wrong("--lib", "a third library");
    o->libraries[o->library_count++] = text;
    return 0;
  case RANKS:
    return read_int("--ranks", text, 2, BOX_RANKS_MAX, &o->ranks);
  case PLAN:
    o->plan = text;
    return 0;
  case NETNS:
    return read_list("--netns", text, o, add_namespace);
  case CORES:
    return read_list("--cores", text, o, add_core);
  case NAP:
    return read_int("--nap", text, 1, 100000, &o->nap_us);
  case ITERS:
    return read_int("--iters", text, 0, 1000000, &o->iterations);
  case TIME:
    return read_number("--time", text, 0.001, 3600, &o->time_s);
  case WARMUP:
    return read_int("--warmup", text, 0, 1000000, &o->warmup);
  case SETTLE:
    return read_number("--settle", text, 0, 3600, &o->settle_s);
  case CHECK:
    o->check = true;
    return 0;
  case ROUNDS:
    return read_int("--rounds", text, 1, 1000000, &o->checked_rounds);
  case KILL:
    return read_kill(o, text);
  case PATIENCE:
    return read_number("--patience", text, 0.001, 3600, &o->patience_s);
  case TIMEOUT:
    return read_number("--timeout", text, 0.001, 86400, &o->timeout_s);
  case JSON:
    o->json = true;
    return 0;
  default:
    return take_work(o, word, text, sweep);
  }
}

bool box_op_is_divided(enum box_op op) {
  return op == BOX_OP_ALLGATHER || op == BOX_OP_REDUCESCATTER || op == BOX_OP_ALLTOALL;
}

size_t box_op_count(const struct box_options *o, enum box_op op, int ranks, size_t bytes) {
  size_t elements = bytes / box_types[o->type].bytes;
  return box_op_is_divided(op) ? elements / (size_t)ranks : elements;
}

static int check(struct box_options *o, struct sweep sweep) {
  if (!o->library_count) return wrong("--lib", "nothing");
  if (o->is_step && (o->op != BOX_OP_ALLREDUCE || o->plan || o->communicators > 1))
    return wrong("--step", "another operation, --plan or --comms");
  if (o->is_step && !o->size_count) return wrong("--step", "an empty list");
  bool listed = o->size_count;
  for (size_t size = sweep.least; !listed && size <= sweep.most; size *= (size_t)sweep.factor)
    if (o->size_count < BOX_SIZES_MAX) o->sizes[o->size_count++] = size;
  if (!o->size_count) return wrong("--min", "more than --max");
  if (o->root >= o->ranks || o->killed_rank >= o->ranks)
    return wrong("--root or --kill", "a rank above --ranks");
  for (int i = 0; i < o->size_count; i++) {
    if (box_op_count(o, o->op, o->ranks, o->sizes[i])) continue;
    size_t least = box_types[o->type].bytes * (box_op_is_divided(o->op) ? (size_t)o->ranks : 1);
    box_log("%zu bytes are too few: %s of %s over %d ranks takes %zu at least", o->sizes[i],
            box_op_names[o->op], box_types[o->type].name, o->ranks, least);
    return -1;
  }
  return 0;
}

int box_options_parse(struct box_options *o, int argc, char **argv) {
  struct sweep sweep = {8, 64 << 20, 2};
  *o = (struct box_options){.ranks = 2,
                            .type = BOX_FLOAT,
                            .iterations = 20,
                            .warmup = 3,
                            .checked_rounds = 1,
                            .communicators = 1,
                            .cycles = 1,
                            .killed_rank = BOX_NONE_KILLED,
                            .patience_s = 10,
                            .timeout_s = 600};
  for (int word; (word = getopt_long(argc, argv, "h", words, NULL)) != -1;) {
    if (word == HELP) {
      fputs(help_text, stdout);
      return 1;
    }
    if (word == '?' || take_option(o, word, optarg, &sweep)) return -1;
  }
  if (optind < argc) return wrong("harp-nccl", argv[optind]);
  return check(o, sweep);
}
