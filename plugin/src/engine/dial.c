#include "engine/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/files.h"
#include "base/log.h"
#include "engine/address.h"
#include "engine/opening.h"

#define DIAL_RETRY_NS HARP_MS(50)
/* With several interfaces, an attempt from one that gets no answer for so long gives way to the next. */
#define DIAL_TURN_MIN_NS HARP_MS(100)
#define DIAL_TURN_MAX_NS HARP_SEC(1)
/* A connect waits so long for another's handshake with the same engine before it begins its own. */
#define DIAL_SHARE_NS HARP_MS(200)

static void dial_end(struct harp_dial *d) {
  harp_engine_lock(d->engine);
  harp_meeting_end(&d->meeting, d->engine);
  d->met_ns = 0;
  harp_engine_unlock(d->engine);
}

/* Returns the address that the next attempt comes from: that of each interface in turn, since the first may
 * be the one that is broken. */
static struct sockaddr_storage next_from(struct harp_dial *d) {
  const struct harp_engine *e = d->engine;
  for (unsigned i = 0; i < e->eni_count; i++) {
    const struct sockaddr_storage *a = &e->enis[d->turn++ % e->eni_count].addr;
    if (a->ss_family == d->to.ss_family) return *a;
  }
  return e->instance.addr;
}

/* Whether an attempt has had its turn: there are other interfaces to try. */
static bool turn_over(const struct harp_dial *d, harp_ns now) {
  const struct harp_engine *e = d->engine;
  harp_ns turn_ns = e->instance.peer_timeout_ns / (2 * e->eni_count);
  turn_ns = HARP_MIN(HARP_MAX(turn_ns, DIAL_TURN_MIN_NS), DIAL_TURN_MAX_NS);
  return e->eni_count > 1 && now - d->meeting.since_ns >= turn_ns;
}

/* Opens the socket and starts to connect; an error is kept for the final message, and tried again later. */
static void dial_start(struct harp_dial *d) {
  struct harp_meeting *m = &d->meeting;
  struct sockaddr_storage from = next_from(d);
  int one = 1;
  d->connected = false;
  m->since_ns = d->engine->clock();
  m->fd = harp_meeting_socket(d->engine);
  if (m->fd < 0) {
    d->last_errno = errno;
    return;
  }
  setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(m->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (bind(m->fd, (struct sockaddr *)&from, harp_address_bytes(&from)) ||
      (connect(m->fd, (struct sockaddr *)&d->to, harp_address_bytes(&d->to)) && errno != EINPROGRESS)) {
    d->last_errno = errno;
    dial_end(d);
  }
}

/* Whether a handshake of ours with the same engine is under way, whose peer will do for this connect as well;
 * not one that nobody drives any more. Under the lock. */
static bool is_met_by_another(const struct harp_dial *d, harp_ns now) {
  for (const struct harp_dial *o = d->engine->dials; o; o = o->next)
    if (o != d && o->met_ns && o->engine_id == d->engine_id && o->traffic_class == d->traffic_class &&
        now - o->met_ns < DIAL_SHARE_NS)
      return true;
  return false;
}

/* Begins an attempt: on a peer that there is, else with a handshake. Returns 0 or -errno. */
static int dial_begin(struct harp_dial *d, harp_ns now) {
  harp_engine_lock(d->engine);
  int err = harp_dial_ask_peer(d, now);
  bool wait = err == -ENOENT && is_met_by_another(d, now);
  if (err == -ENOENT && !wait) d->met_ns = now;
  harp_engine_unlock(d->engine);
  if (err != -ENOENT) return err;
  if (!wait) dial_start(d);
  return 0;
}

enum harp_status harp_dial_open(struct harp_dial **out, struct harp_engine *e,
                                const struct harp_handle *handle, int traffic_class) {
  char error[256];
  struct harp_dial *d = calloc(1, sizeof *d);
  if (!d) {
    HARP_WARN("%s: no memory to connect", e->name);
    return HARP_ERR_SYSTEM;
  }
  if (!harp_handle_decode(handle, &d->to, error, sizeof error)) {
    HARP_WARN("%s", error);
    free(d);
    return HARP_ERR_REMOTE;
  }
  char text[HARP_ADDRESS_TEXT_BYTES];
  if (d->to.ss_family != e->instance.addr.ss_family) {
    HARP_WARN("the peer listens on %s, but %s has an IPv%d address: configure the same family on all hosts",
              harp_address_text(&d->to, text), e->name, e->instance.addr.ss_family == AF_INET6 ? 6 : 4);
    free(d);
    return HARP_ERR_USAGE;
  }
  /* A link-local address is looked for on our interface; its number at the peer is nothing to us. */
  struct sockaddr_in6 *to = (struct sockaddr_in6 *)&d->to;
  if (to->sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&to->sin6_addr))
    to->sin6_scope_id = ((const struct sockaddr_in6 *)&e->instance.addr)->sin6_scope_id;
  d->engine = e;
  d->traffic_class = traffic_class;
  memcpy(d->secret, handle->secret, sizeof d->secret);
  d->meeting.fd = d->meeting.slot = -1;
  d->meeting.peer_addr = d->to;
  d->engine_id = harp_from_be32(handle->engine);
  d->deadline_ns = e->clock() + e->instance.peer_timeout_ns;
  harp_engine_lock(e);
  d->next = e->dials;
  e->dials = d;
  harp_engine_unlock(e);
  (void)dial_begin(d, e->clock()); /* an error is the first poll's to find */
  *out = d;
  return HARP_OK;
}

