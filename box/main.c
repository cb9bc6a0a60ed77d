/* SPDX-License-Identifier: Apache-2.0 */
/* harp-nccl: an official NCCL on a machine without a GPU. Reads the library, forks the ranks, ends them when
 * one fails or the time is over, kills one on request. README.md says what is simulated. */
#include "clock.h"
#include "layout.h"
#include "log.h"
#include "rank.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_US = 2000, SIGNALLED = 128 };
#define GRACE_S 20.0 /* the time that others have when a rank has failed */

struct family {
  const struct box_options *options;
  const struct box_plan *plan;
  struct box_shared *shared;
  pid_t pids[BOX_RANKS_MAX]; /* 0: gone */
  int left, code;
  double end_s, kill_at_s;
};

static void start(struct family *f, const struct box_elf *elfs) {
  pid_t parent = getpid();
  for (int rank = 0; rank < f->options->ranks; rank++) {
    pid_t pid = fork();
    if (pid < 0) box_die("fork: %s", strerror(errno));
    if (!pid) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(BOX_EXIT_LOAD);
      exit(box_rank_run(f->options, f->plan, elfs, f->shared, rank));
    }
    f->pids[rank] = pid;
    f->left++;
  }
}

static void on_end(struct family *f, int rank, int status) {
  f->pids[rank] = 0;
  f->left--;
  atomic_store(&f->shared->dead[rank], true);
  bool is_killed = rank == f->options->killed_rank || atomic_load(&f->shared->doomed[rank]);
  if (is_killed && WIFSIGNALED(status)) return;
  int code = WIFSIGNALED(status) ? SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
  if (!code) return;
  if (WIFSIGNALED(status)) box_log("rank %d died: %s", rank, strsignal(WTERMSIG(status)));
  if (!f->code) f->code = code;
  atomic_store(&f->shared->failed, true);
  f->end_s = HARP_MIN(f->end_s, box_clock_s() + GRACE_S);
}

static void end_all(struct family *f) {
  box_log(f->code ? "the ranks that are left are ended" : "the time is over");
  if (!f->code) f->code = BOX_EXIT_TIME;
  for (int rank = 0; rank < f->options->ranks; rank++) {
    if (!f->pids[rank]) continue;
    int step = atomic_load(&f->shared->steps[rank]);
    if (f->plan->step_count) box_log("rank %d is at \"%s\"", rank, f->plan->steps[step].text);
    kill(f->pids[rank], SIGKILL);
  }
  f->end_s += 1e9;
}

static void kill_when_due(struct family *f) {
  if (f->options->killed_rank == BOX_NONE_KILLED || f->kill_at_s < 0) return;
  if (!f->kill_at_s && atomic_load(&f->shared->started) == f->options->ranks)
    f->kill_at_s = box_clock_s() + f->options->kill_ms / 1e3;
  if (!f->kill_at_s || box_clock_s() < f->kill_at_s) return;
  if (f->pids[f->options->killed_rank]) kill(f->pids[f->options->killed_rank], SIGKILL);
  f->kill_at_s = -1;
}

static int wait_for_all(struct family *f) {
  while (f->left) {
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);
    for (int rank = 0; pid > 0 && rank < f->options->ranks; rank++)
      if (f->pids[rank] == pid) on_end(f, rank, status);
    if (pid > 0) continue;
    kill_when_due(f);
    if (box_clock_s() > f->end_s) end_all(f);
    usleep(LOOK_US);
  }
  return f->code;
}

int main(int argc, char **argv) {
  static struct box_options options;
  static struct box_plan plan;
  struct box_elf elfs[BOX_LIBRARIES_MAX];
  setvbuf(stdout, NULL, _IOLBF, 0); /* what the ranks print, and NCCL in old releases, stays whole lines */
  int rc = box_options_parse(&options, argc, argv);
  if (rc) return rc > 0 ? BOX_EXIT_OK : BOX_EXIT_USAGE;
  if (options.plan && box_plan_read(&plan, &options)) return BOX_EXIT_USAGE;
  for (int number = 0; number < options.library_count; number++) {
    box_library_choose(number);
    if (box_elf_open(&elfs[number], options.libraries[number])) return BOX_EXIT_LOAD;
    box_layout_load(&elfs[number]);
  }
  box_library_choose(0);
  struct family f = {.options = &options, .plan = &plan, .end_s = box_clock_s() + options.timeout_s};
  f.shared = mmap(NULL, sizeof *f.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (f.shared == MAP_FAILED) box_die("no memory that the ranks share");
  fflush(NULL);
  start(&f, elfs);
  return wait_for_all(&f);
}
