/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a job of many processes, steered by lines on its standard input (fleet.py).
 *
 *   rank PLUGIN RANK RANKS EXCHANGE
 *
 * EXCHANGE is a file in which all ranks publish the handles of their listeners. A communicator (ID) is a set
 * of connections; one at a time is opened or moves data.
 *
 *   open ID s3 r5 ...      connects to rank 3, accepts from rank 5    opened ID
 *   run ID RUN COUNT BYTES moves COUNT messages of up to BYTES over   ran ID MESSAGES BYTES
 *                          each connection, and checks them
 *   lost RANK              that rank was killed: waits no more for its handles and connects
 *   close ID                                                          closed ID
 *
 * In between it prints what goes wrong; the time is that of CLOCK_MONOTONIC, in seconds:
 *
 *   error ID PEER TIME send|receive|connect|accept   that connection failed; the others go on
 *   warn TEXT                                        a WARN of the plugin
 *
 * A wrong byte ends the process, so does any other failure. */
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/rank.h"

enum {
  RANKS_MAX = 256,
  COMMUNICATORS_MAX = 4,
  LINKS_MAX = 2 * RANKS_MAX,
  DEPTH = 2, /* messages under way on a connection */
  LINE_BYTES = 16384,
  NAP_US_MIN = 100, /* between two polls of which the first moved nothing; doubled up to the most */
  NAP_US_MAX = 5000,
};

struct slot {
  char *data;
  void *mhandle, *request;
  uint32_t message;
};

struct link {
  int peer;
  bool sends, is_over; /* is_over: it has failed or was given up */
  void *comm, *listen;
  char handle[HARP_NCCL_HANDLE_BYTES] __attribute__((aligned(8)));
  bool has_handle;
  struct slot slots[DEPTH];
  uint32_t posted, done;
};

struct communicator {
  uint32_t id; /* 0: free */
  unsigned link_count;
  struct link *links;
};

static struct published {
  _Atomic uint32_t id; /* the id of the communicator that the handle is for */
  char handle[HARP_NCCL_HANDLE_BYTES];
} * exchange; /* by receiving, then sending rank */

static enum phase { IDLE, OPENING, RUNNING } phase;
static struct communicator communicators[COMMUNICATORS_MAX], *active;
static const struct harp_nccl_net_v12 *net;
static void *ctx;
static int rank_count;
static bool is_lost[RANKS_MAX];
static uint32_t run_number, message_count;
static size_t bytes_max;
static uint64_t moved_messages, moved_bytes;
static bool has_moved; /* something has moved since the last look */

static void on_log(enum harp_nccl_log_level level, const char *text) {
  if (level == HARP_NCCL_LOG_WARN) printf("warn %s\n", text);
  fprintf(stderr, "%.3f %s %s\n", now_s(), level == HARP_NCCL_LOG_WARN ? "WARN" : "INFO", text);
}

static struct published *published(int to, int from) {
  return &exchange[to * rank_count + from];
}

/* ---- what a message is ---- */

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

static uint64_t key_of(const struct link *l, uint32_t message) {
  int from = l->sends ? number : l->peer, to = l->sends ? l->peer : number;
  return mix(((uint64_t)run_number << 32 | (uint64_t)from << 16 | (uint64_t)to) ^ mix(message + 1));
}

/* Returns a length that both ends compute: none or a few lines, one packet, or up to the most. */
static size_t size_of(uint64_t key) {
  static const size_t bounds[] = {129, 1025, 32769};
  size_t bound = bytes_max + 1;
  if (key % 4 < 3 && bounds[key % 4] < bound) bound = bounds[key % 4];
  return (size_t)(mix(key) % bound);
}

static uint64_t word_of(uint64_t key, size_t i) {
  return key + i * 0x9E3779B97F4A7C15u;
}

static void fill(char *data, size_t bytes, uint64_t key) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = word_of(key, at);
    memcpy(data + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
  }
}

static bool is_right(const char *data, size_t bytes, uint64_t key) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = word_of(key, at);
    if (memcmp(data + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word)) return false;
  }
  return true;
}

/* ---- connections ---- */

static void fail_link(struct link *l, const char *what) {
  l->is_over = true;
  has_moved = true;
  printf("error %u %d %.6f %s\n", active->id, l->peer, now_s(), what);
}

static void close_listener(struct link *l) {
  if (l->listen && net->closeListen(l->listen)) die("closeListen failed");
  l->listen = NULL;
}

