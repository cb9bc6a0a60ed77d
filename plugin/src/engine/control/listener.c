/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/control/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/files.h"
#include "base/log_limit.h"
#include "base/seq.h"
#include "engine/control/crossing.h"
#include "engine/link_close.h"
#include "host/random.h"
#include "io/socket.h"
#include "io/tcp_socket.h"
#include "proto/pairing.h"

/* The work that one event may cause; the rest is another event. */
enum { ACCEPTS_PER_EVENT = 4 };
enum { BACKLOG = 1024, TENDED_PER_CHECK = 4 /* listeners */ };

static uint64_t name_of_listener(const struct harp_listener *l) {
  return harp_io_ready_address_name(HARP_READY_LISTENER, l);
}

static uint64_t name_of_pending(const struct harp_pending_peer *p) {
  return harp_io_ready_address_name(HARP_READY_PENDING, p);
}

/* Stops waiting for the listening socket while accept fails: it would stay ready and the runner would spin.
 * harp_listeners_on_time tries again. */
static void pause_accept(struct harp_listener *l, bool pause) {
  if (l->accept_paused == pause) return;
  if (pause)
    harp_io_ready_unwatch(&l->engine->ready, l->fd);
  else
    pause = harp_io_ready_watch(&l->engine->ready, l->fd, EPOLLIN, name_of_listener(l)) != 0;
  l->accept_paused = pause;
}

/* A connection waits, or was refused, for lack of files or memory: to the peer the listener looks hung. */
static void record_shortage(struct harp_listener *l, int err, harp_ns now) {
  char text[HARP_LIMIT_TEXT_BYTES];
  if (!l->short_since_ns) l->short_since_ns = now;
  l->short_until_ns = now;
  l->short_of = err;
  if (l->shortage_logged) return;
  l->shortage_logged = true;
  HARP_INFO("%s: cannot accept a connection: %s", l->engine->name, harp_limit_text(err, text));
}

static void end_shortage(struct harp_listener *l) {
  l->short_since_ns = 0;
  atomic_store_explicit(&l->shortage_error, 0, memory_order_relaxed);
}

/* Raises a shortage that has lasted for the peer timeout: it is an error, as it is for the peer. One that
 * was short is over: the peer was accepted by another listener, or has left. */
static void raise_lasting_shortage(struct harp_listener *l, harp_ns now) {
  harp_ns limit_ns = l->engine->instance.peer_timeout_ns;
  if (!l->short_since_ns || now - l->short_since_ns < limit_ns) return;
  if (l->short_until_ns - l->short_since_ns >= limit_ns / 2)
    atomic_store_explicit(&l->shortage_error, l->short_of, memory_order_relaxed);
  else
    l->short_since_ns = 0;
}

static bool has_waiting(const struct harp_listener *l) {
  struct pollfd waiting = {.fd = l->fd, .events = POLLIN};
  return poll(&waiting, 1, 0) != 0;
}

/* ---- the spare file ---- */

static void give_spare(struct harp_engine *e) {
  close(e->spare_fd);
  e->spare_fd = -1;
}

/* Another thread may have taken the file meanwhile: harp_listeners_on_time tries again. */
static void restore_spare(struct harp_engine *e) {
  if (e->spare_fd < 0 && !e->is_spare_lent) e->spare_fd = eventfd(0, EFD_CLOEXEC);
}

static void end_pending(struct harp_listener *l, struct harp_pending_peer *p) {
  harp_strangers_remove(&l->engine->strangers, p);
  if (p->fd >= 0) {
    HARP_ASSERT(p->listener == l && l->pending_count);
    harp_io_ready_unwatch(&l->engine->ready, p->fd);
    l->pending_count--;
  }
  harp_pending_peer_end(p, l->engine);
  if (!p->has_spare) return;
  p->has_spare = l->engine->is_spare_lent = false;
  restore_spare(l->engine);
}

/* Makes room for a connection whose secret is not proved yet. */
static void bound_strangers(struct harp_engine *e, int fd) {
  for (struct harp_pending_peer *p; (p = harp_strangers_surplus(&e->strangers, fd));) {
    e->counters.handshake_refused++;
    end_pending(p->listener, p);
  }
}

static void end_all_pending(struct harp_listener *l) {
  for (unsigned i = 0; i < l->place_count; i++) end_pending(l, l->pending[i]);
  HARP_ASSERT(!l->pending_count);
}