/* Whether TCP is up; -errno when it failed. */
static int dial_connected(struct harp_dial *d) {
  struct pollfd p = {.fd = d->meeting.fd, .events = POLLOUT};
  int err = 0;
  socklen_t n = sizeof err;
  if (d->connected) return 1;
  if (poll(&p, 1, 0) <= 0) return 0;
  if (getsockopt(d->meeting.fd, SOL_SOCKET, SO_ERROR, &err, &n)) err = errno;
  if (err) return -err;
  harp_engine_lock(d->engine);
  err = harp_meeting_start(&d->meeting, d->engine, true, d->secret);
  harp_engine_unlock(d->engine);
  if (err) return err;
  harp_monitor_set_timeouts(d->meeting.fd, d->engine->instance.peer_timeout_ns);
  d->connected = true;
  d->connected_ns = d->engine->clock();
  return 1;
}

static enum harp_status dial_fail(struct harp_dial *d) {
  char text[HARP_ADDRESS_TEXT_BYTES];
  if (d->is_refused_busy)
    HARP_WARN("%s: the peer at %s has refused to connect for %llu s: too many connections wait there for "
              "accept, and it accepts none",
              d->engine->name, harp_address_text(&d->to, text),
              (unsigned long long)(d->engine->instance.peer_timeout_ns / HARP_SEC(1)));
  else
    HARP_WARN(
        "%s: cannot connect to the peer at %s for %llu s: %s; is its interface with that address up, and "
        "TCP allowed between the hosts?",
        d->engine->name, harp_address_text(&d->to, text),
        (unsigned long long)(d->engine->instance.peer_timeout_ns / HARP_SEC(1)),
        d->last_errno ? strerror(d->last_errno) : "no answer");
  return HARP_ERR_REMOTE;
}

/* Whether the peer has no room now. It may have soon: the attempt ends, and others follow. */
static bool is_busy_there(const struct harp_dial *d) {
  const struct harp_handshake *h = &d->meeting.handshake;
  if (!d->connected || h->state != HARP_HANDSHAKE_REFUSED) return false;
  return h->refusal == HARP_REFUSAL_PEER && h->peer_refusal == HARP_REFUSAL_BUSY;
}

/* Says once that the peer has no room now, for a handshake or for a stream. */
static void tell_busy(struct harp_dial *d) {
  char text[HARP_ADDRESS_TEXT_BYTES];
  if (!d->is_refused_busy)
    HARP_INFO("%s: the peer at %s refuses to connect for now: too many connections wait there for accept; "
              "trying again",
              d->engine->name, harp_address_text(&d->to, text));
  d->is_refused_busy = true;
}

