/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of a device: how many there are and on which cores, who gets which, when they end, and what
 * each has of memory and queues. Real engines over loopback, with sockets. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "engine/engine_open.h"
#include "engine/link_close.h"
#include "host/claim.h"
#include "host/cpu.h"
#include "host/node.h"
#include "lib/accepted.h"
#include "lib/cores.h"
#include "lib/loopback.h"
#include "lib/netns.h"
#include "net/device_engines.h"
#include "unit/host_tree.h"

enum { MISSING_CORE = HARP_CPU_MAX - 1, PORT = 47310 };

static unsigned warn_count, missing_count, without_count, crowded_count;
static char last_warn[HARP_LOG_LINE_BYTES];

static void count_lines(enum harp_log_level level, const char *file, int line, const char *text) {
  (void)file, (void)line;
  if (level == HARP_LOG_WARN) snprintf(last_warn, sizeof last_warn, "%s", text);
  warn_count += level == HARP_LOG_WARN;
  missing_count += strstr(text, "not available to this process") != NULL;
  without_count += strstr(text, "; continuing with ") != NULL;
  crowded_count += strstr(text, "have engines already") != NULL;
}

static struct harp_instance loopback(void) {
  struct harp_instance i = loopback_instance();
  i.mode = HARP_ENGINE_THREAD;
  i.driver = HARP_DRIVER_UDP;
  i.local = (struct harp_local){.has_rank = true, .count = 1, .sharers = 1};
  i.page_size = HARP_PAGE_4K;
  return i;
}

static void give_cores(struct harp_instance *i, unsigned count, const uint16_t *cores) {
  i->cores.count = count;
  memcpy(i->cores.at, cores, count * sizeof cores[0]);
}

static int set_up(void **state) {
  (void)state;
  warn_count = missing_count = without_count = crowded_count = 0;
  harp_log_set_sink(count_lines);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  harp_log_set_sink(NULL);
  return 0;
}

static int set_up_tree(void **state) {
  return tree_setup(state) || set_up(state);
}

static int tear_down_tree(void **state) {
  return tree_teardown(state);
}

/* Returns two cores that this process may use; false where there is but one. */
static bool two_cores(uint16_t cores[2]) {
  return cores_allowed(cores, 2) >= 2;
}

static void drop_all(struct harp_device_engines *c, struct harp_engine **users, unsigned count) {
  for (unsigned i = 0; i < count; i++) harp_device_engines_drop(c, users[i]);
}

static void test_an_engine_for_each_core(void **state) {
  struct harp_instance first = loopback(), second = loopback();
  struct harp_engine_enis enis = {2, {&first, &second}};
  struct harp_device_engines device = {0};
  struct harp_engine *users[3];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&first, 1, &cores[0]);
  give_cores(&second, 2, (uint16_t[]){cores[1], cores[0]}); /* one of them twice */
  for (unsigned i = 0; i < 3; i++) assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
  assert_int_equal(device.count, 2);
  assert_ptr_not_equal(users[0], users[1]);
  assert_ptr_equal(users[0], users[2]);
  assert_int_not_equal(users[0]->core, users[1]->core);
  assert_int_equal(users[0]->core + users[1]->core, cores[0] + cores[1]);
  for (unsigned i = 0; i < 2; i++) {
    char want[HARP_ENGINE_NAME_BYTES];
    assert_int_equal(users[i]->eni_count, 2);
    snprintf(want, sizeof want, "lo+lo engine %u (core %d)", i + 1, users[i]->core);
    assert_string_equal(users[i]->name, want);
  }
  drop_all(&device, users, 3);
  assert_int_equal(device.count, 0);
  assert_null(device.arenas[0].base);
  assert_int_equal(warn_count + missing_count, 0);
}