/* Returns the address to listen at: that of the only interface; of several the wildcard of their family, or
 * the one of IPv6 that stands for both. */
static struct sockaddr_storage address_of(const struct harp_instance *enis, unsigned count) {
  static const uint8_t any[sizeof(struct in6_addr)];
  unsigned version = 4;
  if (count == 1) return enis->addr;
  for (unsigned i = 0; i < count; i++) version = HARP_MAX(version, harp_address_version(&enis[i].addr));
  return harp_address_make(version, any, 0, 0);
}

static bool has_family(const struct harp_instance *enis, unsigned count, int family) {
  unsigned i = 0;
  while (i < count && enis[i].addr.ss_family != family) i++;
  return i < count;
}

/* Listens at an address; stores the port. Returns 0 or -errno. */
static int listen_at(struct harp_listener *l, struct sockaddr_storage a, int v6_only) {
  socklen_t n = harp_address_bytes(&a);
  int one = 1;
  l->fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (l->fd < 0) return -errno;
  harp_files_own(l->fd);
  (void)harp_socket_set_free_bind(l->fd); /* a new IPv6 address cannot be bound to for some seconds */
  if (a.ss_family == AF_INET6) setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
  /* connections of an earlier job may be in TIME_WAIT */
  if (harp_address_port(&a)) setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(l->fd, (struct sockaddr *)&a, n) || listen(l->fd, BACKLOG) ||
      getsockname(l->fd, (struct sockaddr *)&a, &n)) {
    int err = -errno;
    harp_files_close(l->fd);
    return err;
  }
  l->port = harp_address_port(&a);
  return 0;
}

/* Draws the secret and listens: at the highest free port of `ports`, since the engines' own begin at the
 * lowest; without such ports, or a free one, at a port of the kernel's choice. Returns 0 or -errno. */
static int open_socket(struct harp_listener *l, const struct harp_instance *enis, unsigned count) {
  struct sockaddr_storage a = address_of(enis, count);
  const struct harp_ports *ports = &enis->ports;
  int err = harp_random_fill(l->secret, sizeof l->secret), v6_only = !has_family(enis, count, AF_INET);
  if (err) return err;
  err = -EADDRINUSE;
  for (uint32_t port = ports->high; err == -EADDRINUSE && port && port >= ports->low; port--) {
    harp_address_set_port(&a, (uint16_t)port);
    err = listen_at(l, a, v6_only);
  }
  if (err != -EADDRINUSE) return err;
  harp_address_set_port(&a, 0);
  err = listen_at(l, a, v6_only);
  if (ports->low && !err && !l->engine->is_outside_ports_logged) {
    l->engine->is_outside_ports_logged = true;
    HARP_INFO(
        "%s: no TCP port of `ports` (%u to %u) is free: listening at port %u; a firewall that opens `ports` "
        "alone keeps peers away: widen `ports`",
        l->engine->name, ports->low, ports->high, l->port);
  }
  return err;
}

/* Returns what the handle is to say: the addresses in the order of the interfaces. */
static struct harp_contact contact_of(const struct harp_listener *l, const struct harp_instance *enis,
                                      unsigned count) {
  const struct harp_engine *e = l->engine;
  struct harp_contact contact = {.engine_id = e->token_prefix,
                                 .engine_number = e->number,
                                 .engine_count = e->number_count,
                                 .port = l->port};
  for (unsigned i = 0; i < count; i++)
    if (!enis[i].is_unnumbered) contact.at[contact.count++] = enis[i].addr;
  memcpy(contact.secret, l->secret, sizeof contact.secret);
  return contact;
}

enum harp_status harp_listener_open(struct harp_listener **out, struct harp_engine *e, void *handle,
                                    size_t handle_bytes, int traffic_class) {
  char text[HARP_LIMIT_TEXT_BYTES];
  struct harp_instance enis[HARP_ENGINE_ENIS_MAX];
  struct harp_listener *l = calloc(1, sizeof *l);
  if (!l) {
    harp_shortage_warn_memory("listen for connections");
    return HARP_ERR_SYSTEM;
  }
  l->engine = e;
  l->traffic_class = traffic_class;
  unsigned eni_count = harp_engine_copy_enis(e, enis);
  int err = open_socket(l, enis, eni_count);
  if (err) goto fail;
  const struct harp_contact contact = contact_of(l, enis, eni_count);
  harp_handle_encode(handle, handle_bytes, &contact);
  harp_engine_lock(e);
  err = harp_io_ready_watch(&e->ready, l->fd, EPOLLIN, name_of_listener(l));
  l->accept_paused = err != 0;
  l->next = e->listeners;
  e->listeners = l;
  harp_engine_unlock(e);
  if (err)
    HARP_INFO("%s: cannot watch the listening socket, so each connection may take 100 ms longer: %s", e->name,
              harp_limit_text(err == -ENOSPC ? HARP_EWATCHES : -err, text));
  *out = l;
  return HARP_OK;
fail:
  HARP_WARN("%s: cannot listen for connections: %s", e->name, harp_limit_text(-err, text));
  free(l);
  return HARP_ERR_SYSTEM;
}

