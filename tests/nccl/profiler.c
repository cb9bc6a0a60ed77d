/* SPDX-License-Identifier: Apache-2.0 */
/* A profiler plugin of NCCL's interface v4 that counts network events: NCCL_PROFILER_PLUGIN names it. When
 * its process unloads it, or ends, it appends a line to the file that PROFILE_FILE names. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COLL = 1 << 1, P2P = 1 << 2, PROXY_OP = 1 << 3, PROXY_STEP = 1 << 4, NET = 1 << 7 };
enum { SOCKET_ID = 2 << 16 | 1, TRANSFER = 1 };

/* NCCL's layouts, as far as they are read here. */
struct descriptor {
  uint8_t type;
  void *parent;
  int rank;
  union {
    struct {
      int64_t id;
      void *data;
    } net;
    uint64_t room[16];
  };
};
struct transfer {
  uint8_t type;
  struct {
    int fd, op;
    size_t length;
  } sock;
};

static struct {
  atomic_long sends, receives, stops, wrong, late, parents, bytes;
  atomic_int contexts;
} seen;
static char event, other; /* what handles point to */

static int begin(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank,
                 void *log) {
  (void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;
  *context = &seen;
  *mask = COLL | P2P | PROXY_OP | PROXY_STEP | NET;
  seen.contexts++;
  return 0;
}

static int start(void *context, void **handle, struct descriptor *d) {
  *handle = &other;
  if (d->type != NET) return 0;
  const struct transfer *t = d->net.data;
  *handle = &event;
  seen.wrong += context != &seen || d->net.id != SOCKET_ID || t->type != TRANSFER || t->sock.fd != -1 ||
                (t->sock.op != 0 && t->sock.op != 1);
  seen.parents += d->parent != NULL;
  if (t->sock.op) {
    seen.receives++;
  } else {
    seen.sends++;
    seen.bytes += (long)t->sock.length;
  }
  return 0;
}

static int stop(void *handle) {
  if (handle != &event) return 0;
  seen.stops++;
  seen.late += !seen.contexts;
  return 0;
}

static int record(void *handle, int state, void *arguments) {
  (void)handle, (void)state, (void)arguments;
  return 0;
}

static int end(void *context) {
  (void)context;
  seen.contexts--;
  return 0;
}

__attribute__((destructor)) static void write_counts(void) {
  const char *file = getenv("PROFILE_FILE");
  char line[256];
  int n = snprintf(line, sizeof line,
                   "sends %ld receives %ld stops %ld wrong %ld late %ld parents %ld bytes %ld\n", seen.sends,
                   seen.receives, seen.stops, seen.wrong, seen.late, seen.parents, seen.bytes);
  int fd = file ? open(file, O_WRONLY | O_APPEND | O_CREAT, 0644) : -1;
  if (fd < 0 || write(fd, line, (size_t)n) != n) perror("profiler");
}

struct table {
  const char *name;
  int (*init)(void **, int *, const char *, uint64_t, int, int, int, void *);
  int (*start)(void *, void **, struct descriptor *);
  int (*stop)(void *);
  int (*record)(void *, int, void *);
  int (*finalize)(void *);
};

extern const struct table ncclProfiler_v4;
const struct table ncclProfiler_v4 = {"count", begin, start, stop, record, end};
