/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/monitor.h"

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
#include "base/log_limit.h"
#include "engine/engine.h"
#include "engine/opening.h"
#include "io/tcp_socket.h"

/* Reads before a close, of a message's size each: more than a peer that keeps the protocol has unread. */
enum { CLOSE_READS = 4 };
enum { ERROR_BYTES = 128 };

void harp_monitor_init(struct harp_monitor *m, int fd, const struct harp_control_keys *keys,
                       harp_ns peer_timeout_ns) {
  int one = 1;
  *m = (struct harp_monitor){.fd = fd, .keys = *keys};
  if (fd < 0) return;
  harp_tcp_socket_set_timeouts(fd, peer_timeout_ns);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* Sends what waits, and ends our half behind FINAL. Bytes that the connection does not take for good are the
 * reader's to find out about. */
static void flush(struct harp_monitor *m) {
  while (m->out_bytes) {
    ssize_t n = send(m->fd, m->out + m->out_first, m->out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
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
  flush(m);
  if (m->out_bytes) harp_engine_watch_control(peer->engine, peer, true);
  return true;
}

bool harp_monitor_takes_messages(const struct harp_monitor *m) {
  return m->fd >= 0 && !m->gone && !m->lost && !m->overflowed && !m->is_leaving;
}

/* Messages are small and rare. One that does not fit the socket's buffer waits in `out`; where that is full
 * as well the peer has not read for long, and is given up by the next review: callers are in the middle of
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
  flush(&peer->monitor);
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

/* The peer has left or its process has ended: an error when requests still wait for it. The socket stays
 * readable from now on, so it must not be watched any more. */
static void on_gone(struct harp_peer *peer, const char *why, harp_ns now) {
  if (!peer->monitor.gone) harp_engine_ignore_control(peer->engine, peer);
  peer->monitor.gone = true;
  harp_peer_complete(peer);
  harp_connects_forget(peer);
  if (!peer->outstanding) return;
  if (peer->monitor.final_received)
    harp_peer_fail(peer, HARP_ERR_REMOTE, now, "%s closed its connection to %s with transfers unfinished",
                   peer->name, peer->engine->name);
  else
    harp_peer_fail(peer, HARP_ERR_REMOTE, now, "lost %s: its control connection to %s %s", peer->name,
                   peer->engine->name, why);
}

void harp_monitor_on_gone(struct harp_peer *peer, harp_ns now) {
  on_gone(peer, "was closed: the process ended", now);
}

/* Whether an error may be the network's under the socket, and not of the peer's process. A reset: the
 * peer's kernel has received nothing from us for too long, and gave up first. That of a process that ended
 * closes the connection, unless there was something that it had not read. */
static bool may_be_of_network(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
         error == EHOSTDOWN || error == ECONNRESET;
}

static void on_error(struct harp_peer *peer, int error, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  if (peer->is_multihomed && !m->final_received && may_be_of_network(error)) {
    m->lost = true;
    harp_connects_forget(peer);
    harp_engine_ignore_control(peer->engine, peer);
    HARP_INFO_LIMITED(
        &peer->log, now,
        "%s: the control connection with %s broke (%s); the connection continues over other interfaces",
        peer->engine->name, peer->name, strerror(error));
    return;
  }
  char text[ERROR_BYTES];
  snprintf(text, sizeof text, "broke: %s", strerror(error));
  on_gone(peer,
          error == ETIMEDOUT    ? "timed out: the host or the network in between is down"
          : error == ECONNRESET ? "was reset: the process ended, or a firewall in between reset it"
                                : text,
          now);
}

/* Whether the peer's kernel has sent nothing for so long, though it was sent several keepalives. TCP need
 * not give up then: it takes packets that our own host drops for a local congestion. */
static bool is_kernel_silent(int fd, harp_ns limit) {
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n)) return false;
  return HARP_MS(HARP_MIN(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)) >= limit;
}

void harp_monitor_on_silence(struct harp_peer *peer, harp_ns now) {
  const struct harp_monitor *m = &peer->monitor;
  harp_ns limit = peer->engine->instance.peer_timeout_ns, quiet = now - peer->last_received_ns;
  if (!peer->outstanding || m->gone || quiet < limit) return;
  if (!m->lost && !is_kernel_silent(m->fd, limit)) return;
  harp_peer_fail(peer, HARP_ERR_REMOTE, now,
                 "lost %s: its control connection to %s %s, and nothing has come over any path for %llu s: "
                 "the process, its host or the network in between is down",
                 peer->name, peer->engine->name, m->lost ? "broke" : "brings nothing",
                 (unsigned long long)(quiet / HARP_SEC(1)));
}

/* Returns the text for a peer that failed. */
static const char *reason_text(uint32_t reason) {
  return reason == HARP_ERR_REMOTE   ? "nothing from here reaches it"
         : reason == HARP_ERR_SYSTEM ? "its operating system refused something"
                                     : "its side failed";
}

static void on_final(struct harp_peer *peer, const struct harp_final *final, harp_ns now) {
  peer->monitor.final_received = true;
  harp_peer_complete(peer);
  if (final->reason)
    harp_peer_fail(peer, HARP_ERR_REMOTE, now, "%s ended its connection with %s: %s; see its log", peer->name,
                   peer->engine->name, reason_text(final->reason));
}

static void on_close(struct harp_peer *peer, const struct harp_close *close, harp_ns now) {
  if (peer->session.state != HARP_SESSION_OPEN) return;
  const struct harp_tx_stream *tx = harp_sender_stream(peer->session.sender, close->stream);
  const struct harp_rx_stream *rx = harp_receiver_stream(peer->session.receiver, close->stream);
  HARP_ASSERT((!tx || tx->owner) && (!rx || rx->owner));
  struct harp_link *link = close->is_sender ? (rx ? rx->owner : NULL) : (tx ? tx->owner : NULL);
  if (link) harp_link_on_close(link, close, now); /* else we have closed our end as well */
}

/* A late answer: the process was paused, and its paths had no chance. They get the whole timeout again. */
static void on_pong(struct harp_peer *peer, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  bool was_paused = m->ping_ns && now - m->ping_ns >= peer->engine->instance.peer_timeout_ns / 4;
  if (was_paused) harp_sender_excuse_stall(peer->session.sender, now);
  m->pong_ns = now;
  m->ping_ns = 0;
  m->logged_paused = false;
}

static void on_message(struct harp_peer *peer, const struct harp_control_message *msg, harp_ns now) {
  switch (msg->type) {
  case HARP_CONTROL_PING:
    peer->monitor.pong_due = true;
    break;
  case HARP_CONTROL_PONG:
    on_pong(peer, now);
    break;
  case HARP_CONTROL_FINAL:
    on_final(peer, &msg->final, now);
    break;
  case HARP_CONTROL_OPEN:
    harp_listeners_on_open(peer, &msg->open, now);
    break;
  case HARP_CONTROL_OPENED:
    harp_connects_on_opened(peer, &msg->opened);
    break;
  case HARP_CONTROL_CLOSE:
    on_close(peer, &msg->close, now);
    break;
  default:
    break; /* decode lets no other type through */
  }
}

/* Consumes complete messages; returns false when the stream makes no sense. */
static bool consume(struct harp_peer *peer, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  struct harp_control_message msg;
  int used;
  while ((used = harp_control_decode(m->in, m->in_bytes, m->keys.rx, &msg)) > 0) {
    HARP_ASSERT((uint32_t)used <= m->in_bytes);
    memmove(m->in, m->in + used, m->in_bytes - (uint32_t)used);
    m->in_bytes -= (uint32_t)used;
    if (!harp_control_count_ok(&m->rx_count, msg.count)) return false;
    peer->is_confirmed = true;
    on_message(peer, &msg, now);
  }
  return used == 0;
}

/* One PONG answers all PINGs that have come. */
static void answer(struct harp_peer *peer) {
  struct harp_monitor *m = &peer->monitor;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  if (m->pong_due) send_message(peer, out, harp_control_encode_pong(out, m->keys.tx, m->tx_count++));
  m->pong_due = false;
}

/* Reads once; returns whether something came. */
static bool read_some(struct harp_peer *peer, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  if (m->fd < 0 || m->gone || m->lost) return false;
  HARP_ASSERT(m->in_bytes < sizeof m->in); /* a whole message fits, and was taken */
  ssize_t n = recv(m->fd, m->in + m->in_bytes, sizeof m->in - m->in_bytes, MSG_DONTWAIT);
  if (n > 0) {
    m->in_bytes += (uint32_t)n;
    if (consume(peer, now))
      answer(peer);
    else
      on_gone(peer, "carried something that is no HARP message", now);
  } else if (n == 0) {
    on_gone(peer, "was closed: the process ended", now);
  } else if (errno != EAGAIN && errno != EINTR) {
    on_error(peer, errno, now);
  }
  return n > 0;
}

void harp_monitor_on_readable(struct harp_peer *peer, harp_ns now) {
  read_some(peer, now);
  if (peer->monitor.gone) on_gone(peer, "was closed: the process ended", now);
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
  if (send_message(peer, out, harp_control_encode_ping(out, m->keys.tx, m->tx_count++))) m->ping_ns = now;
}

/* Whether the peer's kernel owes us an acknowledgement; that of a process that is only stopped does not. What
 * could not even leave counts too. */
static bool is_unacknowledged(int fd) {
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  int waiting = 0; /* bytes, sent or not */
  return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) && !ioctl(fd, SIOCOUTQ, &waiting) && waiting;
}