/* Returns whether its HELLO was right, and it was sent a WELCOME. Unless the HELLO was a recording, the peer
 * may count the handshake as done. */
static bool is_welcomed(const struct harp_pending_peer *p) {
  return p->handshake.state == HARP_HANDSHAKE_WAIT_CONFIRM;
}

static struct harp_pending_peer *add_place(struct harp_listener *l) {
  struct harp_pending_peer *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->fd = p->slot = -1;
  p->listener = l;
  l->pending[l->place_count++] = p;
  return p;
}

/* Returns a place for a new pending peer. When there can be no more, ends the oldest, those without a right
 * HELLO first. NULL: no memory for the first one. */
static struct harp_pending_peer *place_for_pending(struct harp_listener *l) {
  struct harp_pending_peer *oldest = l->pending[0];
  for (unsigned i = 0; i < l->place_count; i++) {
    struct harp_pending_peer *p = l->pending[i];
    if (p->fd < 0) return p;
    bool older = p->since_ns < oldest->since_ns;
    if (is_welcomed(p) == is_welcomed(oldest) ? older : is_welcomed(oldest)) oldest = p;
  }
  struct harp_pending_peer *added = l->place_count < HARP_PENDING_PEERS_MAX ? add_place(l) : NULL;
  if (added || !oldest) return added;
  l->engine->counters.handshake_refused++;
  end_pending(l, oldest);
  return oldest;
}

/* Returns whether a pending peer is one that knows the secret, and no later attempt of it can succeed. It
 * gives up.
 */
static bool is_refused_for_good(const struct harp_pending_peer *p) {
  enum harp_refusal why = p->handshake.refusal;
  return why == HARP_REFUSAL_VERSION || why == HARP_REFUSAL_ENDPOINT || why == HARP_REFUSAL_PATHS ||
         why == HARP_REFUSAL_NO_MACS || why == HARP_REFUSAL_MACS;
}

/* Returns whether to log why a pending peer is refused. One that is refused as BUSY tries again soon: logged
 * once. */
static bool is_worth_logging(struct harp_listener *l, const struct harp_pending_peer *p) {
  if (p->handshake.refusal == HARP_REFUSAL_CROSSED) return false; /* it gets what it wants otherwise */
  if (p->handshake.refusal != HARP_REFUSAL_BUSY) return true;
  bool was_logged = l->busy_logged;
  l->busy_logged = true;
  return !was_logged;
}

/* Lets accept return an error. The peer that has the handle was refused for good: nobody else will come. The
 * text is not written again before accept has read it. */
static void let_accept_fail(struct harp_listener *l, const char *address, const char *why) {
  if (atomic_load_explicit(&l->has_refused, memory_order_acquire)) return; /* pairs with harp_listener_poll */
  snprintf(l->refused_text, sizeof l->refused_text, "%s: %s", address, why);
  atomic_store_explicit(&l->has_refused, true, memory_order_release);
}

static void refuse_pending_peer(struct harp_listener *l, struct harp_pending_peer *p, int err, harp_ns now) {
  char why[HARP_LIMIT_TEXT_BYTES], text[HARP_ADDRESS_TEXT_BYTES];
  if (p->handshake.state == HARP_HANDSHAKE_REFUSED)
    harp_pending_peer_refusal_text(&p->handshake, why, sizeof why);
  else if (err)
    harp_limit_text(-err, why);
  else
    snprintf(why, sizeof why, "it did not prove the secret in time");
  harp_address_text(&p->peer_addr, text);
  if (is_refused_for_good(p) && !l->is_closed)
    let_accept_fail(l, text, why);
  else if (is_worth_logging(l, p))
    HARP_INFO_LIMITED(&l->engine->strangers_log, now, "%s: refused a connection from %s: %s", l->engine->name,
                      text, why);
  l->engine->counters.handshake_refused++;
  end_pending(l, p);
}