static void test_one_engine_without_cores_or_a_thread(void **state) {
  struct harp_device_engines device = {0};
  uint16_t cores[2] = {0, 1};
  (void)state;
  for (unsigned is_inline = 0; is_inline < 2; is_inline++) {
    struct harp_instance lo = loopback();
    struct harp_engine_enis enis = {1, {&lo}};
    struct harp_engine *users[2];
    if (is_inline) {
      lo.mode = HARP_ENGINE_INLINE;
      give_cores(&lo, 2, cores);
    }
    for (unsigned i = 0; i < 2; i++)
      assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
    assert_ptr_equal(users[0], users[1]);
    assert_int_equal(users[0]->core, -1);
    assert_string_equal(users[0]->name, "lo");
    drop_all(&device, users, 2);
  }
}

/* The next user goes where fewest are, also when that engine has closed meanwhile; the last user of one
 * closes it alone. */
static void test_fewest_users_first(void **state) {
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_device_engines device = {0};
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  struct harp_engine *a = harp_device_engines_use(&device, &enis, NULL);
  assert_null(device.slots[1].engine); /* not before it is needed */
  harp_device_engines_share(&device, a);
  harp_device_engines_share(&device, a);
  struct harp_engine *b = harp_device_engines_use(&device, &enis, NULL);
  assert_ptr_not_equal(a, b);
  assert_ptr_equal(harp_device_engines_use(&device, &enis, NULL), b);
  assert_ptr_equal(harp_device_engines_use(&device, &enis, NULL), b);
  harp_device_engines_drop(&device, a);
  harp_device_engines_drop(&device, a);
  assert_ptr_equal(harp_device_engines_use(&device, &enis, NULL), a);
  harp_device_engines_drop(&device, a);
  harp_device_engines_drop(&device, a); /* its last */
  assert_null(device.slots[0].engine);
  assert_ptr_equal(device.slots[1].engine, b);
  assert_int_equal(device.slots[1].users, 3);
  a = harp_device_engines_use(&device, &enis, NULL);
  assert_ptr_equal(device.slots[0].engine, a);
  for (unsigned i = 0; i < 3; i++) harp_device_engines_drop(&device, b);
  assert_int_equal(device.count, 2);
  harp_device_engines_drop(&device, a);
  assert_int_equal(device.count, 0);
}

static uint32_t count_peers(struct harp_engine *e) {
  harp_engine_lock(e);
  uint32_t count = e->peer_count;
  harp_engine_unlock(e);
  return count;
}

/* Two processes with two engines each need two sessions, however many connections there are, and whichever
 * engine has fewer users. Here they are one process, so each session has two peers. */
static void test_a_session_for_each_engine(void **state) {
  enum { CONNECTS = 6 };
  static const unsigned targets[CONNECTS] = {1, 1, 1, 0, 0, 1};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_device_engines device = {0};
  struct harp_engine *listening[2], *connecting[CONNECTS];
  struct harp_listener *listeners[2];
  struct harp_handle handles[2];
  struct harp_link *links[CONNECTS][2] = {0};
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  for (unsigned i = 0; i < 2; i++) {
    assert_non_null(listening[i] = harp_device_engines_use(&device, &enis, NULL));
    assert_int_equal(harp_listener_open(&listeners[i], listening[i], &handles[i], sizeof handles[i], -1),
                     HARP_OK);
  }
  for (unsigned i = 0; i < CONNECTS; i++) {
    struct harp_connect *c;
    struct harp_contact contact;
    struct harp_error error;
    unsigned to = targets[i];
    assert_true(harp_handle_decode(&handles[to], sizeof handles[to], &contact, &error));
    assert_non_null(connecting[i] = harp_device_engines_use(&device, &enis, &contact));
    assert_int_equal(harp_connect_open(&c, connecting[i], &handles[to], sizeof handles[to], -1), HARP_OK);
    for (time_t end = loopback_seconds() + LOOPBACK_LIMIT_S;
         !(links[i][0] && links[i][1]) && loopback_seconds() < end;) {
      if (!links[i][0]) assert_int_equal(harp_connect_poll(c, &links[i][0]), HARP_OK);
      if (!links[i][1]) links[i][1] = take_accepted(listeners[to]);
    }
    assert_true(links[i][0] && links[i][1]);
    harp_connect_close(c);
  }
  for (unsigned i = 0; i < 2; i++) assert_int_equal(count_peers(listening[i]), 2);
  for (unsigned i = 0; i < CONNECTS; i++) {
    for (unsigned end = 0; end < 2; end++) harp_link_destroy(links[i][end]);
    harp_device_engines_drop(&device, connecting[i]);
  }
  for (unsigned i = 0; i < 2; i++) {
    harp_listener_close(listeners[i]);
    harp_device_engines_drop(&device, listening[i]);
  }
  assert_int_equal(device.count, 0);
  assert_int_equal(warn_count, 0);
}

