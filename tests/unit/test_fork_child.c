/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that is killed while a child that it forked lives on (a data loader's worker): its peer must see it
 * die. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/address.h"
#include "engine/control/connect.h"
#include "engine/control/listener.h"
#include "engine/engine_open.h"
#include "lib/accepted.h"
#include "lib/loopback.h"
#include "net/device_engines.h"
#include "net/net.h"

enum { LIMIT_S = 30, ENGINES = 80, FILES_MAX = 1024 };
/* How soon the death of a process must be seen. The soonest of some tries counts: the machine may be slow. */
enum { PROMISED_MS = 1000, TRIES = 3, GONE_MS = 10000 };

static time_t seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec;
}

/* The rank to be killed: connects, forks its worker, reports, waits. Never returns. */
static void rank(int handle_fd, int ready_fd) {
  struct harp_context *ctx;
  struct harp_comm *comm = NULL;
  uint8_t handle[HARP_HANDLE_BYTES];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (harp_net_open(&ctx, -1) || read(handle_fd, handle, sizeof handle) != sizeof handle) _exit(1);
  while (!comm) {
    if (harp_net_connect(ctx, 0, handle, HARP_HANDLE_BYTES, -1, &comm)) _exit(1);
  }
  pid_t worker = fork();
  if (worker == 0) {
    alarm(2 * LIMIT_S);
    for (;;) pause();
  }
  if (write(ready_fd, &worker, sizeof worker) != sizeof worker) _exit(1);
  for (;;) pause();
}

/* Forked before this process is one that has initialised, whose children may not. */
struct victim {
  const char *engine;
  pid_t pid;
  int handle_pipe[2], ready_pipe[2];
};
static struct victim victims[] = {{.engine = "inline"}, {.engine = "thread"}};

static int start_victims(void **state) {
  (void)state;
  setenv("HARP_IFNAME", "=lo", 1);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(victims); i++) {
    struct victim *v = &victims[i];
    if (pipe(v->handle_pipe) || pipe(v->ready_pipe)) return -1;
    setenv("HARP_ENGINE", v->engine, 1);
    v->pid = fork();
    if (v->pid < 0) return -1;
    if (v->pid == 0) rank(v->handle_pipe[0], v->ready_pipe[1]);
  }
  return 0;
}

static void killed_with_a_worker(const struct victim *v) {
  pid_t worker;
  setenv("HARP_ENGINE", v->engine, 1);
  struct harp_context *ctx;
  struct harp_listen *listen;
  struct harp_comm *comm = NULL;
  struct harp_request *request;
  uint8_t handle[HARP_HANDLE_BYTES];
  static uint8_t data[4096];
  time_t limit = seconds() + LIMIT_S;
  assert_int_equal(harp_net_open(&ctx, -1), HARP_OK);
  assert_int_equal(harp_net_listen(ctx, 0, handle, HARP_HANDLE_BYTES, &listen), HARP_OK);
  assert_int_equal(write(v->handle_pipe[1], handle, sizeof handle), sizeof handle);
  while (!comm && seconds() < limit) assert_int_equal(harp_net_accept(listen, &comm), HARP_OK);
  assert_non_null(comm);
  assert_int_equal(read(v->ready_pipe[0], &worker, sizeof worker), sizeof worker);
  assert_int_equal(harp_net_receive(comm, data, sizeof data, false, &request), HARP_OK);
  bool done = false;
  size_t bytes;
  assert_int_equal(harp_net_test(request, &done, &bytes), HARP_OK);
  kill(v->pid, SIGKILL);
  enum harp_status status = HARP_OK;
  while (!status && !done && seconds() < limit) status = harp_net_test(request, &done, &bytes);
  int worker_lived = kill(worker, 0) == 0;
  kill(worker, SIGKILL);
  waitpid(v->pid, NULL, 0);
  assert_true(worker_lived);
  assert_int_equal(status, HARP_ERR_REMOTE);
  harp_net_close_comm(comm);
  harp_net_close_listen(listen);
  harp_net_close(ctx);
}

static void test_inline(void **state) {
  (void)state;
  killed_with_a_worker(&victims[0]);
}
static void test_thread(void **state) {
  (void)state;
  killed_with_a_worker(&victims[1]);
}

static int count_sockets(void) {
  struct stat about;
  int count = 0;
  for (int fd = 0; fd < FILES_MAX; fd++) count += !fstat(fd, &about) && S_ISSOCK(about.st_mode);
  return count;
}

