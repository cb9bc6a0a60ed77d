/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the HARP_ variables; setting.h defines them.
 *
 * No state. Called by config.c and net/ at init; only nccl/ops.c reads a variable elsewhere, one of NCCL's.
 * An empty variable counts as unset. */
#ifndef HARP_HOST_ENV_H
#define HARP_HOST_ENV_H

#include "base/base.h"
#include "base/error.h"
#include "host/setting.h"

struct harp_env {
  const char *text[HARP_SETTING_COUNT]; /* the value, which points into the environment; NULL: not set */
  struct harp_settings values;          /* what is not set is 0 */
};

/* Reads the variables and checks their values. Logs each unknown HARP_ variable with the most similar known
 * one, at INFO, because NCCL reports the last WARN of a process as the reason of a later error. Returns 0, or
 * -EINVAL with the sentence "NAME = 'value': expected ..." in the error. */
HARP_MUST_CHECK int harp_env_read(struct harp_env *env, const char *const *environment,
                                  struct harp_error *error);

/* Finds a variable of any name; NULL when it is not set or empty. */
const char *harp_env_find(const char *const *environment, const char *name);

/* Returns whether HARP_DISABLE is 1. */
bool harp_env_is_disabled(const char *const *environment);

#endif
