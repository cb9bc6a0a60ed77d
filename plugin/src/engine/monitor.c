#include "engine/monitor.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/engine.h"

static void set_int(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

void harp_monitor_set_timeouts(int fd, harp_ns peer_timeout_ns) {
  int seconds = (int)HARP_MAX(peer_timeout_ns / HARP_SEC(1), 1u);
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, HARP_MAX(seconds / 4, 1));
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, HARP_MAX(seconds / 4, 1));
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

void harp_monitor_init(struct harp_monitor *m, int fd, const struct harp_control_keys *keys,
                       harp_ns peer_timeout_ns) {
  *m = (struct harp_monitor){.fd = fd, .keys = *keys};
  if (fd < 0) return;
  harp_monitor_set_timeouts(fd, peer_timeout_ns);
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

/* Messages are tiny and rare, so one that does not fit the socket's buffer can be dropped: it would be a PING
 * more. Part of one would garble all that follow, so then nothing more is said: the peer's keepalive still
 * tells it that we live. */
static void send_message(struct harp_monitor *m, const uint8_t *message, size_t bytes) {
  if (m->fd < 0 || m->gone || m->mute) return;
  ssize_t n = send(m->fd, message, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0 && (size_t)n < bytes) m->mute = true;
}

void harp_monitor_send_final(struct harp_link *link) {
  struct harp_monitor *m = &link->monitor;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  struct harp_final final = {0};
  const struct harp_receiver *r = link->conn.receiver;
  if (r) final.delivered = r->delivered;
  if (r && r->too_large) {
    final.reason = HARP_ERR_USAGE;
    final.detail[0] = r->too_large_size;
    final.detail[1] = r->too_large_capacity;
  }
  send_message(m, out, harp_control_encode_final(out, m->keys.tx, m->tx_count++, &final));
}

/* The peer left or died: fatal when anything is still waiting for it. The socket stays ready for reading for
 * good, so it must not be waited for any more. */
static void on_gone(struct harp_link *link, const char *why, harp_ns now) {
  if (!link->monitor.gone) harp_engine_ignore_control(link->engine, link);
  link->monitor.gone = true;
  harp_link_complete(link);
  if (!link->outstanding) return;
  if (link->monitor.final_received)
    harp_link_fail(link, HARP_ERR_REMOTE, now, "%s closed its connection to %s with transfers unfinished",
                   link->peer, link->engine->name);
  else
    harp_link_fail(link, HARP_ERR_REMOTE, now, "lost %s: its control connection to %s %s", link->peer,
                   link->engine->name, why);
}

/* Whether an error may be the network's under the socket, and say nothing of the peer's process. A reset: the
 * peer's kernel has heard nothing of us for too long, and gave up first. That of a process that ended closes
 * the connection, unless there was something that it had not read. */
static bool may_be_of_network(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
         error == EHOSTDOWN || error == ECONNRESET;
}

static void on_error(struct harp_link *link, int error, harp_ns now) {
  struct harp_monitor *m = &link->monitor;
  if (link->is_multihomed && !m->final_received && may_be_of_network(error)) {
    m->lost = m->mute = true;
    harp_engine_ignore_control(link->engine, link);
    HARP_INFO("%s: the control connection with %s broke (%s); the connection goes on over other interfaces",
              link->engine->name, link->peer, strerror(error));
    return;
  }
  on_gone(link,
          error == ETIMEDOUT ? "timed out: the host or the network in between is down" : strerror(error),
          now);
}

/* Whether the peer's kernel has said nothing for so long, though keepalives asked it several times. TCP need
 * not give up then: it takes packets that our own host drops for a local congestion. */
static bool is_kernel_silent(int fd, harp_ns limit) {
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n)) return false;
  return HARP_MS(HARP_MIN(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)) >= limit;
}

void harp_monitor_on_silence(struct harp_link *link, harp_ns now) {
  const struct harp_monitor *m = &link->monitor;
  harp_ns limit = link->engine->instance.peer_timeout_ns, quiet = now - link->heard_ns;
  if (!link->outstanding || m->gone || quiet < limit) return;
  if (!m->lost && !is_kernel_silent(m->fd, limit)) return;
  harp_link_fail(link, HARP_ERR_REMOTE, now,
                 "lost %s: its control connection to %s %s, and nothing has come over any path for %llu s: "
                 "the process, its host or the network in between is down",
                 link->peer, link->engine->name, m->lost ? "broke" : "brings nothing",
                 (unsigned long long)(quiet / HARP_SEC(1)));
}

static void on_final(struct harp_link *link, const struct harp_final *final, harp_ns now) {
  link->monitor.final_received = true;
  if (link->conn.sender) {
    harp_sender_on_final(link->conn.sender, final->delivered, now);
    harp_link_complete(link);
  }
  if (final->reason == HARP_ERR_USAGE)
    harp_link_fail(link, HARP_ERR_USAGE, now,
                   "a message of %u bytes was sent to %s, but the receive posted there holds only %u bytes",
                   final->detail[0], link->peer, final->detail[1]);
}

