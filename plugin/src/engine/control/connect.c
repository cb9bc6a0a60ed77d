/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/connect.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/files.h"
#include "base/log.h"
#include "engine/control/connect_state.h"
#include "engine/control/crossing.h"
#include "engine/control/dispatch.h"
#include "engine/control/opening.h"
#include "host/random.h"
#include "io/tcp_socket.h"

#define CONNECT_RETRY_NS HARP_MS(50)
/* A handshake that is not answered for HARP_DIAL_NEXT_NS is moved to another address, if one can be reached.
 * Each move doubles the time, at most so often: the peer may be slow, not the address silent. */
enum { PATIENCE_DOUBLINGS_MAX = 6 };
enum { LATE_POLLS_MAX = 4 /* late polls up to this number are excused before the connect's time is over */ };

/* The attempt is over; the next one is due at retry_ns. */
static void end_attempt(struct harp_connect *c, harp_ns now, harp_ns retry_ns) {
  harp_dials_end(&c->dials);
  harp_engine_lock(c->engine);
  harp_pending_peer_end(&c->pending, c->engine);
  harp_connect_enter(c, HARP_CONNECT_WAITING, now);
  harp_engine_unlock(c->engine);
  c->retry_ns = retry_ns;
}

/* The same, for an error that is kept for the final message. */
static void end_failed(struct harp_connect *c, int error, harp_ns now) {
  c->last_errno = error;
  c->is_refused_busy = false;
  end_attempt(c, now, now + CONNECT_RETRY_NS);
}

/* Begins an attempt: a request to a peer where there is one, else a handshake. Returns 0 or -errno. */
static int begin_attempt(struct harp_connect *c, harp_ns now) {
  harp_engine_lock(c->engine);
  int err = harp_connect_request_stream(c, now);
  bool dials = err == -ENOENT && !harp_crossing_is_awaited(c, now);
  if (dials) {
    c->pending.since_ns = now;
    harp_connect_enter(c, HARP_CONNECT_DIALING, now);
  }
  harp_engine_unlock(c->engine);
  if (dials) harp_dials_begin(&c->dials, c->engine, &c->contact, now);
  return err == -ENOENT ? 0 : err;
}

static bool has_family(const struct harp_instance *enis, unsigned count, int family) {
  for (unsigned i = 0; i < count; i++)
    if (enis[i].addr.ss_family == family && !enis[i].is_unnumbered) return true;
  return false;
}

/* Reads from a handle the peer's addresses, port and secret. Returns a status; the WARN is logged. */
static enum harp_status decode_handle(struct harp_engine *e, const void *handle, size_t handle_bytes,
                                      struct harp_contact *contact) {
  struct harp_error error;
  char text[HARP_CONTACT_TEXT_BYTES];
  struct harp_instance enis[HARP_ENGINE_ENIS_MAX];
  unsigned eni_count = harp_engine_copy_enis(e, enis);
  if (!harp_handle_decode(handle, handle_bytes, contact, &error)) {
    HARP_WARN("%s", error.text);
    return HARP_ERR_REMOTE;
  }
  for (unsigned i = 0; i < contact->count; i++)
    if (has_family(enis, eni_count, contact->at[i].ss_family)) return HARP_OK;
  HARP_WARN("the peer listens on %s, but %s has only IPv%d addresses: configure the same family on all hosts",
            harp_contact_text(contact, text), e->name, harp_address_version(&e->instance.addr));
  return HARP_ERR_USAGE;
}

/* Draws the random numbers that name a connect on the wire. Returns a status; the WARN is logged. */
static enum harp_status draw_name(const struct harp_engine *e, struct harp_connect_name *name) {
  struct {
    uint32_t first_line, first_message;
  } fresh;
  int err = harp_random_fill(&fresh, sizeof fresh);
  if (err) {
    HARP_WARN("%s: cannot connect: %s", e->name, strerror(-err));
    return HARP_ERR_SYSTEM;
  }
  *name = (struct harp_connect_name){
      .engine_id = e->token_prefix, .first_line = fresh.first_line, .first_message = fresh.first_message};
  return HARP_OK;
}

