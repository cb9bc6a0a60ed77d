/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix: every network that is run, its parameters and what must hold in it. docs/reference/networks.md
 * says what must hold where. */
#ifndef HARP_TESTS_ROWS_H
#define HARP_TESTS_ROWS_H

#include "networks/measure.h"

enum { ROW_TEXT_BYTES = 192, ROWS_MAX = 4096 };

/* 0: nothing is asserted. */
struct bounds {
  double rate_min;
  double lost_max; /* percent */
  double jain_min;
  double queue_max_us; /* the longest mean queue */
  double p99_max;
  double tcp_min;
  double step_max; /* the longest step_ms, as a multiple of what the rate allows */
  double
      honest_min; /* the least share of the fair rate that flows have beside the first, whose receiver lies */
  double first_max;      /* the largest share of the first, likewise */
  double paths_max;      /* in use, of a flow, at the end */
  double again_lost_max; /* percent besides random loss, with further parameters (--again); 0: 3 */
  /* Against the same network with `reference` set: */
  double of_rate_min;   /* share of its rate */
  double more_lost_max; /* percent, more than there; asserted where of_rate_min is */
};

struct row {
  const char *group;
  char params[ROW_TEXT_BYTES]; /* the parameters of the scenario; they name the row */
  const char *reference; /* further parameters of the network that this one is compared with; NULL: none */
  struct bounds bounds;
  bool is_quick; /* the row is in the suite that runs with all tests */
};

/* Returns the rows that are written one by one (rows.c); their number in *count. */
const struct row *rows_special(unsigned *count);

/* Returns all rows: these, and the products of parameters (products.c); their number in *count. */
const struct row *rows_all(unsigned *count);

/* Writes which bounds a row breaks, and by how much; an empty text: none. */
void row_judge(const struct row *r, const struct measured *m, const struct measured *reference, char *text,
               size_t bytes);

#endif