/* A process with another number of engines has the same one each time, and all of its engines are used. */
static void test_engines_of_another_number(void **state) {
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_device_engines device = {0};
  struct harp_engine *users[8];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  for (unsigned i = 0; i < 8; i++) {
    struct harp_contact contact = {.engine_id = 40 + i / 2, .engine_count = 1};
    assert_non_null(users[i] = harp_device_engines_use(&device, &enis, &contact));
  }
  for (unsigned i = 0; i < 8; i += 2) assert_ptr_equal(users[i], users[i + 1]);
  assert_ptr_not_equal(users[0], users[2]);
  assert_ptr_equal(users[0], users[4]);
  assert_ptr_equal(users[2], users[6]);
  drop_all(&device, users, 8);
}

/* Another process has one of two cores, and returns it; then it has both. */
static void test_cores_that_others_have(void **state) {
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_device_engines device = {0};
  struct harp_engine *users[4];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  int claim = harp_claim_core(cores[1], 0);
  assert_true(claim >= 0);
  assert_int_equal(harp_claim_core(cores[1], 0), -EADDRINUSE);
  for (unsigned i = 0; i < 3; i++) assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
  assert_ptr_equal(users[0], users[1]);
  assert_ptr_equal(users[0], users[2]);
  assert_int_equal(users[0]->core, cores[0]);
  assert_int_equal(crowded_count, 1);
  close(claim);
  assert_non_null(users[3] = harp_device_engines_use(&device, &enis, NULL));
  assert_int_equal(users[3]->core, cores[1]);
  drop_all(&device, users, 4);

  int claims[2] = {harp_claim_core(cores[0], 0), harp_claim_core(cores[1], 0)};
  assert_true(claims[0] >= 0 && claims[1] >= 0); /* ours have gone with their engines */
  for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
  assert_ptr_equal(users[0], users[1]);
  assert_true(users[0]->core == cores[0] || users[0]->core == cores[1]);
  assert_int_equal(crowded_count, 2);
  drop_all(&device, users, 2);
  for (unsigned i = 0; i < 2; i++) close(claims[i]);
  assert_int_equal(warn_count + without_count, 0);
}

/* ---- cores of several processes ---- */

/* Stands for a process of the host with this rank among `count`, 0: unknown, on these cores. */
struct process {
  struct harp_instance lo;
  struct harp_device_engines device;
  struct harp_engine *users[8];
  unsigned user_count;
};

static struct process processes[8];

static void begin_processes(unsigned how_many, unsigned count, unsigned core_count, const uint16_t *cores) {
  for (unsigned i = 0; i < how_many; i++) {
    processes[i] = (struct process){.lo = loopback()};
    give_cores(&processes[i].lo, core_count, cores);
    processes[i].lo.local = (struct harp_local){count != 0, i, count, HARP_MAX(count, 1u)};
  }
}

static struct harp_engine *use(struct process *p) {
  struct harp_engine_enis enis = {1, {&p->lo}};
  struct harp_engine *e = harp_device_engines_use(&p->device, &enis, NULL);
  assert_non_null(e);
  return p->users[p->user_count++] = e;
}

