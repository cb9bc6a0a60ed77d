/* SPDX-License-Identifier: Apache-2.0 */
/* What describes a simulated cluster and its job: parameters with defaults, set by key=value; cluster.def
 * lists them. */
#ifndef HARP_CLUSTER_SCENARIO_H
#define HARP_CLUSTER_SCENARIO_H

#include "models/parameters.h"

struct cluster_scenario {
#define NUMBER(key, value, help) double key;
#define TEXT(key, value, help)   char key[PARAMETER_TEXT_BYTES];
#include "cluster/cluster.def"
};

struct cluster_scenario cluster_scenario_default(void);
bool cluster_scenario_set(struct cluster_scenario *s, const char *assignment);
void cluster_scenario_print_help(void);

/* Returns the channels of its collective, given or by default. */
unsigned cluster_scenario_channels(const struct cluster_scenario *s);

/* Returns what is wrong with a scenario as a sentence; NULL: nothing. */
const char *cluster_scenario_fault(const struct cluster_scenario *s);

#endif
