/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine and its process can have at most, and the text for the log when that is reached: each limit
 * has an error of its own, so that the one WARN names the limit, its number, and what to change. */
#ifndef HARP_LIMITS_H
#define HARP_LIMITS_H

#include <errno.h>

#include "base/files.h"

enum {
  HARP_ENGINE_LINKS_MAX = 8192,
  HARP_ENGINE_PEERS_MAX = 4096, /* and handshakes under way */
  HARP_PENDING_PEERS_MAX = 64,  /* of a listener */
  HARP_UNACCEPTED_MAX = 8,      /* of a listener: those that wait for accept, or only for their CONFIRM */
  /* HARP_STREAMS_MAX, of a peer in one direction: proto/limits.h */
  HARP_LIMIT_TEXT_BYTES = 280,
};

/* The errors of the full tables; files and memory have the system's (EMFILE, ENFILE, ENOMEM, ENOBUFS), and so
 * have threads and ports. */
#define HARP_ELINKS   EMLINK
#define HARP_EPEERS   EUSERS
#define HARP_ESTREAMS EXFULL
/* The peer's process has no files left. */
#define HARP_EPEERFILES EREMOTEIO
#define HARP_ETHREADS   EAGAIN        /* of pthread_create */
#define HARP_EPORTS     EADDRNOTAVAIL /* of bind and connect */

/* Writes a clause with the limit that an error (positive) stands for, its number, what is in use as far as
 * the kernel says, and what to change; of any other error the system's text. Returns text. */
const char *harp_limit_text(int error, char text[HARP_LIMIT_TEXT_BYTES]);

/* Returns whether an error stands for a limit; for one of this process or its host. */
bool harp_limit_is(int error);
bool harp_limit_is_hosts(int error);

#endif
