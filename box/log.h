/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of harp-nccl: one line on standard error with the program's name; exit codes. Any thread; log.c also
 * has the allocation that ends the process when there is no memory. */
#ifndef HARP_BOX_LOG_H
#define HARP_BOX_LOG_H

#include "base/base.h"

/* Exit codes of the process. */
enum box_exit {
  BOX_EXIT_OK = 0,
  BOX_EXIT_USAGE = 2,
  BOX_EXIT_NCCL = 3,  /* a call of NCCL failed */
  BOX_EXIT_WRONG = 4, /* at least one element was wrong */
  BOX_EXIT_LOAD = 5,  /* the library, a namespace or a core is not available */
  BOX_EXIT_TIME = 124
};

/* Writes a line to standard error, in one write. */
void box_log(const char *fmt, ...) HARP_PRINTF(1, 2);

/* Writes a line and ends the process: for what this program does not emulate. */
void box_die(const char *fmt, ...) HARP_PRINTF(1, 2) __attribute__((noreturn));

/* Like malloc and realloc, but end the process when there is no memory. Memory of box_new is zeroed. */
void *box_new(size_t bytes);
void *box_grow(void *p, size_t bytes);

#endif
