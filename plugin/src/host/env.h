/* SPDX-License-Identifier: Apache-2.0 */
/* The HARP_ variables: one table, read once.
 *
 * Owns no state. Called by config.c at init; nothing else in the plugin reads the environment. A variable
 * that is set but empty counts as not set. */
#ifndef HARP_HOST_ENV_H
#define HARP_HOST_ENV_H

#include "base/base.h"
#include "host/config.h"
#include "host/error.h"
#include "host/option.h"

/* X(ID, name, what is expected); docs/configuration.md has the same table, and a test compares them. */
#define HARP_ENV(X)                                                                                          \
  X(DISABLE, "HARP_DISABLE", HARP_EXPECT_SWITCH)                                                             \
  X(CONF_DIR, "HARP_CONF_DIR", "a directory path of at most 255 characters")                                 \
  X(IFNAME, "HARP_IFNAME", "a comma list of interface names, after ^ to exclude or = to match exactly")      \
  X(DRIVER, "HARP_DRIVER", HARP_EXPECT_DRIVER)                                                               \
  X(ENGINE, "HARP_ENGINE", HARP_EXPECT_MODE)                                                                 \
  X(PEER_TIMEOUT, "HARP_PEER_TIMEOUT", HARP_EXPECT_PEER_TIMEOUT)                                             \
  X(PATHS, "HARP_PATHS", HARP_EXPECT_PATHS)                                                                  \
  X(CONGESTION, "HARP_CONGESTION", HARP_EXPECT_CONGESTION)                                                   \
  X(DEVICES, "HARP_DEVICES", HARP_EXPECT_DEVICES)                                                            \
  X(STALL_TIME, "HARP_STALL_TIME", HARP_EXPECT_STALL_TIME)                                                   \
  X(ZEROCOPY, "HARP_ZEROCOPY", HARP_EXPECT_ZEROCOPY)                                                         \
  X(STATS_DIR, "HARP_STATS_DIR", "off, or an absolute directory path of at most 255 characters")             \
  X(DUMP_DIR, "HARP_DUMP_DIR", "off, or an absolute directory path of at most 255 characters")

enum harp_env_id {
#define HARP_ENV_ENUM(id, name, expected) HARP_ENV_##id,
  HARP_ENV(HARP_ENV_ENUM)
#undef HARP_ENV_ENUM
      HARP_ENV_COUNT
};

struct harp_env {
  const char *text[HARP_ENV_COUNT]; /* points into the environment; NULL: not set, its value below is 0 */

  bool is_disabled;
  enum harp_driver driver;
  enum harp_engine_mode mode;
  harp_ns peer_timeout_ns, stall_ns;
  unsigned paths;
  char congestion[HARP_CONGESTION_BYTES];
  enum harp_device_mode devices;
  enum harp_zerocopy_mode zerocopy;
};

/* Reads the variables and checks their values. Says at INFO each HARP_ variable that it doesn't know, with
 * the one that was probably meant: not at WARN, because NCCL keeps the last WARN of a process as the reason
 * of a later error. Returns 0, or -EINVAL with the sentence "NAME = 'value': expected ..." in the error. */
HARP_MUST_CHECK int harp_env_read(struct harp_env *env, const char *const *environment,
                                  const struct harp_error *error);

/* Finds a variable of any name; NULL when it is not set or empty. */
const char *harp_env_find(const char *const *environment, const char *name);

/* Returns whether HARP_DISABLE is 1. */
bool harp_env_is_disabled(const char *const *environment);

#endif
