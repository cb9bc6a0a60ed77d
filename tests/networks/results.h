/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of the matrix came to: a file with a line for each, and what is printed of it.
 *
 * Several processes append to the file, each line by one write; a run that was broken off goes on with the
 * rows that are missing there. */
#ifndef HARP_TESTS_RESULTS_H
#define HARP_TESTS_RESULTS_H

#include "networks/rows.h"

struct result {
  char group[24], params[ROW_TEXT_BYTES];
  char broken[ROW_TEXT_BYTES]; /* bounds; empty: none is */
  struct measured measured;
};

struct results {
  struct result *all;
  unsigned count;
};

/* Appends a line to an open file. Returns false where that fails. */
bool result_append(int file, const struct result *r);

/* Reads a file, or none where it does not exist. Lines that are none are skipped. */
struct results results_read(const char *name);

/* Returns the result of these parameters, or NULL. */
const struct result *results_find(const struct results *rs, const char *params);

/* Prints one line; the rows that broke a bound, and sums of each group. Returns how many rows did. */
void result_print(const struct result *r);
unsigned results_print(const struct results *rs);

/* Prints all as tables in Markdown: a line of sums for each group, then each row that is not one of a product
 * or that broke a bound. */
void results_print_markdown(const struct results *rs);

#endif
