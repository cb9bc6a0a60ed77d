/* SPDX-License-Identifier: Apache-2.0 */
/* The output: a table, or a JSON object a line. By rank 0, but for survivors and plans. */
#ifndef HARP_BOX_REPORT_H
#define HARP_BOX_REPORT_H

#include "operation.h"
#include "usage.h"

void box_report_head(const struct box_options *options, int nccl_version);
void box_report_size(const struct box_operation *op, double time_us, int iterations, uint64_t wrong);
void box_report_cycle(const struct box_options *options, int number, double init_s, double destroy_s);

struct box_survivor {
  int rank;
  uint64_t operations;
  const char *how, *error, *last_error;
  double noticed_s, abort_s, drained_s;
  int abort_result;
};
void box_report_survivor(const struct box_options *options, const struct box_survivor *survivor);

/* Reports one cycle of a plan on a rank, and the error that showed the loss of another rank. */
void box_report_plan(const struct box_options *options, int rank, int cycle, double took_s,
                     uint64_t operations, uint64_t wrong, const struct box_usage *usage);
void box_report_loss(const struct box_options *options, int rank, const char *error, double noticed_s,
                     const char *last_error);

#endif
