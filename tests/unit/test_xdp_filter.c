/* SPDX-License-Identifier: Apache-2.0 */
/* The XDP program on an interface: how many queues its tables are made for, who joins whose, what is counted
 * on a port. In a network namespace of its own; needs root, skipped without. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/nic.h"
#include "io/xdp/bpf.h"
#include "io/xdp/filter.h"
#include "lib/netns.h"

static bool has_namespace;

static int enter(void **state) {
  (void)state;
  has_namespace = netns_enter();
  if (has_namespace)
    netns_run("ip link add v0 numrxqueues 4 numtxqueues 4 type veth peer name v1 numrxqueues 4 numtxqueues 4 "
              "&& ip link set v1 up && ip link set v0 up");
  return 0;
}

static void set_channels(int count) {
  netns_run("ethtool -L v0 rx %d tx %d", count, count);
}

static struct harp_xdp_filter open_filter(enum harp_xdp_mode mode) {
  struct harp_xdp_filter f;
  struct harp_error error = {0};
  int err = harp_xdp_filter_open(&f, netns_index("v0"), mode, true, &error);
  if (err) fail_msg("open: %d %s", err, error.text);
  return f;
}

static void test_the_map_of_sockets_has_the_nics_queues(void **state) {
  (void)state;
  if (!has_namespace) skip();
  for (int channels = 1; channels <= 4; channels++) {
    set_channels(channels);
    struct harp_xdp_filter f = open_filter(HARP_XDP_GENERIC);
    assert_false(f.joined);
    assert_int_equal(f.queue_count, channels);
    assert_int_equal(harp_bpf_map_entries_max(f.sockets_fd), channels);
    harp_xdp_filter_close(&f);
  }
}

/* A NIC may have more queues once the program is there, as virtio does, or fewer: who joins has those that
 * were there before and are there still. */
static void test_a_joined_program_counts_for_both(void **state) {
  (void)state;
  static const struct {
    int before, after;
    unsigned joined;
  } rows[] = {{2, 2, 2}, {2, 4, 2}, {4, 3, 3}};
  if (!has_namespace) skip();
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    set_channels(rows[i].before);
    struct harp_xdp_filter first = open_filter(HARP_XDP_GENERIC);
    set_channels(rows[i].after);
    struct harp_xdp_filter second = open_filter(HARP_XDP_GENERIC);
    assert_true(second.joined);
    assert_int_equal(second.queue_count, rows[i].joined);
    harp_xdp_filter_close(&first);
    struct harp_xdp_filter third = open_filter(HARP_XDP_GENERIC);
    assert_true(third.joined);
    assert_int_equal(third.queue_count, rows[i].joined);
    harp_xdp_filter_close(&second);
    harp_xdp_filter_close(&third);
  }
}

/* Its tables are laid out otherwise. */
static void test_another_versions_program_is_not_joined(void **state) {
  (void)state;
  struct harp_error error = {0};
  struct harp_xdp_filter f;
  struct harp_xdp_program program;
  if (!has_namespace) skip();
  int ports = harp_bpf_map_make(HARP_BPF_MAP_HASH, sizeof(struct harp_xdp_port_key),
                                sizeof(struct harp_xdp_port_value), 4, "harp_ports");
  int sockets = harp_bpf_map_make(HARP_BPF_MAP_XSKMAP, 4, 4, 4, "harp_sockets");
  harp_xdp_program_write(&program, HARP_XDP_GENERIC, ports, sockets);
  int fd = harp_bpf_program_load(program.code, program.count, "harp_filter_2", true);
  int link = harp_bpf_link_make(fd, netns_index("v0"), HARP_XDP_MODE_SKB);
  assert_true(ports >= 0 && sockets >= 0 && fd >= 0 && link >= 0);
  int err = harp_xdp_filter_open(&f, netns_index("v0"), HARP_XDP_GENERIC, true, &error);
  assert_int_equal(err, -EBUSY);
  assert_string_equal(error.text, "another XDP program is attached to the interface");
  close(link), close(fd), close(ports), close(sockets);
}

static void test_the_other_mode_is_refused(void **state) {
  (void)state;
  struct harp_error error = {0};
  struct harp_xdp_filter f;
  if (!has_namespace) skip();
  set_channels(4); /* as many as the peer has, or veth refuses it */
  struct harp_xdp_filter first = open_filter(HARP_XDP_NATIVE);
  int err = harp_xdp_filter_open(&f, netns_index("v0"), HARP_XDP_GENERIC, true, &error);
  assert_int_equal(err, -EBUSY);
  assert_string_equal(error.text, "an XDP program is attached to the interface in native mode");
  harp_xdp_filter_close(&first);
}