/* Returns whether a link that waits for accept can bring nothing: its other end is gone, and has sent
 * nothing. */
static bool is_dead(const struct harp_link *link) {
  const struct harp_peer *peer = link->peer;
  bool is_gone = link->is_ended || peer->monitor.gone || peer->monitor.final_received ||
                 peer->session.state != HARP_SESSION_OPEN;
  return is_gone && link->rx->last_size == UINT32_MAX && !link->has_arrived;
}

/* Puts a link into the place of one that is dead, which nobody will need. Returns whether there is one. */
static bool replace_dead(struct harp_listener *l, struct harp_link *link) {
  struct harp_link **at = &l->ready_first;
  while (*at && !is_dead(*at)) at = &(*at)->next_ready;
  struct harp_link *dead = *at;
  if (!dead) return false;
  *at = link;
  link->next_ready = dead->next_ready;
  if (l->ready_last == dead) l->ready_last = link;
  if (dead->answer) harp_answers_remove(&l->answers, dead->answer);
  harp_link_end(dead);
  return true;
}

/* Appends a link to those that wait for accept. It takes the place of one that is dead, whose other end is
 * gone and has sent nothing: a peer whose handshake was cut off tries again, and accept is to have the link
 * that lives. A dead one alone stays, since somebody did connect. */
static void put_ready(struct harp_listener *l, struct harp_link *link) {
  HARP_ASSERT(link->role == HARP_ROLE_RECEIVER && !link->next_ready);
  HARP_ASSERT(!l->ready_first == !l->ready_last);
  if (replace_dead(l, link)) return;
  if (l->ready_last)
    l->ready_last->next_ready = link;
  else
    l->ready_first = link;
  l->ready_last = link;
  atomic_fetch_add_explicit(&l->ready_count, 1, memory_order_release);
}

/* Returns where the list of links that wait for accept has it; NULL: it is not there. */
static struct harp_link **find_ready(struct harp_listener *l, const struct harp_link *link) {
  struct harp_link **at = &l->ready_first;
  while (*at && *at != link) at = &(*at)->next_ready;
  return *at ? at : NULL;
}

/* ---- answers ---- */

enum harp_refusal harp_listener_judge(const struct harp_listener *l, const struct harp_connect_name *name) {
  const struct harp_answer *a = harp_answers_find(&l->answers, name);
  if (a) return harp_seq_after(name->attempt, a->name.attempt) ? HARP_REFUSAL_NONE : HARP_REFUSAL_STREAM;
  if (l->is_closed) return HARP_REFUSAL_LISTENER;
  return harp_listener_count_unaccepted(l) >= HARP_UNACCEPTED_MAX ? HARP_REFUSAL_BUSY : HARP_REFUSAL_NONE;
}

/* Answers a connect for the first time: makes its link, which waits for accept. */
static int answer_first(struct harp_listener *l, const struct harp_connect_name *name, struct harp_peer *peer,
                        const struct harp_link_config *c, bool awaits_ping) {
  struct harp_link *link;
  struct harp_answer *a = harp_answers_add(&l->answers, name);
  if (!a) return -ENOMEM;
  int err = harp_link_create(&link, peer, c);
  if (err) {
    harp_answers_remove(&l->answers, a);
    return err;
  }
  harp_answer_set(a, name, link, peer, awaits_ping);
  put_ready(l, link);
  harp_link_log_connected(link);
  return 0;
}

/* Puts a new link in the place of one that has failed and that nobody has accepted. */
static int replace_failed(struct harp_link **at, struct harp_peer *peer, const struct harp_link_config *c,
                          struct harp_listener *l) {
  struct harp_link *failed = *at, *link;
  int err = harp_link_create(&link, peer, c);
  if (err) return err;
  *at = link;
  link->next_ready = failed->next_ready;
  if (l->ready_last == failed) l->ready_last = link;
  harp_link_end(failed);
  return 0;
}

/* Answers a connect again, whose other side has lost the answer with its control connection: with the same
 * link, over this peer. One that has failed, or that NCCL has closed, stays so. */