/* Moves on with a stream that the peer was asked for: *link is set when it is open. */
static enum harp_status poll_open(struct harp_dial *d, struct harp_link **link, harp_ns now) {
  enum harp_status status = HARP_OK;
  char text[HARP_ADDRESS_TEXT_BYTES];
  harp_engine_lock(d->engine);
  struct harp_link *asked = d->link;
  bool waits = d->peer != NULL;
  if (waits) { /* its process lives, or will be found dead */
    d->deadline_ns += now - d->asked_ns;
    d->asked_ns = now;
  } else {
    d->link = NULL;
  }
  if (!waits && d->is_open) harp_link_tell_connected(asked, &d->to);
  if (!waits && !d->is_open) harp_link_end(asked);
  harp_engine_unlock(d->engine);
  if (waits) return HARP_OK;
  if (d->is_open) {
    *link = asked;
    return HARP_OK;
  }
  d->retry_ns = now + DIAL_RETRY_NS;
  switch (d->refusal) {
  case HARP_REFUSAL_NONE: /* the peer is gone: another may be there */
    d->last_errno = ECONNRESET;
    d->retry_ns = now;
    break;
  case HARP_REFUSAL_STREAM: /* not closed there yet: the next number will do */
    d->last_errno = EEXIST;
    d->retry_ns = now;
    break;
  case HARP_REFUSAL_LISTENER:
    d->last_errno = ECONNREFUSED;
    break;
  case HARP_REFUSAL_BUSY:
    tell_busy(d);
    break;
  default:
    HARP_WARN("%s: the peer at %s refuses a connection: it says: %s", d->engine->name,
              harp_address_text(&d->to, text), harp_refusal_text(d->refusal));
    status = HARP_ERR_REMOTE;
  }
  return status;
}

/* Begins an attempt when it is time for one. */
static enum harp_status poll_begin(struct harp_dial *d, harp_ns now) {
  if (now >= d->deadline_ns) return dial_fail(d);
  if (now < d->retry_ns) return HARP_OK;
  int err = dial_begin(d, now);
  if (err) {
    HARP_WARN("%s: cannot connect: %s", d->engine->name,
              err == -EMFILE || err == -ENOMEM ? harp_link_hint(err) : strerror(-err));
    return HARP_ERR_SYSTEM;
  }
  if (d->meeting.fd < 0 && d->met_ns) { /* no socket was to be had */
    d->retry_ns = now + DIAL_RETRY_NS;
    dial_end(d);
  }
  return HARP_OK;
}

enum harp_status harp_dial_poll(struct harp_dial *d, struct harp_link **link) {
  struct harp_meeting *m = &d->meeting;
  harp_ns now = d->engine->clock();
  *link = NULL;
  if (d->link) return poll_open(d, link, now);
  if (m->fd < 0) return poll_begin(d, now);
  int up = dial_connected(d);
  if (up > 0) up = harp_meeting_run(m) ? -ECONNRESET : 1;
  if (up > 0 && harp_meeting_done(m)) {
    harp_engine_lock(d->engine);
    *link = harp_meeting_link(m, d->engine, HARP_ROLE_SENDER, d->traffic_class);
    d->met_ns = 0;
    harp_engine_unlock(d->engine);
    return *link ? HARP_OK : HARP_ERR_SYSTEM;
  }
  bool is_busy = is_busy_there(d);
  if (d->connected && m->handshake.state == HARP_HANDSHAKE_REFUSED && !is_busy) {
    char why[256], text[HARP_ADDRESS_TEXT_BYTES];
    harp_meeting_refusal_text(&m->handshake, why, sizeof why);
    HARP_WARN("%s: the handshake with the peer at %s failed: %s", d->engine->name,
              harp_address_text(&d->to, text), why);
    return HARP_ERR_REMOTE;
  }
  if (up < 0 || is_busy) { /* refused, unreachable, or the listener was overrun: try again for a while */
    d->last_errno = up < 0 ? -up : 0;
    if (is_busy)
      tell_busy(d);
    else
      d->is_refused_busy = false;
    dial_end(d);
    d->retry_ns = now + DIAL_RETRY_NS;
    if (d->connected) d->deadline_ns += now - HARP_MIN(d->connected_ns, now);
    d->connected = false;
  } else if (up == 0 && turn_over(d, now)) {
    d->last_errno = 0;
    dial_end(d);
    d->retry_ns = now;
  }
  if (!d->connected && now >= d->deadline_ns) return dial_fail(d);
  return HARP_OK;
}

void harp_dial_close(struct harp_dial *d) {
  struct harp_engine *e = d->engine;
  harp_engine_lock(e);
  struct harp_dial **at = &e->dials;
  while (*at != d) at = &(*at)->next;
  *at = d->next;
  harp_dial_leave_peer(d);
  if (d->link) harp_link_end(d->link);
  harp_meeting_end(&d->meeting, e);
  harp_engine_unlock(e);
  free(d);
}