static void test_a_port_counts_from_zero_and_its_owner_alone(void **state) {
  (void)state;
  enum { OURS = 4001, THEIRS = 4002 };
  struct sockaddr_storage local = {.ss_family = AF_INET};
  struct harp_xdp_port_key key = {.port = htons(OURS)};
  struct harp_xdp_port_value value;
  if (!has_namespace) skip();
  ((struct sockaddr_in *)&local)->sin_addr.s_addr = htonl(0x0a090001);
  memcpy(key.address + 12, &((struct sockaddr_in *)&local)->sin_addr, 4);
  struct harp_xdp_filter first = open_filter(HARP_XDP_GENERIC), second = open_filter(HARP_XDP_GENERIC);
  assert_int_equal(harp_xdp_filter_add_port(&first, &local, OURS, 1, 0x01020304), 0);
  assert_int_equal(harp_xdp_filter_add_port(&second, &local, THEIRS, 2, 0x05060708), 0);
  assert_int_equal(harp_bpf_map_read(second.ports_fd, &key, &value), 0);
  assert_memory_equal(&value.token_prefix, "\1\2\3\4", 4); /* as in a packet */
  value.redirected = 7, value.dropped = 9;
  assert_int_equal(harp_bpf_map_write(second.ports_fd, &key, &value, false), 0);
  struct harp_xdp_filter_counts ours = {0}, theirs = {0};
  harp_xdp_filter_count(&first, &local, OURS, &ours);
  harp_xdp_filter_count(&first, &local, THEIRS, &theirs);
  assert_true(ours.redirected == 7 && ours.dropped == 9 && !theirs.redirected && !theirs.dropped);
  assert_int_equal(harp_xdp_filter_add_port(&first, &local, OURS, 1, 0x01020304), 0);
  harp_xdp_filter_count(&first, &local, OURS, &theirs);
  assert_true(!theirs.redirected && !theirs.dropped);
  harp_xdp_filter_close(&first);
  harp_xdp_filter_close(&second);
}

static int bind_port(const char *ip, struct sockaddr_storage *local, uint16_t *port) {
  bool is_v6 = strchr(ip, ':');
  *local = (struct sockaddr_storage){.ss_family = is_v6 ? AF_INET6 : AF_INET};
  struct sockaddr_in *in = (struct sockaddr_in *)local;
  struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)local;
  socklen_t bytes = sizeof *local;
  assert_int_equal(inet_pton(local->ss_family, ip, is_v6 ? (void *)&in6->sin6_addr : &in->sin_addr), 1);
  int fd = socket(local->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)local, is_v6 ? sizeof *in6 : sizeof *in), 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)local, &bytes), 0);
  *port = ntohs(in->sin_port);
  return fd;
}

/* A killed process leaves its ports in the table, where others keep the program. */
static void test_used_queues_are_those_of_bound_ports(void **state) {
  (void)state;
  static const char *const addresses[] = {"127.0.0.1", "::1"};
  if (!has_namespace) skip();
  struct harp_xdp_filter f = open_filter(HARP_XDP_GENERIC);
  for (size_t i = 0; i < HARP_ARRAY_COUNT(addresses); i++) {
    struct sockaddr_storage local[2];
    uint16_t ports[2];
    int fds[2];
    for (unsigned k = 0; k < 2; k++) {
      fds[k] = bind_port(addresses[i], &local[k], &ports[k]);
      assert_int_equal(harp_xdp_filter_add_port(&f, &local[k], ports[k], 5ull << k, 0), 0);
    }
    assert_int_equal(harp_xdp_filter_used_queues(&f), 15);
    close(fds[0]);
    assert_int_equal(harp_xdp_filter_used_queues(&f), 10);
    close(fds[1]);
    assert_int_equal(harp_xdp_filter_used_queues(&f), 0);
  }
  harp_xdp_filter_close(&f);
}

static int drop_sys_admin(void) {
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct caps[2];
  if (syscall(SYS_capget, &head, caps)) return -1;
  caps[0].effective &= ~(1u << CAP_SYS_ADMIN);
  return (int)syscall(SYS_capset, &head, caps);
}

/* Without CAP_SYS_ADMIN: other processes' programs are not to be joined, this one's are. */
static void join_without_privilege(bool is_ours) {
  enum { OUR_PORT = 4001 };
  struct harp_xdp_filter f, others;
  struct sockaddr_storage local = {.ss_family = AF_INET};
  struct harp_error error = {0};
  int status;
  if (!is_ours) others = open_filter(HARP_XDP_GENERIC);
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    if (is_ours)
      others = open_filter(HARP_XDP_GENERIC);
    else
      harp_xdp_filter_close(&others); /* only its copy of it */
    bool joined =
        !drop_sys_admin() && !harp_xdp_filter_open(&f, netns_index("v0"), HARP_XDP_GENERIC, true, &error);
    _exit(joined && f.joined && !harp_xdp_filter_add_port(&f, &local, OUR_PORT, 1, 0));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), is_ours);
  if (!is_ours) harp_xdp_filter_close(&others);
}

static void test_a_held_program_is_joined_without_privilege(void **state) {
  (void)state;
  if (!has_namespace) skip();
  join_without_privilege(false);
  join_without_privilege(true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_map_of_sockets_has_the_nics_queues),
      cmocka_unit_test(test_a_joined_program_counts_for_both),
      cmocka_unit_test(test_another_versions_program_is_not_joined),
      cmocka_unit_test(test_the_other_mode_is_refused),
      cmocka_unit_test(test_a_port_counts_from_zero_and_its_owner_alone),
      cmocka_unit_test(test_used_queues_are_those_of_bound_ports),
      cmocka_unit_test(test_a_held_program_is_joined_without_privilege),
  };
  return cmocka_run_group_tests(tests, enter, NULL);
}
