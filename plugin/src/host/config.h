/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of this process: one instance per ENI, from ztcp<N>.conf, HARP_IFNAME or choice.h,
 * overridden by the environment and checked against the interfaces of this host.
 *
 * No state: a struct harp_config is a value of the caller's, complete after harp_config_load and constant
 * from then on. Called by net/ at init, from the initialising thread. Only reads, and keeps
 * nothing open. setting.h has the settings, conf.h the file format, env.h the variables, eni.h the
 * interfaces. */
#ifndef HARP_HOST_CONFIG_H
#define HARP_HOST_CONFIG_H

#include <sys/socket.h>

#include "base/base.h"
#include "base/error.h"
#include "host/eni.h"
#include "host/local.h"
#include "host/setting.h"

#define HARP_STATS_DIR_DEFAULT "/run/harp"

enum {
  HARP_INSTANCES_MAX = 16,
  HARP_STATS_DIRS_MAX = 2,
};

/* One ENI and how to use it. */
struct harp_instance {
  char name[32]; /* "ztcp0", or "ifname0" when a variable is the reason: for messages */

  char ifname[HARP_ENI_NAME_BYTES];
  int index;
  struct sockaddr_storage addr; /* the address to bind, port 0 */
  enum harp_speed_source speed_source;
  char pci_path[HARP_ENI_PCI_BYTES]; /* "" when the ENI is no PCI device */
  struct harp_local local;           /* the place of this process, the same in all instances */
  unsigned gpu_nearness; /* the nearness to the GPU of this process (harp_gpu_nearness); 0: unknown */
  /* The interface cannot carry traffic yet: it is down, has no link or not this address, or does not exist
   * (index 0). What it does not tell is as on one that works. Its paths begin without an answer. */
  bool is_absent;
  bool is_unnumbered; /* its address is not known yet: `addr` has the family alone. It is absent, too */

  /* The effective settings: from the variable, else the file, else the table, else the host. mac, mtu,
   * speed_mbps and numa (-1: unknown) are the interface's, mode is INLINE or THREAD, paths at least 1. They
   * are members of the instance, and together `settings`. */
  union {
    struct harp_settings settings;
    struct {
#include "host/setting_fields.h"
    };
  };
};

struct harp_config {
  unsigned instance_count; /* at least 1 */
  struct harp_instance instances[HARP_INSTANCES_MAX];

  struct harp_settings job; /* the settings of the whole job, equal in every instance */
  unsigned stats_dir_count; /* 0: no statistics */
  char stats_dirs[HARP_STATS_DIRS_MAX][HARP_STATS_DIR_BYTES]; /* the first that works is used */
  unsigned dump_dir_count;                                    /* 0: no dumps */
  char dump_dirs[HARP_STATS_DIRS_MAX][HARP_STATS_DIR_BYTES];  /* the same */
  /* The directory that was read; "" when a variable is the reason for the configuration. */
  char conf_dir[HARP_CONF_DIR_BYTES];
};

/* The sources of the configuration; tests use their own. */
struct harp_config_sources {
  const char *conf_dir;           /* the folder when HARP_CONF_DIR is not set */
  const char *const *environment; /* "NAME=value" strings, NULL at the end */
  struct harp_eni_source eni;
  const char *proc_root; /* "/proc" */
};

/* Returns the system's sources: HARP_CONF_DIR_DEFAULT, the environment, this host's interfaces. */
struct harp_config_sources harp_config_sources_system(void);

/* Reads the configuration of this process: at least one of its interfaces works. Returns 0, or -errno with a
 * zeroed `cfg` and a sentence in `error`, which the caller logs as its one WARN: file, line, key, value and
 * what was expected, or the interface and its fault. -ENOENT: there are neither conf files nor HARP_IFNAME,
 * and HARP was not asked for by name. Logs at INFO each instance, and oddities that are no errors (an unknown
 * HARP_ variable). Documented in docs/reference/configuration.md.
 */
HARP_MUST_CHECK int harp_config_load(struct harp_config *cfg, struct harp_error *error);

/* Does the same as harp_config_load from other sources. */
HARP_MUST_CHECK int harp_config_load_from(struct harp_config *cfg, const struct harp_config_sources *sources,
                                          struct harp_error *error);

/* Finds the address of an interface that was unnumbered, among those of the host. Returns whether it has one;
 * the instance then has it, and the interface's index. */
bool harp_instance_number(struct harp_instance *instance, const struct harp_eni *enis, unsigned count);

/* Looks which interfaces are absent now, whether they have another index, and which have an address at last.
 * Logs at INFO each that has become absent. */
void harp_instances_refresh(struct harp_instance *instances, unsigned count);

#endif
