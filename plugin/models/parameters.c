/* SPDX-License-Identifier: Apache-2.0 */
#include "models/parameters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool set_number(double *to, const char *text) {
  char *end;
  *to = strtod(text, &end);
  return end != text && !*end && *to >= 0;
}

static bool set_text(char *to, const char *text) {
  return (unsigned)snprintf(to, PARAMETER_TEXT_BYTES, "%s", text) < PARAMETER_TEXT_BYTES;
}

bool parameters_set(const struct parameter *list, size_t count, void *object, const char *assignment) {
  const char *value = strchr(assignment, '=');
  if (!value) return false;
  for (const struct parameter *p = list; p < list + count; p++) {
    if (strlen(p->key) != (size_t)(value - assignment) || strncmp(p->key, assignment, strlen(p->key)))
      continue;
    char *at = (char *)object + p->offset;
    return p->is_text ? set_text(at, value + 1) : set_number((double *)(void *)at, value + 1);
  }
  return false;
}

bool parameters_set_all(const struct parameter *list, size_t count, void *object, const char *assignments) {
  char one[2 * PARAMETER_TEXT_BYTES];
  for (int bytes; sscanf(assignments, " %63s%n", one, &bytes) == 1; assignments += bytes) {
    if (!parameters_set(list, count, object, one)) return false;
  }
  return true;
}

void parameters_print_help(const struct parameter *list, size_t count) {
  for (const struct parameter *p = list; p < list + count; p++)
    printf("  %-16s%-10s%s\n", p->key, p->value, p->help);
}
