/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/monitor.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "base/files.h"
#include "engine/engine.h"
#include "io/tcp_socket.h"

/* Reads before a close, of a message's size each: more than a peer that keeps the protocol has unread. */
enum { CLOSE_READS = 4 };

void harp_monitor_init(struct harp_monitor *m, int fd, const struct harp_control_keys *keys,
                       harp_ns peer_timeout_ns, bool is_multihomed) {
  int one = 1;
  *m = (struct harp_monitor){.fd = fd, .keys = *keys};
  if (fd < 0) return;
  harp_tcp_socket_set_timeouts(fd, peer_timeout_ns);
  if (!is_multihomed) harp_tcp_socket_outlive_outages(fd);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Sends what waits, and ends our half behind FINAL. Bytes that the connection does not take for good are the
 * reader's to find out about. The kernel reports an error once: where a send gets it, the reader finds the
 * same end as that of a connection that was closed. */
static void flush_output(struct harp_monitor *m) {
  while (m->out_bytes) {
    ssize_t n = send(m->fd, m->out + m->out_first, m->out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR && errno != EPIPE) m->send_error = errno;
    if (n <= 0) return;
    HARP_ASSERT((size_t)n <= m->out_bytes);
    m->out_first += (uint32_t)n;
    m->out_bytes -= (uint32_t)n;
  }
  m->out_first = 0;
  if (m->is_leaving) shutdown(m->fd, SHUT_WR);
}

/* Puts a message behind those that wait for the socket, and sends what that takes. Returns false if more than
 * `limit` bytes would wait. */
static bool queue_message(struct harp_peer *peer, const uint8_t *message, size_t bytes, size_t limit) {
  struct harp_monitor *m = &peer->monitor;
  HARP_ASSERT(bytes && bytes <= HARP_CONTROL_MAX_BYTES && limit <= sizeof m->out);
  HARP_ASSERT(m->out_first + m->out_bytes <= sizeof m->out);
  if (m->out_bytes + bytes > limit) return false;
  if (m->out_first + m->out_bytes + bytes > sizeof m->out) {
    memmove(m->out, m->out + m->out_first, m->out_bytes);
    m->out_first = 0;
  }
  memcpy(m->out + m->out_first + m->out_bytes, message, bytes);
  m->out_bytes += (uint32_t)bytes;
  flush_output(m);
  if (m->out_bytes) harp_engine_watch_control(peer->engine, peer, true);
  return true;
}

/* Messages are small and rare. One that does not fit the socket's buffer waits in `out`; where that is full
 * as well the peer has not read for long, and is given up at the next visit: callers are in the middle of
 * something. Returns whether the message was sent, or waits. */
static bool send_message(struct harp_peer *peer, const uint8_t *message, size_t bytes) {
  struct harp_monitor *m = &peer->monitor;
  if (!harp_monitor_takes_messages(m)) return false;
  if (queue_message(peer, message, bytes, sizeof m->out - HARP_CONTROL_FINAL_BYTES)) return true;
  m->overflowed = true;
  harp_peer_touch(peer);
  harp_engine_wake_mt(peer->engine);
  return false;
}

void harp_monitor_on_writable(struct harp_peer *peer, harp_ns now) {
  (void)now;
  if (peer->monitor.fd < 0 || peer->monitor.gone || peer->monitor.lost) return;
  flush_output(&peer->monitor);
  if (!peer->monitor.out_bytes) harp_engine_watch_control(peer->engine, peer, false);
}

bool harp_monitor_send_open(struct harp_peer *peer, const struct harp_open *open) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_OPEN_BYTES];
  return send_message(peer, out, harp_control_encode_open(out, m->keys.tx, m->tx_count++, open));
}

bool harp_monitor_send_opened(struct harp_peer *peer, const struct harp_opened *opened) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_OPENED_BYTES];
  return send_message(peer, out, harp_control_encode_opened(out, m->keys.tx, m->tx_count++, opened));
}

bool harp_monitor_send_close(struct harp_peer *peer, const struct harp_close *close) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_CLOSE_BYTES];
  return send_message(peer, out, harp_control_encode_close(out, m->keys.tx, m->tx_count++, close));
}

bool harp_monitor_send_want(struct harp_peer *peer, const struct harp_want *want) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_WANT_BYTES];
  return send_message(peer, out, harp_control_encode_want(out, m->keys.tx, m->tx_count++, want));
}

bool harp_monitor_send_address(struct harp_peer *peer, const struct harp_numbered *numbered) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_ADDRESS_BYTES];
  return send_message(peer, out, harp_control_encode_address(out, m->keys.tx, m->tx_count++, numbered));
}

/* ---- what comes ---- */