static int answer_again(struct harp_listener *l, struct harp_answer *a, const struct harp_connect_name *name,
                        struct harp_peer *peer, const struct harp_link_config *c, bool awaits_ping) {
  struct harp_link *link = a->link, **at = link ? find_ready(l, link) : NULL;
  int err = 0;
  uint32_t status = link ? atomic_load_explicit(&link->status, memory_order_relaxed) : a->reason;
  if (link && !status) {
    if (!harp_link_is_untouched(link)) return -EEXIST; /* data has come over it: its sender has the answer */
    err = harp_link_move(link, peer, c);
  } else if (at) {
    err = replace_failed(at, peer, c, l);
    link = err ? link : *at;
  } else if (link) {
    a->reason = status;
    link->answer = NULL;
    link = a->link = NULL;
  }
  if (!err) harp_answer_set(a, name, link, peer, awaits_ping);
  return err;
}

int harp_listener_answer(struct harp_listener *l, const struct harp_connect_name *name,
                         struct harp_peer *peer, const struct harp_link_config *c,
                         const struct harp_opened *opened, harp_ns now) {
  struct harp_answer *a = harp_answers_find(&l->answers, name);
  HARP_ASSERT(c->role == HARP_ROLE_RECEIVER);
  int err = a ? answer_again(l, a, name, peer, c, !opened) : answer_first(l, name, peer, c, !opened);
  if (err) return err;
  if (opened) (void)harp_monitor_send_opened(peer, opened);
  if (!a) return 0;
  HARP_INFO_LIMITED(&peer->log, now,
                    "%s: %s asks again for a connection that is %s: its control connection broke",
                    l->engine->name, peer->name, a->link ? "open" : "closed");
  if (a->link) return 0;
  struct harp_close closed = {.stream = c->stream,
                              .reason = a->reason == HARP_ERR_USAGE ? HARP_ERR_REMOTE : a->reason,
                              .delivered = c->first_line};
  (void)harp_monitor_send_close(peer, &closed);
  return 0;
}

/* Makes a peer of a pending peer whose handshake is done, and answers its connect. */
static void finish_pending_peer(struct harp_listener *l, struct harp_pending_peer *p, harp_ns now) {
  struct harp_connect_name name = harp_pending_peer_name(p);
  struct harp_link_config first = harp_pending_peer_stream(p, HARP_ROLE_RECEIVER);
  HARP_ASSERT(p->fd >= 0 && l->pending_count);
  enum harp_refusal refusal = harp_listener_judge(l, &name);
  if (refusal == HARP_REFUSAL_LISTENER || refusal == HARP_REFUSAL_STREAM) {
    end_pending(l, p); /* another attempt of the connect has overtaken it */
    return;
  }
  harp_io_ready_unwatch(&l->engine->ready, p->fd);
  l->pending_count--;
  struct harp_peer *peer = harp_pending_peer_finish(p, l->engine, HARP_ROLE_RECEIVER, l->traffic_class);
  if (!peer) return; /* logged; the peer sees the connection closed and tries again */
  int err = harp_listener_answer(l, &name, peer, &first, NULL, now);
  if (err) harp_pending_peer_abandon(peer, HARP_ROLE_RECEIVER, err);
}

/* ---- pending peers ---- */

/* Returns how long a pending peer has. One that was sent a WELCOME has as long as TCP may take to deliver
 * that and the CONFIRM. */
static harp_ns limit_ns(const struct harp_listener *l, const struct harp_pending_peer *p) {
  return HARP_PENDING_PEER_NS + (is_welcomed(p) ? 2 * l->engine->instance.peer_timeout_ns : 0);
}

/* Returns whether a pending peer was sent a WELCOME for a connect of no peer before it in the table, and that
 * has no answer yet. Of several (recordings, or attempts that broke off) one can become a link. */
static bool is_to_become_link(const struct harp_listener *l, unsigned place) {
  const struct harp_pending_peer *p = l->pending[place];
  if (p->fd < 0 || !is_welcomed(p)) return false;
  struct harp_connect_name name = harp_pending_peer_name(p);
  if (harp_answers_find(&l->answers, &name)) return false;
  for (unsigned i = 0; i < place; i++) {
    const struct harp_pending_peer *o = l->pending[i];
    if (o->fd < 0 || !is_welcomed(o)) continue;
    struct harp_connect_name other = harp_pending_peer_name(o);
    if (harp_answers_is_same(&name, &other)) return false;
  }
  return true;
}

unsigned harp_listener_count_unaccepted(const struct harp_listener *l) {
  unsigned count = 0;
  for (const struct harp_link *link = l->ready_first; link; link = link->next_ready) count += !is_dead(link);
  for (unsigned i = 0; i < l->place_count; i++) count += is_to_become_link(l, i);
  return count;
}

