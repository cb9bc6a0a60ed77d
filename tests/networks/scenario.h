/* SPDX-License-Identifier: Apache-2.0 */
/* What describes a network and its traffic: parameters with defaults, set by key=value. scenario.def lists
 * them.
 */
#ifndef HARP_TESTS_NETWORK_SCENARIO_H
#define HARP_TESTS_NETWORK_SCENARIO_H

#include "base/base.h"

enum { SCENARIO_TEXT_BYTES = 32 };

struct scenario {
#define NUMBER(key, value, help) double key;
#define TEXT(key, value, help)   char key[SCENARIO_TEXT_BYTES];
#include "networks/scenario.def"
};

struct scenario scenario_default(void);

/* Sets one parameter from key=value. Returns false: no such key, or no number. */
bool scenario_set(struct scenario *s, const char *assignment);

/* Sets several, with a space between. Returns false where one is wrong. */
bool scenario_set_all(struct scenario *s, const char *assignments);

/* Prints each key, its default and what it means. */
void scenario_print_help(void);

#endif
