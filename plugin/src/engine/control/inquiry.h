/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the host of a silent peer whether anybody listens there for TCP connections with data.
 *
 * A process that is killed has its control connection closed by its kernel. Where the network under that
 * connection is down at this moment, the other side would know only after the peer timeout. But over another
 * interface the kernel refuses a connection to a port that the process listened on; it accepts one for a
 * process that is only stopped.
 *
 * Rules:
 *   1. A peer is asked when NCCL waits for it, nothing has come for HARP_INQUIRY_QUIET_NS, and all its paths
 *      are silent: at each of its interfaces that take TCP connections, and by a PING on the control
 *      connection.
 *   2. Its process has ended when one interface refuses, none accepts, and the control connection is lost or
 *      has not had the PING acknowledged. A firewall that refuses alone is no proof.
 *   3. It is asked again while this lasts, after a time that doubles.
 *
 * Called by the pass, under the engine's lock, every HARP_PEERS_TEND_NS. */
#ifndef HARP_INQUIRY_H
#define HARP_INQUIRY_H

#include "base/base.h"
#include "wire/control.h"

struct harp_peer;

#define HARP_INQUIRY_QUIET_NS HARP_MS(200)
#define HARP_INQUIRY_WAIT_NS  HARP_MS(400) /* for answers */
/* Between two inquiries: first, and at most. */
#define HARP_INQUIRY_AGAIN_NS     HARP_MS(500)
#define HARP_INQUIRY_AGAIN_MAX_NS HARP_SEC(16)

struct harp_inquiry {
  bool is_asking;                  /* one is under way */
  unsigned open_count;             /* connections that were begun */
  int fds[HARP_ENDPOINT_ENIS_MAX]; /* of these, -1: answered */
  bool is_refused;                 /* by one of them */
  harp_ns until_ns;                /* for answers */
  harp_ns next_ns;                 /* when to ask */
  harp_ns wait_ns;                 /* to the next inquiry after that; 0: none was made yet */
};

/* Asks when it is due, and takes the answers. Returns whether the peer's process has ended. */
bool harp_inquiry_review(struct harp_peer *peer, harp_ns now);

/* Ends what is under way. */
void harp_inquiry_end(struct harp_inquiry *q);

#endif
