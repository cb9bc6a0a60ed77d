/* SPDX-License-Identifier: Apache-2.0 */
/* The text for the log when the process or its host has no more files, threads, memory, ports or the like: it
 * names the limit, its number, what is in use as far as the kernel says, and what to change. Any thread. */
#ifndef HARP_SHORTAGE_H
#define HARP_SHORTAGE_H

#include <errno.h>

#include "base/error.h"
#include "base/files.h"

enum { HARP_SHORTAGE_TEXT_BYTES = 280 };

/* Shortages have the system's errors (EMFILE, ENFILE, ENOMEM, ENOBUFS, EADDRINUSE), HARP_EFEWFILES, and these
 * where the system's has other meanings elsewhere: */
#define HARP_EPORTS   EADDRNOTAVAIL /* the error of bind and connect */
#define HARP_ETHREADS ECHILD        /* the error EAGAIN of pthread_create */
#define HARP_EWATCHES ENOTUNIQ      /* the error ENOSPC of epoll_ctl */
#define HARP_ELOCKED  ENOLCK        /* the error ENOBUFS of an AF_XDP socket: no more locked memory */

/* Writes a clause for an error (positive); of one that is no shortage the system's text. Returns text. */
const char *harp_shortage_text(int error, char text[HARP_SHORTAGE_TEXT_BYTES]);

/* Sets an error to what could not be done, for the reason rc (-errno). Returns rc. */
int harp_shortage_set(struct harp_error *error, int rc, const char *fmt, ...) HARP_PRINTF(3, 4);

/* Logs the WARN of a call that has no memory for what it should do. */
void harp_shortage_warn_memory(const char *what);

#endif