static bool is_over(const struct harp_pending_peer *p, harp_ns now) {
  return now - p->since_ns > limit_ns(p->listener, p);
}

/* Returns the reason to refuse a pending peer whose HELLO was right; HARP_REFUSAL_NONE: there is none. */
static enum harp_refusal refusal_of(struct harp_listener *l, const struct harp_pending_peer *p, harp_ns now) {
  struct harp_connect_name name = harp_pending_peer_name(p);
  uint32_t engine_id = name.engine_id;
  struct harp_pairing paths[HARP_PATHS_MAX];
  bool is_again = harp_answers_find(&l->answers, &name) != NULL;
  enum harp_refusal refusal = harp_listener_judge(l, &name);
  if (refusal == HARP_REFUSAL_LISTENER || refusal == HARP_REFUSAL_STREAM) return HARP_REFUSAL_LISTENER;
  if (harp_crossing_is_ours(l->engine, engine_id, l->traffic_class, now)) return HARP_REFUSAL_CROSSED;
  if (p->has_spare) return HARP_REFUSAL_FILES;
  enum harp_refusal auth = harp_handshake_auth_refusal(&p->handshake);
  if (auth) return auth;
  if (!harp_pairing_make(&p->handshake.peer, &p->handshake.local, paths)) return HARP_REFUSAL_PATHS;
  if (l->engine->link_count == HARP_ENGINE_LINKS_MAX && !is_again) return HARP_REFUSAL_LIMIT;
  if (refusal) return refusal;
  harp_crossing_yield(l->engine, engine_id, l->traffic_class, now);
  return HARP_REFUSAL_NONE;
}

/* Drives the handshake of a pending peer. */
static void drive_pending(struct harp_pending_peer *p, harp_ns now) {
  struct harp_listener *l = p->listener;
  HARP_ASSERT(l && p->fd >= 0);
  int err = harp_pending_peer_run(p);
  if (!err && p->handshake.state == HARP_HANDSHAKE_WAIT_ANSWER) {
    harp_strangers_remove(&l->engine->strangers, p);
    err = harp_pending_peer_on_proved(p, l->engine);
    if (!err) harp_handshake_answer(&p->handshake, refusal_of(l, p, now));
    if (!err) err = harp_pending_peer_run(p);
  }
  if (harp_pending_peer_is_done(p))
    finish_pending_peer(l, p, now);
  else if (err && harp_pending_peer_is_mute(p))
    end_pending(l, p); /* it has connected to another address of ours first */
  else if (err || (p->handshake.state == HARP_HANDSHAKE_REFUSED && !harp_pending_peer_has_unsent(p)) ||
           is_over(p, now))
    refuse_pending_peer(l, p, err, now);
}

struct harp_listener *harp_listener_of_port(const struct harp_engine *e, uint16_t port) {
  struct harp_listener *l = e->listeners;
  while (l && l->port != port) l = l->next;
  return l;
}

static bool is_files(int err) {
  return err == EMFILE || err == ENFILE;
}

static bool is_shortage(int err) {
  return is_files(err) || err == ENOMEM || err == ENOBUFS;
}

/* Accepts a connection. Without a file it takes the engine's spare one, so that the peer learns why it is
 * refused. Returns the file, or -errno. */
static int accept_one(struct harp_listener *l, struct sockaddr_storage *from, bool *has_spare, harp_ns now) {
  struct harp_engine *e = l->engine;
  socklen_t n = sizeof *from;
  *has_spare = false;
  int fd = accept4(l->fd, (struct sockaddr *)from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) end_shortage(l);
  if (fd >= 0 || !is_shortage(errno)) return fd < 0 ? -errno : fd;
  int err = errno;
  if (!has_waiting(l)) return -err; /* the kernel looks for a file first */
  record_shortage(l, err, now);
  if (!is_files(err) || e->spare_fd < 0) return -err;
  give_spare(e);
  fd = accept4(l->fd, (struct sockaddr *)from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) err = errno;
  *has_spare = e->is_spare_lent = fd >= 0;
  restore_spare(e);
  return fd < 0 ? -err : fd;
}