/* A late answer: the process was paused, and its paths had no chance. They get the whole timeout again. */
static void on_pong(struct harp_link *link, harp_ns now) {
  struct harp_monitor *m = &link->monitor;
  struct harp_sender *s = link->conn.sender;
  bool was_paused = m->ping_ns && now - m->ping_ns >= link->engine->instance.peer_timeout_ns / 4;
  if (was_paused && s && s->stalled_since_ns) s->stalled_since_ns = now;
  m->pong_ns = now;
  m->ping_ns = 0;
  m->told_paused = false;
}

static void on_message(struct harp_link *link, const struct harp_control_message *msg, harp_ns now) {
  struct harp_monitor *m = &link->monitor;
  uint8_t out[HARP_CONTROL_MAX_BYTES];
  switch (msg->type) {
  case HARP_CONTROL_PING:
    send_message(m, out, harp_control_encode_pong(out, m->keys.tx, m->tx_count++));
    break;
  case HARP_CONTROL_PONG:
    on_pong(link, now);
    break;
  case HARP_CONTROL_FINAL:
    on_final(link, &msg->final, now);
    break;
  default:
    break; /* decode lets no other type through */
  }
}

/* Consumes complete messages; returns false when the stream makes no sense. */
static bool consume(struct harp_link *link, harp_ns now) {
  struct harp_monitor *m = &link->monitor;
  struct harp_control_message msg;
  int used;
  while ((used = harp_control_decode(m->in, m->in_bytes, m->keys.rx, &msg)) > 0) {
    memmove(m->in, m->in + used, m->in_bytes - (uint32_t)used);
    m->in_bytes -= (uint32_t)used;
    if (!harp_control_count_ok(&m->rx_count, msg.count)) return false;
    on_message(link, &msg, now);
  }
  return used == 0;
}

void harp_monitor_on_readable(struct harp_link *link, harp_ns now) {
  struct harp_monitor *m = &link->monitor;
  while (m->fd >= 0 && !m->gone && !m->lost) {
    ssize_t n = recv(m->fd, m->in + m->in_bytes, sizeof m->in - m->in_bytes, MSG_DONTWAIT);
    if (n > 0) {
      m->in_bytes += (uint32_t)n;
      if (consume(link, now)) continue;
      on_gone(link, "carried something that is no HARP message", now);
    } else if (n == 0) {
      on_gone(link, "was closed: the process ended", now);
    } else if (errno == EAGAIN || errno == EINTR) {
      return;
    } else {
      on_error(link, errno, now);
    }
  }
  if (m->gone) on_gone(link, "was closed: the process ended", now);
}

/* Tells the peer that nothing more will come, so that it need not find out by itself. */
static void leave(struct harp_monitor *m, struct harp_link *link) {
  harp_monitor_send_final(link);
  shutdown(m->fd, SHUT_WR);
}

/* Whether the peer's kernel owes us an acknowledgement; that of a process that is only stopped does not. What
 * could not even leave counts too. */
static bool is_unacknowledged(int fd) {
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  int waiting = 0; /* bytes, sent or not */
  return !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) && !ioctl(fd, SIOCOUTQ, &waiting) && waiting;
}

void harp_monitor_on_stall(struct harp_link *link, harp_ns now) {
  struct harp_monitor *m = &link->monitor;
  const char *name = link->engine->name;
  harp_ns since = link->conn.sender->stalled_since_ns, limit = link->engine->instance.peer_timeout_ns;
  if (m->fd < 0 || m->gone || m->lost || now - since < limit / 4) return;
  bool answers = m->pong_ns > since && (!m->ping_ns || now - m->ping_ns < limit / 4);
  if (answers && now - since >= limit) {
    harp_link_fail(
        link, HARP_ERR_REMOTE, now,
        "no UDP packet from %s to %s was acknowledged for %llu s, though its process answers on the control "
        "connection: is UDP allowed between the hosts?",
        name, link->peer, (unsigned long long)((now - since) / HARP_SEC(1)));
    leave(m, link);
    return;
  }
  /* TCP's own timeout would tell as well, but it began with the PING. */
  if (m->ping_ns && now - m->ping_ns >= limit / 2 && now - since >= limit && is_unacknowledged(m->fd)) {
    harp_link_fail(
        link, HARP_ERR_REMOTE, now,
        "lost %s: neither its control connection nor UDP has brought anything to %s for %llu s: the host or "
        "the network in between is down",
        link->peer, name, (unsigned long long)((now - since) / HARP_SEC(1)));
    leave(m, link);
    return;
  }
  if (!m->ping_ns && now - m->pong_ns >= limit / 8) {
    uint8_t out[HARP_CONTROL_MAX_BYTES];
    m->ping_ns = now;
    send_message(m, out, harp_control_encode_ping(out, m->keys.tx, m->tx_count++));
  } else if (m->ping_ns && now - m->ping_ns >= limit && !m->told_paused && !is_unacknowledged(m->fd)) {
    m->told_paused = true;
    HARP_INFO("%s has not answered for %llu s, but its kernel has: the process is stopped or starved; "
              "waiting for it",
              link->peer, (unsigned long long)((now - m->ping_ns) / HARP_SEC(1)));
  }
}

void harp_monitor_close(struct harp_link *link) {
  struct harp_monitor *m = &link->monitor;
  if (m->fd < 0) return;
  /* Unread input at close would make the kernel send a reset, which could overtake our FINAL. */
  harp_monitor_on_readable(link, link->engine->clock());
  leave(m, link);
  close(m->fd);
  m->fd = -1;
}