/* The listener's and the driver's. More engines than there are devices: some have several. */
static void test_every_engines_sockets_are_closed(void **state) {
  (void)state;
  static struct harp_device_engines devices[ENGINES];
  struct harp_listener *listeners[ENGINES];
  struct harp_handle handle;
  struct harp_instance instance = loopback_instance();
  struct harp_engine_enis enis = {1, {&instance}};
  int status;
  instance.mode = HARP_ENGINE_INLINE;
  instance.memory_bytes = 1 << 20;
  int sockets = count_sockets();
  for (unsigned i = 0; i < ENGINES; i++) {
    struct harp_engine *e = harp_device_engines_use(&devices[i], &enis, NULL);
    assert_non_null(e);
    assert_int_equal(harp_listener_open(&listeners[i], e, &handle, HARP_HANDLE_BYTES, -1), HARP_OK);
  }
  pid_t child = fork();
  if (child == 0) _exit(count_sockets() - sockets);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 0);
  for (unsigned i = 0; i < ENGINES; i++) {
    struct harp_engine *e = listeners[i]->engine;
    harp_listener_close(listeners[i]);
    harp_device_engines_drop(&devices[i], e);
  }
}

/* ---- forks in the middle of a handshake, whose other side is played by hand ---- */

/* How far the handshake is when the victim forks. */
enum step { AT_OPEN, AT_TCP, AT_HELLO, AT_WELCOME, AT_CONFIRM, STEP_COUNT };

/* A process that takes commands of one byte, and answers each with a number. */
struct puppet {
  pid_t pid;
  int wire; /* to it */
};

/* In the puppet. */
struct rig {
  struct harp_device_engines device;
  struct harp_engine *engine;
  struct harp_listener *listener;
  struct harp_connect *connect;
  struct harp_link *link;
};

static bool has_pending(struct rig *r) {
  bool found = false;
  harp_engine_lock(r->engine);
  for (unsigned i = 0; i < r->listener->place_count; i++) found |= r->listener->pending[i]->fd >= 0;
  harp_engine_unlock(r->engine);
  return found;
}

/* Returns whether it was done; what must happen by itself is tried again until it has. */
static bool obey(struct rig *r, char order) {
  switch (order) {
  case 'g': /* TCP is up */
    return has_pending(r);
  case 'r': /* the handshake is done */
    return atomic_load(&r->listener->ready_count) > 0;
  case 't':
    return (r->link = take_accepted(r->listener));
  case 'p':
    return harp_connect_poll(r->connect, &r->link) == HARP_OK;
  case 'c':
    return harp_connect_poll(r->connect, &r->link) == HARP_OK && r->link;
  default:
    return false;
  }
}

/* Returns when it runs. */
static int fork_worker(void) {
  char byte = 0;
  int runs[2];
  if (pipe(runs)) return -1;
  pid_t worker = fork();
  if (worker) return read(runs[0], &byte, 1) == 1 ? worker : -1;
  alarm(2 * LIMIT_S);
  (void)!write(runs[1], &byte, 1);
  for (;;) pause();
}

/* Never returns. `handle`: to connect to; NULL: to listen, and answer with the handle. */
static void be_puppet(int wire, const struct harp_handle *handle) {
  static struct rig r;
  struct harp_instance instance = loopback_instance();
  struct harp_handle own;
  char order;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  instance.mode = HARP_ENGINE_INLINE;
  instance.peer_timeout_ns = HARP_SEC(LIMIT_S);
  instance.memory_bytes = 1 << 20;
  r.engine = harp_device_engines_use(&r.device, &(struct harp_engine_enis){1, {&instance}}, NULL);
  if (!r.engine) _exit(1);
  if (handle ? harp_connect_open(&r.connect, r.engine, handle, HARP_HANDLE_BYTES, -1)
             : harp_listener_open(&r.listener, r.engine, &own, HARP_HANDLE_BYTES, -1))
    _exit(1);
  if (!handle && write(wire, &own, sizeof own) != sizeof own) _exit(1);
  while (read(wire, &order, 1) == 1) {
    int answer = order == 'f' ? fork_worker() : 1;
    while (order != 'f' && !obey(&r, order)) usleep(100);
    if (write(wire, &answer, sizeof answer) != sizeof answer) _exit(1);
  }
  _exit(1);
}

static struct puppet start_puppet(const struct harp_handle *handle) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  pid_t pid = fork();
  if (pid == 0) be_puppet(pair[1], handle);
  close(pair[1]);
  return (struct puppet){pid, pair[0]};
}