static void end_processes(unsigned how_many) {
  for (unsigned i = 0; i < how_many; i++)
    for (unsigned k = 0; k < processes[i].user_count; k++)
      harp_device_engines_drop(&processes[i].device, processes[i].users[k]);
}

/* By their ranks each has one, however early another asks for a second. */
static void test_cores_are_divided_by_rank(void **state) {
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  begin_processes(2, 2, 2, cores);
  for (unsigned i = 0; i < 3; i++) assert_int_equal(use(&processes[1])->core, cores[1]);
  for (unsigned i = 0; i < 3; i++) assert_int_equal(use(&processes[0])->core, cores[0]);
  assert_int_equal(processes[0].device.count, 1); /* and all of the memory and of the queues */
  end_processes(2);
  assert_int_equal(crowded_count + warn_count, 0);
}

/* Eight on two cores are four on each; a core that is released is the next one's. */
static void test_a_shared_core_is_the_least_used(void **state) {
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  for (unsigned is_counted = 0; is_counted < 2; is_counted++) {
    unsigned on_first = 0;
    begin_processes(8, is_counted ? 8 : 0, 2, cores);
    for (unsigned i = 0; i < 7; i++) on_first += use(&processes[i])->core == cores[0];
    assert_true(on_first == 3 || on_first == 4);
    int less = on_first == 3 ? cores[0] : cores[1];
    if (!is_counted) assert_int_equal(use(&processes[7])->core, less);
    end_processes(8);
    assert_int_equal(warn_count, 0);
  }
  begin_processes(3, 0, 2, cores);
  int first = use(&processes[0])->core;
  assert_int_equal(use(&processes[1])->core, cores[0] + cores[1] - first);
  end_processes(1);
  assert_int_equal(use(&processes[2])->core, first);
  processes[0].user_count = 0;
  end_processes(3);
}

/* Who does not know how many there are leaves a second core to others for a while. */
static void test_a_second_core_later(void **state) {
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  begin_processes(2, 0, 2, cores);
  struct harp_engine *first = use(&processes[0]);
  for (unsigned i = 0; i < 2; i++) assert_ptr_equal(use(&processes[0]), first);
  assert_int_equal(crowded_count, 0);
  assert_int_not_equal(use(&processes[1])->core, first->core);
  processes[0].device.begun_ns -= HARP_SEC(1);
  assert_ptr_equal(use(&processes[0]), first); /* it is the other's */
  assert_int_equal(crowded_count, 1);
  harp_device_engines_drop(&processes[1].device, processes[1].users[0]);
  processes[1].user_count = 0;
  assert_ptr_not_equal(use(&processes[0]), first);
  end_processes(2);
}

static void test_cores_that_are_missing(void **state) {
  struct harp_device_engines device = {0};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *e;
  uint16_t cores[2];
  (void)state;
  assert_true(cores_allowed(cores, 1) >= 1);
  give_cores(&lo, 2, (uint16_t[]){MISSING_CORE, cores[0]});
  assert_non_null(e = harp_device_engines_use(&device, &enis, NULL));
  assert_int_equal(device.count, 1);
  assert_int_equal(e->core, cores[0]);
  assert_string_equal(e->name, "lo");
  assert_int_equal(missing_count, 1);
  harp_device_engines_drop(&device, e);

  give_cores(&lo, 2, (uint16_t[]){MISSING_CORE, MISSING_CORE - 1});
  assert_non_null(e = harp_device_engines_use(&device, &enis, NULL));
  assert_int_equal(device.count, 1);
  assert_int_equal(e->core, -1);
  assert_int_equal(missing_count, 2);
  harp_device_engines_drop(&device, e);
  assert_int_equal(warn_count, 0);
}

/* The whole range of ports is the first engine's: the second is done without, and not tried again while the
 * first runs. Without the first there is no device. */
