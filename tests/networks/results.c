/* SPDX-License-Identifier: Apache-2.0 */
#include "networks/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, GROUPS_MAX = 32, NUMBERS = 12 };

bool result_append(int file, const struct result *r) {
  char line[LINE_BYTES];
  const struct measured *m = &r->measured;
  int bytes =
      snprintf(line, sizeof line, "%s\t%s\t%s\t%.4f %.3f %.4f %.1f %.1f %.3f %.4f %.3f %.3f %.2f %.0f %.2f\n",
               r->group, r->params, r->broken[0] ? r->broken : "ok", m->rate, m->lost, m->jain, m->queue_us,
               m->queue_max_us, m->p99, m->tcp, m->step_ms, m->step_share, m->paths, m->packets, m->cpu_s);
  return bytes < LINE_BYTES && write(file, line, (size_t)bytes) == bytes;
}

static bool read_result(char *line, struct result *r) {
  char *group = strtok(line, "\t"), *params = strtok(NULL, "\t"), *broken = strtok(NULL, "\t"),
       *numbers = strtok(NULL, "\n");
  if (!numbers) return false;
  *r = (struct result){.group = ""};
  snprintf(r->group, sizeof r->group, "%s", group);
  snprintf(r->params, sizeof r->params, "%s", params);
  if (strcmp(broken, "ok")) snprintf(r->broken, sizeof r->broken, "%s", broken);
  struct measured *m = &r->measured;
  return sscanf(numbers, "%lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf", &m->rate, &m->lost, &m->jain,
                &m->queue_us, &m->queue_max_us, &m->p99, &m->tcp, &m->step_ms, &m->step_share, &m->paths,
                &m->packets, &m->cpu_s) == NUMBERS;
}

struct results results_read(const char *name) {
  struct results rs = {.all = calloc(ROWS_MAX, sizeof rs.all[0])};
  FILE *file = fopen(name, "r");
  if (!rs.all) abort();
  if (!file) return rs;
  for (char line[LINE_BYTES]; rs.count < ROWS_MAX && fgets(line, sizeof line, file);)
    rs.count += read_result(line, &rs.all[rs.count]);
  fclose(file);
  return rs;
}

const struct result *results_find(const struct results *rs, const char *params) {
  for (unsigned i = 0; i < rs->count; i++) {
    if (!strcmp(rs->all[i].params, params)) return &rs->all[i];
  }
  return NULL;
}

void result_print(const struct result *r) {
  const struct measured *m = &r->measured;
  printf("%-10s %-88s rate %.3f lost %6.2f jain %.3f queue %6.0f us p99 %5.2f%s%s\n", r->group, r->params,
         m->rate, m->lost, m->jain, m->queue_us, m->p99, r->broken[0] ? " | " : "", r->broken);
}

/* ---- sums of groups ---- */

struct group {
  const char *name;
  unsigned rows, broken, over;           /* over: that lose more than OVER_PERCENT */
  double rate, rate_min, lost, jain_min; /* rate and lost: sums, then means */
  double lost_median, lost_max, cpu_s, packets;
};
static const double OVER_PERCENT = 3;

