/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection of a peer: whether its process runs, messages about streams, and its end.
 *
 * The kernel answers keepalives for a paused process and reports a crash at once. So a closed connection
 * means that the peer is gone. Where it is open and the paths are silent, either the process is paused (it
 * does not answer PING: wait) or the paths are broken (it answers PING: fail after the peer timeout).
 *
 * The connection runs over one pair of interfaces. Where the peer has others, it may break without harm
 * ("lost"), by a timeout here, or by a reset when the peer's kernel timed out first. From then on only
 * packets show that the peer runs, and silence for the peer timeout fails it. Senders with several interfaces
 * probe idle paths, so that a peer that runs is never silent. All calls under the engine's lock; none
 * blocks. */
#ifndef HARP_MONITOR_H
#define HARP_MONITOR_H

#include "base/base.h"
#include "wire/control.h"

struct harp_peer;

/* What may wait for the socket: about 200 messages about streams. */
enum { HARP_MONITOR_OUT_BYTES = 8192 };

struct harp_monitor {
  int fd; /* non-blocking TCP; -1 when closed */
  struct harp_control_keys keys;
  uint32_t tx_count, rx_count; /* of messages, for their MACs */
  bool final_received;         /* the peer sent FINAL: it closes in order */
  bool pong_due;               /* a PING was read */
  bool tx_stopped;             /* more waits to be sent than fits `out`: no message is sent any more */
  bool gone;                   /* the connection is closed or broken */
  bool lost;                   /* the network under it broke, but there are other interfaces */
  harp_ns ping_ns;             /* when the last PING was sent, 0 if none waits for its PONG */
  harp_ns pong_ns;             /* when the last PONG came */
  bool logged_paused;
  uint32_t out_first, out_bytes; /* waits to be sent: from out_first on, so many */
  uint8_t out[HARP_MONITOR_OUT_BYTES];
  uint32_t in_bytes;
  uint8_t in[HARP_CONTROL_MAX_BYTES];
};

/* Takes over the socket and sets its timeouts. */
void harp_monitor_init(struct harp_monitor *m, int fd, const struct harp_control_keys *keys,
                       harp_ns peer_timeout_ns);

/* Reads once, up to a frame's size; fails the peer or its links, completes messages, opens and closes streams
 * or answers, as the frame requires. What is left keeps the socket ready. */
void harp_monitor_on_readable(struct harp_peer *peer, harp_ns now);

/* Decides what a stalled sender means for the peer; called now and then while something is in flight. */
void harp_monitor_on_stall(struct harp_peer *peer, harp_ns now);

/* Fails a peer with several interfaces when nothing has come from it for the peer timeout, and its control
 * connection is lost or as silent. */
void harp_monitor_on_silence(struct harp_peer *peer, harp_ns now);

/* The connection is gone: fails the peer if anything waits for it. */
void harp_monitor_on_gone(struct harp_peer *peer, harp_ns now);

/* Returns whether the peer's kernel has not acknowledged what was sent on the control connection; that of a
 * process that is only stopped has. */
bool harp_monitor_is_unacknowledged(const struct harp_peer *peer);

/* Sends a PING. */
void harp_monitor_ping(struct harp_peer *peer, harp_ns now);

/* The socket takes bytes again. */
void harp_monitor_on_writable(struct harp_peer *peer, harp_ns now);

/* Send a message about a stream, or queue it for the socket. Return false when it cannot be sent. */
bool harp_monitor_send_open(struct harp_peer *peer, const struct harp_open *open);
bool harp_monitor_send_opened(struct harp_peer *peer, const struct harp_opened *opened);
bool harp_monitor_send_close(struct harp_peer *peer, const struct harp_close *close);

/* Sends FINAL and shuts our half of the connection down, so that the other side learns at once that the peer
 * has failed. The peer stays. */
void harp_monitor_leave(struct harp_peer *peer);

/* Sends FINAL and closes the socket without resetting it. */
void harp_monitor_close(struct harp_peer *peer);

#endif