static void test_an_engine_that_can_not_be_opened(void **state) {
  struct harp_device_engines device = {0};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *users[3];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  lo.ports.low = lo.ports.high = PORT;
  for (unsigned i = 0; i < 3; i++) assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
  assert_ptr_equal(users[0], users[1]);
  assert_ptr_equal(users[0], users[2]);
  assert_int_equal(without_count, 1);
  assert_int_equal(warn_count, 0);
  struct harp_device_engines other = {0};
  assert_null(harp_device_engines_use(&other, &enis, NULL));
  assert_int_equal(warn_count, 1);
  assert_non_null(strstr(last_warn, "47310"));
  assert_null(other.arenas[0].base);
  drop_all(&device, users, 3);
  assert_non_null(users[0] = harp_device_engines_use(&other, &enis, NULL)); /* it can be tried again */
  harp_device_engines_drop(&other, users[0]);
}

/* By itself none requests more than its part of the range. */
static void test_ports_are_shared(void **state) {
  static const struct {
    unsigned paths, ports, each;
  } rows[] = {{8, 4, 2}, {2, 16, 2}, {16, 5, 2}, {3, 2, 1}};
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  for (size_t row = 0; row < HARP_ARRAY_COUNT(rows); row++) {
    struct harp_device_engines device = {0};
    struct harp_instance lo = loopback();
    struct harp_engine_enis enis = {1, {&lo}};
    struct harp_engine *users[2];
    give_cores(&lo, 2, cores);
    lo.paths = rows[row].paths;
    lo.ports.low = PORT;
    lo.ports.high = (uint16_t)(PORT + rows[row].ports - 1);
    for (unsigned i = 0; i < 2; i++)
      assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
    for (unsigned i = 0; i < 2; i++) assert_int_equal(users[i]->io->info.port_count, rows[row].each);
    drop_all(&device, users, 2);
    assert_int_equal(without_count + warn_count, 0);
  }
}

/* Each has its part of a block, and its part of what the conf gives. */
static void test_memory(void **state) {
  enum { MIB = 1 << 20 };
  struct harp_device_engines device = {0};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *users[2];
  uint16_t cores[2];
  (void)state;
  if (!two_cores(cores)) skip();
  give_cores(&lo, 2, cores);
  lo.memory_bytes = 48 * MIB;
  assert_int_equal(harp_engine_memory_bytes(&enis, 1), 48 * MIB);
  assert_int_equal(harp_engine_memory_bytes(&enis, 3), 16 * MIB);
  for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
  assert_int_equal(device.arenas[0].bytes, 48 * MIB);
  unsigned low = users[0]->memory > users[1]->memory; /* by their cores, which the process id turns */
  assert_ptr_equal(users[!low]->memory, users[low]->memory + 24 * MIB);
  uint8_t *last = NULL, *next;
  while ((next = harp_engine_take_block(users[low]))) last = next;
  assert_ptr_equal(last + HARP_BLOCK_BYTES, users[!low]->memory);
  drop_all(&device, users, 2);
  lo.memory_bytes = 2 * MIB;
  assert_true(harp_engine_memory_bytes(&enis, 16) >= MIB);
}

/* ---- NUMA nodes and GPUs ---- */

/* Its engines have the ENI near the GPU first, and memory of that one's node. */
static void test_the_eni_near_the_gpu_is_first(void **state) {
  struct harp_device_engines device = {0};
  struct harp_instance far = loopback(), near = loopback();
  struct harp_engine_enis enis = {2, {&far, &near}};
  (void)state;
  far.numa = 0;
  near.numa = HARP_NODE_MAX - 1;
  near.gpu_nearness = 3;
  near.speed_mbps = 7;
  struct harp_engine *e = harp_device_engines_use(&device, &enis, NULL);
  assert_non_null(e);
  assert_int_equal(e->enis[0].speed_mbps, 7);
  assert_int_equal(device.arenas[0].numa, near.numa);
  assert_ptr_equal(enis.at[0], &far); /* the device's own order is as reported to NCCL */
  harp_device_engines_drop(&device, e);
}

