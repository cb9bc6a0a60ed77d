/* SPDX-License-Identifier: Apache-2.0 */
/* Parses one ztcp<N>.conf into values. setting.h has the keys; config.h applies the values to this host.
 *
 * No state. Called by config.c at init. The parser reads bytes, not files, so that it can be fuzzed. The
 * format: [section] lines, `key = value` lines, comment lines that begin with # or ;, blank lines; spaces
 * around names and values don't count, there are no quotes and no continuation lines. */
#ifndef HARP_HOST_CONF_H
#define HARP_HOST_CONF_H

#include "base/base.h"
#include "base/error.h"
#include "host/setting.h"

enum {
  HARP_CONF_FILE_BYTES_MAX = 64 << 10,
  HARP_CONF_LINE_BYTES_MAX = 512, /* the bytes of a line without its end */
  HARP_CONF_NAME_BYTES = 320,     /* the bytes of the path shown in messages */
};

struct harp_conf {
  char file[HARP_CONF_NAME_BYTES];    /* the path, for messages */
  uint32_t lines[HARP_SETTING_COUNT]; /* the line where each key was set, from 1; 0: not set */
  struct harp_settings values;        /* what is not set is 0 */
};

/* Parses the text of a file, any bytes; `file` is its name for messages. Returns 0, or -EINVAL with the
 * sentence "file:line: ... expected ..." in the error. [eni] interface must be set. */
HARP_MUST_CHECK int harp_conf_parse(struct harp_conf *conf, const char *file, const char *text, size_t bytes,
                                    struct harp_error *error);

/* Reads and parses the file at `path`. Returns 0, or -errno with the sentence in the error. Logs at INFO if
 * the file is world-writable. */
HARP_MUST_CHECK int harp_conf_read(struct harp_conf *conf, const char *path, struct harp_error *error);

#endif
