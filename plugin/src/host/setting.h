/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of HARP: one table (settings.def), from which conf files, the environment, harpctl and
 * docs/configuration.md are read, checked and written.
 *
 * A setting is a row: where it is set (section and key of the conf file, variable, or both), what its value
 * is (kind, words, range, unit), what holds where nothing sets it, and whom it concerns (one ENI or the whole
 * job). A new one is a row, its enum here if it has words, and its use. Owns no state. Called by conf.c,
 * env.c and config.c at init. */
#ifndef HARP_HOST_SETTING_H
#define HARP_HOST_SETTING_H

#include <sys/socket.h>

#include "base/base.h"
#include "host/arena.h"
#include "host/eni.h"

#define HARP_CONF_DIR_DEFAULT "/usr/local/tfabric/tools/config"

enum {
  HARP_MAX_CORES = 64,      /* of one instance */
  HARP_PAIR_PATHS_MAX = 16, /* source ports per pair of ENIs */
  HARP_CONF_DIR_BYTES = 256,
  HARP_STATS_DIR_BYTES = 256,
  HARP_EXPECTED_BYTES = 96, /* of harp_setting_expected */
};

/* The words' values, in the order of the words in settings.def. */
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
enum harp_congestion { HARP_CONGESTION_DELAY, HARP_CONGESTION_RENO };
enum harp_device_mode { HARP_DEVICES_STRIPED, HARP_DEVICES_ENIS };
enum harp_zerocopy_mode { HARP_ZEROCOPY_MODE_AUTO, HARP_ZEROCOPY_MODE_ON, HARP_ZEROCOPY_MODE_OFF };

struct harp_cores {
  unsigned count;
  uint16_t at[HARP_MAX_CORES]; /* in the order given */
};

struct harp_ports {
  uint16_t low, high; /* both included; 0 and 0: the kernel chooses */
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

/* X(KIND, name in JSON, C type): what a value is. */
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

/* Whom a setting concerns: one ENI, or the whole job, where files that set it must agree. */
enum harp_setting_scope { HARP_SCOPE_ENI, HARP_SCOPE_JOB };

#define HARP_WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

struct harp_setting {
  const char *section, *key; /* of the conf file; NULL: no key sets it */
  const char *variable;      /* NULL: no variable sets it; else it overrides every file */
  enum harp_setting_kind kind;
  enum harp_setting_scope scope;
  const char *const *words; /* of WORD: NULL at the end; a word's place is its value */
  uint64_t min, max;        /* of the value as it is written, bytes of SIZE */
  const char *unit;         /* NULL: none */
  const char *initial;      /* the value where nothing sets it, */
  const char *otherwise;    /* or, if that depends on the host, what it is in words */
  const char *help;
  size_t offset; /* of the value in struct harp_settings; SIZE_MAX: none, the text is the value */
};

extern const struct harp_setting harp_setting_table[HARP_SETTING_COUNT];

/* The sections of the conf file, in the table's order, NULL at the end. */
extern const char *const harp_setting_sections[];

/* Returns whether a file or the environment set it. */
static inline bool harp_setting_is_set(const struct harp_settings *settings, enum harp_setting_id id) {
  return settings->set >> id & 1;
}

/* Zeroes the values and stores the table's own ones. Nothing counts as set. */
void harp_settings_init(struct harp_settings *settings);

/* Reads one value and notes that it is set. Returns false, with the value in an unspecified state, when the
 * text is not exactly one such value; harp_setting_expected says what is. */
bool harp_settings_read(struct harp_settings *settings, enum harp_setting_id id, const char *text);

/* Copies what is set of one scope over other settings. */
void harp_settings_overlay(struct harp_settings *settings, const struct harp_settings *from,
                           enum harp_setting_scope scope);

/* Writes the value of a setting of the job as it stands in a file. Returns `text`. */
const char *harp_settings_format(const struct harp_settings *settings, enum harp_setting_id id,
                                 char text[24]);

/* Writes what is expected, "a number from 1 to 16". Returns `text`. */
const char *harp_setting_expected(enum harp_setting_id id, char text[HARP_EXPECTED_BYTES]);

/* Returns the word for a value of a setting of words: "auto", "inline", ... */
const char *harp_setting_word(enum harp_setting_id id, unsigned value);

#endif
