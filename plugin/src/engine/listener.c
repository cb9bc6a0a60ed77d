/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/listener.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/files.h"
#include "base/log.h"
#include "engine/address.h"
#include "engine/crossing.h"
#include "host/random.h"
#include "io/tcp_socket.h"
#include "proto/pairing.h"

/* What one event of the control epoll may cost; what is left is an event again. */
enum { ACCEPTS_PER_EVENT = 4 };
enum { BACKLOG = 1024, TENDED_PER_CHECK = 4 /* listeners */ };

/* In the control epoll a link is named by its slot, a guest by the address of its meeting, and a listener by
 * its own with this bit. */
enum { IS_LISTENER = 1 };

static uint64_t name_of_listener(const struct harp_listener *l) {
  return (uintptr_t)l | IS_LISTENER;
}

static uint64_t name_of_guest(const struct harp_meeting *m) {
  return (uintptr_t)m;
}

/* Makes passes, and the runner's sleep, look at the socket. Returns 0 or -errno. */
static int watch(struct harp_engine *e, int fd, uint64_t name) {
  struct epoll_event ev = {.events = EPOLLIN, .data.u64 = name};
  return epoll_ctl(e->control_fd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/* Before the socket is closed or becomes a link's: a copy of a child that was just forked would keep it in
 * the epoll set. */
static void unwatch(struct harp_engine *e, int fd) {
  epoll_ctl(e->control_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* A socket whose accept fails stays ready: to wait for it would be to spin. It is tried again now and then.
 */
static void set_deaf(struct harp_listener *l, bool deaf) {
  if (l->deaf == deaf) return;
  if (deaf)
    unwatch(l->engine, l->fd);
  else
    deaf = watch(l->engine, l->fd, name_of_listener(l)) != 0;
  l->deaf = deaf;
}

static const char *files_hint(int err) {
  return err == EMFILE ? "; raise the limit of open files (ulimit -n)" : "";
}

/* Says once that somebody waits who can not be let in: to the peer it looks like a listener that hangs. */
static void tell_shortage(struct harp_listener *l, int err) {
  struct pollfd waiting = {.fd = l->fd, .events = POLLIN};
  if (l->shortage_told || poll(&waiting, 1, 0) == 0) return;
  l->shortage_told = true;
  HARP_INFO("%s: a connection waits and can not be accepted: %s%s", l->engine->name, strerror(err),
            files_hint(err));
}

static void guest_end(struct harp_listener *l, struct harp_meeting *m) {
  if (m->fd >= 0) {
    unwatch(l->engine, m->fd);
    l->guest_count--;
  }
  harp_meeting_end(m, l->engine);
}

enum harp_status harp_listener_open(struct harp_listener **out, struct harp_engine *e,
                                    struct harp_handle *handle, int traffic_class) {
  struct sockaddr_storage a = e->instance.addr;
  socklen_t n = harp_address_bytes(&a);
  struct harp_listener *l = calloc(1, sizeof *l);
  if (!l) {
    HARP_WARN("%s: no memory for a listener", e->name);
    return HARP_ERR_SYSTEM;
  }
  l->engine = e;
  l->traffic_class = traffic_class;
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) {
    l->guests[i].fd = l->guests[i].slot = -1;
    l->guests[i].listener = l;
  }
  l->fd = harp_meeting_socket(e);
  int err = l->fd < 0 ? -errno : harp_random_fill(l->secret, sizeof l->secret);
  if (!err && (bind(l->fd, (struct sockaddr *)&a, n) || listen(l->fd, BACKLOG) ||
               getsockname(l->fd, (struct sockaddr *)&a, &n)))
    err = -errno;
  if (err) {
    HARP_WARN("%s: cannot listen for connections: %s%s", e->name, strerror(-err), files_hint(-err));
    if (l->fd >= 0) harp_files_close(l->fd);
    free(l);
    return HARP_ERR_SYSTEM;
  }
  l->port = harp_address_port(&a);
  harp_handle_encode(handle, &a, e->token_prefix, l->secret);
  harp_engine_lock(e);
  err = watch(e, l->fd, name_of_listener(l));
  l->deaf = err != 0;
  l->next = e->listeners;
  e->listeners = l;
  harp_engine_unlock(e);
  if (err)
    HARP_INFO("%s: cannot watch the listening socket: %s; each connection may take 100 ms longer: raise the "
              "limit with `sysctl -w fs.epoll.max_user_watches=1000000`, or free memory",
              e->name, strerror(-err));
  *out = l;
  return HARP_OK;
}

/* Whether its HELLO was right: all but a recording is then our peer, which may count the handshake as done
 * once our WELCOME is there. */
static bool is_known(const struct harp_meeting *m) {
  return m->handshake.state == HARP_HANDSHAKE_WAIT_CONFIRM;
}

/* A place for a new guest; where all are taken the one that has been here longest goes, strangers first. */
static struct harp_meeting *guest_place(struct harp_listener *l) {
  struct harp_meeting *oldest = &l->guests[0];
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) {
    struct harp_meeting *m = &l->guests[i];
    if (m->fd < 0) return m;
    bool older = m->since_ns < oldest->since_ns;
    if (is_known(m) == is_known(oldest) ? older : is_known(oldest)) oldest = m;
  }
  l->engine->counters.handshake_refused++;
  guest_end(l, oldest);
  return oldest;
}

/* Whether to say why a guest is turned away. One that is refused as BUSY comes again soon: said once. */
static bool is_worth_telling(struct harp_listener *l, const struct harp_meeting *m) {
  if (m->handshake.refusal == HARP_REFUSAL_CROSSED) return false; /* it gets what it wants otherwise */
  if (m->handshake.refusal != HARP_REFUSAL_BUSY) return true;
  bool told = l->busy_told;
  l->busy_told = true;
  return !told;
}

static void turn_away(struct harp_listener *l, struct harp_meeting *m, int err) {
  char why[256], text[HARP_ADDRESS_TEXT_BYTES];
  if (m->handshake.state == HARP_HANDSHAKE_REFUSED)
    harp_meeting_refusal_text(&m->handshake, why, sizeof why);
  else if (err)
    harp_limit_text(-err, why);
  else
    snprintf(why, sizeof why, "it did not prove the secret in time");
  if (is_worth_telling(l, m))
    HARP_INFO("%s: turned away a connection from %s: %s", l->engine->name,
              harp_address_text(&m->peer_addr, text), why);
  l->engine->counters.handshake_refused++;
  guest_end(l, m);
}

void harp_listener_put_ready(struct harp_listener *l, struct harp_link *link) {
  if (l->ready_last)
    l->ready_last->next_ready = link;
  else
    l->ready_first = link;
  l->ready_last = link;
  atomic_fetch_add_explicit(&l->ready_count, 1, memory_order_release);
}

/* Makes a link of a guest that has proved itself. */
static void welcome(struct harp_listener *l, struct harp_meeting *m) {
  unwatch(l->engine, m->fd);
  l->guest_count--;
  struct harp_link *link = harp_meeting_link(m, l->engine, HARP_ROLE_RECEIVER, l->traffic_class);
  if (!link) return; /* said; the peer sees the connection closed and tries again */
  harp_link_tell_connected(link, &m->peer_addr);
  harp_listener_put_ready(l, link);
}

/* Our peer is not sent away while its CONFIRM may still be under way: it has as long as TCP may take to bring
 * our WELCOME there and that back. */
static harp_ns patience_ns(const struct harp_listener *l, const struct harp_meeting *m) {
  return HARP_GUEST_NS + (is_known(m) ? 2 * l->engine->instance.peer_timeout_ns : 0);
}

unsigned harp_listener_count_unaccepted(const struct harp_listener *l) {
  unsigned count = atomic_load_explicit(&l->ready_count, memory_order_relaxed);
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) count += l->guests[i].fd >= 0 && is_known(&l->guests[i]);
  return count;
}

static bool is_over(const struct harp_meeting *m, harp_ns now) {
  return now - m->since_ns > patience_ns(m->listener, m);
}

/* Says why a guest is not to be welcomed, of which is known now who it is; HARP_REFUSAL_NONE: it is. */
static enum harp_refusal judge(struct harp_listener *l, const struct harp_meeting *m, harp_ns now) {
  uint32_t engine_id = (uint32_t)(m->handshake.peer.token >> 32);
  struct harp_pairing paths[HARP_PATHS_MAX];
  if (harp_crossing_is_ours(l->engine, engine_id, l->traffic_class, now)) return HARP_REFUSAL_CROSSED;
  if (!harp_pairing_make(&m->handshake.peer, &m->handshake.local, paths)) return HARP_REFUSAL_PATHS;
  if (l->engine->link_count == HARP_ENGINE_LINKS_MAX) return HARP_REFUSAL_LIMIT;
  if (harp_listener_count_unaccepted(l) >= HARP_UNACCEPTED_MAX) return HARP_REFUSAL_BUSY;
  harp_crossing_yield(l->engine, engine_id, l->traffic_class);
  return HARP_REFUSAL_NONE;
}

/* Goes on with the handshake of a guest. */
static void guest_run(struct harp_meeting *m, harp_ns now) {
  struct harp_listener *l = m->listener;
  int err = harp_meeting_run(m);
  if (!err && m->handshake.state == HARP_HANDSHAKE_WAIT_ANSWER) {
    harp_handshake_answer(&m->handshake, judge(l, m, now));
    err = harp_meeting_run(m);
  }
  if (harp_meeting_done(m))
    welcome(l, m);
  else if (err || (m->handshake.state == HARP_HANDSHAKE_REFUSED && !harp_meeting_has_unsent(m)) ||
           is_over(m, now))
    turn_away(l, m, err);
}

struct harp_listener *harp_listener_of_port(const struct harp_engine *e, uint16_t port) {
  struct harp_listener *l = e->listeners;
  while (l && l->port != port) l = l->next;
  return l;
}

static void let_in(struct harp_listener *l, harp_ns now) {
  for (unsigned i = 0; i < ACCEPTS_PER_EVENT; i++) {
    struct sockaddr_storage from = {0};
    socklen_t n = sizeof from;
    int one = 1, fd = accept4(l->fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int err = fd < 0 ? errno : 0;
    set_deaf(l, err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS);
    if (l->deaf && err) tell_shortage(l, err);
    if (err) return; /* none waits; or the host is short of files or memory, which may pass */
    harp_files_own(fd);
    struct harp_meeting *m = guest_place(l);
    m->fd = fd;
    m->peer_addr = from;
    m->since_ns = now;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    harp_tcp_socket_set_timeouts(fd, l->engine->instance.peer_timeout_ns);
    l->guest_count++;
    err = watch(l->engine, fd, name_of_guest(m));
    if (!err) err = harp_meeting_start(m, l->engine, false, l->secret);
    if (!err)
      guest_run(m, now);
    else
      turn_away(l, m, err); /* the peer tries again */
  }
}

void harp_listeners_on_ready(uint64_t what, harp_ns now) {
  if (what & IS_LISTENER) {
    let_in((struct harp_listener *)(uintptr_t)(what - IS_LISTENER), now);
    return;
  }
  struct harp_meeting *m = (struct harp_meeting *)(uintptr_t)what;
  if (m->fd >= 0) guest_run(m, now); /* else it has made place for another since */
}

static void tend(struct harp_listener *l, harp_ns now) {
  if (l->deaf) let_in(l, now);
  for (unsigned i = 0; i < HARP_GUESTS_MAX && l->guest_count; i++) {
    struct harp_meeting *m = &l->guests[i];
    if (m->fd >= 0 && (harp_meeting_has_unsent(m) || is_over(m, now))) guest_run(m, now);
  }
}

void harp_listeners_tend(struct harp_engine *e, harp_ns now) {
  struct harp_listener *first = NULL;
  for (unsigned i = 0; i < TENDED_PER_CHECK; i++) {
    struct harp_listener *l = e->listener_turn ? e->listener_turn : e->listeners;
    if (!l || l == first) return;
    if (!first) first = l;
    e->listener_turn = l->next;
    tend(l, now);
  }
}

struct harp_link *harp_listener_poll(struct harp_listener *l) {
  struct harp_link *link = harp_listener_take(l);
  if (link)
    l->wait = (struct harp_stall_wait){0};
  else
    harp_stall_review_accept(l, l->engine->clock());
  return link;
}

struct harp_link *harp_listener_take(struct harp_listener *l) {
  if (!atomic_load_explicit(&l->ready_count, memory_order_acquire)) return NULL;
  harp_engine_lock(l->engine);
  struct harp_link *link = l->ready_first;
  if (link) {
    l->ready_first = link->next_ready;
    if (!l->ready_first) l->ready_last = NULL;
    link->next_ready = NULL;
    atomic_fetch_sub_explicit(&l->ready_count, 1, memory_order_relaxed);
  }
  harp_engine_unlock(l->engine);
  return link;
}

void harp_listener_close(struct harp_listener *l) {
  struct harp_link *link;
  while ((link = harp_listener_take(l))) harp_link_destroy(link);
  harp_engine_lock(l->engine);
  struct harp_listener **at = &l->engine->listeners;
  while (*at != l) at = &(*at)->next;
  *at = l->next;
  if (l->engine->listener_turn == l) l->engine->listener_turn = l->next;
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) guest_end(l, &l->guests[i]);
  unwatch(l->engine, l->fd);
  harp_engine_unlock(l->engine);
  while ((link = harp_listener_take(l))) harp_link_destroy(link); /* met while we waited for the lock */
  shutdown(l->fd, SHUT_RDWR);
  harp_files_close(l->fd);
  free(l);
}
