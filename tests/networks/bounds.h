/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds that several groups share; docs/reference/networks.md has them in one table, and says which rows
 * miss their target: these have a bound of their own, which guards what is reached. */
#ifndef HARP_TESTS_BOUNDS_H
#define HARP_TESTS_BOUNDS_H

#define RATE_QUEUE   .rate_min = 0.9 /* behind a queue of 100 us or a BDP */
#define RATE_POLICER .rate_min = 0.85
#define LOST_QUEUE   .lost_max = 1.0
#define LOST_POLICER .lost_max = 2.0
#define LOST_ANY     .lost_max = 3.0 /* where hosts pause or clocks are wrong */
#define FAIR         .jain_min = 0.9
#define QUICK        .is_quick = true
#define FULL         .is_quick = false
/* the standing queue: 400 us, or a quarter of the buffer where that is more */
enum { STANDING_US = 400, STANDING_SHARE = 4 };

#endif