enum harp_status harp_connect_open(struct harp_connect **out, struct harp_engine *e, const void *handle,
                                   size_t handle_bytes, int traffic_class) {
  struct harp_connect *c = calloc(1, sizeof *c);
  if (!c) {
    harp_shortage_warn_memory("connect");
    return HARP_ERR_SYSTEM;
  }
  enum harp_status status = decode_handle(e, handle, handle_bytes, &c->contact);
  if (status == HARP_OK) status = draw_name(e, &c->name);
  if (status != HARP_OK) goto fail;
  c->engine = e;
  c->traffic_class = traffic_class;
  harp_dials_init(&c->dials);
  c->pending.fd = c->pending.slot = -1;
  c->called_ns = e->clock();
  c->deadline_ns = c->called_ns + e->instance.peer_timeout_ns;
  harp_engine_lock(e);
  c->next = e->connects;
  e->connects = c;
  harp_engine_unlock(e);
  (void)begin_attempt(c, e->clock()); /* an error is the first poll's to find */
  *out = c;
  return HARP_OK;
fail:
  free(c);
  return status;
}

/* Makes the connection that was up last the one of the handshake. */
static void take_fd(struct harp_connect *c, int fd) {
  const struct harp_candidate *to = &c->dials.candidates[c->dials.answered];
  HARP_ASSERT(fd >= 0 && c->pending.fd < 0 && c->pending.slot < 0 && !c->link);
  c->pending.fd = fd;
  c->pending.peer_addr = c->contact.at[to->to];
}

/* Takes the connection that is up. Returns 0; -EAGAIN: none is up yet; another -errno: none can be made for
 * now. */
static int take_dialled(struct harp_connect *c, harp_ns now) {
  if (harp_connect_has_met(c) || c->pending.fd >= 0) return 0;
  int fd = harp_dials_poll(&c->dials, c->engine, &c->contact, now);
  if (fd < 0) return fd;
  take_fd(c, fd);
  return 0;
}

/* Moves the handshake to another connection, unless it is not needed any more. */
static void move_handshake(struct harp_connect *c, int fd, harp_ns now) {
  char from[HARP_IP_TEXT_BYTES], to[HARP_IP_TEXT_BYTES];
  harp_engine_lock(c->engine);
  bool is_needed = harp_connect_state(c) == HARP_CONNECT_HANDSHAKE;
  if (is_needed) {
    harp_address_ip_text(&c->pending.peer_addr, from);
    harp_pending_peer_end(&c->pending, c->engine);
    take_fd(c, fd);
    harp_connect_enter(c, HARP_CONNECT_WAITING, now);
    c->pending.since_ns = now;
    harp_connect_enter(c, HARP_CONNECT_DIALING, now);
  }
  harp_engine_unlock(c->engine);
  if (!is_needed) {
    harp_files_close(fd);
    return;
  }
  if (!c->moves++)
    HARP_INFO("%s: what accepts connections at %s does not answer; trying %s", c->engine->name, from,
              harp_address_ip_text(&c->pending.peer_addr, to));
}

/* Tries the peer's other addresses beside a handshake that is not answered. What has accepted the connection
 * may not be the peer. */
static void try_others(struct harp_connect *c, harp_ns now) {
  if (harp_connect_state(c) != HARP_CONNECT_HANDSHAKE || now < c->others_ns) return;
  int fd = harp_dials_poll_others(&c->dials, c->engine, &c->contact, now);
  if (fd >= 0) move_handshake(c, fd, now);
}

/* Starts the handshake. Returns 0 or -errno. Under the lock. */
static int start_hello(struct harp_connect *c, harp_ns now) {
  c->name.attempt++;
  int err = harp_pending_peer_start(&c->pending, c->engine, &c->name, c->contact.secret);
  if (err) return err;
  harp_tcp_socket_set_timeouts(c->pending.fd, c->engine->instance.peer_timeout_ns);
  harp_connect_enter(c, HARP_CONNECT_HANDSHAKE, now);
  c->others_ns = now + (HARP_DIAL_NEXT_NS << HARP_MIN(c->moves, (unsigned)PATIENCE_DOUBLINGS_MAX));
  return 0;
}

/* Returns whether there is, or will be, another connection with the engine, so that this handshake is not
 * needed. Under the lock. */
static bool is_superseded(const struct harp_connect *c, harp_ns now) {
  if (harp_connect_state(c) == HARP_CONNECT_YIELDED) return true;
  if (harp_peer_find(c->engine, &c->contact, c->traffic_class)) return true;
  return harp_connect_state(c) == HARP_CONNECT_DIALING && harp_crossing_is_awaited(c, now);
}

