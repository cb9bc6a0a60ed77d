/* SPDX-License-Identifier: Apache-2.0 */
/* Many processes connect to one that may have few files.
 *
 *   many_peers PLUGIN PEERS FILES lasting|passing
 *
 * The one that listens has FILES files at most; with "passing" until it logs that it cannot accept a
 * connection. Then each one that has connected sends a message. Prints what became of all:
 *
 *   connected N, failed N, received N
 *   peer: WARN of each one that failed
 *   accept: its WARN
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/rank.h"

enum { PEERS_MAX = 256, MESSAGE_BYTES = 100000, POLL_US = 1000 };
/* The peer timeout of 2 s, and what a loaded machine gets beside it. */
#define WAIT_S 10.0

enum { CONNECTING, CONNECTED, FAILED };

static struct shared {
  char handle[HARP_NCCL_HANDLE_BYTES];
  atomic_bool has_handle, may_send, may_end;
  _Atomic int states[PEERS_MAX];
  char warns[PEERS_MAX + 1][LOG_BYTES]; /* the last: accept's */
} * shared;

static int peer_count; /* also the number of the process that listens */
static struct rlimit whole;
static bool is_passing;

static void on_log(enum harp_nccl_log_level level, const char *text) {
  if (is_passing && number == peer_count && strstr(text, "cannot accept a connection"))
    setrlimit(RLIMIT_NOFILE, &whole);
  if (level == HARP_NCCL_LOG_WARN) (void)snprintf(shared->warns[number], LOG_BYTES, "%s", text);
}

static const struct harp_nccl_net_v12 *load(const char *plugin, void **ctx) {
  struct harp_nccl_comm_config_v10 config = {-1};
  void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  const struct harp_nccl_net_v12 *net = library ? dlsym(library, "ncclNetPlugin_v12") : NULL;
  if (!net || net->init(ctx, 1, &config, log_line, NULL)) die("cannot begin");
  return net;
}

static void run_peer(const char *plugin) {
  static char data[MESSAGE_BYTES];
  void *ctx, *comm = NULL, *request = NULL, *mr;
  char handle[HARP_NCCL_HANDLE_BYTES] __attribute__((aligned(8)));
  int done = 0;
  const struct harp_nccl_net_v12 *net = load(plugin, &ctx);
  while (!atomic_load(&shared->has_handle)) usleep(POLL_US);
  memcpy(handle, shared->handle, sizeof handle);
  while (!comm) {
    if (net->connect(ctx, 0, handle, &comm, NULL)) {
      atomic_store(&shared->states[number], FAILED);
      exit(0);
    }
    usleep(POLL_US);
  }
  atomic_store(&shared->states[number], CONNECTED);
  memset(data, (int)number + 1, sizeof data);
  while (!atomic_load(&shared->may_send)) usleep(POLL_US);
  if (net->regMr(comm, data, sizeof data, 1, &mr)) die("regMr failed");
  while (!request)
    if (net->isend(comm, data, sizeof data, 0, mr, NULL, &request)) die("isend failed");
  while (!done) {
    if (net->test(request, &done, NULL)) die("test failed");
    usleep(POLL_US);
  }
  while (!atomic_load(&shared->may_end)) usleep(POLL_US);
  exit(0);
}

static unsigned count(int state) {
  unsigned n = 0;
  for (int i = 0; i < peer_count; i++) n += (unsigned)atomic_load(&shared->states[i]) == (unsigned)state;
  return n;
}

static bool receive(const struct harp_nccl_net_v12 *net, void *comm) {
  static char data[MESSAGE_BYTES];
  void *request = NULL, *to = data, *mr, *no_handle = NULL;
  size_t bytes = sizeof data;
  int done = 0, got = 0, tag = 0;
  double began_s = now_s();
  memset(data, 0, sizeof data);
  if (net->regMr(comm, data, sizeof data, 1, &mr)) return false;
  while (!request)
    if (net->irecv(comm, 1, &to, &bytes, &tag, &mr, &no_handle, &request)) return false;
  while (!done) {
    if (net->test(request, &done, &got) || now_s() - began_s > WAIT_S) return false;
    usleep(POLL_US);
  }
  net->deregMr(comm, mr);
  for (int i = 1; i < got; i++)
    if (data[i] != data[0]) return false;
  return got == MESSAGE_BYTES && data[0];
}

static void run_listener(const char *plugin, rlim_t files) {
  void *ctx, *listen, *comms[PEERS_MAX], *comm;
  unsigned comm_count = 0, received = 0;
  bool is_over = false;
  const struct harp_nccl_net_v12 *net = load(plugin, &ctx);
  if (net->listen(ctx, 0, shared->handle, &listen)) die("listen failed");
  struct rlimit few = {files, whole.rlim_max};
  if (getrlimit(RLIMIT_NOFILE, &whole)) die("no limit");
  few.rlim_max = whole.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &few)) die("no limit");
  atomic_store(&shared->has_handle, true);
  double began_s = now_s();
  while (count(CONNECTING) || comm_count < count(CONNECTED)) {
    if (now_s() - began_s > WAIT_S) {
      printf("HANG: %u are connecting, %u accepted\n", count(CONNECTING), comm_count);
      break;
    }
    comm = NULL;
    if (!is_over) is_over = net->accept(listen, &comm, NULL) != 0;
    if (comm) comms[comm_count++] = comm;
    usleep(POLL_US);
  }
  while (!is_passing && !is_over && now_s() - began_s < WAIT_S) {
    is_over = net->accept(listen, &comm, NULL) != 0;
    usleep(POLL_US);
  }
  atomic_store(&shared->may_send, true);
  for (unsigned i = 0; i < comm_count; i++) received += receive(net, comms[i]);
  printf("connected %u, failed %u, received %u\n", count(CONNECTED), count(FAILED), received);
  atomic_store(&shared->may_end, true);
  setrlimit(RLIMIT_NOFILE, &whole);
}

int main(int words, char **word) {
  if (words != 5) return 2;
  peer_count = atoi(word[2]);
  is_passing = strcmp(word[4], "passing") == 0;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || peer_count > PEERS_MAX) return 2;
  setenv("HARP_IFNAME", "=lo", 1);
  setenv("HARP_PATHS", "8", 1);
  setenv("HARP_PEER_TIMEOUT", "2", 1);
  setenv("HARP_STATS_DIR", "off", 1);
  pid_t pids[PEERS_MAX];
  for (number = 0; number < peer_count; number++) {
    pids[number] = fork();
    if (pids[number]) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_peer(word[1]);
  }
  run_listener(word[1], (rlim_t)atoi(word[3]));
  for (int i = 0; i < peer_count; i++) {
    int status = 0;
    if (atomic_load(&shared->states[i]) == CONNECTING) kill(pids[i], SIGKILL);
    waitpid(pids[i], &status, 0);
    if (status) printf("a peer ended with %d\n", status);
  }
  for (int i = 0; i <= peer_count; i++)
    if (shared->warns[i][0]) printf("%s: %s\n", i < peer_count ? "peer" : "accept", shared->warns[i]);
  return 0;
}
