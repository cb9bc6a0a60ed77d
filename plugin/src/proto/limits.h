/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of the protocol's tables and messages, apart from their structs, so that who needs only a bound
 * does not include these. */
#ifndef HARP_PROTO_LIMITS_H
#define HARP_PROTO_LIMITS_H

enum {
  HARP_PATHS_MAX = 64,     /* the most paths of a session: one word has a bit for each */
  HARP_WINDOWS_MAX = 8,    /* the most interfaces of a peer */
  HARP_STREAMS_MAX = 4096, /* the most streams of a sender or a receiver */
  HARP_MESSAGES_MAX = 64, /* the most messages of a stream that are posted and not done; NCCL uses up to 32 */
  HARP_MESSAGE_MAX_BYTES = 1 << 30,
  HARP_SMALL_MAX_BYTES = 16 * 1024,        /* those up to this take datagrams where a tcp path runs beside */
  HARP_SMALL_QUEUED_MAX_BYTES = 32 * 1024, /* the same while messages queue, to share superframes */
  HARP_PROBE_PADDING_BYTES = 128,   /* the padding of a probe without data, so that it is answered: recv.h */
  HARP_EARLY_MESSAGES = 4,          /* the most messages of a stream without a posted receive */
  HARP_EARLY_MAX_BYTES = 32 * 1024, /* the most bytes of each of them */
  HARP_STAGING_BYTES = HARP_EARLY_MESSAGES * HARP_EARLY_MAX_BYTES, /* the staging of a stream that receives */
};

#endif
