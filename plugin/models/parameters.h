/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a program, set by key=value in the fields of a struct: numbers (double) and short texts. */
#ifndef HARP_MODELS_PARAMETERS_H
#define HARP_MODELS_PARAMETERS_H

#include "base/base.h"

enum { PARAMETER_TEXT_BYTES = 32 };

struct parameter {
  const char *key, *help;
  const char *value; /* the default, for the help */
  size_t offset;     /* the offset of the field: a double, or a char[PARAMETER_TEXT_BYTES] */
  bool is_text;
};

/* Sets one parameter of `object` from key=value. Returns false: no such key, or no number of 0 or more. */
bool parameters_set(const struct parameter *list, size_t count, void *object, const char *assignment);

/* Sets several, with a space between. Returns false where one is wrong. */
bool parameters_set_all(const struct parameter *list, size_t count, void *object, const char *assignments);

/* Prints each key, its default and what it means. */
void parameters_print_help(const struct parameter *list, size_t count);

#endif
