/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's run, from the rendezvous to the close. */
#ifndef HARP_BENCH_RANK_H
#define HARP_BENCH_RANK_H

#include "options.h"

/* Runs rank opt->rank; `listen_fd` as harp_rendezvous_open's. Prints errors. Returns the exit
 * code of the process. */
int harp_rank_run(const struct harp_options *opt, int listen_fd);

#endif
