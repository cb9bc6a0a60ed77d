/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of the protocol's tables and messages, apart from their structs, so that who needs only a bound
 * does not include these. */
#ifndef HARP_PROTO_LIMITS_H
#define HARP_PROTO_LIMITS_H

enum {
  HARP_PATHS_MAX = 64,     /* of a session: a bit each in one word */
  HARP_WINDOWS_MAX = 8,    /* interfaces of a peer */
  HARP_STREAMS_MAX = 4096, /* of a sender or a receiver */
  HARP_MESSAGES_MAX = 64,  /* of a stream that are posted and not done; NCCL uses up to 32 */
  HARP_MESSAGE_MAX_BYTES = 1 << 30,
  HARP_SMALL_MAX_BYTES = 16 * 1024, /* of messages that take datagrams where there is a tcp path beside, */
  HARP_SMALL_QUEUED_MAX_BYTES = 32 * 1024, /* and while messages queue, so that they share superframes */
  HARP_PROBE_PADDING_BYTES = 128,          /* of a probe without data, which is to be answered: recv.h */
  HARP_EARLY_MESSAGES = 4,                 /* of a stream that may be sent before their receive is posted */
  HARP_EARLY_MAX_BYTES = 32 * 1024,        /* of each of them */
  HARP_STAGING_BYTES = HARP_EARLY_MESSAGES * HARP_EARLY_MAX_BYTES, /* of a stream that receives */
};

#endif
