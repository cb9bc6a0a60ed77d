/* SPDX-License-Identifier: Apache-2.0 */
/* The control connection of a peer: whether its process runs, messages about streams, and its end. Here are
 * its socket and its messages; dispatch.h acts on what they say, liveness.h on what does not come.
 *
 * The kernel answers keepalives for a paused process and reports a crash at once. So a closed connection
 * means that the peer is gone. Where it is open and the paths are silent, either the process is paused (it
 * does not answer PING: wait) or the paths are broken (it answers PING: fail after the peer timeout).
 *
 * Silence counts while NCCL waits for the peer, and from when it began to wait: an outage while nobody waits
 * costs nothing (liveness.h).
 *
 * The connection runs over one pair of interfaces. Where the peer has others, it may break without harm
 * ("lost"), by a timeout here, or by a reset when the peer's kernel timed out first. From then on only
 * packets show that the peer runs, and silence for the peer timeout fails it. Senders with several interfaces
 * probe idle paths, so that a peer that runs is never silent. Where there are no others, the connection lasts
 * through outages of twelve peer timeouts; a timeout after that is no harm either.
 *
 * What the socket does not take waits in `out`. A message that does not fit there would be lost, and the peer
 * would wait for ever for what it says: the peer is given up instead, with FINAL as the last message.
 *
 * All calls under the engine's lock; none blocks. */
#ifndef HARP_MONITOR_H
#define HARP_MONITOR_H

#include "base/base.h"
#include "wire/control.h"

struct harp_peer;

/* The most bytes that may wait for the socket: about 200 messages about streams, and FINAL. */
enum { HARP_MONITOR_OUT_BYTES = 8192, HARP_MONITOR_WHY_BYTES = 128 };

struct harp_monitor {
  int fd; /* the socket, non-blocking; -1 when closed */
  struct harp_control_keys keys;
  uint32_t tx_count, rx_count; /* the numbers of messages, for their MACs */
  bool final_received;         /* the peer sent FINAL: it closes in order */
  bool pong_due;               /* a PING was read */
  bool pong_sent;              /* a PING was answered */
  bool overflowed;             /* a message did not fit `out`: the next visit fails the peer */
  bool is_leaving;             /* FINAL is the last message that was sent, or waits for the socket */
  bool gone;                   /* the connection is closed or broken */
  char gone_why[HARP_MONITOR_WHY_BYTES];
  bool lost;       /* the network under it broke, which need not end the session */
  int send_error;  /* errno of a send that found the connection broken; 0: none did */
  harp_ns ping_ns; /* the time when the oldest PING was sent that waits for its PONG; 0: none does */
  harp_ns pong_ns; /* the time when the last PONG came */
  harp_ns unacknowledged_ns; /* the time since which checks find something unacknowledged; 0: the last found
                                nothing */
  bool logged_paused;
  uint32_t out_first, out_bytes; /* the bytes that wait to be sent: the first, and their number */
  uint8_t out[HARP_MONITOR_OUT_BYTES];
  uint32_t in_bytes;
  uint8_t in[HARP_CONTROL_MAX_BYTES];
};

/* Takes over the socket and sets its timeouts. That of a peer with several interfaces ends when its network
 * is away for the peer timeout, since others take over; that of another lasts through far longer outages. */
void harp_monitor_init(struct harp_monitor *m, int fd, const struct harp_control_keys *keys,
                       harp_ns peer_timeout_ns, bool is_multihomed);

enum harp_monitor_read {
  HARP_MONITOR_NOTHING,
  HARP_MONITOR_CAME,   /* there may be messages to take */
  HARP_MONITOR_CLOSED, /* the other side has closed the connection */
  HARP_MONITOR_BROKE,  /* the connection is broken, by *error of errno.h */
};

/* Reads once, up to a message's size. What is left keeps the socket ready. */
enum harp_monitor_read harp_monitor_read(struct harp_monitor *m, int *error);

/* Takes the next message that is complete. Returns 1; 0: there is none; -EPROTO: what came makes no sense. */
int harp_monitor_take(struct harp_monitor *m, struct harp_control_message *msg);

/* Answers all PINGs that were taken, by one PONG. */
void harp_monitor_answer(struct harp_peer *peer);

/* Learns of a PONG. Returns how long it took; 0: no PING waited for it. */
harp_ns harp_monitor_on_pong(struct harp_monitor *m, harp_ns now);

/* Learn that the connection is closed or broken, and why, of which the first reason stays; or that the
 * network under it broke. */
void harp_monitor_set_gone(struct harp_peer *peer, const char *why);
void harp_monitor_set_lost(struct harp_peer *peer);

/* Returns whether messages can be sent. */
static inline bool harp_monitor_takes_messages(const struct harp_monitor *m) {
  return m->fd >= 0 && !m->gone && !m->lost && !m->overflowed && !m->is_leaving;
}

/* Returns whether the peer's kernel has not acknowledged what was sent on the control connection; that of a
 * process that is only stopped has. */
bool harp_monitor_is_unacknowledged(const struct harp_monitor *m);

/* Returns whether the peer's kernel has acknowledged all that was sent on the control connection, which still
 * stands. */
bool harp_monitor_has_delivered(const struct harp_monitor *m);

/* Sends a PING. */
void harp_monitor_ping(struct harp_peer *peer, harp_ns now);

/* The socket takes bytes again. */
void harp_monitor_on_writable(struct harp_peer *peer, harp_ns now);

/* Send a message about a stream, tcp paths or an interface, or queue it for the socket. Return false when it
 * cannot be sent. */
bool harp_monitor_send_open(struct harp_peer *peer, const struct harp_open *open);
bool harp_monitor_send_opened(struct harp_peer *peer, const struct harp_opened *opened);
bool harp_monitor_send_close(struct harp_peer *peer, const struct harp_close *close);
bool harp_monitor_send_want(struct harp_peer *peer, const struct harp_want *want);
bool harp_monitor_send_address(struct harp_peer *peer, const struct harp_numbered *numbered);

/* Sends FINAL and shuts our half of the connection down, both behind what waits for the socket, so that the
 * other side learns at once that the peer has failed. The peer stays. */
void harp_monitor_leave(struct harp_peer *peer);

/* Sends FINAL and closes the socket without resetting it. What was not read is dropped: nobody is left to act
 * on it, and the other side tries again what FINAL answers. */
void harp_monitor_close(struct harp_peer *peer);

#endif
