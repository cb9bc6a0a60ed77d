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
#include "base/files.h"
#include "base/log.h"
#include "host/random.h"

/* What one event of the control epoll may cost; what is left is an event again. */
enum { ACCEPTS_PER_EVENT = 4, READS_PER_EVENT = 4 };
enum { BACKLOG = 1024, TENDED_PER_CHECK = 4 /* listeners */ };
#define DIAL_RETRY_NS HARP_MS(50)
/* With several interfaces, an attempt from one that gets no answer for so long gives way to the next. */
#define DIAL_TURN_MIN_NS HARP_MS(100)
#define DIAL_TURN_MAX_NS HARP_SEC(1)
/* A connect waits so long for another's handshake with the same engine before it begins its own. */
#define DIAL_SHARE_NS HARP_MS(200)

static socklen_t address_bytes(const struct sockaddr_storage *a) {
  return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static uint16_t port_of(const struct sockaddr_storage *a) {
  return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                                        : ((const struct sockaddr_in *)a)->sin_port);
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
  int fd = socket(e->instance.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  harp_files_own(fd);
  return fd;
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
    harp_files_close(m->fd);
  }
  if (m->slot >= 0) harp_engine_release_slot(e, (uint32_t)m->slot);
  m->fd = m->slot = -1;
}

static bool has_unsent(const struct harp_meeting *m) {
  return m->handshake.out_sent < m->handshake.out_bytes;
}

