/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the host of a silent peer whether anybody listens there on the TCP ports of its interfaces (tcp.h).
 *
 * A process that is killed has its control connection closed by its kernel. Where the network under that
 * connection is down at this moment, or the kernel resets it since the process had not read all of it, the
 * other side would know only after the peer timeout. But the kernel refuses a connection to a port that the
 * process listened on; it accepts one for a process that is only stopped.
 *
 * Rules:
 *   1. A peer with several interfaces is quiet when NCCL waits for it and nothing has come for
 *      HARP_INQUIRY_QUIET_NS. It gets a PING then, HARP_INQUIRY_PING_NS after the last PONG.
 *   2. It is in doubt when no PONG comes within HARP_INQUIRY_PONG_NS, or the control connection is lost. It
 *      is asked then, and again HARP_INQUIRY_AGAIN_NS after it accepted: first by one connection, between two
 *      interfaces that a path joins, which are taken in turn. Where the next look does not find that
 *      accepted, it is asked between others as well, with as many connections as there are `fds`, for
 *      HARP_INQUIRY_ANSWER_NS.
 *   3. Its process has ended when one interface refuses, none accepts, and for HARP_INQUIRY_REFUSED_NS after
 *      the refusal nothing comes over any path, though paths are probed, and the control connection is lost
 *      or has not had another PING acknowledged. A firewall that refuses alone is no proof.
 *   4. A host that lacks cores, or its network, is in doubt about hundreds of peers, and what tracks flows
 *      remembers connections that nobody answered for two minutes. So the wait doubles after an inquiry that
 *      nobody accepted, up to HARP_INQUIRY_AGAIN_MAX_NS. Connections that were accepted are reset.
 *
 * A death is known so after 500 to 750 ms: HARP_INQUIRY_QUIET_NS or HARP_INQUIRY_PING_NS, then
 * HARP_INQUIRY_PONG_NS, HARP_INQUIRY_NS and HARP_INQUIRY_REFUSED_NS, each up to HARP_INQUIRY_NS later.
 *
 * Called by the pass, under the engine's lock, every HARP_INQUIRY_NS. */
#ifndef HARP_INQUIRY_H
#define HARP_INQUIRY_H

#include "base/base.h"
#include "wire/control.h"

struct harp_peer;

#define HARP_INQUIRY_NS         HARP_MS(50)
#define HARP_INQUIRY_QUIET_NS   HARP_MS(100)
#define HARP_INQUIRY_PING_NS    HARP_MS(200)
#define HARP_INQUIRY_PONG_NS    HARP_MS(100)
#define HARP_INQUIRY_REFUSED_NS HARP_MS(250) /* TCP repeats a PING within this time */
#define HARP_INQUIRY_ANSWER_NS  HARP_MS(500)
/* The time between two inquiries, and the longest such time where nobody accepts. */
#define HARP_INQUIRY_AGAIN_NS     HARP_MS(500)
#define HARP_INQUIRY_AGAIN_MAX_NS HARP_SEC(8)

struct harp_inquiry {
  bool is_asking;                  /* an inquiry is under way */
  bool is_wide;                    /* the inquiry asks between several interfaces */
  unsigned open_count;             /* the number of connections that were begun */
  int fds[HARP_ENDPOINT_ENIS_MAX]; /* the sockets of these connections; -1: it was answered */
  unsigned next_path; /* the path of the next inquiry; pairs of interfaces beyond fds take turns */
  bool is_refused;    /* an interface has refused */
  harp_ns refused_ns; /* the time when that was seen; 0: it was not */
  harp_ns end_ns;     /* the time when an inquiry that nobody answers ends */
  harp_ns next_ns;    /* the time of the next inquiry */
  harp_ns wait_ns;    /* the wait after an inquiry that nobody accepts */
};

/* Asks when it is due, and takes the answers. Returns whether the peer's process has ended. */
bool harp_inquiry_on_time(struct harp_peer *peer, harp_ns now);

/* Ends what is under way. */
void harp_inquiry_end(struct harp_inquiry *q);

#endif