/* Returns whether a connection came to an address of one of the engine's interfaces. */
static bool is_to_us(const struct harp_engine *e, int fd) {
  struct sockaddr_storage to = {0};
  socklen_t n = sizeof to;
  if (e->eni_count == 1) return true; /* the socket is bound to it */
  if (getsockname(fd, (struct sockaddr *)&to, &n)) return false;
  harp_address_unmap(&to);
  unsigned i = 0;
  while (i < e->eni_count && !harp_address_has_same_ip(&e->enis[i].addr, &to)) i++;
  return i < e->eni_count;
}

/* Closes a connection that becomes no pending peer. */
static void drop_connection(struct harp_listener *l, int fd, bool has_spare) {
  harp_files_close(fd);
  if (has_spare) l->engine->is_spare_lent = false;
  restore_spare(l->engine);
}

static void accept_some(struct harp_listener *l, harp_ns now) {
  for (unsigned i = 0; i < ACCEPTS_PER_EVENT; i++) {
    struct sockaddr_storage from = {0};
    bool has_spare;
    int one = 1, fd = accept_one(l, &from, &has_spare, now);
    int err = fd < 0 ? -fd : 0;
    pause_accept(l, is_shortage(err));
    if (err == EINTR || err == ECONNABORTED) continue;
    if (err) return; /* none waits; or the host is short of files or memory, which may pass */
    harp_files_own(fd);
    harp_address_unmap(&from);
    if (!is_to_us(l->engine, fd)) {
      l->engine->counters.handshake_refused++;
      drop_connection(l, fd, has_spare);
      continue;
    }
    bound_strangers(l->engine, fd);
    struct harp_pending_peer *p = place_for_pending(l);
    if (!p) {
      record_shortage(l, ENOMEM, now);
      drop_connection(l, fd, has_spare); /* the peer tries again */
      return;
    }
    HARP_ASSERT(p->fd < 0 && p->slot < 0 && !p->has_spare);
    p->fd = fd;
    p->has_spare = has_spare;
    p->peer_addr = from;
    p->since_ns = now;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    harp_tcp_socket_set_timeouts(fd, l->engine->instance.peer_timeout_ns);
    l->pending_count++;
    harp_strangers_add(&l->engine->strangers, p);
    harp_pending_peer_listen(p, l->secret);
    err = harp_io_ready_watch(&l->engine->ready, fd, EPOLLIN, name_of_pending(p));
    if (!err)
      drive_pending(p, now);
    else
      refuse_pending_peer(l, p, err, now); /* the peer tries again */
  }
}

void harp_listeners_on_ready(uint64_t name, harp_ns now) {
  if (harp_io_ready_kind(name) == HARP_READY_LISTENER) {
    accept_some(harp_io_ready_address(name), now);
    return;
  }
  struct harp_pending_peer *p = harp_io_ready_address(name);
  if (p->fd >= 0) drive_pending(p, now); /* else it was ended since, to make room */
}

/* Drives those pending peers of a listener that have sent something. */
static void drive_pending_peers(struct harp_listener *l, harp_ns now) {
  struct pollfd fds[HARP_PENDING_PEERS_MAX];
  unsigned count = l->place_count;
  for (unsigned i = 0; i < count; i++) fds[i] = (struct pollfd){.fd = l->pending[i]->fd, .events = POLLIN};
  if (poll(fds, count, 0) <= 0) return;
  for (unsigned i = 0; i < count; i++)
    if (fds[i].revents) drive_pending(l->pending[i], now);
}

void harp_listeners_drive(struct harp_engine *e, harp_ns now) {
  for (struct harp_listener *l = e->listeners; l; l = l->next)
    if (l->pending_count) drive_pending_peers(l, now);
}

/* Under the lock. */
static void free_listener(struct harp_listener *l) {
  struct harp_engine *e = l->engine;
  struct harp_listener **at = &e->listeners;
  HARP_ASSERT(l->is_closed && !l->ready_first);
  while (*at != l) {
    HARP_ASSERT(*at); /* it is in the engine's list until it is freed */
    at = &(*at)->next;
  }
  *at = l->next;
  if (e->listener_turn == l) e->listener_turn = l->next;
  end_all_pending(l);
  harp_answers_clear(&l->answers);
  harp_io_ready_unwatch(&e->ready, l->fd);
  shutdown(l->fd, SHUT_RDWR);
  harp_files_close(l->fd);
  for (unsigned i = 0; i < l->place_count; i++) free(l->pending[i]);
  free(l);
}

