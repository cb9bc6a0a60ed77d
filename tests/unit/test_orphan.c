/* A rank that is killed while a child that it forked lives on (a data loader's worker): its peer must see it
 * die. */
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/crew.h"
#include "engine/meet.h"
#include "engine/net.h"

enum { LIMIT_S = 30, ENGINES = 80, FILES_MAX = 1024 };

static time_t seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec;
}

/* The rank to be killed: connects, forks its worker, tells, waits. Never returns. */
static void rank(int handle_fd, int ready_fd) {
  struct harp_context *ctx;
  struct harp_comm *comm = NULL;
  uint8_t handle[HARP_HANDLE_BYTES];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (harp_net_open(&ctx, -1) || read(handle_fd, handle, sizeof handle) != sizeof handle) _exit(1);
  while (!comm) {
    if (harp_net_connect(ctx, 0, handle, -1, &comm)) _exit(1);
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
  assert_int_equal(harp_net_listen(ctx, 0, handle, &listen), HARP_OK);
  assert_int_equal(write(v->handle_pipe[1], handle, sizeof handle), sizeof handle);
  while (!comm && seconds() < limit) assert_int_equal(harp_net_accept(listen, &comm), HARP_OK);
  assert_non_null(comm);
  assert_int_equal(read(v->ready_pipe[0], &worker, sizeof worker), sizeof worker);
  assert_int_equal(harp_net_receive(comm, data, sizeof data, &request), HARP_OK);
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
  static struct harp_crew crews[ENGINES];
  struct harp_listener *listeners[ENGINES];
  struct harp_handle handle;
  struct harp_instance instance = {.ifname = "lo",
                                   .mtu = 65536,
                                   .paths = 1,
                                   .peer_timeout_ns = HARP_SEC(10),
                                   .numa = -1,
                                   .mode = HARP_ENGINE_INLINE,
                                   .memory_bytes = 1 << 20};
  struct harp_engine_enis enis = {1, {&instance}};
  int status;
  ((struct sockaddr_in *)&instance.addr)->sin_family = AF_INET;
  ((struct sockaddr_in *)&instance.addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int sockets = count_sockets();
  for (unsigned i = 0; i < ENGINES; i++) {
    struct harp_engine *e = harp_crew_use(&crews[i], &enis, "delay");
    assert_non_null(e);
    assert_int_equal(harp_listener_open(&listeners[i], e, &handle), HARP_OK);
  }
  pid_t child = fork();
  if (child == 0) _exit(count_sockets() - sockets);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 0);
  for (unsigned i = 0; i < ENGINES; i++) {
    struct harp_engine *e = listeners[i]->engine;
    harp_listener_close(listeners[i]);
    harp_crew_drop(&crews[i], e);
  }
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
  assert_int_equal(harp_net_listen(ctx, 0, handle, &listen), HARP_OK);
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
      cmocka_unit_test(test_inline),
      cmocka_unit_test(test_thread),
      cmocka_unit_test(test_every_engines_sockets_are_closed),
      cmocka_unit_test(test_a_childs_own_files_are_left_alone),
  };
  return cmocka_run_group_tests(tests, start_victims, NULL);
}