enum harp_monitor_read harp_monitor_read(struct harp_monitor *m, int *error) {
  if (m->fd < 0 || m->gone || m->lost) return HARP_MONITOR_NOTHING;
  HARP_ASSERT(m->in_bytes < sizeof m->in); /* a whole message fits, and was taken */
  ssize_t n = recv(m->fd, m->in + m->in_bytes, sizeof m->in - m->in_bytes, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return HARP_MONITOR_NOTHING;
  *error = n < 0 ? errno : m->send_error;
  if (n < 0 || (n == 0 && m->send_error)) return HARP_MONITOR_BROKE;
  if (n == 0) return HARP_MONITOR_CLOSED;
  m->in_bytes += (uint32_t)n;
  return HARP_MONITOR_CAME;
}

int harp_monitor_take(struct harp_monitor *m, struct harp_control_message *msg) {
  int used = harp_control_decode(m->in, m->in_bytes, m->keys.rx, msg);
  if (used < 0) return -EPROTO;
  if (used == 0) return 0;
  HARP_ASSERT((uint32_t)used <= m->in_bytes);
  memmove(m->in, m->in + used, m->in_bytes - (uint32_t)used);
  m->in_bytes -= (uint32_t)used;
  if (!harp_control_count_ok(&m->rx_count, msg->count)) return -EPROTO;
  m->pong_due |= msg->type == HARP_CONTROL_PING;
  return 1;
}

void harp_monitor_answer(struct harp_peer *peer) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  if (m->pong_due)
    m->pong_sent |= send_message(peer, out, harp_control_encode_pong(out, m->keys.tx, m->tx_count++));
  m->pong_due = false;
}

harp_ns harp_monitor_on_pong(struct harp_monitor *m, harp_ns now) {
  harp_ns took_ns = m->ping_ns ? now - m->ping_ns : 0;
  m->pong_ns = now;
  m->ping_ns = 0;
  m->logged_paused = false;
  return took_ns;
}

/* ---- the end ---- */

/* Its socket stays readable, so that it must not be watched any more. */
void harp_monitor_set_gone(struct harp_peer *peer, const char *why) {
  struct harp_monitor *m = &peer->monitor;
  if (m->gone) return;
  harp_engine_ignore_control(peer->engine, peer);
  m->gone = true;
  (void)snprintf(m->gone_why, sizeof m->gone_why, "%s", why);
}

void harp_monitor_set_lost(struct harp_peer *peer) {
  peer->monitor.lost = true;
  harp_engine_ignore_control(peer->engine, peer);
}

void harp_monitor_leave(struct harp_peer *peer) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_FINAL_BYTES];
  struct harp_final final = {.reason = peer->session.status};
  if (m->fd < 0 || m->is_leaving) return;
  m->is_leaving = true;
  size_t bytes = harp_control_encode_final(out, m->keys.tx, m->tx_count++, &final);
  if (m->gone || m->lost)
    shutdown(m->fd, SHUT_WR);
  else if (!queue_message(peer, out, bytes, sizeof m->out))
    HARP_ASSERT(!"there is always room for FINAL");
}

void harp_monitor_ping(struct harp_peer *peer, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  bool is_sent = send_message(peer, out, harp_control_encode_ping(out, m->keys.tx, m->tx_count++));
  if (is_sent && !m->ping_ns) m->ping_ns = now;
}

/* Bytes that could not even leave count, too. */
bool harp_monitor_is_unacknowledged(const struct harp_monitor *m) {
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  int waiting = 0; /* bytes, sent or not */
  if (m->fd < 0) return false;
  return !getsockopt(m->fd, IPPROTO_TCP, TCP_INFO, &info, &n) && !ioctl(m->fd, SIOCOUTQ, &waiting) && waiting;
}

bool harp_monitor_has_delivered(const struct harp_monitor *m) {
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  int waiting = 0;
  if (m->fd < 0 || m->gone || m->lost || m->out_bytes) return false;
  if (ioctl(m->fd, SIOCOUTQ, &waiting) || waiting) return false;
  return !getsockopt(m->fd, IPPROTO_TCP, TCP_INFO, &info, &n) &&
         (info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT);
}

/* Reads once and drops what came; returns whether something did. */
static bool discard_input(struct harp_monitor *m) {
  if (m->gone || m->lost) return false;
  ssize_t n = recv(m->fd, m->in, sizeof m->in, MSG_DONTWAIT);
  m->gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  return n > 0;
}

void harp_monitor_close(struct harp_peer *peer) {
  struct harp_monitor *m = &peer->monitor;
  if (m->fd < 0) return;
  /* Unread input at close would make the kernel send a reset, which could overtake our FINAL. */
  for (unsigned i = 0; i < CLOSE_READS && discard_input(m); i++)
    ;
  harp_monitor_leave(peer);
  harp_files_close(m->fd);
  m->fd = -1;
}
