/* SPDX-License-Identifier: Apache-2.0 */
/* Runs rows of the matrix in several processes. */
#ifndef HARP_TESTS_SUITE_H
#define HARP_TESTS_SUITE_H

#include "networks/results.h"

struct suite {
  bool is_quick;     /* only the rows of the quick suite */
  const char *only;  /* only rows whose group or parameters contain this; NULL: all */
  const char *again; /* parameters set in each row, of which then only the share lost is
                      * asserted; NULL: none */
  const char *out;   /* the file of results */
  unsigned jobs;
};

/* Runs the chosen rows that the file lacks; returns the results of all that are chosen, in the order of the
 * matrix. */
struct results suite_run(const struct suite *s);

#endif
