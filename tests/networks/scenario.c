/* SPDX-License-Identifier: Apache-2.0 */
#include "networks/scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parameter {
  const char *key, *help;
  size_t offset;
  bool is_text;
};

static const struct parameter parameters[] = {
#define NUMBER(key, value, help) {#key, help, offsetof(struct scenario, key), false},
#define TEXT(key, value, help)   {#key, help, offsetof(struct scenario, key), true},
#include "networks/scenario.def"
};

struct scenario scenario_default(void) {
  return (struct scenario){
#define NUMBER(key, value, help) .key = (value),
#define TEXT(key, value, help)   .key = value,
#include "networks/scenario.def"
  };
}

static bool set_number(double *to, const char *text) {
  char *end;
  *to = strtod(text, &end);
  return end != text && !*end && *to >= 0;
}

static bool set_text(char *to, const char *text) {
  return (unsigned)snprintf(to, SCENARIO_TEXT_BYTES, "%s", text) < SCENARIO_TEXT_BYTES;
}

bool scenario_set(struct scenario *s, const char *assignment) {
  const char *value = strchr(assignment, '=');
  if (!value) return false;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(parameters); i++) {
    const struct parameter *p = &parameters[i];
    if (strlen(p->key) != (size_t)(value - assignment) || strncmp(p->key, assignment, strlen(p->key)))
      continue;
    char *at = (char *)s + p->offset;
    return p->is_text ? set_text(at, value + 1) : set_number((double *)(void *)at, value + 1);
  }
  return false;
}

bool scenario_set_all(struct scenario *s, const char *assignments) {
  char one[2 * SCENARIO_TEXT_BYTES];
  for (int bytes; sscanf(assignments, " %63s%n", one, &bytes) == 1; assignments += bytes) {
    if (!scenario_set(s, one)) return false;
  }
  return true;
}

void scenario_print_help(void) {
#define NUMBER(key, value, help) printf("  %-16s%-10g%s\n", #key, (double)(value), help);
#define TEXT(key, value, help)   printf("  %-16s%-10s%s\n", #key, value, help);
#include "networks/scenario.def"
}