static void add_link(struct communicator *c, char direction, int peer) {
  if (peer < 0 || peer >= rank_count || c->link_count == LINKS_MAX) die("no such peer: %d", peer);
  struct link *l = &c->links[c->link_count++];
  *l = (struct link){.peer = peer, .sends = direction == 's'};
  if (l->sends) return;
  struct published *p = published(number, peer);
  char handle[HARP_NCCL_HANDLE_BYTES] __attribute__((aligned(8))) = {0};
  if (net->listen(ctx, 0, handle, &l->listen)) die("listen failed");
  memcpy(p->handle, handle, sizeof handle);
  atomic_store(&p->id, c->id);
}

/* Returns whether the link is still to be waited for. */
static bool open_step(struct link *l) {
  if (l->is_over || l->comm) return false;
  if (!l->sends) {
    if (net->accept(l->listen, &l->comm, NULL))
      fail_link(l, "accept");
    else if (!l->comm && is_lost[l->peer])
      fail_link(l, "accept");
    if (l->comm || l->is_over) close_listener(l);
  } else if (l->has_handle) {
    if (net->connect(ctx, 0, l->handle, &l->comm, NULL)) fail_link(l, "connect");
  } else if (atomic_load(&published(l->peer, number)->id) == active->id) {
    memcpy(l->handle, published(l->peer, number)->handle, sizeof l->handle);
    l->has_handle = true;
  } else if (is_lost[l->peer]) {
    fail_link(l, "connect");
  }
  has_moved |= l->comm != NULL;
  return !l->is_over && !l->comm;
}

static void free_slots(struct link *l) {
  for (unsigned i = 0; i < DEPTH; i++) {
    struct slot *s = &l->slots[i];
    if (s->mhandle && net->deregMr(l->comm, s->mhandle)) die("deregMr failed");
    free(s->data);
    *s = (struct slot){0};
  }
}

static void close_link(struct link *l) {
  close_listener(l);
  free_slots(l);
  if (l->comm && (l->sends ? net->closeSend(l->comm) : net->closeRecv(l->comm))) die("close failed");
}

/* ---- messages ---- */

static void make_slots(struct link *l) {
  if (l->is_over) return;
  for (unsigned i = 0; i < DEPTH; i++) {
    struct slot *s = &l->slots[i];
    s->data = malloc(bytes_max + 1);
    if (!s->data) die("out of memory");
    if (net->regMr(l->comm, s->data, bytes_max + 1, HARP_NCCL_PTR_HOST, &s->mhandle)) {
      fail_link(l, l->sends ? "send" : "receive");
      return;
    }
  }
}

/* Starts the next message if a slot is free. */
static bool post(struct link *l) {
  struct slot *s = &l->slots[l->posted % DEPTH];
  if (l->posted == message_count || s->request) return true;
  uint64_t key = key_of(l, l->posted);
  int tag = 0;
  s->message = l->posted;
  if (l->sends) {
    fill(s->data, size_of(key), key);
    if (net->isend(l->comm, s->data, size_of(key), tag, s->mhandle, NULL, &s->request)) return false;
  } else {
    void *data = s->data, *no_handle = NULL;
    size_t bytes = bytes_max;
    if (net->irecv(l->comm, 1, &data, &bytes, &tag, &s->mhandle, &no_handle, &s->request)) return false;
  }
  l->posted += s->request != NULL;
  return true;
}

static bool test_slot(struct link *l, struct slot *s) {
  uint64_t key = key_of(l, s->message);
  int done = 0, bytes = -1;
  if (net->test(s->request, &done, &bytes)) return false;
  if (!done) return true;
  s->request = NULL;
  l->done++;
  has_moved = true;
  if (l->sends) return true;
  if ((size_t)bytes != size_of(key) || !is_right(s->data, size_of(key), key))
    die("WRONG: message %u of run %u from rank %d: %d bytes came, %zu were sent", s->message, run_number,
        l->peer, bytes, size_of(key));
  moved_messages++;
  moved_bytes += (size_t)bytes;
  return true;
}

/* Returns whether the link still has messages under way. */
static bool run_step(struct link *l) {
  if (l->is_over || l->done == message_count) return false;
  bool is_well = true;
  for (unsigned i = 0; i < DEPTH && is_well; i++) is_well = post(l);
  for (unsigned i = 0; i < DEPTH && is_well; i++)
    if (l->slots[i].request) is_well = test_slot(l, &l->slots[i]);
  if (!is_well) fail_link(l, l->sends ? "send" : "receive");
  return !l->is_over && l->done < message_count;
}

/* ---- commands ---- */

