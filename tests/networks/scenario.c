/* SPDX-License-Identifier: Apache-2.0 */
#include "networks/scenario.h"

static const struct parameter parameters[] = {
#define NUMBER(key, value, help) {#key, help, #value, offsetof(struct scenario, key), false},
#define TEXT(key, value, help)   {#key, help, value, offsetof(struct scenario, key), true},
#include "networks/scenario.def"
};

struct scenario scenario_default(void) {
  return (struct scenario){
#define NUMBER(key, value, help) .key = (value),
#define TEXT(key, value, help)   .key = value,
#include "networks/scenario.def"
  };
}

bool scenario_set(struct scenario *s, const char *assignment) {
  return parameters_set(parameters, HARP_ARRAY_COUNT(parameters), s, assignment);
}

bool scenario_set_all(struct scenario *s, const char *assignments) {
  return parameters_set_all(parameters, HARP_ARRAY_COUNT(parameters), s, assignments);
}

void scenario_print_help(void) {
  parameters_print_help(parameters, HARP_ARRAY_COUNT(parameters));
}
