/* SPDX-License-Identifier: Apache-2.0 */
/* Reads small text files of procfs and sysfs. No state; any thread; does not block on these files. */
#ifndef HARP_TEXT_FILE_H
#define HARP_TEXT_FILE_H

#include <sys/types.h>

#include "base/base.h"

/* Reads the first text_bytes - 1 bytes of a file, NUL-terminated. Returns how many, or -errno with "". */
ssize_t harp_text_file_read(const char *path, char *text, size_t text_bytes);

#endif