bool harp_monitor_is_unacknowledged(const struct harp_peer *peer) {
  return peer->monitor.fd >= 0 && is_unacknowledged(peer->monitor.fd);
}

/* What a sender that is stalled since then shows of its peer. */
enum stall_verdict {
  STALL_WAITS,   /* nothing yet */
  STALL_BLOCKED, /* the process answers on the control connection */
  STALL_DOWN,    /* nothing answers, on the control connection either */
};

static enum stall_verdict judge_stall(const struct harp_monitor *m, harp_ns since, harp_ns limit,
                                      harp_ns now) {
  harp_ns ping_age_ns = m->ping_ns ? now - m->ping_ns : 0;
  if (now - since < limit) return STALL_WAITS;
  if (m->pong_ns > since && ping_age_ns < limit / 4) return STALL_BLOCKED;
  /* TCP's own timeout would show it as well, but it began with the PING. */
  if (ping_age_ns >= limit / 2 && is_unacknowledged(m->fd)) return STALL_DOWN;
  return STALL_WAITS;
}

/* What carries the engine's data. */
static const char *carrier_of(const struct harp_engine *e) {
  return !e->tcp ? "UDP" : e->tcp->is_alone ? "TCP" : "UDP or TCP";
}

static void fail_stalled(struct harp_peer *peer, enum stall_verdict verdict, harp_ns since, harp_ns now) {
  const char *name = peer->engine->name, *carrier = carrier_of(peer->engine);
  unsigned long long seconds = (now - since) / HARP_SEC(1);
  if (verdict == STALL_BLOCKED)
    harp_peer_fail(
        peer, HARP_ERR_REMOTE, now,
        "nothing sent from %s to %s by %s was acknowledged for %llu s, though its process answers on the "
        "control connection: is %s allowed between the hosts?",
        name, peer->name, carrier, seconds, carrier);
  else
    harp_peer_fail(
        peer, HARP_ERR_REMOTE, now,
        "lost %s: neither its control connection nor %s has brought anything to %s for %llu s: the "
        "host or the network in between is down",
        peer->name, carrier, name, seconds);
  harp_monitor_leave(peer);
}

