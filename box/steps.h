/* SPDX-License-Identifier: Apache-2.0 */
/* A rank takes the steps of a plan. */
#ifndef HARP_BOX_STEPS_H
#define HARP_BOX_STEPS_H

#include "plan.h"
#include "shared.h"

/* Takes all steps, as often as there are cycles, and reports after each. Returns the process's exit code. */
int box_steps_run(const struct box_plan *plan, const struct box_options *options, struct box_member *member);

#endif