/* Makes the link of a handshake that is done here. Returns 0; -ENOSPC: there is none. Under the lock. */
static int make_link(struct harp_connect *c, harp_ns now) {
  struct harp_peer *peer =
      harp_pending_peer_finish(&c->pending, c->engine, HARP_ROLE_SENDER, c->traffic_class);
  if (peer) {
    struct harp_link_config first = harp_pending_peer_stream(&c->pending, HARP_ROLE_SENDER);
    int err = harp_link_create(&c->link, peer, &first);
    if (err) harp_pending_peer_abandon(peer, HARP_ROLE_SENDER, err);
  }
  harp_connect_enter(c, c->link ? HARP_CONNECT_CONFIRMING : HARP_CONNECT_WAITING, now);
  if (c->link) harp_monitor_ping(c->link->peer, now);
  return c->link ? 0 : -ENOSPC;
}

/* Drives the handshake. Its outcome depends on other handshakes with the same engine, so the lock is held
 * from the check of those to the last message. Once done there is a link, but the CONFIRM may never arrive: a
 * PING makes the server answer. Returns 0; -EALREADY: the handshake is not needed any more; -ENOSPC: it is
 * done, but there is no link, and the WARN is logged; another -errno when the connection broke. */
static int drive_handshake(struct harp_connect *c, harp_ns now) {
  int err = 0;
  harp_engine_lock(c->engine);
  c->polled_ns = now;
  if (is_superseded(c, now))
    err = -EALREADY;
  else if (harp_connect_state(c) == HARP_CONNECT_DIALING)
    err = start_hello(c, now);
  if (!err && harp_pending_peer_run(&c->pending)) err = -ECONNRESET;
  if (!err && harp_pending_peer_is_done(&c->pending)) err = make_link(c, now);
  harp_engine_unlock(c->engine);
  return err;
}

/* Returns what may have happened to a connect that nobody has answered. */
static const char *cause_of(const struct harp_connect *c) {
  const struct harp_dials *d = &c->dials;
  if (d->candidate_count && d->candidates[0].route.kind == HARP_ROUTE_SELF)
    return "; this host has the peer's address itself: if the peer is on another host, choose interfaces "
           "whose addresses differ (HARP_IFNAME)";
  return c->contact.count > 1
             ? "; is one of its interfaces with these addresses up, and TCP allowed between the hosts?"
             : "; is its interface with that address up, and TCP allowed between the hosts?";
}

static enum harp_status fail_unreachable(struct harp_connect *c) {
  char text[HARP_CONTACT_TEXT_BYTES], limit[HARP_LIMIT_TEXT_BYTES];
  const char *to = harp_contact_text(&c->contact, text), *name = c->engine->name;
  unsigned long long seconds = c->engine->instance.peer_timeout_ns / HARP_SEC(1);
  if (c->is_refused_busy)
    HARP_WARN("%s: the peer at %s has refused to connect for %llu s: too many connections wait there for "
              "accept, %d to that listener, and it accepts none",
              name, to, seconds, HARP_UNACCEPTED_MAX);
  else if (harp_limit_is(c->last_errno))
    HARP_WARN("%s: cannot connect to the peer at %s for %llu s: %s", name, to, seconds,
              harp_limit_text(c->last_errno, limit));
  else
    HARP_WARN("%s: cannot connect to the peer at %s for %llu s: %s%s", name, to, seconds,
              c->last_errno ? strerror(c->last_errno) : "no answer", cause_of(c));
  return !c->is_refused_busy && harp_limit_is_hosts(c->last_errno) ? HARP_ERR_SYSTEM : HARP_ERR_REMOTE;
}

/* Returns whether the handshake was refused, and for what reason of the peer's. */
static bool is_refused(const struct harp_connect *c, enum harp_refusal *why) {
  const struct harp_handshake *h = &c->pending.handshake;
  *why = HARP_REFUSAL_NONE;
  if (!harp_connect_has_met(c) || h->state != HARP_HANDSHAKE_REFUSED) return false;
  *why = h->refusal == HARP_REFUSAL_PEER ? h->peer_refusal : h->refusal;
  return true;
}

/* Logs once that the peer refuses handshakes or streams for now. */
static void log_busy(struct harp_connect *c) {
  char text[HARP_CONTACT_TEXT_BYTES];
  if (!c->is_refused_busy)
    HARP_INFO("%s: the peer at %s refuses to connect for now: too many connections wait there for accept; "
              "trying again",
              c->engine->name, harp_contact_text(&c->contact, text));
  c->is_refused_busy = true;
}