static int send_order(const struct puppet *p, char order) {
  int answer = 0;
  struct pollfd answered = {.fd = p->wire, .events = POLLIN};
  assert_int_equal(write(p->wire, &order, 1), 1);
  assert_int_equal(poll(&answered, 1, LIMIT_S * 1000), 1);
  assert_int_equal(read(p->wire, &answer, sizeof answer), sizeof answer);
  return answer;
}

/* The other side. */
struct hand {
  int listen_fd, fd;
  struct harp_handle handle;
  struct harp_handshake handshake;
};

static void begin(struct hand *h, bool client) {
  static const uint8_t nonce[HARP_NONCE_BYTES] = {1, 2, 3};
  struct harp_endpoint self = {
      .token = 7,
      .window_bytes = 65536,
      .path_count = 1,
      .eni_count = 1,
      .enis = {{.family = 4, .addr = {127, 0, 0, 1}, .mtu = 65535, .port_count = 1, .ports = {9}}},
      .name = "hand"};
  harp_handshake_init(&h->handshake, client, h->handle.secret, nonce, HARP_WIRE_VERSION_MIN,
                      HARP_WIRE_VERSION, &self);
}

static void send_handshake(struct hand *h) {
  struct harp_handshake *s = &h->handshake;
  ssize_t bytes = s->out_bytes - s->out_sent;
  assert_true(bytes > 0);
  assert_int_equal(send(h->fd, s->out + s->out_sent, (size_t)bytes, 0), bytes);
  s->out_sent = s->out_bytes;
}

static void receive_handshake(struct hand *h, enum harp_handshake_state until) {
  uint8_t in[HARP_CONTROL_MAX_BYTES];
  while (h->handshake.state != until) {
    ssize_t n = recv(h->fd, in, harp_handshake_wants(&h->handshake), 0);
    assert_true(n > 0);
    harp_handshake_on_bytes(&h->handshake, in, (size_t)n);
    if (h->handshake.state == HARP_HANDSHAKE_WAIT_ANSWER)
      harp_handshake_answer(&h->handshake, HARP_REFUSAL_NONE);
  }
}

/* What shows a client that the handshake is done here too. */
static void send_pong(struct hand *h) {
  uint8_t pong[HARP_CONTROL_PING_BYTES];
  size_t bytes = harp_control_encode_pong(pong, h->handshake.control.tx, 0);
  assert_int_equal(send(h->fd, pong, bytes, 0), bytes);
}

static int connect_by_hand(const struct harp_handle *handle) {
  struct harp_contact to;
  struct harp_error error = {0};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(fd >= 0 && harp_handle_decode(handle, HARP_HANDLE_BYTES, &to, &error));
  if (!connect(fd, (struct sockaddr *)&to.at[0], sizeof(struct sockaddr_in))) return fd;
  close(fd);
  return -1;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Kills the puppet, whose worker lives on: our connection with it must end. Returns whether soon. */
static bool seen_to_die(const struct puppet *p, pid_t worker, int fd) {
  struct pollfd ended = {.fd = fd, .events = POLLIN};
  char byte;
  int64_t begin = now_ms();
  kill(p->pid, SIGKILL);
  int seen = poll(&ended, 1, GONE_MS);
  bool soon = now_ms() - begin <= PROMISED_MS;
  int worker_lived = kill(worker, 0) == 0;
  kill(worker, SIGKILL);
  waitpid(p->pid, NULL, 0);
  assert_true(worker_lived);
  assert_int_equal(seen, 1);
  assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0);
  close(fd);
  close(p->wire);
  return soon;
}

static bool listens_and_forks(enum step step) {
  struct puppet p = start_puppet(NULL);
  struct hand h = {.listen_fd = -1};
  pid_t worker = 0;
  assert_int_equal(read(p.wire, &h.handle, sizeof h.handle), sizeof h.handle);
  if (step == AT_OPEN) worker = send_order(&p, 'f');
  h.fd = connect_by_hand(&h.handle);
  assert_true(h.fd >= 0);
  send_order(&p, 'g');
  if (step == AT_TCP) worker = send_order(&p, 'f');
  begin(&h, true);
  ssize_t part = 30; /* more than a header, less than a HELLO */
  assert_int_equal(send(h.fd, h.handshake.out, (size_t)part, 0), part);
  h.handshake.out_sent = (uint32_t)part;
  if (step == AT_HELLO) worker = send_order(&p, 'f');
  send_handshake(&h);
  receive_handshake(&h, HARP_HANDSHAKE_DONE);
  if (step == AT_WELCOME) worker = send_order(&p, 'f');
  send_handshake(&h);
  send_order(&p, 'r');
  if (step == AT_CONFIRM) worker = send_order(&p, 'f');
  send_order(&p, 't');
  bool soon = seen_to_die(&p, worker, h.fd);
  assert_int_equal(connect_by_hand(&h.handle), -1); /* nor does the worker listen */
  return soon;
}

