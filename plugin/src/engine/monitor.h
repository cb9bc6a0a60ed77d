/* The control connection of an established link: is the peer's process alive, and what does it say when it
 * leaves.
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

struct harp_link;

struct harp_monitor {
  int fd; /* non-blocking TCP; -1 when closed */
  struct harp_control_keys keys;
  uint32_t tx_count, rx_count; /* of messages, for their MACs */
  bool final_received;         /* the peer said that it leaves in order */
  bool mute;                   /* a message went out in part: send no more */
  bool gone;                   /* the connection is closed or broken */
  bool lost;                   /* the network under it broke, but there are other interfaces */
  harp_ns ping_ns;             /* when the last PING was sent, 0 if none waits for its PONG */
  harp_ns pong_ns;             /* when the last PONG came */
  bool told_paused;
  uint32_t in_bytes;
  uint8_t in[HARP_CONTROL_MAX_BYTES];
};

/* Sets a TCP socket's keepalive and timeout, so that a host that is gone breaks the connection in that time.
 */
void harp_monitor_set_timeouts(int fd, harp_ns peer_timeout_ns);

/* Takes over the socket and sets its timeouts. */
void harp_monitor_init(struct harp_monitor *m, int fd, const struct harp_control_keys *keys,
                       harp_ns peer_timeout_ns);

/* Reads what came; fails the link, completes messages or answers as it says. */
void harp_monitor_on_readable(struct harp_link *link, harp_ns now);

/* Judges a stalled sender; called now and then while it has something in flight. */
void harp_monitor_on_stall(struct harp_link *link, harp_ns now);

/* Judges a link with several interfaces by what came from the peer last, where its control connection is lost
 * or as silent. */
void harp_monitor_on_silence(struct harp_link *link, harp_ns now);

/* Sends FINAL: what was delivered, and why the link failed if the peer should know. */
void harp_monitor_send_final(struct harp_link *link);

/* Says goodbye (FINAL) and closes the socket without resetting it. */
void harp_monitor_close(struct harp_link *link);

#endif
