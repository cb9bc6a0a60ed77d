/* SPDX-License-Identifier: Apache-2.0 */
/* What describes a network and its traffic: parameters with defaults, set by key=value. scenario.def lists
 * them.
 */
#ifndef HARP_TESTS_NETWORK_SCENARIO_H
#define HARP_TESTS_NETWORK_SCENARIO_H

#include "models/parameters.h"

struct scenario {
#define NUMBER(key, value, help) double key;
#define TEXT(key, value, help)   char key[PARAMETER_TEXT_BYTES];
#include "networks/scenario.def"
};

struct scenario scenario_default(void);

/* parameters_set, parameters_set_all, parameters_print_help of a scenario. */
bool scenario_set(struct scenario *s, const char *assignment);
bool scenario_set_all(struct scenario *s, const char *assignments);
void scenario_print_help(void);

#endif
