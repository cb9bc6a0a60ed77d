#include "engine/meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "host/random.h"

enum { BACKLOG = 1024, ACCEPTS_PER_POLL = 16 };
#define DIAL_RETRY_NS HARP_MS(50)
/* With several interfaces, an attempt from one that gets no answer for so long gives way to the next. */
#define DIAL_TURN_MIN_NS HARP_MS(100)
#define DIAL_TURN_MAX_NS HARP_SEC(1)

static socklen_t address_bytes(const struct sockaddr_storage *a) {
  return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static const char *address_text(const struct sockaddr_storage *a, char text[INET6_ADDRSTRLEN + 8]) {
  char ip[INET6_ADDRSTRLEN] = "?";
  bool v6 = a->ss_family == AF_INET6;
  if (v6)
    inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)a)->sin6_addr, ip, sizeof ip);
  else
    inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, ip, sizeof ip);
  uint16_t port =
      ntohs(v6 ? ((const struct sockaddr_in6 *)a)->sin6_port : ((const struct sockaddr_in *)a)->sin_port);
  snprintf(text, INET6_ADDRSTRLEN + 8, v6 ? "[%s]:%u" : "%s:%u", ip, port);
  return text;
}

static int open_tcp(const struct harp_engine *e) {
  return socket(e->instance.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* ---- meetings ---- */

static void describe_eni(const struct harp_instance *instance, const struct harp_io_info *io,
                         struct harp_endpoint_eni *eni) {
  const struct sockaddr_storage *a = &instance->addr;
  eni->mtu = (uint16_t)HARP_MIN(instance->mtu, 65535);
  eni->speed_mbps = (uint32_t)instance->speed_mbps;
  eni->port_count = (uint16_t)io->port_count;
  memcpy(eni->ports, io->ports, sizeof eni->ports[0] * io->port_count);
  if (a->ss_family == AF_INET6) {
    eni->family = 6;
    memcpy(eni->addr, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
  } else {
    eni->family = 4;
    memcpy(eni->addr, &((const struct sockaddr_in *)a)->sin_addr, 4);
  }
}

static void describe_self(struct harp_engine *e, uint64_t token, const uint32_t first[3],
                          struct harp_endpoint *self) {
  *self = (struct harp_endpoint){
      .token = token,
      .first_line = first[0],
      .first_message = first[1],
      .first_number = first[2],
      .buffer_bytes = e->io->info.buffer_bytes,
      .eni_count = (uint16_t)e->eni_count,
      .pid = (uint32_t)getpid(),
  };
  for (unsigned i = 0; i < e->eni_count; i++) {
    describe_eni(&e->enis[i], &harp_engine_io(e, i)->info, &self->enis[i]);
    self->path_count = HARP_MAX(self->path_count, self->enis[i].port_count);
  }
  if (gethostname(self->name, sizeof self->name - 1)) snprintf(self->name, sizeof self->name, "unnamed host");
}

/* Makes a token: upper half the engine's, so that a driver can tell strangers' packets without looking for a
 * connection, then 16 random bits, then the slot. */
static uint64_t token_of(const struct harp_engine *e, uint16_t random, int slot) {
  HARP_ASSERT(slot >= 0 && slot < HARP_ENGINE_LINKS_MAX);
  return (uint64_t)e->token_prefix << 32 | (uint64_t)random << 16 | (uint64_t)slot;
}

/* Starts a handshake on a socket; reserves the slot that its token names. Under the engine's lock. Returns 0
 * or -errno. */
static int meeting_start(struct harp_meeting *m, struct harp_engine *e, bool client,
                         const uint8_t secret[HARP_SECRET_BYTES]) {
  struct {
    uint32_t first[3];
    uint8_t nonce[HARP_NONCE_BYTES];
    uint16_t token;
  } fresh;
  struct harp_endpoint self;
  int err = harp_random_fill(&fresh, sizeof fresh);
  if (err) return err;
  m->slot = harp_engine_reserve_slot(e);
  if (m->slot < 0) return -EMFILE;
  describe_self(e, token_of(e, fresh.token, m->slot), fresh.first, &self);
  harp_handshake_init(&m->handshake, client, secret, fresh.nonce, HARP_WIRE_VERSION_MIN, HARP_WIRE_VERSION,
                      &self);
  return 0;
}

/* Closes the socket and gives the slot back. Under the engine's lock. */
static void meeting_end(struct harp_meeting *m, struct harp_engine *e) {
  if (m->fd >= 0) {
    shutdown(m->fd, SHUT_RDWR);
    close(m->fd);
  }
  if (m->slot >= 0) harp_engine_release_slot(e, (uint32_t)m->slot);
  m->fd = m->slot = -1;
}

/* Moves bytes both ways as far as they go. Returns 0, or -errno when the connection broke (-ECONNRESET at its
 * end). */
static int meeting_run(struct harp_meeting *m) {
  struct harp_handshake *h = &m->handshake;
  uint8_t in[HARP_CONTROL_MAX_BYTES];
  for (;;) {
    while (h->out_sent < h->out_bytes) {
      ssize_t n = send(m->fd, h->out + h->out_sent, h->out_bytes - h->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
      h->out_sent += (uint32_t)n;
    }
    size_t wants = harp_handshake_wants(h);
    if (!wants) return 0;
    ssize_t n = recv(m->fd, in, HARP_MIN(wants, sizeof in), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0) return -ECONNRESET;
    harp_handshake_on_bytes(h, in, (size_t)n);
  }
}

static bool meeting_done(const struct harp_meeting *m) {
  return m->handshake.state == HARP_HANDSHAKE_DONE && m->handshake.out_sent == m->handshake.out_bytes;
}

/* Turns a finished handshake into a link; socket and slot pass over to it. Under the engine's lock. */
static struct harp_link *meeting_link(struct harp_meeting *m, struct harp_engine *e, enum harp_role role,
                                      int traffic_class) {
  struct harp_link_config config = {
      .role = role,
      .slot = (uint32_t)m->slot,
      .keys = m->handshake.keys,
      .control = m->handshake.control,
      .control_fd = m->fd,
      .local = &m->handshake.local,
      .peer = &m->handshake.peer,
      .peer_addr = m->peer_addr,
      .traffic_class = traffic_class,
  };
  struct harp_link *link = harp_link_create(e, &config);
  m->fd = -1;
  if (!link) {
    meeting_end(m, e);
    HARP_WARN("no memory for the connection with %s", m->handshake.peer.name);
    return NULL;
  }
  m->slot = -1;
  char text[INET6_ADDRSTRLEN + 8];
  HARP_INFO("%s: connected %s %s, %u path(s), wire version %u (%s)", e->name,
            role == HARP_ROLE_SENDER ? "to" : "from", link->peer, link->route_count, m->handshake.version,
            address_text(&m->peer_addr, text));
  return link;
}

static void refusal_text(const struct harp_handshake *h, char *text, size_t bytes) {
  enum harp_refusal why = h->refusal == HARP_REFUSAL_PEER ? h->peer_refusal : h->refusal;
  if (why == HARP_REFUSAL_VERSION)
    snprintf(text, bytes,
             "it speaks wire versions %u to %u, this plugin %u to %u: install the same libnccl-net.so on "
             "both hosts",
             h->peer_version_min, h->peer_version_max, h->version_min, h->version_max);
  else
    snprintf(text, bytes, "%s%s", h->refusal == HARP_REFUSAL_PEER ? "the peer says: " : "",
             harp_refusal_text(why));
}

/* ---- listening ---- */

/* Lets the socket end the runner's sleep, so that guests are looked after without delay. */
static void watch(struct harp_engine *e, int fd) {
  struct epoll_event ev = {.events = EPOLLIN, .data.u32 = HARP_CONTROL_MEETING};
  epoll_ctl(e->control_fd, EPOLL_CTL_ADD, fd, &ev);
}

/* Before the socket is closed or becomes a link's: a forked child's copy would keep it in the epoll set. */
static void unwatch(struct harp_engine *e, int fd) {
  epoll_ctl(e->control_fd, EPOLL_CTL_DEL, fd, NULL);
}

/* A socket whose accept fails stays ready: to wait for it would be to spin. It is tried again now and then.
 */
static void set_deaf(struct harp_listener *l, bool deaf) {
  if (l->deaf == deaf) return;
  l->deaf = deaf;
  if (deaf)
    unwatch(l->engine, l->fd);
  else
    watch(l->engine, l->fd);
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
  if (m->fd >= 0) unwatch(l->engine, m->fd);
  meeting_end(m, l->engine);
}

enum harp_status harp_listener_open(struct harp_listener **out, struct harp_engine *e,
                                    struct harp_handle *handle) {
  struct sockaddr_storage a = e->instance.addr;
  socklen_t n = address_bytes(&a);
  struct harp_listener *l = calloc(1, sizeof *l);
  if (!l) {
    HARP_WARN("%s: no memory for a listener", e->name);
    return HARP_ERR_SYSTEM;
  }
  l->engine = e;
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) l->guests[i].fd = l->guests[i].slot = -1;
  l->fd = open_tcp(e);
  int err = l->fd < 0 ? -errno : harp_random_fill(l->secret, sizeof l->secret);
  if (!err && (bind(l->fd, (struct sockaddr *)&a, n) || listen(l->fd, BACKLOG) ||
               getsockname(l->fd, (struct sockaddr *)&a, &n)))
    err = -errno;
  if (err) {
    HARP_WARN("%s: cannot listen for connections: %s%s", e->name, strerror(-err), files_hint(-err));
    if (l->fd >= 0) close(l->fd);
    free(l);
    return HARP_ERR_SYSTEM;
  }
  harp_handle_encode(handle, &a, l->secret);
  harp_engine_lock(e);
  watch(e, l->fd);
  l->next = e->listeners;
  e->listeners = l;
  harp_engine_unlock(e);
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

static void let_in(struct harp_listener *l, harp_ns now) {
  for (unsigned i = 0; i < ACCEPTS_PER_POLL; i++) {
    struct sockaddr_storage from = {0};
    socklen_t n = sizeof from;
    int one = 1, fd = accept4(l->fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int err = fd < 0 ? errno : 0;
    set_deaf(l, err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS);
    if (l->deaf) tell_shortage(l, err);
    if (err) return; /* none waits; or the host is short of files or memory, which may pass */
    struct harp_meeting *m = guest_place(l);
    m->fd = fd;
    m->peer_addr = from;
    m->since_ns = now;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    harp_monitor_set_timeouts(fd, l->engine->instance.peer_timeout_ns);
    watch(l->engine, fd);
    if (meeting_start(m, l->engine, false, l->secret)) guest_end(l, m);
  }
}

static void turn_away(struct harp_listener *l, struct harp_meeting *m, int err) {
  char why[256], text[INET6_ADDRSTRLEN + 8];
  if (m->handshake.state == HARP_HANDSHAKE_REFUSED)
    refusal_text(&m->handshake, why, sizeof why);
  else
    snprintf(why, sizeof why, "%s", err ? strerror(-err) : "it did not prove the secret in time");
  HARP_INFO("%s: turned away a connection from %s: %s", l->engine->name, address_text(&m->peer_addr, text),
            why);
  l->engine->counters.handshake_refused++;
  guest_end(l, m);
}

/* Puts a guest that has proved itself among those that wait for their accept. */
static void welcome(struct harp_listener *l, struct harp_meeting *m) {
  unwatch(l->engine, m->fd);
  struct harp_link *link = meeting_link(m, l->engine, HARP_ROLE_RECEIVER, -1);
  if (!link) return; /* said; the peer sees the connection closed and tries again */
  if (l->ready_last)
    l->ready_last->next_ready = link;
  else
    l->ready_first = link;
  l->ready_last = link;
  atomic_fetch_add_explicit(&l->ready_count, 1, memory_order_release);
}

/* Our peer must not be sent away while its CONFIRM is still under way, since it believes to be connected: so
 * it has as long as TCP may take to bring our WELCOME there and that back. */
static harp_ns patience_ns(const struct harp_listener *l, const struct harp_meeting *m) {
  return HARP_GUEST_NS + (is_known(m) ? 2 * l->engine->instance.peer_timeout_ns : 0);
}

static void listener_run(struct harp_listener *l, harp_ns now) {
  let_in(l, now);
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) {
    struct harp_meeting *m = &l->guests[i];
    if (m->fd < 0) continue;
    int err = meeting_run(m);
    bool sent = m->handshake.out_sent == m->handshake.out_bytes;
    if (meeting_done(m))
      welcome(l, m);
    else if (err || (m->handshake.state == HARP_HANDSHAKE_REFUSED && sent) ||
             now - m->since_ns > patience_ns(l, m))
      turn_away(l, m, err);
  }
}

void harp_listeners_run(struct harp_engine *e, harp_ns now) {
  for (struct harp_listener *l = e->listeners; l; l = l->next) listener_run(l, now);
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
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) guest_end(l, &l->guests[i]);
  unwatch(l->engine, l->fd);
  harp_engine_unlock(l->engine);
  while ((link = harp_listener_take(l))) harp_link_destroy(link); /* met while we waited for the lock */
  shutdown(l->fd, SHUT_RDWR);
  close(l->fd);
  free(l);
}

/* ---- dialling ---- */

static void dial_end(struct harp_dial *d) {
  harp_engine_lock(d->engine);
  meeting_end(&d->meeting, d->engine);
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
  m->fd = open_tcp(d->engine);
  if (m->fd < 0) {
    d->last_errno = errno;
    return;
  }
  setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(m->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (bind(m->fd, (struct sockaddr *)&from, address_bytes(&from)) ||
      (connect(m->fd, (struct sockaddr *)&d->to, address_bytes(&d->to)) && errno != EINPROGRESS)) {
    d->last_errno = errno;
    dial_end(d);
  }
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
  char text[INET6_ADDRSTRLEN + 8];
  if (d->to.ss_family != e->instance.addr.ss_family) {
    HARP_WARN("the peer listens on %s, but %s has an IPv%d address: configure the same family on all hosts",
              address_text(&d->to, text), e->name, e->instance.addr.ss_family == AF_INET6 ? 6 : 4);
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
  d->deadline_ns = e->clock() + e->instance.peer_timeout_ns;
  dial_start(d);
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
  err = meeting_start(&d->meeting, d->engine, true, d->secret);
  harp_engine_unlock(d->engine);
  if (err) return err;
  harp_monitor_set_timeouts(d->meeting.fd, d->engine->instance.peer_timeout_ns);
  d->connected = true;
  d->connected_ns = d->engine->clock();
  return 1;
}

static enum harp_status dial_fail(struct harp_dial *d) {
  char text[INET6_ADDRSTRLEN + 8];
  HARP_WARN("%s: cannot connect to the peer at %s for %llu s: %s; is its interface with that address up, and "
            "TCP allowed between the hosts?",
            d->engine->name, address_text(&d->to, text),
            (unsigned long long)(d->engine->instance.peer_timeout_ns / HARP_SEC(1)),
            d->last_errno ? strerror(d->last_errno) : "no answer");
  return HARP_ERR_REMOTE;
}

enum harp_status harp_dial_poll(struct harp_dial *d, struct harp_link **link) {
  struct harp_meeting *m = &d->meeting;
  harp_ns now = d->engine->clock();
  *link = NULL;
  if (m->fd < 0) {
    if (now >= d->deadline_ns) return dial_fail(d);
    if (now >= d->retry_ns) dial_start(d);
    if (m->fd < 0 && now >= d->retry_ns) d->retry_ns = now + DIAL_RETRY_NS;
    return HARP_OK;
  }
  int up = dial_connected(d);
  if (up > 0) up = meeting_run(m) ? -ECONNRESET : 1;
  if (up > 0 && meeting_done(m)) {
    harp_engine_lock(d->engine);
    *link = meeting_link(m, d->engine, HARP_ROLE_SENDER, d->traffic_class);
    harp_engine_unlock(d->engine);
    return *link ? HARP_OK : HARP_ERR_SYSTEM;
  }
  if (d->connected && m->handshake.state == HARP_HANDSHAKE_REFUSED) {
    char why[256], text[INET6_ADDRSTRLEN + 8];
    refusal_text(&m->handshake, why, sizeof why);
    HARP_WARN("%s: the handshake with the peer at %s failed: %s", d->engine->name, address_text(&d->to, text),
              why);
    return HARP_ERR_REMOTE;
  }
  if (up < 0) { /* refused, unreachable, or the listener was overrun: try again for a while */
    d->last_errno = -up;
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
  dial_end(d);
  free(d);
}
