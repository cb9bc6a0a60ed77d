/* SPDX-License-Identifier: Apache-2.0 */
/* harp-perf: how fast and how right is a NCCL net plugin, and how far apart are two cores? The ranks are
 * other processes, which a launcher or a person starts, or, with no word about ranks, children that this file
 * forks. See options.c for the command line. */
#include "core_latency.h"
#include "fail.h"
#include "options.h"
#include "rank.h"
#include "rendezvous.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_child(struct harp_options *opt, int rank, int listen_fd, pid_t parent) {
  setpgid(0, 0); /* a terminal's ^C reaches the parent alone, which passes it on once */
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) return HARP_EXIT_INTERRUPTED;
  opt->rank = rank;
  if (rank) {
    close(listen_fd);
    listen_fd = -1;
  }
  int code = harp_rank_run(opt, listen_fd);
  fflush(NULL);
  return code;
}

/* Waits for all children and forwards signals. Returns the exit code that explains most: the lowest but 0. */
static int wait_children(const pid_t *pids, int count) {
  int code = HARP_EXIT_OK, forwarded = 0;
  bool run_ended = false;
  for (int left = count; left;) {
    int status, sig = harp_interrupt_signal();
    if (sig && sig != forwarded) {
      forwarded = sig;
      for (int i = 0; i < count; i++) kill(pids[i], sig);
    }
    if (!run_ended && harp_interrupt_ends_run()) {
      run_ended = true;
      for (int i = 0; i < count; i++) kill(pids[i], SIGUSR1);
    }
    pid_t pid = wait(&status);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) break;
    left--;
    int rank = 0;
    while (rank < count && pids[rank] != pid) rank++;
    int child = WIFEXITED(status) ? WEXITSTATUS(status) : HARP_EXIT_PLUGIN;
    if (WIFSIGNALED(status))
      fprintf(stderr, "harp-perf: rank %d died: %s\n", rank, strsignal(WTERMSIG(status)));
    if (child && (!code || child < code)) code = child;
  }
  return code;
}

static int run_all_here(struct harp_options *opt) {
  int listen_fd = harp_rendezvous_listen_local(opt->rendezvous, sizeof opt->rendezvous);
  if (listen_fd < 0) return -1;
  pid_t pids[HARP_RANKS_MAX], parent = getpid();
  int started = 0;
  for (; started < opt->nranks; started++) {
    pids[started] = fork();
    if (!pids[started]) _exit(run_child(opt, started, listen_fd, parent));
    if (pids[started] < 0) {
      harp_fail(HARP_EXIT_SYSTEM, "fork: %s", strerror(errno));
      for (int i = 0; i < started; i++) kill(pids[i], SIGTERM);
      break;
    }
  }
  close(listen_fd);
  int code = wait_children(pids, started);
  return harp_fail_code() ? -1 : code;
}

static int print_core_latency(const struct harp_options *opt) {
  double round_trip_ns;
  if (harp_core_latency_measure(opt->cores, &round_trip_ns)) return -1;
  printf("%.1f\n", round_trip_ns);
  return HARP_EXIT_OK;
}

/* Returns an exit code, or -1 with a recorded error. */
static int run(struct harp_options *opt) {
  if (opt->core_latency) return print_core_latency(opt);
  return opt->rank < 0 ? run_all_here(opt) : harp_rank_run(opt, -1);
}

int main(int argc, char **argv) {
  struct harp_options opt;
  harp_interrupt_init();
  int rc = harp_options_parse(&opt, argc, argv);
  if (rc > 0) return HARP_EXIT_OK;
  if (!rc) rc = run(&opt);
  if (rc >= 0) return rc;
  fprintf(stderr, "harp-perf: %s\n", harp_fail_text());
  return harp_fail_code();
}
