/* SPDX-License-Identifier: Apache-2.0 */
/* See env.h. */
#include "host/env.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"

static const struct variable {
  const char *name, *expected;
} variables[] = {
#define VARIABLE(id, name, expected) [HARP_ENV_##id] = {name, expected},
    HARP_ENV(VARIABLE)
#undef VARIABLE
};

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
  const char *text = harp_env_find(environment, variables[HARP_ENV_DISABLE].name);
  bool is_disabled = false;
  return text && harp_option_switch(text, &is_disabled) && is_disabled;
}

/* ---- unknown variables ---- */

/* How many insertions, deletions and replacements lie between two short names (Levenshtein). */
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

static const char *suggest(const char *name, size_t bytes) {
  unsigned best = SUGGEST_DISTANCE_MAX + 1;
  const char *suggestion = NULL;
  if (bytes > VARIABLE_NAME_MAX) return NULL;
  for (size_t i = 0; i < HARP_ARRAY_COUNT(variables); i++) {
    unsigned distance = edit_distance(name, bytes, variables[i].name, strlen(variables[i].name));
    if (distance >= best) continue;
    best = distance;
    suggestion = variables[i].name;
  }
  return suggestion;
}

static bool is_known(const char *name, size_t bytes) {
  for (size_t i = 0; i < HARP_ARRAY_COUNT(variables); i++)
    if (strlen(variables[i].name) == bytes && memcmp(variables[i].name, name, bytes) == 0) return true;
  return false;
}

static void report_unknown(const char *const *environment) {
  unsigned lines = 0;
  for (; *environment && lines < UNKNOWN_LINES_MAX; environment++) {
    const char *name = *environment;
    size_t bytes = strcspn(name, "=");
    if (strncmp(name, "HARP_", 5) != 0 || is_known(name, bytes)) continue;
    const char *meant = suggest(name, bytes);
    lines++;
    HARP_INFO("environment: unknown variable %.*s%s%s%s", (int)HARP_MIN(bytes, 64), name,
              meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
  }
}

/* ---- values ---- */

static bool set_value(struct harp_env *env, enum harp_env_id id, const char *text) {
  switch (id) {
  case HARP_ENV_DISABLE:
    return harp_option_switch(text, &env->is_disabled);
  case HARP_ENV_CONF_DIR:
    return strlen(text) < HARP_CONF_DIR_BYTES;
  case HARP_ENV_IFNAME:
    return true; /* ifname.c parses it */
  case HARP_ENV_DRIVER:
    return harp_option_driver(text, &env->driver);
  case HARP_ENV_ENGINE:
    return harp_option_mode(text, &env->mode);
  case HARP_ENV_PEER_TIMEOUT:
    return harp_option_peer_timeout(text, &env->peer_timeout_ns);
  case HARP_ENV_PATHS:
    return harp_option_paths(text, &env->paths);
  case HARP_ENV_CONGESTION:
    return harp_option_congestion(text, env->congestion);
  case HARP_ENV_DEVICES:
    return harp_option_devices(text, &env->devices);
  case HARP_ENV_STALL_TIME:
    return harp_option_stall_time(text, &env->stall_ns);
  case HARP_ENV_ZEROCOPY:
    return harp_option_zerocopy(text, &env->zerocopy);
  case HARP_ENV_STATS_DIR:
  case HARP_ENV_DUMP_DIR:
    return strcmp(text, "off") == 0 || (text[0] == '/' && strlen(text) < HARP_STATS_DIR_BYTES);
  case HARP_ENV_COUNT:
    break;
  }
  HARP_ASSERT(!"no such variable");
  return false;
}

int harp_env_read(struct harp_env *env, const char *const *environment, const struct harp_error *error) {
  memset(env, 0, sizeof *env);
  report_unknown(environment);
  for (unsigned i = 0; i < HARP_ENV_COUNT; i++) {
    char quote[HARP_QUOTE_BYTES];
    const char *text = harp_env_find(environment, variables[i].name);
    if (!text) continue;
    if (!set_value(env, (enum harp_env_id)i, text))
      return harp_error_set(error, -EINVAL, "%s = '%s': expected %s", variables[i].name,
                            harp_error_quote(text, quote), variables[i].expected);
    env->text[i] = text;
  }
  return 0;
}