/* Sends the peer's process a PING; logs once that it does not answer while its kernel does. */
static void ping_stalled(struct harp_peer *peer, harp_ns limit, harp_ns now) {
  struct harp_monitor *m = &peer->monitor;
  if (!m->ping_ns) {
    if (now - m->pong_ns >= limit / 8)
      harp_monitor_ping(peer, now); /* one that is dropped: at the next look */
    return;
  }
  if (now - m->ping_ns < limit || m->logged_paused || is_unacknowledged(m->fd)) return;
  m->logged_paused = true;
  HARP_INFO_LIMITED(
      &peer->log, now,
      "%s has not answered for %llu s, but its kernel has: the process is stopped or lacks a core; "
      "waiting for it",
      peer->name, (unsigned long long)((now - m->ping_ns) / HARP_SEC(1)));
}

static void review_stall(struct harp_peer *peer, harp_ns now) {
  const struct harp_monitor *m = &peer->monitor;
  harp_ns since = harp_sender_stalled_since_ns(peer->session.sender),
          limit = peer->engine->instance.peer_timeout_ns;
  if (!since || m->fd < 0 || m->gone || m->lost || now - since < limit / 4) return;
  enum stall_verdict verdict = judge_stall(m, since, limit, now);
  if (verdict == STALL_WAITS)
    ping_stalled(peer, limit, now);
  else
    fail_stalled(peer, verdict, since, now);
}

/* What did not fit is lost, and the peer may wait for it: no stream can be relied on any more. */
static void fail_overflowed(struct harp_peer *peer, harp_ns now) {
  harp_peer_fail(
      peer, HARP_ERR_REMOTE, now,
      "lost %s: it does not read its control connection to %s, and no more messages fit there: its "
      "process is stopped, lacks a core or misbehaves",
      peer->name, peer->engine->name);
  harp_monitor_leave(peer);
}

/* Fails a peer that has acknowledged what was never sent. */
static void fail_false(struct harp_peer *peer, harp_ns now) {
  harp_peer_fail(
      peer, HARP_ERR_REMOTE, now,
      "%s acknowledged packets that %s never sent: its software is faulty, or claims more than its share of "
      "the network",
      peer->name, peer->engine->name);
  harp_monitor_leave(peer);
}

void harp_monitor_review(struct harp_peer *peer, harp_ns now) {
  review_stall(peer, now);
  if (harp_unlikely(peer->is_false)) fail_false(peer, now);
  if (harp_unlikely(peer->monitor.overflowed)) fail_overflowed(peer, now);
}

void harp_monitor_close(struct harp_peer *peer) {
  struct harp_monitor *m = &peer->monitor;
  if (m->fd < 0) return;
  /* Unread input at close would make the kernel send a reset, which could overtake our FINAL. */
  for (unsigned i = 0; i < CLOSE_READS && read_some(peer, peer->engine->clock()); i++)
    ;
  harp_monitor_leave(peer);
  harp_files_close(m->fd);
  m->fd = -1;
}