/* The configuration may be older than the engine: an interface that has gone since comes last, and does not
 * keep the others from being used, whatever its driver. */
static void test_looks_again_which_work(void **state) {
  struct harp_device_engines device = {0};
  struct harp_instance gone = loopback(), lo = loopback();
  struct harp_engine_enis enis = {2, {&gone, &lo}};
  (void)state;
  snprintf(gone.ifname, sizeof gone.ifname, "harp-none");
  ((struct sockaddr_in *)&gone.addr)->sin_addr.s_addr = htonl(0x0a090909);
  gone.driver = HARP_DRIVER_XDP_ZC;
  for (unsigned is_known = 0; is_known < 2; is_known++) {
    gone.is_absent = is_known;
    struct harp_engine *e = harp_device_engines_use(&device, &enis, NULL);
    assert_non_null(e);
    assert_string_equal(e->enis[0].ifname, "lo");
    assert_string_equal(e->enis[1].ifname, "harp-none");
    assert_true(e->enis[1].is_absent);
    assert_int_equal(harp_engine_io(e, 1)->info.port_count, 1);
    harp_device_engines_drop(&device, e);
  }
  lo.is_absent = true; /* it works again */
  enis = (struct harp_engine_enis){1, {&lo}};
  struct harp_engine *e = harp_device_engines_use(&device, &enis, NULL);
  assert_false(e->enis[0].is_absent);
  harp_device_engines_drop(&device, e);
  assert_int_equal(warn_count, 0);
}

enum { GET_POLICY_OF_ADDRESS = 2, PREFERRED = 1 };

/* The policy of the page at an address: its mode, and its node if it has just one; else -1. */
static int policy_at(const void *at, int *node) {
  unsigned long nodes[HARP_NODE_MAX / (8 * sizeof(unsigned long))] = {0};
  int mode = -1;
  *node = -1;
  assert_int_equal(
      syscall(SYS_get_mempolicy, &mode, nodes, (long)HARP_NODE_MAX, at, (long)GET_POLICY_OF_ADDRESS), 0);
  for (int i = 0; i < HARP_NODE_MAX; i++)
    if (nodes[i / 64] >> i % 64 & 1) *node = *node < 0 ? i : -2;
  return mode;
}

/* What the kernel reports of an engine's memory: that it is preferred on the node of its core. */
static void test_memory_is_on_the_node_of_the_core(void **state) {
  struct harp_device_engines device = {0};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *users[2];
  uint16_t cores[2];
  int mine;
  (void)state;
  if (!two_cores(cores) || harp_node_of_core("/sys", cores[0]) < 0) skip();
  int before = policy_at(&device, &mine);
  give_cores(&lo, 2, cores);
  for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
  for (unsigned i = 0; i < 2; i++) {
    int node, first, last;
    assert_true((node = harp_node_of_core("/sys", users[i]->core)) >= 0);
    const uint8_t *end = users[i]->memory + users[i]->block_count * HARP_BLOCK_BYTES;
    assert_int_equal(policy_at(users[i]->memory, &first), PREFERRED);
    assert_int_equal(policy_at(end - 1, &last), PREFERRED);
    assert_int_equal(first, node);
    assert_int_equal(last, node);
  }
  drop_all(&device, users, 2);
  assert_int_equal(policy_at(&device, &mine), before); /* the caller's own is put back */
}

