/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of an engine, and the text for the log when one is reached: each limit has an error of
 * its own, so that the one WARN names the limit, its number, and what to change. */
#ifndef HARP_LIMITS_H
#define HARP_LIMITS_H

#include "base/shortage.h"

enum {
  HARP_ENGINE_LINKS_MAX = 8192,
  HARP_ENGINE_PEERS_MAX = 4096, /* the most peers, with the handshakes under way */
  HARP_PENDING_PEERS_MAX = 64,  /* the most pending peers of a listener */
  HARP_STRANGERS_MAX = 256,     /* the most pending peers of an engine that have not proved the secret, */
  HARP_STRANGERS_FEW_FILES = 8, /* and the same where the process has few files left */
  HARP_UNACCEPTED_MAX = 8,      /* the most of a listener that wait for accept, or only for their CONFIRM */
  /* HARP_STREAMS_MAX, of a peer in one direction: proto/limits.h */
  HARP_LIMIT_TEXT_BYTES = HARP_SHORTAGE_TEXT_BYTES,
};

/* The errors of the full tables; what the host is short of has those of base/shortage.h. */
#define HARP_ELINKS   EMLINK
#define HARP_EPEERS   EUSERS
#define HARP_ESTREAMS EXFULL
/* The peer's process has no files left. */
#define HARP_EPEERFILES EREMOTEIO

/* Writes a clause with the limit that an error (positive) stands for, its number, and what to change; of any
 * other error what harp_shortage_text says. Returns text. */
const char *harp_limit_text(int error, char text[HARP_LIMIT_TEXT_BYTES]);

/* Returns whether an error stands for a limit; for one of this process or its host. */
bool harp_limit_is(int error);
bool harp_limit_is_hosts(int error);

#endif
