/* SPDX-License-Identifier: Apache-2.0 */
/* Inquiries: what an engine asks the kernel of a peer whose control connection is silent or lost. */
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/address.h"
#include "engine/control/inquiry.h"
#include "engine/control/monitor.h"
#include "engine/pass.h"
#include "lib/control_scene.h"

#define PASS_NS HARP_US(500) /* between two passes */

/* While its kernel accepts connections it is only stopped. Once that refuses, it has ended, unless the
 * control connection works. It is the same for who waits for a message as for who sends one. */
static void check_inquiry(enum harp_role role, bool is_lost) {
  struct scene s;
  int listener = scene_listen();
  scene_open_with(&s, role, 2);
  if (is_lost) harp_monitor_set_lost(s.link->peer);
  scene_submit(s.link);
  scene_run_for(&s, HARP_SEC(1), PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_true(s.link->peer->inquiry.next_ns);
  close(listener);
  harp_ns start_ns = scene_now_ns;
  scene_run_for(&s, HARP_SEC(3), PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), is_lost ? HARP_ERR_REMOTE : HARP_OK);
  if (is_lost) assert_non_null(strstr(s.link->error, "its process has ended"));
  if (is_lost) assert_in_range(scene_now_ns - start_ns, HARP_INQUIRY_REFUSED_NS, HARP_SEC(1));
  scene_close(&s);
  scene_peer_tcp_port = 0;
}

static void test_a_quiet_peers_host_is_asked(void **state) {
  (void)state;
  for (int is_lost = 0; is_lost < 2; is_lost++) {
    check_inquiry(HARP_ROLE_SENDER, is_lost);
    check_inquiry(HARP_ROLE_RECEIVER, is_lost);
  }
}

/* A process that is only stopped is asked over one connection at a time, however many interfaces it has. */
static void test_who_accepts_is_asked_once(void **state) {
  (void)state;
  struct scene s;
  int listener = scene_listen();
  unsigned count = 0;
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  assert_int_equal(s.link->peer->remote_eni_count, 2);
  scene_submit(s.link);
  scene_run_for(&s, HARP_SEC(3), PASS_NS);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_int_equal(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
  for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; count++) close(fd);
  assert_in_range(count, 3, HARP_SEC(3) / HARP_INQUIRY_AGAIN_NS);
  close(listener);
  scene_close(&s);
  scene_peer_tcp_port = 0;
}

/* Its network, or its host, answers nothing: what tracks flows remembers each connection for two minutes. */
static void test_who_does_not_answer_is_asked_ever_more_rarely(void **state) {
  (void)state;
  enum { FILLERS = 4 };
  struct scene s;
  int listener = scene_listen(), fillers[FILLERS];
  struct sockaddr_storage to = harp_address_make(4, (const uint8_t[]){127, 0, 0, 1}, scene_peer_tcp_port, 0);
  assert_int_equal(listen(listener, 0), 0);
  for (unsigned i = 0; i < FILLERS; i++) { /* the kernel drops further connections without an answer */
    fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)connect(fillers[i], (const struct sockaddr *)&to, harp_address_bytes(&to));
  }
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  harp_monitor_set_lost(s.link->peer);
  scene_submit(s.link);
  unsigned begun = 0;
  bool was_asking = false;
  for (harp_ns end = scene_now_ns + SCENE_PEER_TIMEOUT_NS - HARP_MS(500); scene_now_ns < end;
       scene_now_ns += PASS_NS) {
    harp_engine_pass(s.engine);
    begun += s.link->peer->inquiry.is_asking && !was_asking;
    was_asking = s.link->peer->inquiry.is_asking;
  }
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  assert_in_range(begun, 3, 5); /* after 0, 1, 2.5 and 5 s */
  for (unsigned i = 0; i < FILLERS; i++) close(fillers[i]);
  close(listener);
  scene_close(&s);
  scene_peer_tcp_port = 0;
}

/* The kernel of a process that ends with bytes that it did not read resets the control connection, as a
 * firewall may. Where the kernel refuses connections as well the process has ended. */
static void test_a_reset_is_asked_about(void **state) {
  (void)state;
  for (unsigned role = 0; role < 2; role++) {
    struct scene s;
    int listener = scene_listen();
    scene_peer_answer_port = scene_peer_tcp_port;
    scene_peer_tcp_port = 0;
    scene_open_with(&s, role ? HARP_ROLE_SENDER : HARP_ROLE_RECEIVER, 2);
    scene_submit(s.link);
    scene_run_for(&s, HARP_SEC(1), PASS_NS); /* a PING waits to be read */
    close(s.peer);
    s.peer = -1;
    scene_run_for(&s, HARP_SEC(1), PASS_NS);
    assert_true(s.link->peer->monitor.lost);
    assert_int_equal(atomic_load(&s.link->status), HARP_OK);
    close(listener);
    harp_ns start_ns = scene_now_ns;
    scene_run_for(&s, HARP_SEC(3), PASS_NS);
    assert_int_equal(atomic_load(&s.link->status), HARP_ERR_REMOTE);
    assert_non_null(strstr(s.link->error, "its process has ended"));
    assert_in_range(scene_now_ns - start_ns, HARP_INQUIRY_REFUSED_NS, HARP_SEC(1));
    scene_close(&s);
    scene_peer_answer_port = 0;
  }
}

/* Who answers PINGs is not asked, however long it sends nothing. */
static void test_a_peer_that_answers_is_not_asked(void **state) {
  (void)state;
  struct scene s;
  unsigned pings = 0;
  scene_peer_tcp_port = 1;
  scene_open_with(&s, HARP_ROLE_RECEIVER, 2);
  scene_submit(s.link);
  for (harp_ns end = scene_now_ns + HARP_SEC(2); scene_now_ns < end; scene_now_ns += PASS_NS) {
    harp_engine_pass(s.engine);
    pings += scene_receive_pings(&s, true);
  }
  assert_in_range(pings, 6, HARP_SEC(2) / HARP_INQUIRY_PING_NS);
  assert_int_equal(s.link->peer->inquiry.next_ns, 0);
  assert_int_equal(atomic_load(&s.link->status), HARP_OK);
  scene_close(&s);
  scene_peer_tcp_port = 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_quiet_peers_host_is_asked),
      cmocka_unit_test(test_who_accepts_is_asked_once),
      cmocka_unit_test(test_who_does_not_answer_is_asked_ever_more_rarely),
      cmocka_unit_test(test_a_reset_is_asked_about),
      cmocka_unit_test(test_a_peer_that_answers_is_not_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
