/* SPDX-License-Identifier: Apache-2.0 */
/* What the operator configured: one instance per ENI, from ztcp<N>.conf or from HARP_IFNAME, with the
 * environment laid over it and checked against the interfaces of this host.
 *
 * Owns no state: a struct harp_config is a plain value of the caller's, complete after harp_config_load and
 * never written again. Called by nccl/ and engine/ at init, from the initialising thread. Starts nothing,
 * keeps nothing open, writes nothing. conf.h has the file format, env.h the variables, eni.h the interfaces.
 */
#ifndef HARP_HOST_CONFIG_H
#define HARP_HOST_CONFIG_H

#include <sys/socket.h>

#include "base/base.h"
#include "host/arena.h"
#include "host/eni.h"

#define HARP_CONF_DIR_DEFAULT "/usr/local/tfabric/tools/config"

#define HARP_STATS_DIR_DEFAULT "/run/harp"

enum {
  HARP_MAX_INSTANCES = 16,
  HARP_MAX_CORES = 64, /* of one instance */
  HARP_MAX_PATHS = 16, /* source ports per pair of ENIs */
  HARP_CONGESTION_BYTES = 16,
  HARP_CONF_DIR_BYTES = 256,
  HARP_STATS_DIRS_MAX = 2,
  HARP_STATS_DIR_BYTES = 256,
  HARP_CONFIG_ERROR_BYTES = 640, /* room for any error sentence */
};

/* What NCCL is offered: one device over all ENIs, or one for each. */
enum harp_device_mode { HARP_DEVICES_STRIPED, HARP_DEVICES_ENIS };
/* Whether TCP takes payload without a copy; AUTO: where it is measured to be quicker. */
enum harp_zerocopy_mode { HARP_ZEROCOPY_MODE_AUTO, HARP_ZEROCOPY_MODE_ON, HARP_ZEROCOPY_MODE_OFF };
enum harp_engine_mode { HARP_ENGINE_AUTO, HARP_ENGINE_INLINE, HARP_ENGINE_THREAD };
enum harp_driver {
  HARP_DRIVER_AUTO,
  HARP_DRIVER_XDP,
  HARP_DRIVER_XDP_ZC,
  HARP_DRIVER_XDP_COPY,
  HARP_DRIVER_UDP,
  HARP_DRIVER_TCP,
  HARP_DRIVER_UDP_TCP,
};

/* One ENI and how to use it. */
struct harp_instance {
  char name[32]; /* "ztcp0", or "ifname0" when it came from HARP_IFNAME: for messages */

  /* the ENI */
  char ifname[HARP_ENI_NAME_BYTES];
  int index;
  struct sockaddr_storage addr; /* the address to bind, port 0 */
  uint8_t mac[6];
  int mtu; /* bytes, IP packet; at most the interface's */
  int speed_mbps;
  enum harp_speed_source speed_source;
  char pci_path[HARP_ENI_PCI_BYTES]; /* "" when the ENI is no PCI device */
  int numa;                          /* -1 when unknown */
  unsigned queues;                   /* NIC queues to use; 0: the driver's choice */

  /* the engine */
  enum harp_engine_mode mode; /* INLINE or THREAD, never AUTO */
  uint16_t cores[HARP_MAX_CORES];
  unsigned core_count;
  int gpu;               /* the GPU this ENI is meant for, -1 for any */
  unsigned gpu_nearness; /* to the GPU of this process, by harp_gpu_nearness; 0: nothing is known */

  /* memory */
  enum harp_page_rung page_size;
  size_t memory_bytes; /* 0: the engine's default */

  /* transport */
  enum harp_driver driver;      /* what may be used; AUTO: the engine's choice */
  uint16_t port_low, port_high; /* local ports to bind, both included; 0 and 0: the kernel chooses */
  unsigned paths;               /* 1 to HARP_MAX_PATHS */
  bool paths_are_set;           /* by the operator */
  harp_ns peer_timeout_ns;
  harp_ns stall_ns; /* what NCCL waits for so long is named; 0: the default */
  enum harp_zerocopy_mode zerocopy;
};

struct harp_config {
  unsigned instance_count; /* at least 1 */
  struct harp_instance instances[HARP_MAX_INSTANCES];

  /* of the whole job, the same for all instances */
  harp_ns peer_timeout_ns;
  enum harp_device_mode devices;
  char congestion[HARP_CONGESTION_BYTES];                     /* "delay" or "reno" */
  unsigned stats_dir_count;                                   /* 0: no statistics */
  char stats_dirs[HARP_STATS_DIRS_MAX][HARP_STATS_DIR_BYTES]; /* the first that works is taken */
  unsigned dump_dir_count;                                    /* 0: no dumps */
  char dump_dirs[HARP_STATS_DIRS_MAX][HARP_STATS_DIR_BYTES];  /* the same */
  char conf_dir[HARP_CONF_DIR_BYTES]; /* the directory that was read; "" when HARP_IFNAME chose the ENIs */
};

/* Where the configuration is looked for; harp_config_sources_system() is the real one. */
struct harp_config_sources {
  const char *conf_dir;           /* when HARP_CONF_DIR is not set */
  const char *const *environment; /* "NAME=value" strings, NULL at the end */
  struct harp_eni_source eni;
  const char *proc_root; /* "/proc" */
};

/* Returns the real sources: HARP_CONF_DIR_DEFAULT, this process's environment, this host's interfaces. */
struct harp_config_sources harp_config_sources_system(void);

/* Reads the configuration of this process. Returns 0, or -errno with one finished sentence in `error`, which
 * the caller logs as its one WARN: file, line, key, value and what was expected, or the interface and what is
 * wrong with it. With neither conf files nor HARP_IFNAME: -ENOENT, and the sentence names directory, glob and
 * both remedies. Logs at INFO each instance, and oddities that are no errors (an unknown HARP_ variable).
 * `cfg` is zeroed on error. Sources: design.md section 4, docs/configuration.md. */
HARP_MUST_CHECK int harp_config_load(struct harp_config *cfg, char *error, size_t error_bytes);

/* Does the same from other sources. */
HARP_MUST_CHECK int harp_config_load_from(struct harp_config *cfg, const struct harp_config_sources *sources,
                                          char *error, size_t error_bytes);

/* Return the words of the conf file: "auto", "inline", ... */
const char *harp_engine_mode_name(enum harp_engine_mode mode);
const char *harp_driver_name(enum harp_driver driver);
const char *harp_device_mode_name(enum harp_device_mode mode);

#endif
