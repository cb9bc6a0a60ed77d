/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection of a peer: is its process alive, what does it say of streams, and when it leaves.
 *
 * The kernel answers keepalives for a paused process and reports a crash at once, so: connection gone = peer
 * gone; connection alive and silence on the paths = either the process is paused (it does not answer PING:
 * wait) or the paths are broken (it answers PING: fail after the peer timeout).
 *
 * It runs over one pair of interfaces. Where the connection has others, it may break without harm ("lost"),
 * by a timeout here, or by a reset that says that the peer's kernel timed out first:
 * from then on packets alone tell that the peer lives, and silence for the peer timeout means that it does
 * not. So that there is never silence without reason, senders with several interfaces probe paths that are
 * idle. All calls under the engine's lock; never blocks. */
#ifndef HARP_MONITOR_H
#define HARP_MONITOR_H

#include "base/base.h"
#include "wire/control.h"

struct harp_peer;

/* What may wait for the socket: about 200 words about streams. */
enum { HARP_MONITOR_OUT_BYTES = 8192 };

struct harp_monitor {
  int fd; /* non-blocking TCP; -1 when closed */
  struct harp_control_keys keys;
  uint32_t tx_count, rx_count; /* of messages, for their MACs */
  bool final_received;         /* the peer said that it leaves in order */
  bool pong_due;               /* a PING was read */
  bool mute;                   /* more waits to be sent than fits `out`: nothing more is said */
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
 * or answers as that says. What is left keeps the socket ready. */
void harp_monitor_on_readable(struct harp_peer *peer, harp_ns now);

/* Judges a stalled sender; called now and then while it has something in flight. */
void harp_monitor_on_stall(struct harp_peer *peer, harp_ns now);

/* Judges a peer with several interfaces by what came from the peer last, where its control connection is lost
 * or as silent. */
void harp_monitor_on_silence(struct harp_peer *peer, harp_ns now);

/* The connection is gone: fails the peer if anything waits for it. */
void harp_monitor_on_gone(struct harp_peer *peer, harp_ns now);

/* Returns whether the peer's kernel owes us an acknowledgement of what was said on the control connection;
 * that of a process that is only stopped does not. */
bool harp_monitor_is_unacknowledged(const struct harp_peer *peer);

/* Asks for a word of the peer's, with a PING. */
void harp_monitor_ping(struct harp_peer *peer, harp_ns now);

/* The socket takes bytes again. */
void harp_monitor_on_writable(struct harp_peer *peer, harp_ns now);

/* Sends a word about a stream, or has it wait for the socket. Return false when it can not be said. */
bool harp_monitor_send_open(struct harp_peer *peer, const struct harp_open *open);
bool harp_monitor_send_opened(struct harp_peer *peer, const struct harp_opened *opened);
bool harp_monitor_send_close(struct harp_peer *peer, const struct harp_close *close);

/* Sends FINAL and ends our half of the connection, so that the peer need not find out by itself. The peer
 * stays; for one that has failed. */
void harp_monitor_leave(struct harp_peer *peer);

/* Says goodbye (FINAL) and closes the socket without resetting it. */
void harp_monitor_close(struct harp_peer *peer);

#endif
