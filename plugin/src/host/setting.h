/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of HARP: one table (settings.def) for conf files, the environment, harpctl and
 * docs/reference/configuration.md.
 *
 * A setting is a row: where it is set (section and key of the conf file, variable, or both), its value (kind,
 * words, range, unit), default and scope (one ENI or the whole job). To add one, add a row, its enum here if
 * it has words, and its use. No state. Called by conf.c, env.c and config.c at init. */
#ifndef HARP_HOST_SETTING_H
#define HARP_HOST_SETTING_H

#include <sys/socket.h>

#include "base/base.h"
#include "host/arena.h"
#include "host/eni.h"

#define HARP_CONF_DIR_DEFAULT "/usr/local/tfabric/tools/config"

enum {
  HARP_CORES_MAX = 64,      /* the most cores of one instance */
  HARP_PAIR_PATHS_MAX = 16, /* source ports per pair of ENIs */
  HARP_CONF_DIR_BYTES = 256,
  HARP_STATS_DIR_BYTES = 256,
  HARP_EXPECTED_BYTES = 96, /* the bytes of the text of harp_setting_expected */
};

/* The values of words, in their order in settings.def. */
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
enum harp_congestion { HARP_CONGESTION_TARGET, HARP_CONGESTION_RENO };
enum harp_ecn { HARP_ECN_ON, HARP_ECN_OFF };
enum harp_auth { HARP_AUTH_OFF, HARP_AUTH_MAC };
enum harp_shared_clock_mode { HARP_SHARED_CLOCK_AUTO, HARP_SHARED_CLOCK_ON, HARP_SHARED_CLOCK_OFF };
enum harp_device_mode { HARP_DEVICES_STRIPED, HARP_DEVICES_ENIS };
enum harp_tcp_checksum { HARP_TCP_CHECKSUM_ON, HARP_TCP_CHECKSUM_OFF };
enum harp_zerocopy_mode { HARP_ZEROCOPY_MODE_AUTO, HARP_ZEROCOPY_MODE_ON, HARP_ZEROCOPY_MODE_OFF };

struct harp_cores {
  unsigned count;
  uint16_t at[HARP_CORES_MAX]; /* the cores, in the order given */
};

struct harp_ports {
  uint16_t low, high; /* the ports, both included; 0 and 0: the kernel chooses */
};

enum harp_setting_id {
#define SETTING(id, kind, type, field, ...) HARP_SETTING_##id,
#define VARIABLE(id, kind, ...)             HARP_SETTING_##id,
#include "host/settings.def"
#undef SETTING
#undef VARIABLE
  HARP_SETTING_COUNT
};

/* The values. */
struct harp_settings {
#include "host/setting_fields.h"
};

/* X(KIND, name in JSON, C type) */
#define HARP_SETTING_KINDS(X)                                                                                \
  X(NUMBER, "number", int)                       /* decimal digits, from min to max */                       \
  X(SECONDS, "seconds", harp_ns)                 /* whole seconds, the same */                               \
  X(SIZE, "size", size_t)                        /* bytes, or with K, M or G */                              \
  X(WORD, "word", unsigned)                      /* one of `words` */                                        \
  X(INTERFACE, "interface", char[16])            /* a name that Linux allows */                              \
  X(MAC, "mac", uint8_t[6])                      /* six pairs of hex digits with colons */                   \
  X(PCI, "pci", char[16])                        /* "0000:3b:00.1", kept in lower case */                    \
  X(ADDRESS, "address", struct sockaddr_storage) /* IPv4 or IPv6, port 0 */                                  \
  X(CORES, "cores", struct harp_cores)           /* numbers and ranges, min to max different ones */         \
  X(PORTS, "ports", struct harp_ports)           /* "LOW-HIGH", each from min to max */                      \
  X(INTERFACES, "interfaces", char[1])           /* a list that ifname.c reads */                            \
  X(DIRECTORY, "directory", char[1])             /* a path of at most max bytes */                           \
  X(OUTPUT, "output", char[1])                   /* "off" or an absolute path of at most max bytes */

enum harp_setting_kind {
#define HARP_SETTING_KIND(kind, name, type) HARP_KIND_##kind,
  HARP_SETTING_KINDS(HARP_SETTING_KIND)
#undef HARP_SETTING_KIND
};

/* HARP_SCOPE_JOB: files that set it must agree. */
enum harp_setting_scope { HARP_SCOPE_ENI, HARP_SCOPE_JOB };

#define HARP_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

struct harp_setting {
  const char *section, *key; /* its place in the conf file; NULL: none */
  const char *variable;      /* the variable that overrides the files; NULL: none */
  enum harp_setting_kind kind;
  enum harp_setting_scope scope;
  const char *const
      *words;            /* the words of WORD, with NULL behind the last; the index of a word is its value */
  uint64_t min, max;     /* the bounds of the value as written; those of SIZE are bytes */
  const char *unit;      /* NULL: none */
  const char *initial;   /* the default, as text; NULL: it depends on the host */
  const char *otherwise; /* the description of a default that depends on the host */
  const char *help;
  size_t offset; /* the offset of the value in struct harp_settings; SIZE_MAX: the text is the value */
};

extern const struct harp_setting harp_setting_table[HARP_SETTING_COUNT];

/* The sections of the conf file, in the table's order, NULL at the end. */
extern const char *const harp_setting_sections[];

/* Returns whether a file or the environment has set a setting. */
static inline bool harp_setting_is_set(const struct harp_settings *settings, enum harp_setting_id id) {
  return settings->set >> id & 1;
}

/* Sets all values to the table's defaults, without marking them as set. */
void harp_settings_init(struct harp_settings *settings);

/* Parses one value and marks it as set. Returns false, with the value unspecified, when the text is invalid;
 * see harp_setting_expected. */
bool harp_settings_read(struct harp_settings *settings, enum harp_setting_id id, const char *text);

/* Copies the values of one scope that are set in `from`, and marks them as set. */
void harp_settings_overlay(struct harp_settings *settings, const struct harp_settings *from,
                           enum harp_setting_scope scope);

/* Writes the value of a setting of the job in the conf file's syntax. Returns `text`. */
const char *harp_settings_format(const struct harp_settings *settings, enum harp_setting_id id,
                                 char text[24]);

/* Describes the valid values, as in "a number from 1 to 16". Returns `text`. */
const char *harp_setting_expected(enum harp_setting_id id, char text[HARP_EXPECTED_BYTES]);

/* Returns the word of a value: "auto", "inline", ... */
const char *harp_setting_word(enum harp_setting_id id, unsigned value);

#endif
