/* SPDX-License-Identifier: Apache-2.0 */
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
#include "engine/crossing.h"
#include "engine/opening.h"
#include "io/tcp_socket.h"

#define DIAL_RETRY_NS HARP_MS(50)
/* With several interfaces, an attempt from one that gets no answer for so long gives way to the next. */
#define DIAL_TURN_MIN_NS HARP_MS(100)
#define DIAL_TURN_MAX_NS HARP_SEC(1)

static void dial_end(struct harp_dial *d) {
  harp_engine_lock(d->engine);
  harp_meeting_end(&d->meeting, d->engine);
  d->met_ns = d->hello_ns = 0;
  d->has_yielded = false;
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

/* Begins an attempt: on a peer that there is, else with a handshake. Returns 0 or -errno. */
static int dial_begin(struct harp_dial *d, harp_ns now) {
  harp_engine_lock(d->engine);
  int err = harp_dial_ask_peer(d, now);
  bool wait = err == -ENOENT && harp_crossing_is_awaited(d, now);
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
  return err ? -err : 1;
}

/* Begins the handshake. Returns 0 or -errno. Under the lock. */
static int start_hello(struct harp_dial *d, harp_ns now) {
  int err = harp_meeting_start(&d->meeting, d->engine, true, d->secret);
  if (err) return err;
  harp_tcp_socket_set_timeouts(d->meeting.fd, d->engine->instance.peer_timeout_ns);
  d->connected = true;
  d->connected_ns = d->hello_ns = now;
  return 0;
}

/* Whether there is, or comes, another connection with the engine that makes this handshake needless. Under
 * the lock. */
static bool is_needless(const struct harp_dial *d, harp_ns now) {
  if (d->has_yielded) return true;
  if (harp_peer_find(d->engine, d->engine_id, &d->to, d->traffic_class)) return true;
  return !d->connected && harp_crossing_is_awaited(d, now);
}

static void wait_for_word(struct harp_dial *d, harp_ns now) {
  harp_monitor_ping(d->link->peer, now);
  d->is_met = true;
  d->is_open = false;
  d->refusal = HARP_REFUSAL_NONE;
  d->asked_ns = now;
}

/* Goes on with the handshake; what it comes to depends on other handshakes with the same engine, so the lock
 * is held from the look at those to the last word. When it is done there is a link, but the CONFIRM may never
 * arrive: the server is asked for a word of its own. Returns 0; -EALREADY: it is needless; -ENOSPC: it is
 * done, but there is no link, and the WARN is logged; another -errno when the connection broke. */
static int go_on(struct harp_dial *d, harp_ns now) {
  int err = 0;
  harp_engine_lock(d->engine);
  d->polled_ns = now;
  if (is_needless(d, now))
    err = -EALREADY;
  else if (!d->connected)
    err = start_hello(d, now);
  if (!err && harp_meeting_run(&d->meeting)) err = -ECONNRESET;
  if (!err && harp_meeting_done(&d->meeting)) {
    d->link = harp_meeting_link(&d->meeting, d->engine, HARP_ROLE_SENDER, d->traffic_class);
    d->met_ns = d->hello_ns = 0;
    d->connected = false;
    if (!d->link) err = -ENOSPC;
    if (d->link) wait_for_word(d, now);
  }
  harp_engine_unlock(d->engine);
  return err;
}

static enum harp_status dial_fail(struct harp_dial *d) {
  char text[HARP_ADDRESS_TEXT_BYTES], limit[HARP_LIMIT_TEXT_BYTES];
  if (d->is_refused_busy)
    HARP_WARN("%s: the peer at %s has refused to connect for %llu s: too many connections wait there for "
              "accept, %d to that listener, and it accepts none",
              d->engine->name, harp_address_text(&d->to, text),
              (unsigned long long)(d->engine->instance.peer_timeout_ns / HARP_SEC(1)), HARP_UNACCEPTED_MAX);
  else if (harp_limit_is(d->last_errno))
    HARP_WARN("%s: cannot connect to the peer at %s for %llu s: %s", d->engine->name,
              harp_address_text(&d->to, text),
              (unsigned long long)(d->engine->instance.peer_timeout_ns / HARP_SEC(1)),
              harp_limit_text(d->last_errno, limit));
  else
    HARP_WARN(
        "%s: cannot connect to the peer at %s for %llu s: %s; is its interface with that address up, and "
        "TCP allowed between the hosts?",
        d->engine->name, harp_address_text(&d->to, text),
        (unsigned long long)(d->engine->instance.peer_timeout_ns / HARP_SEC(1)),
        d->last_errno ? strerror(d->last_errno) : "no answer");
  return HARP_ERR_REMOTE;
}

/* Returns whether the handshake was refused, and for what reason of the peer's. */
static bool is_refused(const struct harp_dial *d, enum harp_refusal *why) {
  const struct harp_handshake *h = &d->meeting.handshake;
  *why = HARP_REFUSAL_NONE;
  if (!d->connected || h->state != HARP_HANDSHAKE_REFUSED) return false;
  *why = h->refusal == HARP_REFUSAL_PEER ? h->peer_refusal : h->refusal;
  return true;
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

/* Whether the answer of the peer is yet to come: that the stream is open, or, after our handshake, any word
 * or packet, which shows that it is done there too. It has come, or it never will. Under the lock. */
static bool is_unanswered(struct harp_dial *d) {
  if (!d->is_met) return d->peer != NULL;
  d->is_open = d->link->peer->is_confirmed;
  return !d->is_open && harp_peer_is_usable(d->link->peer);
}

/* Who polls looks for the answer itself: to wake the engine's thread for it takes as long as the round trip.
 * Under the lock. */
static bool waits_for_answer(struct harp_dial *d, harp_ns now) {
  if (!is_unanswered(d)) return false;
  harp_monitor_on_readable(d->link->peer, now);
  return is_unanswered(d);
}

/* Says why the peer refuses for good. */
static enum harp_status fail_refused(const struct harp_dial *d, enum harp_refusal why) {
  char text[HARP_ADDRESS_TEXT_BYTES], limit[HARP_LIMIT_TEXT_BYTES];
  HARP_WARN("%s: the peer at %s refuses a connection: %s%s", d->engine->name, harp_address_text(&d->to, text),
            why == HARP_REFUSAL_LIMIT ? "" : "it says: ",
            why == HARP_REFUSAL_LIMIT ? harp_limit_text(HARP_ELINKS, limit) : harp_refusal_text(why));
  return HARP_ERR_REMOTE;
}

/* Moves on with a stream that the peer was asked for: *link is set when it is open. */
static enum harp_status poll_open(struct harp_dial *d, struct harp_link **link, harp_ns now) {
  enum harp_status status = HARP_OK;
  harp_engine_lock(d->engine);
  struct harp_link *asked = d->link;
  bool waits = waits_for_answer(d, now);
  if (waits) { /* its process lives, or will be found dead */
    d->deadline_ns += now - d->asked_ns;
    d->asked_ns = now;
  } else {
    d->link = NULL;
    d->is_met = false;
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
    status = fail_refused(d, d->refusal);
  }
  return status;
}

/* Begins an attempt when it is time for one. */
static enum harp_status poll_begin(struct harp_dial *d, harp_ns now) {
  if (now >= d->deadline_ns) return dial_fail(d);
  if (now < d->retry_ns) return HARP_OK;
  int err = dial_begin(d, now);
  if (err) {
    char text[HARP_LIMIT_TEXT_BYTES];
    HARP_WARN("%s: cannot connect: %s", d->engine->name, harp_limit_text(-err, text));
    return HARP_ERR_SYSTEM;
  }
  if (d->meeting.fd < 0 && d->met_ns) { /* no socket was to be had */
    d->retry_ns = now + DIAL_RETRY_NS;
    dial_end(d);
  }
  return HARP_OK;
}

/* The attempt is over; the next one is due at retry_ns. */
static void end_attempt(struct harp_dial *d, harp_ns now, harp_ns retry_ns) {
  dial_end(d);
  d->retry_ns = retry_ns;
  if (d->connected) d->deadline_ns += now - HARP_MIN(d->connected_ns, now);
  d->connected = false;
}

/* Takes a refusal: one that may be another answer soon ends the attempt, and others follow. */
static enum harp_status on_refused(struct harp_dial *d, enum harp_refusal why, harp_ns now) {
  char text[256], address[HARP_ADDRESS_TEXT_BYTES];
  switch (why) {
  case HARP_REFUSAL_BUSY:
    d->last_errno = 0;
    tell_busy(d);
    end_attempt(d, now, now + DIAL_RETRY_NS);
    return HARP_OK;
  case HARP_REFUSAL_CROSSED: /* it lives, and its own connect is on the way */
    d->is_refused_busy = false;
    end_attempt(d, now, now);
    d->crossed_ns = now;
    d->deadline_ns = now + d->engine->instance.peer_timeout_ns;
    return HARP_OK;
  case HARP_REFUSAL_LIMIT:
    return fail_refused(d, why);
  default:
    harp_meeting_refusal_text(&d->meeting.handshake, text, sizeof text);
    HARP_WARN("%s: the handshake with the peer at %s failed: %s", d->engine->name,
              harp_address_text(&d->to, address), text);
    return HARP_ERR_REMOTE;
  }
}

/* Moves on with an attempt. */
static enum harp_status poll_attempt(struct harp_dial *d, harp_ns now) {
  enum harp_refusal why;
  int up = dial_connected(d);
  int err = up > 0 ? go_on(d, now) : up;
  if (d->link) return HARP_OK;
  if (err == -ENOSPC) return HARP_ERR_SYSTEM;
  if (err != -EALREADY && is_refused(d, &why)) return on_refused(d, why, now);
  if (err == -EALREADY) {
    end_attempt(d, now, now);
  } else if (err < 0) { /* refused, unreachable, or the listener was overrun: try again for a while */
    d->last_errno = -err;
    d->is_refused_busy = false;
    end_attempt(d, now, now + DIAL_RETRY_NS);
  } else if (up == 0 && turn_over(d, now)) {
    d->last_errno = 0;
    dial_end(d);
    d->retry_ns = now;
  }
  if (!d->connected && now >= d->deadline_ns) return dial_fail(d);
  return HARP_OK;
}

enum harp_status harp_dial_poll(struct harp_dial *d, struct harp_link **link) {
  harp_ns now = d->engine->clock();
  *link = NULL;
  harp_stall_review_dial(d, now);
  if (d->link) return poll_open(d, link, now);
  return d->meeting.fd < 0 ? poll_begin(d, now) : poll_attempt(d, now);
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