static int by_size(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static double median_loss(const struct results *rs, const char *group) {
  static double lost[ROWS_MAX];
  unsigned count = 0;
  for (unsigned i = 0; i < rs->count; i++) {
    if (!strcmp(rs->all[i].group, group)) lost[count++] = rs->all[i].measured.lost;
  }
  qsort(lost, count, sizeof lost[0], by_size);
  return lost[count / 2];
}

static void add_to_group(struct group *g, const struct result *r) {
  const struct measured *m = &r->measured;
  g->rows++;
  g->broken += r->broken[0] != 0;
  g->over += m->lost > OVER_PERCENT;
  g->rate += m->rate;
  g->rate_min = HARP_MIN(g->rate_min, m->rate);
  g->jain_min = HARP_MIN(g->jain_min, m->jain);
  g->lost += m->lost;
  g->lost_max = HARP_MAX(g->lost_max, m->lost);
  g->cpu_s += m->cpu_s;
  g->packets += m->packets;
}

/* Fills in the groups in the order of their first rows; returns how many there are. */
static unsigned sum_groups(const struct results *rs, struct group *groups) {
  unsigned count = 0;
  for (unsigned i = 0; i < rs->count; i++) {
    unsigned k = 0;
    while (k < count && strcmp(groups[k].name, rs->all[i].group)) k++;
    if (k == GROUPS_MAX) break;
    if (k == count)
      groups[count++] = (struct group){.name = rs->all[i].group, .rate_min = 1e9, .jain_min = 1};
    add_to_group(&groups[k], &rs->all[i]);
  }
  for (unsigned k = 0; k < count; k++) {
    groups[k].rate /= groups[k].rows;
    groups[k].lost /= groups[k].rows;
    groups[k].lost_median = median_loss(rs, groups[k].name);
  }
  return count;
}

/* The mean rate of all feasible rows has a bound of its own. */
static const double FEASIBLE_RATE_MIN = 0.95;

static bool is_too_slow(const struct group *g) {
  return !strcmp(g->name, "feasible") && g->rate < FEASIBLE_RATE_MIN;
}

unsigned results_print(const struct results *rs) {
  struct group groups[GROUPS_MAX];
  unsigned count = sum_groups(rs, groups), broken = 0;
  for (unsigned i = 0; i < rs->count; i++) {
    if (rs->all[i].broken[0]) result_print(&rs->all[i]);
  }
  for (unsigned k = 0; k < count; k++) {
    const struct group *g = &groups[k];
    printf("%-10s %4u of %4u hold, %u lose more than %g %%; rate %.3f (%.3f), lost %.2f (median %.2f, most "
           "%.2f), "
           "least jain %.3f; %.0f s, %.0f ns a packet\n",
           g->name, g->rows - g->broken, g->rows, g->over, OVER_PERCENT, g->rate, g->rate_min, g->lost,
           g->lost_median, g->lost_max, g->jain_min, g->cpu_s,
           g->packets > 0 ? g->cpu_s * 1e9 / g->packets : 0);
    if (is_too_slow(g)) printf("%-10s mean rate %.3f < %.2f\n", g->name, g->rate, FEASIBLE_RATE_MIN);
    broken += g->broken + is_too_slow(g);
  }
  return broken;
}

/* ---- Markdown ---- */

static bool is_of_product(const struct result *r) {
  static const char *const groups[] = {"feasible", "paced",    "scarce",    "short",
                                       "uneven",   "windowed", "infeasible"};
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(groups); i++) {
    if (!strcmp(r->group, groups[i])) return true;
  }
  return false;
}

static void print_markdown_row(const struct result *r) {
  const struct measured *m = &r->measured;
  printf("| `%s` | %.3f | %.2f | %.3f | %.0f | %.2f | ", r->params, m->rate, m->lost, m->jain, m->queue_us,
         m->p99);
  if (m->tcp > 0) printf("%.3f", m->tcp);
  printf(" | ");
  if (m->step_ms > 0) printf("%.2f", m->step_share);
  printf(" | %s |\n", r->broken[0] ? r->broken : "holds");
}

void results_print_markdown(const struct results *rs) {
  struct group groups[GROUPS_MAX];
  unsigned count = sum_groups(rs, groups);
  printf("| group | rows | hold | rate, mean (least) | lost %%, mean (median, most) | Jain, least |\n"
         "|---|---|---|---|---|---|\n");
  for (unsigned k = 0; k < count; k++) {
    const struct group *g = &groups[k];
    printf("| %s | %u | %u | %.3f (%.3f) | %.2f (%.2f, %.2f) | %.3f |\n", g->name, g->rows,
           g->rows - g->broken, g->rate, g->rate_min, g->lost, g->lost_median, g->lost_max, g->jain_min);
  }
  for (unsigned k = 0; k < count; k++) {
    printf("\n%s:\n\n| network | rate | lost %% | Jain | queue us | p99 | TCP beside | step | |\n"
           "|---|---|---|---|---|---|---|---|---|\n",
           groups[k].name);
    for (unsigned i = 0; i < rs->count; i++) {
      const struct result *r = &rs->all[i];
      if (!strcmp(r->group, groups[k].name) && (!is_of_product(r) || r->broken[0])) print_markdown_row(r);
    }
  }
}