/* After our own handshake any message or packet of the peer's shows that it is done there too, unless the
 * peer has ended since. The peer takes this for an answer that we have, also where the control connection
 * breaks before NCCL asks for it: a second attempt would get a second link. Under the lock. */
static void look_for_confirmation(struct harp_connect *c, harp_ns now) {
  const struct harp_peer *peer = c->link->peer;
  if (harp_connect_state(c) != HARP_CONNECT_CONFIRMING) return;
  bool stands = peer->session.state == HARP_SESSION_OPEN && !peer->monitor.final_received;
  if (peer->is_confirmed && stands)
    harp_connect_enter(c, HARP_CONNECT_OPENED, now);
  else if (!harp_peer_is_usable(peer))
    harp_connect_lose(c, now);
}

static bool is_unanswered(const struct harp_connect *c) {
  enum harp_connect_state state = harp_connect_state(c);
  return state == HARP_CONNECT_CONFIRMING || state == HARP_CONNECT_REQUESTED;
}

/* The polling thread reads the answer itself: waking the engine's thread for it takes as long as the round
 * trip. Returns the state. Under the lock. */
static enum harp_connect_state look_for_answer(struct harp_connect *c, harp_ns now) {
  look_for_confirmation(c, now);
  if (is_unanswered(c)) harp_dispatch_control(c->link->peer, now);
  look_for_confirmation(c, now);
  return harp_connect_state(c);
}

/* Logs a refusal that further attempts would not change. */
static enum harp_status fail_refused(const struct harp_connect *c, enum harp_refusal why) {
  char text[HARP_CONTACT_TEXT_BYTES], limit[HARP_LIMIT_TEXT_BYTES];
  HARP_WARN("%s: the peer at %s refuses a connection: %s%s", c->engine->name,
            harp_contact_text(&c->contact, text), why == HARP_REFUSAL_LIMIT ? "" : "its reason: ",
            why == HARP_REFUSAL_LIMIT ? harp_limit_text(HARP_ELINKS, limit) : harp_refusal_text(why));
  return HARP_ERR_REMOTE;
}

/* Takes a refusal of a stream. */
static enum harp_status on_stream_refused(struct harp_connect *c, harp_ns now) {
  c->retry_ns = now + CONNECT_RETRY_NS;
  switch (c->refusal) {
  case HARP_REFUSAL_STREAM: /* not closed there yet: the next number will do */
    c->last_errno = EEXIST;
    c->retry_ns = now;
    return HARP_OK;
  case HARP_REFUSAL_LISTENER:
    c->last_errno = ECONNREFUSED;
    return HARP_OK;
  case HARP_REFUSAL_BUSY:
    log_busy(c);
    return HARP_OK;
  default:
    return fail_refused(c, c->refusal);
  }
}

/* Drives the opening of a stream. Sets *link when it is open. */
static enum harp_status poll_answer(struct harp_connect *c, struct harp_link **link, harp_ns now) {
  harp_engine_lock(c->engine);
  struct harp_link *requested = c->link;
  bool is_handshaken = harp_connect_state(c) == HARP_CONNECT_CONFIRMING;
  HARP_ASSERT(requested && requested->engine == c->engine);
  enum harp_connect_state answer = look_for_answer(c, now);
  if (is_unanswered(c)) { /* the process runs, or the monitor finds that it has ended */
    harp_engine_unlock(c->engine);
    return HARP_OK;
  }
  c->link = NULL;
  if (answer == HARP_CONNECT_OPENED)
    harp_link_log_connected(requested);
  else
    harp_link_end(requested);
  harp_connect_enter(c, answer == HARP_CONNECT_OPENED ? HARP_CONNECT_DONE : HARP_CONNECT_WAITING, now);
  harp_engine_unlock(c->engine);
  if (answer == HARP_CONNECT_REFUSED) return on_stream_refused(c, now);
  if (answer == HARP_CONNECT_OPENED) {
    *link = requested;
    return HARP_OK;
  }
  /* The peer is gone. Another may be there, unless we have just met it. */
  c->last_errno = ECONNRESET;
  c->retry_ns = is_handshaken ? now + CONNECT_RETRY_NS : now;
  return HARP_OK;
}

/* Begins the next attempt when it is due. */
static enum harp_status poll_begin(struct harp_connect *c, harp_ns now) {
  if (now >= c->deadline_ns) return fail_unreachable(c);
  if (now < c->retry_ns) return HARP_OK;
  int err = begin_attempt(c, now);
  if (err) {
    char text[HARP_LIMIT_TEXT_BYTES];
    HARP_WARN("%s: cannot connect: %s", c->engine->name, harp_limit_text(-err, text));
    return HARP_ERR_SYSTEM;
  }
  return HARP_OK;
}

