/* SPDX-License-Identifier: Apache-2.0 */
#include "networks/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const double AGAIN_LOST_MAX = 3; /* percent, where hosts pause or clocks are wrong */

static bool is_chosen(const struct suite *s, const struct row *r) {
  if (s->is_quick && !r->is_quick) return false;
  return !s->only || strstr(r->group, s->only) || strstr(r->params, s->only);
}

static struct scenario scenario_of(const char *params, const char *further) {
  struct scenario s = scenario_default();
  if (!scenario_set_all(&s, params) || (further && !scenario_set_all(&s, further))) {
    fprintf(stderr, "not a network: %s %s\n", params, further ? further : "");
    abort();
  }
  return s;
}

/* Returns the row as this suite runs it. */
static struct row row_of(const struct suite *s, const struct row *from) {
  struct row r = *from;
  if (!s->again) return r;
  size_t used = strlen(r.params);
  snprintf(r.params + used, sizeof r.params - used, " %s", s->again);
  r.group = "again";
  r.reference = NULL;
  if (!strcmp(from->group, "infeasible")) {
    r.bounds = (struct bounds){.lost_max = 0};
  } else {
    struct scenario n = scenario_of(r.params, NULL);
    double random = n.loss + (n.interfaces > 1 ? n.loss2 : 0);
    double most = from->bounds.again_lost_max ? from->bounds.again_lost_max : AGAIN_LOST_MAX;
    r.bounds = (struct bounds){.lost_max = HARP_MAX(most + random, from->bounds.lost_max)};
  }
  return r;
}

/* Runs the network of a row with its first seeds. Returns the medians. */
static struct measured measure_seeds(const struct row *row, const char *further, unsigned seeds) {
  struct measured all[MEASURED_SEEDS_MAX];
  for (unsigned i = 0; i < seeds; i++) {
    struct scenario s = scenario_of(row->params, further);
    s.seed += i;
    all[i] = measure_network(&s);
  }
  return measured_median(all, seeds);
}

/* Runs a row with so many seeds, and judges it. */
static void judge_seeds(const struct row *row, unsigned seeds, struct result *r) {
  struct measured reference = {.rate = 0};
  r->measured = measure_seeds(row, NULL, seeds);
  if (row->reference) reference = measure_seeds(row, row->reference, seeds);
  row_judge(row, &r->measured, &reference, r->broken, sizeof r->broken);
  r->measured.cpu_s += reference.cpu_s;
  r->measured.packets += reference.packets;
}

/* One seed is a sample: a row that breaks a bound with it is judged by the medians of MEASURED_SEEDS_MAX. */
static void run_row(const struct row *row, int file) {
  struct result r = {.broken = ""};
  snprintf(r.group, sizeof r.group, "%s", row->group);
  snprintf(r.params, sizeof r.params, "%s", row->params);
  judge_seeds(row, 1, &r);
  if (r.broken[0]) judge_seeds(row, MEASURED_SEEDS_MAX, &r);
  if (!result_append(file, &r)) abort();
}

/* The rows of a suite that are to be run. */
struct plan {
  struct row *rows;
  unsigned count;
};

/* Returns about how many packets the networks of a row send. */
static double packets_of(const struct row *r) {
  struct scenario s = scenario_of(r->params, NULL);
  double seconds = (double)network_end_ns(&s) / 1e9;
  return s.rate * s.interfaces * seconds / s.mtu * (r->reference ? 2 : 1);
}

static int by_packets(const void *a, const void *b) {
  double x = packets_of(a), y = packets_of(b);
  return x == y ? strcmp(((const struct row *)a)->params, ((const struct row *)b)->params)
                : (x > y) - (x < y);
}

/* Plans the cheapest rows first: a run that is broken off has done as many as it can. */
static struct plan plan_rows(const struct suite *s, const struct results *done) {
  struct plan p = {.rows = calloc(ROWS_MAX, sizeof p.rows[0])};
  unsigned count;
  const struct row *all = rows_all(&count);
  if (!p.rows) abort();
  for (unsigned i = 0; i < count; i++) {
    struct row r = row_of(s, &all[i]);
    if (is_chosen(s, &all[i]) && !results_find(done, r.params)) p.rows[p.count++] = r;
  }
  qsort(p.rows, p.count, sizeof p.rows[0], by_packets);
  return p;
}

/* Runs rows until none is left; each process takes the next one. */
static void run_rows(const struct plan *p, int file, _Atomic unsigned *next) {
  for (unsigned i; (i = (*next)++) < p->count;) run_row(&p->rows[i], file);
}

static bool all_ended_well(unsigned processes) {
  bool is_well = true;
  for (int status; processes; processes--) is_well &= wait(&status) > 0 && status == 0;
  return is_well;
}

/* Returns the results of the chosen rows, in their order. */
static struct results choose_results(const struct suite *s, const struct results *from) {
  struct results chosen = {.all = calloc(ROWS_MAX, sizeof chosen.all[0])};
  unsigned count;
  const struct row *all = rows_all(&count);
  if (!chosen.all) abort();
  for (unsigned i = 0; i < count; i++) {
    struct row r = row_of(s, &all[i]);
    const struct result *found = is_chosen(s, &all[i]) ? results_find(from, r.params) : NULL;
    if (found) chosen.all[chosen.count++] = *found;
  }
  return chosen;
}

struct results suite_run(const struct suite *s) {
  struct results done = results_read(s->out);
  int file = open(s->out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  _Atomic unsigned *next =
      mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (file < 0 || next == MAP_FAILED) {
    perror(s->out);
    exit(2);
  }
  struct plan plan = plan_rows(s, &done);
  fflush(stdout);
  for (unsigned i = 0; i < s->jobs; i++) {
    pid_t pid = fork();
    if (pid < 0) {
      perror("fork");
      exit(2);
    }
    if (pid) continue;
    run_rows(&plan, file, next);
    _exit(0);
  }
  if (!all_ended_well(s->jobs)) {
    fprintf(stderr, "a process ended early: run again to go on\n");
    exit(2);
  }
  close(file);
  munmap((void *)next, sizeof *next);
  free(plan.rows);
  free(done.all);
  done = results_read(s->out);
  struct results chosen = choose_results(s, &done);
  free(done.all);
  return chosen;
}