/* Returns 0, or -errno when the connection broke. */
static int meeting_send(struct harp_meeting *m) {
  struct harp_handshake *h = &m->handshake;
  while (has_unsent(m)) {
    ssize_t n = send(m->fd, h->out + h->out_sent, h->out_bytes - h->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    h->out_sent += (uint32_t)n;
  }
  return 0;
}

/* Moves bytes both ways, but does not read for ever from a peer that goes on writing. Returns 0, or -errno
 * when the connection broke (-ECONNRESET at its end). */
static int meeting_run(struct harp_meeting *m) {
  struct harp_handshake *h = &m->handshake;
  uint8_t in[HARP_CONTROL_MAX_BYTES];
  int err = meeting_send(m);
  for (unsigned reads = 0; reads < READS_PER_EVENT && !err && !has_unsent(m); reads++) {
    size_t wants = harp_handshake_wants(h);
    if (!wants) break;
    ssize_t n = recv(m->fd, in, HARP_MIN(wants, sizeof in), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0) return -ECONNRESET;
    harp_handshake_on_bytes(h, in, (size_t)n);
    err = meeting_send(m);
  }
  return err;
}

static bool meeting_done(const struct harp_meeting *m) {
  return m->handshake.state == HARP_HANDSHAKE_DONE && !has_unsent(m);
}

static void tell_connected(const struct harp_link *link, const struct sockaddr_storage *addr) {
  link->engine->counters.connections++;
  char text[INET6_ADDRSTRLEN + 8];
  HARP_INFO("%s: connected %s %s, %u path(s), wire version %u (%s)", link->engine->name,
            link->role == HARP_ROLE_SENDER ? "to" : "from", link->peer->name, link->peer->route_count,
            HARP_WIRE_VERSION, address_text(addr, text));
}

static const char *link_hint(int err) {
  return err == -EMFILE ? "it has all the connections that it can have (4096); set NCCL_MAX_NCHANNELS lower"
                        : "no memory";
}

/* Turns a finished handshake into a peer with one link, of the client's first stream; socket and slot pass
 * over to it. Under the engine's lock. */
static struct harp_link *meeting_link(struct harp_meeting *m, struct harp_engine *e, enum harp_role role,
                                      int traffic_class) {
  bool is_client = role == HARP_ROLE_SENDER;
  const struct harp_endpoint *client = is_client ? &m->handshake.local : &m->handshake.peer;
  struct harp_peer_config config = {
      .is_client = is_client,
      .slot = (uint32_t)m->slot,
      .keys = m->handshake.keys,
      .control = m->handshake.control,
      .control_fd = m->fd,
      .local = &m->handshake.local,
      .peer = &m->handshake.peer,
      .peer_addr = m->peer_addr,
      .traffic_class = traffic_class,
  };
  struct harp_link_config first = {
      .role = role, .first_line = client->first_line, .first_message = client->first_message};
  struct harp_link *link = NULL;
  struct harp_peer *peer = harp_peer_create(e, &config);
  m->fd = -1;
  if (!peer) {
    meeting_end(m, e);
    HARP_WARN("no memory for the connection with %s", m->handshake.peer.name);
    return NULL;
  }
  m->slot = -1;
  int err = harp_link_create(&link, peer, &first);
  if (err) {
    HARP_WARN("%s: no connection with %s: %s", e->name, peer->name, link_hint(err));
    harp_peer_destroy(peer);
    return NULL;
  }
  tell_connected(link, &m->peer_addr);
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
  meeting_end(m, l->engine);
}

enum harp_status harp_listener_open(struct harp_listener **out, struct harp_engine *e,
                                    struct harp_handle *handle, int traffic_class) {
  struct sockaddr_storage a = e->instance.addr;
  socklen_t n = address_bytes(&a);
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
  l->fd = open_tcp(e);
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
  l->port = port_of(&a);
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
  if (m->handshake.refusal != HARP_REFUSAL_BUSY) return true;
  bool told = l->busy_told;
  l->busy_told = true;
  return !told;
}

static void turn_away(struct harp_listener *l, struct harp_meeting *m, int err) {
  char why[256], text[INET6_ADDRSTRLEN + 8];
  if (m->handshake.state == HARP_HANDSHAKE_REFUSED)
    refusal_text(&m->handshake, why, sizeof why);
  else
    snprintf(why, sizeof why, "%s", err ? strerror(-err) : "it did not prove the secret in time");
  if (is_worth_telling(l, m))
    HARP_INFO("%s: turned away a connection from %s: %s", l->engine->name, address_text(&m->peer_addr, text),
              why);
  l->engine->counters.handshake_refused++;
  guest_end(l, m);
}

/* Puts a link among those that wait for their accept. */
static void put_ready(struct harp_listener *l, struct harp_link *link) {
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
  struct harp_link *link = meeting_link(m, l->engine, HARP_ROLE_RECEIVER, l->traffic_class);
  if (link) put_ready(l, link); /* else said; the peer sees the connection closed and tries again */
}

/* Our peer must not be sent away while its CONFIRM is still under way, since it believes to be connected: so
 * it has as long as TCP may take to bring our WELCOME there and that back. */
static harp_ns patience_ns(const struct harp_listener *l, const struct harp_meeting *m) {
  return HARP_GUEST_NS + (is_known(m) ? 2 * l->engine->instance.peer_timeout_ns : 0);
}

/* Counts the links that wait for accept, and the guests that become links with their CONFIRM. */
static unsigned count_unaccepted(const struct harp_listener *l) {
  unsigned count = atomic_load_explicit(&l->ready_count, memory_order_relaxed);
  for (unsigned i = 0; i < HARP_GUESTS_MAX; i++) count += l->guests[i].fd >= 0 && is_known(&l->guests[i]);
  return count;
}

static bool is_over(const struct harp_meeting *m, harp_ns now) {
  return now - m->since_ns > patience_ns(m->listener, m);
}

/* Goes on with the handshake of a guest. */
static void guest_run(struct harp_meeting *m, harp_ns now) {
  struct harp_listener *l = m->listener;
  if (m->handshake.state == HARP_HANDSHAKE_WAIT_HELLO)
    m->handshake.is_busy = count_unaccepted(l) >= HARP_UNACCEPTED_MAX;
  int err = meeting_run(m);
  if (meeting_done(m))
    welcome(l, m);
  else if (err || (m->handshake.state == HARP_HANDSHAKE_REFUSED && !has_unsent(m)) || is_over(m, now))
    turn_away(l, m, err);
}

static struct harp_listener *listener_of_port(const struct harp_engine *e, uint16_t port) {
  struct harp_listener *l = e->listeners;
  while (l && l->port != port) l = l->next;
  return l;
}

/* Says why a stream is not to be opened; HARP_REFUSAL_NONE: it may be. */
static enum harp_refusal refuse_open(const struct harp_peer *peer, const struct harp_listener *l,
                                     const struct harp_open *open) {
  uint8_t proof[HARP_CONTROL_MAC_BYTES];
  if (!l) return HARP_REFUSAL_LISTENER;
  harp_control_prove_open(open, l->secret, peer->session.keys.tx_token, peer->session.keys.rx_token, proof);
  if (!harp_control_mac_equal(proof, open->proof)) return HARP_REFUSAL_SECRET;
  if (open->stream >= HARP_STREAMS_MAX) return HARP_REFUSAL_STREAM;
  return count_unaccepted(l) >= HARP_UNACCEPTED_MAX ? HARP_REFUSAL_BUSY : HARP_REFUSAL_NONE;
}

/* One that is refused as BUSY asks again soon: said once. */
static void tell_refused(struct harp_listener *l, const struct harp_peer *peer, enum harp_refusal refusal) {
  peer->engine->counters.handshake_refused++;
  if (refusal == HARP_REFUSAL_BUSY && l->busy_told) return;
  if (refusal == HARP_REFUSAL_BUSY) l->busy_told = true;
  HARP_INFO("%s: refused a connection of %s: it %s", peer->engine->name, peer->name,
            harp_refusal_text(refusal));
}

void harp_listeners_on_open(struct harp_peer *peer, const struct harp_open *open) {
  struct harp_engine *e = peer->engine;
  struct harp_listener *l = listener_of_port(e, open->port);
  struct harp_opened opened = {.stream = open->stream, .refusal = refuse_open(peer, l, open)};
  struct harp_link *link = NULL;
  if (peer->session.state != HARP_SESSION_OPEN) return;
  if (!opened.refusal) {
    struct harp_link_config config = {.role = HARP_ROLE_RECEIVER,
                                      .stream = open->stream,
                                      .first_line = open->first_line,
                                      .first_message = open->first_message};
    int err = harp_link_create(&link, peer, &config);
    if (err) opened.refusal = err == -EEXIST ? HARP_REFUSAL_STREAM : HARP_REFUSAL_LIMIT;
  }
  if (opened.refusal) tell_refused(l, peer, opened.refusal);
  bool told = harp_monitor_send_opened(peer, &opened);
  if (link && told) {
    put_ready(l, link);
    tell_connected(link, &peer->engine_addr);
  } else if (link) {
    harp_link_end(link);
  }
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
    harp_monitor_set_timeouts(fd, l->engine->instance.peer_timeout_ns);
    l->guest_count++;
    if (watch(l->engine, fd, name_of_guest(m)) || meeting_start(m, l->engine, false, l->secret))
      guest_end(l, m); /* the peer tries again */
    else
      guest_run(m, now);
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
    if (m->fd >= 0 && (has_unsent(m) || is_over(m, now))) guest_run(m, now);
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

/* ---- dialling ---- */

static void dial_end(struct harp_dial *d) {
  harp_engine_lock(d->engine);
  meeting_end(&d->meeting, d->engine);
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

/* Takes the dial out of those that wait for its peer. Under the lock. */
static void leave_peer(struct harp_dial *d) {
  if (!d->peer) return;
  struct harp_dial **at = &d->peer->dials;
  while (*at != d) at = &(*at)->next_of_peer;
  *at = d->next_of_peer;
  d->peer = NULL;
}

/* Asks a peer that there is to open a stream. Returns 0; -ENOENT: there is no such peer; -EMFILE, -ENOMEM.
 * Under the lock. */
static int ask_peer(struct harp_dial *d, harp_ns now) {
  struct {
    uint32_t first_line, first_message;
  } fresh;
  struct harp_peer *peer = harp_peer_find(d->engine, d->engine_id, &d->to, d->traffic_class);
  int stream = peer ? harp_link_free_stream(peer) : -1, err = harp_random_fill(&fresh, sizeof fresh);
  if (stream < 0 || err) return stream < 0 ? -ENOENT : err;
  struct harp_link_config config = {.role = HARP_ROLE_SENDER,
                                    .stream = (uint16_t)stream,
                                    .first_line = fresh.first_line,
                                    .first_message = fresh.first_message};
  struct harp_open open = {.stream = config.stream,
                           .port = port_of(&d->to),
                           .first_line = fresh.first_line,
                           .first_message = fresh.first_message};
  err = harp_link_create(&d->link, peer, &config);
  if (err) return err;
  harp_control_prove_open(&open, d->secret, peer->session.keys.rx_token, peer->session.keys.tx_token,
                          open.proof);
  d->is_open = false;
  d->refusal = HARP_REFUSAL_NONE;
  d->asked_ns = now;
  d->peer = peer;
  d->next_of_peer = peer->dials;
  peer->dials = d;
  if (!harp_monitor_send_open(peer, &open)) leave_peer(d); /* found as an answer that does not come */
  return 0;
}

void harp_dials_on_opened(struct harp_peer *peer, const struct harp_opened *opened) {
  struct harp_dial *d = peer->dials;
  while (d && d->link->tx->id != opened->stream) d = d->next_of_peer;
  if (!d) return; /* given up meanwhile */
  leave_peer(d);
  d->is_open = !opened->refusal;
  d->refusal = opened->refusal;
}

void harp_dials_forget(struct harp_peer *peer) {
  while (peer->dials) leave_peer(peer->dials);
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
  int err = ask_peer(d, now);
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
  if (d->is_refused_busy)
    HARP_WARN("%s: the peer at %s has refused to connect for %llu s: too many connections wait there for "
              "accept, and it accepts none",
              d->engine->name, address_text(&d->to, text),
              (unsigned long long)(d->engine->instance.peer_timeout_ns / HARP_SEC(1)));
  else
    HARP_WARN(
        "%s: cannot connect to the peer at %s for %llu s: %s; is its interface with that address up, and "
        "TCP allowed between the hosts?",
        d->engine->name, address_text(&d->to, text),
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
  char text[INET6_ADDRSTRLEN + 8];
  if (!d->is_refused_busy)
    HARP_INFO("%s: the peer at %s refuses to connect for now: too many connections wait there for accept; "
              "trying again",
              d->engine->name, address_text(&d->to, text));
  d->is_refused_busy = true;
}

/* Moves on with a stream that the peer was asked for: *link is set when it is open. */
static enum harp_status poll_open(struct harp_dial *d, struct harp_link **link, harp_ns now) {
  enum harp_status status = HARP_OK;
  char text[INET6_ADDRSTRLEN + 8];
  harp_engine_lock(d->engine);
  struct harp_link *asked = d->link;
  bool waits = d->peer != NULL;
  if (waits) { /* its process lives, or will be found dead */
    d->deadline_ns += now - d->asked_ns;
    d->asked_ns = now;
  } else {
    d->link = NULL;
  }
  if (!waits && d->is_open) tell_connected(asked, &d->to);
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
              address_text(&d->to, text), harp_refusal_text(d->refusal));
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
              err == -EMFILE || err == -ENOMEM ? link_hint(err) : strerror(-err));
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
  if (up > 0) up = meeting_run(m) ? -ECONNRESET : 1;
  if (up > 0 && meeting_done(m)) {
    harp_engine_lock(d->engine);
    *link = meeting_link(m, d->engine, HARP_ROLE_SENDER, d->traffic_class);
    d->met_ns = 0;
    harp_engine_unlock(d->engine);
    return *link ? HARP_OK : HARP_ERR_SYSTEM;
  }
  bool is_busy = is_busy_there(d);
  if (d->connected && m->handshake.state == HARP_HANDSHAKE_REFUSED && !is_busy) {
    char why[256], text[INET6_ADDRSTRLEN + 8];
    refusal_text(&m->handshake, why, sizeof why);
    HARP_WARN("%s: the handshake with the peer at %s failed: %s", d->engine->name, address_text(&d->to, text),
              why);
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
  leave_peer(d);
  if (d->link) harp_link_end(d->link);
  meeting_end(&d->meeting, e);
  harp_engine_unlock(e);
  free(d);
}