/* Takes a refusal. One that may change soon ends this attempt only; further attempts follow. */
static enum harp_status on_refused(struct harp_connect *c, enum harp_refusal why, harp_ns now) {
  char text[256], address[HARP_CONTACT_TEXT_BYTES];
  harp_ns deadline_ns = c->deadline_ns;
  switch (why) {
  case HARP_REFUSAL_BUSY:
    c->last_errno = 0;
    log_busy(c);
    harp_dials_keep_answered(&c->dials);
    end_attempt(c, now, now + CONNECT_RETRY_NS);
    return HARP_OK;
  case HARP_REFUSAL_LISTENER: /* as when nobody listens on that port */
    harp_dials_keep_answered(&c->dials);
    end_failed(c, ECONNREFUSED, now);
    c->deadline_ns = deadline_ns;
    return HARP_OK;
  case HARP_REFUSAL_FILES: /* the time of the attempt counts: a peer that stays without files is an error */
    harp_dials_keep_answered(&c->dials);
    end_failed(c, HARP_EPEERFILES, now);
    c->deadline_ns = deadline_ns;
    return HARP_OK;
  case HARP_REFUSAL_CROSSED: /* its own connect is on the way */
    c->is_refused_busy = false;
    harp_dials_keep_answered(&c->dials);
    end_attempt(c, now, now);
    c->crossed_ns = now;
    c->deadline_ns = now + c->engine->instance.peer_timeout_ns;
    return HARP_OK;
  case HARP_REFUSAL_LIMIT:
    return fail_refused(c, why);
  default:
    harp_pending_peer_refusal_text(&c->pending.handshake, text, sizeof text);
    HARP_WARN("%s: the handshake with the peer at %s failed: %s", c->engine->name,
              harp_contact_text(&c->contact, address), text);
    return HARP_ERR_REMOTE;
  }
}

/* Drives an attempt. */
static enum harp_status poll_attempt(struct harp_connect *c, harp_ns now) {
  enum harp_refusal why;
  int err = take_dialled(c, now);
  bool is_dialling = err != 0;
  if (!err) err = drive_handshake(c, now);
  if (c->link) harp_dials_end(&c->dials);
  if (c->link) return HARP_OK;
  if (!err) try_others(c, now);
  if (err == -ENOSPC) return HARP_ERR_SYSTEM;
  if (err != -EALREADY && is_refused(c, &why)) return on_refused(c, why, now);
  if (err == -EALREADY)
    end_attempt(c, now, now);
  else if (err &&
           err != -EAGAIN) /* refused, unreachable, or the listener was overrun: try again for a while */
    end_failed(c, is_dialling ? c->dials.error : -err, now);
  if (!harp_connect_has_met(c) && now >= c->deadline_ns) return fail_unreachable(c);
  return HARP_OK;
}

/* Moves the deadline after a late poll: a process that was stopped could not read the peer's answer. A part
 * of the time since the last poll counts all the same, or a connect that is polled seldom would never end. */
static void excuse_late_poll(struct harp_connect *c, harp_ns now) {
  harp_ns late_ns = now - c->called_ns, counted_ns = c->engine->instance.peer_timeout_ns / LATE_POLLS_MAX;
  if (late_ns > counted_ns) c->deadline_ns += late_ns - counted_ns;
  c->called_ns = now;
}

enum harp_status harp_connect_poll(struct harp_connect *c, struct harp_link **link) {
  harp_ns now = c->engine->clock();
  *link = NULL;
  excuse_late_poll(c, now);
  harp_stall_log_connect(c, now);
  if (c->link) return poll_answer(c, link, now);
  return harp_connect_is_in_attempt(c) ? poll_attempt(c, now) : poll_begin(c, now);
}

void harp_connect_close(struct harp_connect *c) {
  struct harp_engine *e = c->engine;
  harp_engine_lock(e);
  struct harp_connect **at = &e->connects;
  while (*at != c) {
    HARP_ASSERT(*at); /* an open connect is in the engine's list */
    at = &(*at)->next;
  }
  *at = c->next;
  harp_connect_leave_peer(c);
  if (c->link) harp_link_end(c->link);
  harp_dials_end(&c->dials);
  harp_pending_peer_end(&c->pending, e);
  harp_engine_unlock(e);
  free(c);
}