/* On a tree that puts the two cores on different nodes, each engine has memory of its own node. */
static void test_memory_of_two_nodes(void **state) {
  enum { MIB = 1 << 20, HIGH = HARP_NODE_MAX - 1 };
  char sysfs[160];
  struct harp_device_engines device = {.sysfs_root = sysfs};
  struct harp_instance lo = loopback();
  struct harp_engine_enis enis = {1, {&lo}};
  struct harp_engine *users[2];
  uint16_t cores[2];
  char path[128];
  (void)state;
  if (!two_cores(cores)) skip();
  snprintf(sysfs, sizeof sysfs, "%s", tree_path("sys"));
  for (unsigned i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%u/node%d/cpulist", cores[i], i ? HIGH : 0);
    tree_write(path, "");
  }
  give_cores(&lo, 2, cores);
  lo.memory_bytes = 48 * MIB;
  for (unsigned i = 0; i < 2; i++) assert_non_null(users[i] = harp_device_engines_use(&device, &enis, NULL));
  for (unsigned i = 0; i < 2; i++) {
    const struct harp_arena *arena = &device.arenas[i];
    assert_int_equal(arena->numa, device.nodes[i]);
    assert_int_equal(arena->numa, device.cores[i] == cores[1] ? HIGH : 0);
    assert_int_equal(arena->bytes, 24 * MIB);
    const struct harp_engine *e = users[users[0]->core != device.cores[i]];
    assert_int_equal(e->core, device.cores[i]);
    assert_ptr_equal(e->memory, arena->base);
    assert_int_equal(e->block_count, arena->bytes / HARP_BLOCK_BYTES);
  }
  assert_null(device.arenas[2].base);
  drop_all(&device, users, 2);
  assert_null(device.arenas[0].base);
  assert_null(device.arenas[1].base);
  assert_ptr_equal(device.sysfs_root, sysfs);
  assert_int_equal(warn_count, 0);
}

/* What a thread touches first comes from the node meanwhile. */
static void test_policy_of_a_thread(void **state) {
  struct harp_node_policy policy, untouched;
  int mode = -1, node = -1;
  (void)state;
  if (harp_node_of_core("/sys", 0) < 0) skip();
  harp_node_enter(&policy, 0);
  assert_int_equal(syscall(SYS_get_mempolicy, &mode, NULL, 0L, NULL, 0L), 0);
  assert_int_equal(mode, PREFERRED);
  harp_node_enter(&untouched, -1);
  harp_node_enter(&untouched, HARP_NODE_MAX - 1); /* there is none */
  harp_node_leave(&untouched);
  assert_int_equal(syscall(SYS_get_mempolicy, &mode, NULL, 0L, NULL, 0L), 0);
  assert_int_equal(mode, PREFERRED);
  harp_node_leave(&policy);
  assert_int_equal(policy_at(&policy, &node), 0);
  assert_int_equal(node, -1);
}

static void test_node_of_a_core(void **state) {
  (void)state;
  tree_write("sys/devices/system/cpu/cpu3/node1/cpulist", "");
  tree_write("sys/devices/system/cpu/cpu4/topology/core_id", "4");
  tree_write("sys/devices/system/cpu/cpu5/node9999/cpulist", "");
  assert_int_equal(harp_node_of_core(tree_path("sys"), 3), 1);
  assert_int_equal(harp_node_of_core(tree_path("sys"), 4), -1);
  assert_int_equal(harp_node_of_core(tree_path("sys"), 5), -1);
  assert_int_equal(harp_node_of_core(tree_path("sys"), 6), -1);
  assert_int_equal(harp_node_of_core(tree_path("sys"), -1), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_an_engine_for_each_core, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_one_engine_without_cores_or_a_thread, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_fewest_users_first, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_session_for_each_engine, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_engines_of_another_number, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cores_that_others_have, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cores_are_divided_by_rank, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_shared_core_is_the_least_used, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_second_core_later, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cores_that_are_missing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_an_engine_that_can_not_be_opened, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_ports_are_shared, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_memory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_the_eni_near_the_gpu_is_first, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_looks_again_which_work, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_memory_is_on_the_node_of_the_core, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_memory_of_two_nodes, set_up_tree, tear_down_tree),
      cmocka_unit_test_setup_teardown(test_policy_of_a_thread, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_node_of_a_core, set_up_tree, tear_down_tree),
  };
  (void)
      netns_enter(); /* claims of cores and ports are its own then: other engines on the host do not matter */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
