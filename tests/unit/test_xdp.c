/* The xdp driver on the loopback of a network namespace of its own: which queue it takes, and how long it
 * waits for one that is being let go. Packets move in tests/lab. Needs root; skipped without. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"
#include "io/nic.h"
#include "io/xdp_socket.h"
#include "lib/netns.h"

enum { LO = NETNS_LO, HELD_POLLS = 30, POLL_MS = 1, PATIENCE_MS = 5000, RX_FRAMES = 64, TX_RUNS = 4 };

static bool has_namespace;
static struct harp_counters counters;

static int enter(void **state) {
  (void)state;
  has_namespace = netns_enter();
  return 0;
}

static int try_open(struct harp_io **io, uint8_t **frames, enum harp_io_xdp_mode mode, char error[640]) {
  struct sockaddr_storage addr = {.ss_family = AF_INET};
  ((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct harp_io_config config = {
      .addr = &addr,
      .port_count = 1,
      .counters = &counters,
      .xdp_mode = mode,
      .ifindex = LO,
      .mtu = 1500,
  };
  config.frames_bytes = (size_t)harp_align_up(harp_io_xdp.frames_bytes(&config), 4096);
  config.frames = *frames = aligned_alloc(4096, config.frames_bytes);
  assert_non_null(*frames);
  *io = NULL;
  return harp_io_xdp.open(io, &config, error, 640);
}

static void close_it(struct harp_io *io, uint8_t *frames) {
  if (io) io->ops->close(io);
  free(frames);
}

static uint32_t program_on_lo(void) {
  uint32_t id;
  return harp_nic_xdp_program(LO, true, &id) ? 0 : id;
}

/* Takes queue 0 of loopback; what an earlier test closed may still be on its way out. */
static bool take_queue(struct harp_xdp_socket *s) {
  size_t bytes = harp_xdp_queue_umem_bytes(RX_FRAMES, TX_RUNS);
  struct harp_xdp_socket_config config = {
      .ifindex = LO, .umem = aligned_alloc(4096, bytes), .rx_frames = RX_FRAMES, .tx_runs = TX_RUNS};
  char error[200];
  int err = config.umem ? -EBUSY : -ENOMEM;
  for (int i = 0; err == -EBUSY && i < PATIENCE_MS; i++) {
    err = harp_xdp_socket_open(s, &config, error, sizeof error);
    if (err) (void)poll(NULL, 0, POLL_MS);
  }
  return !err;
}

/* A process that has queue 0. It lets go when a program has been on loopback for some milliseconds: then
 * whoever attached it has found the queue taken. */
static pid_t start_holder(bool lets_go) {
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    struct harp_xdp_socket s;
    if (!take_queue(&s) || write(ready[1], "r", 1) != 1) _exit(1);
    for (int i = 0, seen = 0; i < PATIENCE_MS && (seen < HELD_POLLS || !lets_go); i++) {
      (void)poll(NULL, 0, POLL_MS);
      seen += program_on_lo() != 0;
    }
    _exit(0);
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

static void end_holder(pid_t child) {
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_loopback_has_generic_mode(void **state) {
  (void)state;
  char error[640] = "";
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  int err = try_open(&io, &frames, HARP_IO_XDP_ANY, error);
  if (err) fail_msg("open: %d %s", err, error);
  assert_string_equal(io->info.rung, "xdp generic copy");
  assert_string_equal(io->info.queues, "queue 0");
  assert_non_null(strstr(io->info.why_not, "xdp native copy: attaching a native XDP program"));
  assert_true(program_on_lo() != 0);
  close_it(io, frames);
  assert_int_equal(program_on_lo(), 0);
}

/* As when a job follows another. */
static void test_a_queue_that_is_being_let_go_is_waited_for(void **state) {
  (void)state;
  char error[640] = "";
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  pid_t holder = start_holder(true);
  int err = try_open(&io, &frames, HARP_IO_XDP_COPY, error);
  if (err) fail_msg("open: %d %s", err, error);
  assert_string_equal(io->info.queues, "queue 0");
  close_it(io, frames);
  end_holder(holder);
}

static void test_a_queue_that_stays_taken_is_an_error(void **state) {
  (void)state;
  char error[640] = "";
  struct harp_io *io;
  uint8_t *frames;
  if (!has_namespace) skip();
  pid_t holder = start_holder(false);
  assert_int_equal(try_open(&io, &frames, HARP_IO_XDP_COPY, error), -EBUSY);
  assert_non_null(strstr(error, "xdp generic copy: other processes have all 1 queues"));
  assert_int_equal(program_on_lo(), 0);
  close_it(NULL, frames);
  end_holder(holder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_loopback_has_generic_mode),
      cmocka_unit_test(test_a_queue_that_is_being_let_go_is_waited_for),
      cmocka_unit_test(test_a_queue_that_stays_taken_is_an_error),
  };
  return cmocka_run_group_tests(tests, enter, NULL);
}
