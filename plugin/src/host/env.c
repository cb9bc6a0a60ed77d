/* SPDX-License-Identifier: Apache-2.0 */
/* See env.h. */
#include "host/env.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"

enum {
  VARIABLE_NAME_MAX = 32, /* longer names are not compared */
  SUGGEST_DISTANCE_MAX = 4,
  UNKNOWN_LINES_MAX = 8, /* lines about unknown variables */
};

const char *harp_env_find(const char *const *environment, const char *name) {
  size_t length = strlen(name);
  for (; *environment; environment++)
    if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
      return (*environment)[length + 1] ? *environment + length + 1 : NULL;
  return NULL;
}

bool harp_env_is_disabled(const char *const *environment) {
  const char *text = harp_env_find(environment, harp_setting_table[HARP_SETTING_DISABLE].variable);
  return text && strcmp(text, "1") == 0;
}

/* ---- unknown variables ---- */

/* Returns the Levenshtein distance of two short names. */
static unsigned edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
  unsigned row[VARIABLE_NAME_MAX + 1];
  HARP_ASSERT(b_bytes <= VARIABLE_NAME_MAX);
  for (size_t j = 0; j <= b_bytes; j++) row[j] = (unsigned)j;
  for (size_t i = 1; i <= a_bytes; i++) {
    unsigned diagonal = row[0];
    row[0] = (unsigned)i;
    for (size_t j = 1; j <= b_bytes; j++) {
      unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = HARP_MIN(replaced, HARP_MIN(row[j], row[j - 1]) + 1);
    }
  }
  return row[b_bytes];
}

static const char *suggest_name(const char *name, size_t bytes) {
  unsigned best = SUGGEST_DISTANCE_MAX + 1;
  const char *suggestion = NULL;
  if (bytes > VARIABLE_NAME_MAX) return NULL;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const char *variable = harp_setting_table[id].variable;
    unsigned distance = variable ? edit_distance(name, bytes, variable, strlen(variable)) : best;
    if (distance >= best) continue;
    best = distance;
    suggestion = variable;
  }
  return suggestion;
}

static bool is_known(const char *name, size_t bytes) {
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const char *variable = harp_setting_table[id].variable;
    if (variable && strlen(variable) == bytes && memcmp(variable, name, bytes) == 0) return true;
  }
  return false;
}

static void report_unknown(const char *const *environment) {
  unsigned lines = 0;
  for (; *environment && lines < UNKNOWN_LINES_MAX; environment++) {
    const char *name = *environment;
    size_t bytes = strcspn(name, "=");
    if (strncmp(name, "HARP_", 5) != 0 || is_known(name, bytes)) continue;
    const char *meant = suggest_name(name, bytes);
    lines++;
    HARP_INFO("environment: unknown variable %.*s%s%s%s", (int)HARP_MIN(bytes, 64), name,
              meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
  }
}

/* ---- values ---- */

int harp_env_read(struct harp_env *env, const char *const *environment, struct harp_error *error) {
  memset(env, 0, sizeof *env);
  report_unknown(environment);
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    char quote[HARP_QUOTE_BYTES], expected[HARP_EXPECTED_BYTES];
    const char *variable = harp_setting_table[id].variable;
    const char *text = variable ? harp_env_find(environment, variable) : NULL;
    if (!text) continue;
    if (!harp_settings_read(&env->values, id, text))
      return harp_error_set(error, -EINVAL, "%s = '%s': expected %s", variable, harp_error_quote(text, quote),
                            harp_setting_expected(id, expected));
    env->text[id] = text;
  }
  return 0;
}