static void run_listener_timers(struct harp_listener *l, harp_ns now) {
  harp_answers_on_time(&l->answers, l->engine, now);
  if (l->is_closed && !l->answers.first) {
    free_listener(l);
    return;
  }
  if (l->accept_paused) accept_some(l, now);
  raise_lasting_shortage(l, now);
  for (unsigned i = 0; i < l->place_count && l->pending_count; i++) {
    struct harp_pending_peer *p = l->pending[i];
    if (p->fd >= 0 && (harp_pending_peer_has_unsent(p) || is_over(p, now))) drive_pending(p, now);
  }
}

void harp_listeners_on_time(struct harp_engine *e, harp_ns now) {
  struct harp_listener *first = NULL;
  restore_spare(e);
  for (unsigned i = 0; i < TENDED_PER_CHECK; i++) {
    struct harp_listener *l = e->listener_turn ? e->listener_turn : e->listeners;
    if (!l || l == first) return;
    if (!first) first = l;
    e->listener_turn = l->next;
    run_listener_timers(l, now);
  }
}

/* Takes the link that has waited longest; NULL if there is none. */
static struct harp_link *take_ready(struct harp_listener *l) {
  if (!atomic_load_explicit(&l->ready_count, memory_order_acquire)) return NULL;
  harp_engine_lock(l->engine);
  struct harp_link *link = l->ready_first;
  HARP_ASSERT(!link == !atomic_load_explicit(&l->ready_count, memory_order_relaxed));
  if (link) {
    l->ready_first = link->next_ready;
    if (!l->ready_first) l->ready_last = NULL;
    link->next_ready = NULL;
    atomic_fetch_sub_explicit(&l->ready_count, 1, memory_order_relaxed);
  }
  harp_engine_unlock(l->engine);
  return link;
}

enum harp_status harp_listener_poll(struct harp_listener *l, struct harp_link **link) {
  char text[HARP_LIMIT_TEXT_BYTES];
  *link = take_ready(l);
  if (*link) {
    l->wait = (struct harp_stall_wait){0};
    return HARP_OK;
  }
  if (atomic_load_explicit(&l->has_refused, memory_order_acquire)) { /* pairs with let_accept_fail */
    HARP_WARN("%s: refused a connection from %s", l->engine->name, l->refused_text);
    atomic_store_explicit(&l->has_refused, false, memory_order_release);
    return HARP_ERR_REMOTE;
  }
  harp_stall_log_accept(l, l->engine->clock());
  int err = atomic_load_explicit(&l->shortage_error, memory_order_relaxed);
  if (!err) return HARP_OK;
  HARP_WARN("%s: cannot accept a connection for %llu s: %s", l->engine->name,
            (unsigned long long)(l->engine->instance.peer_timeout_ns / HARP_SEC(1)),
            harp_limit_text(err, text));
  return HARP_ERR_SYSTEM;
}

/* Lets no more in but who asks again. Returns the links that nobody has accepted: they are not asked for
 * again, and are the caller's. */
static struct harp_link *begin_close(struct harp_listener *l) {
  struct harp_link *first = l->ready_first;
  l->is_closed = true;
  end_all_pending(l);
  for (struct harp_link *link = first; link; link = link->next_ready)
    if (link->answer) harp_answers_remove(&l->answers, link->answer);
  l->ready_first = l->ready_last = NULL;
  atomic_store_explicit(&l->ready_count, 0, memory_order_relaxed);
  return first;
}

/* Frees the closed listeners that were opened first, but for HARP_LISTENERS_CLOSED_MAX. */
static void bound_closed(struct harp_engine *e) {
  unsigned count = 0;
  for (struct harp_listener *l = e->listeners, *next; l; l = next) {
    next = l->next;
    if (l->is_closed && ++count > HARP_LISTENERS_CLOSED_MAX) free_listener(l);
  }
}

void harp_listener_close(struct harp_listener *l) {
  struct harp_engine *e = l->engine;
  harp_engine_lock(e); /* a pass of another thread frees closed listeners: without the lock, l may be gone */
  struct harp_link *unaccepted = begin_close(l);
  harp_answers_on_time(&l->answers, e, e->clock());
  if (l->answers.first)
    bound_closed(e);
  else
    free_listener(l);
  harp_engine_unlock(e);
  for (struct harp_link *link = unaccepted, *next; link; link = next) {
    next = link->next_ready;
    link->next_ready = NULL;
    harp_link_destroy(link);
  }
}

void harp_listeners_end(struct harp_engine *e) {
  while (e->listeners) free_listener(e->listeners);
}