static bool connects_and_forks(enum step step) {
  struct hand h = {.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  struct sockaddr_storage at = {.ss_family = AF_INET};
  socklen_t n = sizeof(struct sockaddr_in);
  pid_t worker = 0;
  ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  assert_int_equal(bind(h.listen_fd, (struct sockaddr *)&at, n), 0);
  assert_int_equal(listen(h.listen_fd, 1), 0);
  assert_int_equal(getsockname(h.listen_fd, (struct sockaddr *)&at, &n), 0);
  const struct harp_contact contact = {.port = harp_address_port(&at), .count = 1, .at = {at}, .secret = {9}};
  harp_handle_encode(&h.handle, HARP_HANDLE_BYTES, &contact);
  struct puppet p = start_puppet(&h.handle);
  h.fd = accept(h.listen_fd, NULL, NULL);
  assert_true(h.fd >= 0);
  close(h.listen_fd);
  begin(&h, false);
  if (step <= AT_TCP) worker = send_order(&p, 'f');
  send_order(&p, 'p');
  receive_handshake(&h, HARP_HANDSHAKE_WAIT_CONFIRM);
  if (step == AT_HELLO) worker = send_order(&p, 'f');
  send_handshake(&h);
  if (step == AT_WELCOME) worker = send_order(&p, 'f');
  send_pong(&h);
  send_order(&p, 'c');
  if (step == AT_CONFIRM) worker = send_order(&p, 'f');
  receive_handshake(&h, HARP_HANDSHAKE_DONE);
  uint8_t ping[HARP_CONTROL_PING_BYTES];
  assert_int_equal(recv(h.fd, ping, sizeof ping, MSG_WAITALL), sizeof ping);
  return seen_to_die(&p, worker, h.fd);
}

static void assert_soon(bool (*forks_at)(enum step), enum step step) {
  for (int i = 0; i < TRIES; i++)
    if (forks_at(step)) return;
  fail_msg("forked at step %d: its death is not seen within %d ms", step, PROMISED_MS);
}

static void test_forks_while_it_is_connected_to(void **state) {
  (void)state;
  for (enum step step = AT_OPEN; step < STEP_COUNT; step++) assert_soon(listens_and_forks, step);
}

static void test_forks_while_it_connects(void **state) {
  (void)state;
  for (enum step step = AT_TCP; step < STEP_COUNT; step++) assert_soon(connects_and_forks, step);
}

static int count_files(void) {
  int count = 0;
  for (int fd = 0; fd < FILES_MAX; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

/* It gives them the numbers that ours had, and forks a child in turn. */
static void test_a_childs_own_files_are_left_alone(void **state) {
  (void)state;
  struct harp_context *ctx;
  struct harp_listen *listen;
  uint8_t handle[HARP_HANDLE_BYTES];
  int status;
  assert_int_equal(harp_net_open(&ctx, -1), HARP_OK);
  assert_int_equal(harp_net_listen(ctx, 0, handle, HARP_HANDLE_BYTES, &listen), HARP_OK);
  pid_t child = fork();
  if (child == 0) {
    for (int fd = 0; fd < FILES_MAX; fd++)
      if (fcntl(fd, F_GETFD) < 0) (void)!dup2(0, fd);
    int files = count_files();
    pid_t grandchild = fork();
    if (grandchild == 0) _exit(files - count_files());
    (void)waitpid(grandchild, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 0);
  harp_net_close_listen(listen);
  harp_net_close(ctx);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      /* First: they fork from a process that has not initialised. */
      cmocka_unit_test(test_forks_while_it_is_connected_to),
      cmocka_unit_test(test_forks_while_it_connects),
      cmocka_unit_test(test_inline),
      cmocka_unit_test(test_thread),
      cmocka_unit_test(test_every_engines_sockets_are_closed),
      cmocka_unit_test(test_a_childs_own_files_are_left_alone),
  };
  return cmocka_run_group_tests(tests, start_victims, NULL);
}