static struct communicator *find(uint32_t id) {
  for (unsigned i = 0; i < COMMUNICATORS_MAX; i++)
    if (communicators[i].id == id) return &communicators[i];
  die("communicator %u is not there", id);
}

static void open_communicator(char *words) {
  struct communicator *c = find(0);
  c->links = calloc(LINKS_MAX, sizeof *c->links);
  if (!c->links) die("out of memory");
  c->id = (uint32_t)strtoul(words, &words, 10);
  memset(is_lost, 0, sizeof is_lost);
  while (*words == ' ') {
    char direction = words[1];
    add_link(c, direction, (int)strtol(words + 2, &words, 10));
  }
  active = c;
  phase = OPENING;
}

static void start_run(char *words) {
  active = find((uint32_t)strtoul(words, &words, 10));
  run_number = (uint32_t)strtoul(words, &words, 10);
  message_count = (uint32_t)strtoul(words, &words, 10);
  bytes_max = strtoul(words, &words, 10);
  moved_messages = moved_bytes = 0;
  phase = RUNNING;
  for (unsigned i = 0; i < active->link_count; i++) {
    active->links[i].posted = active->links[i].done = 0;
    make_slots(&active->links[i]);
  }
}

static void close_communicator(char *words) {
  struct communicator *c = find((uint32_t)strtoul(words, NULL, 10));
  for (unsigned i = 0; i < c->link_count; i++) close_link(&c->links[i]);
  free(c->links);
  malloc_trim(0); /* what stays resident is in use */
  printf("closed %u\n", c->id);
  *c = (struct communicator){0};
}

static void obey(char *line) {
  char *words = strchr(line, ' ');
  if (!words) die("not understood: %s", line);
  *words++ = '\0';
  if (!strcmp(line, "lost"))
    is_lost[atoi(words) % RANKS_MAX] = true;
  else if (phase != IDLE)
    die("%s while something is under way", line);
  else if (!strcmp(line, "open"))
    open_communicator(words);
  else if (!strcmp(line, "run"))
    start_run(words);
  else if (!strcmp(line, "close"))
    close_communicator(words);
  else
    die("not understood: %s", line);
}

/* Reads what has come, waiting for so long at most. */
static void read_commands(int wait_ms) {
  static char line[LINE_BYTES];
  static size_t used;
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  if (poll(&input, 1, wait_ms) <= 0) return;
  ssize_t got = read(STDIN_FILENO, line + used, sizeof line - 1 - used);
  if (got <= 0) exit(0);
  used += (size_t)got;
  line[used] = '\0';
  for (char *end; (end = strchr(line, '\n'));) {
    *end = '\0';
    obey(line);
    used -= (size_t)(end + 1 - line);
    memmove(line, end + 1, used + 1);
  }
}

static void step(void) {
  unsigned waiting = 0;
  for (unsigned i = 0; i < active->link_count; i++)
    waiting += phase == OPENING ? open_step(&active->links[i]) : run_step(&active->links[i]);
  if (waiting) return;
  if (phase == OPENING) {
    printf("opened %u\n", active->id);
  } else {
    for (unsigned i = 0; i < active->link_count; i++) free_slots(&active->links[i]);
    printf("ran %u %llu %llu\n", active->id, (unsigned long long)moved_messages,
           (unsigned long long)moved_bytes);
  }
  phase = IDLE;
}

int main(int words, char **word) {
  struct harp_nccl_comm_config_v10 config = {HARP_NCCL_UNDEFINED};
  useconds_t nap_us = NAP_US_MIN;
  if (words != 5) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setvbuf(stdout, NULL, _IOLBF, 0);
  number = atoi(word[2]);
  rank_count = atoi(word[3]);
  size_t bytes = (size_t)rank_count * (size_t)rank_count * sizeof *exchange;
  int fd = open(word[4], O_RDWR | O_CLOEXEC);
  if (rank_count > RANKS_MAX || fd < 0) die("no exchange");
  exchange = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  void *library = dlopen(word[1], RTLD_NOW | RTLD_LOCAL);
  net = library ? dlsym(library, "ncclNetPlugin_v12") : NULL;
  if (exchange == MAP_FAILED || !net || net->init(&ctx, 1, &config, log_line, NULL)) die("cannot begin");
  for (;;) {
    read_commands(phase == IDLE ? -1 : 0);
    if (phase == IDLE) continue;
    has_moved = false;
    step();
    nap_us = has_moved ? NAP_US_MIN : nap_us < NAP_US_MAX ? 2 * nap_us : NAP_US_MAX;
    if (!has_moved) usleep(nap_us);
  }
}
