/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections on a virtual clock, as the kernels at their two ends show them: bytes in order, partial
 * writes and reads, stalls, resets at any byte that one end or both ends hear of, or none (half-open).
 *
 * A connection runs over the links of a simnet: their delay, rate and blackholes hold for it; what they lose
 * comes later. Bytes leave in order at the rate of the link, so what is written later waits behind them. End
 * 0 connects. Owned by a harness that moves the clock. */
#ifndef HARP_TESTS_TCPNET_H
#define HARP_TESTS_TCPNET_H

#include <sys/uio.h>

#include "lib/simnet.h"

enum {
  TCPNET_ROOM_BYTES = 256 << 10, /* in flight and unread, each way: at most */
  TCPNET_SEGMENTS = 64,
  TCPNET_REFERENCES = 256, /* to payload that may be read again */
  TCPNET_AGAIN = -1,       /* nothing is there, or nothing is taken */
  TCPNET_OVER = -2,        /* reset, or timed out */
};

struct tcpnet_config {
  uint32_t room_bytes;  /* each way: 1 to TCPNET_ROOM_BYTES */
  uint32_t partial_ppm; /* chance that a write is taken in part only */
  uint32_t read_bytes;  /* a read brings at most so many, as drawn */
  uint32_t reset_ppm;   /* chance that a connection is cut at some byte */
  uint32_t silent_ppm;  /* the share of those that neither end hears of, nor of a close */
  uint32_t refuse_ppm;  /* the share of attempts to connect that are refused */
  uint32_t spoil_ppm;   /* the share of writes of which a byte is changed on the way */
  harp_ns timeout_ns;   /* what was written and does not arrive for so long ends the connection there */
};

/* What one end writes. */
struct tcpnet_way {
  uint8_t *ring; /* TCPNET_ROOM_BYTES */
  uint64_t written, read;
  struct tcpnet_segment {
    uint64_t end;
    harp_ns at;
  } segments[TCPNET_SEGMENTS]; /* what has not been read: up to where, and when it arrives */
  uint32_t head, tail;
  struct tcpnet_segment acks[TCPNET_SEGMENTS]; /* and when the end that writes hears of that */
  uint32_t ack_head, ack_tail;
  uint64_t acked;
  harp_ns leaves_ns;   /* when the last byte written has left, at the link's rate */
  harp_ns last_ns;     /* when it arrives */
  harp_ns last_ack_ns; /* and is acknowledged */
  harp_ns room_ns;     /* when the end that writes hears of room; 0: it may write */
  harp_ns fin_ns;      /* when the other end hears that no more will come; HARP_NEVER */
  uint64_t cut_at;     /* nothing from this byte on arrives */
  uint64_t spoiled_at; /* the first byte that was changed on the way; UINT64_MAX: none */
  /* What was written by reference: up to where, of whom. The oldest are forgotten when they are too many. */
  struct tcpnet_reference {
    uint64_t from, to;
    const void *owner;
    uint32_t message;
  } references[TCPNET_REFERENCES];
  uint32_t reference_count;
};

struct tcpnet {
  const struct simnet_link *links[SIMNET_WAYS]; /* borrowed */
  struct rng *rng;                              /* borrowed */
  struct tcpnet_config config;
  struct tcpnet_way ways[SIMNET_WAYS]; /* by the end that writes */
  harp_ns over_ns[2];                  /* when an end hears that it is over */
  bool closed[2];                      /* an end has closed it */
  bool is_silent;
  harp_ns accepted_ns;  /* when end 1 sees it; HARP_NEVER: never */
  harp_ns connected_ns; /* when end 0 hears of that, or of its refusal */
  bool is_refused;
};

/* Begins to connect. The struct must be zero the first time; it keeps its memory. */
void tcpnet_open(struct tcpnet *t, const struct tcpnet_config *config, const struct simnet_link *there,
                 const struct simnet_link *back, struct rng *rng, bool faults, harp_ns now);
void tcpnet_fini(struct tcpnet *t);

/* Returns how many bytes are taken, TCPNET_AGAIN or TCPNET_OVER. */
long tcpnet_write(struct tcpnet *t, unsigned end, const struct iovec *iov, unsigned count, bool faults,
                  harp_ns now);

/* Says that the last `bytes` of what an end has written are references to memory of its owner, of a message:
 * the kernel reads them when it sends, and again when it repeats. */
void tcpnet_refer(struct tcpnet *t, unsigned end, const void *owner, uint32_t message, uint32_t bytes);

/* The owner writes something else to its messages before `before`: what has not arrived of them may arrive
 * so. */
void tcpnet_overwrite(struct tcpnet *t, unsigned end, const void *owner, uint32_t before, harp_ns now);

/* Returns whether the end's kernel may still read references. */
bool tcpnet_holds_references(struct tcpnet *t, unsigned end, harp_ns now);

/* Returns how many bytes came, 0 at the end of the stream, TCPNET_AGAIN or TCPNET_OVER. */
long tcpnet_read(struct tcpnet *t, unsigned end, const struct iovec *iov, unsigned count, harp_ns now);

/* Returns when a read brings something, or an error. */
harp_ns tcpnet_readable_ns(const struct tcpnet *t, unsigned end);

/* Returns when a write that was refused may take something, or brings an error. */
harp_ns tcpnet_writable_ns(const struct tcpnet *t, unsigned end);

/* Returns how many bytes the other end's kernel has acknowledged to the end. */
uint64_t tcpnet_acked(struct tcpnet *t, unsigned end, harp_ns now);

/* Returns how many bytes that the end has written wait to be sent. */
uint32_t tcpnet_unsent(const struct tcpnet *t, unsigned end, harp_ns now);

void tcpnet_close(struct tcpnet *t, unsigned end, harp_ns now);

/* Closes it so that nothing arrives that has not arrived yet. */
void tcpnet_reset(struct tcpnet *t, unsigned end, harp_ns now);

/* Ends every fault that has not happened yet. */
void tcpnet_heal(struct tcpnet *t);

#endif
