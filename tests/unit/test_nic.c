/* SPDX-License-Identifier: Apache-2.0 */
/* The number of an interface is found without an ioctl, for which the kernel would run modprobe when the name
 * is unknown, and without netlink, for whose answer the kernel takes a lock: an engine that loses its NIC
 * would wait for that. */
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "io/nic.h"

static unsigned ioctls, requests;

ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to,
               socklen_t to_bytes) {
  (void)fd, (void)data, (void)bytes, (void)flags, (void)to, (void)to_bytes;
  requests++;
  return -1;
}

int ioctl(int fd, unsigned long request, ...) {
  (void)fd, (void)request;
  ioctls++;
  return -1;
}

unsigned if_nametoindex(const char *name) {
  (void)name;
  ioctls++;
  return 0;
}

static void test_an_interface_is_found(void **state) {
  (void)state;
  assert_int_equal(harp_nic_index("lo"), 1); /* in every network namespace */
  assert_int_equal(ioctls + requests, 0);
}

static void test_one_that_is_gone_is_none(void **state) {
  (void)state;
  assert_int_equal(harp_nic_index("harp-none"), 0);
  assert_int_equal(ioctls + requests, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_interface_is_found),
      cmocka_unit_test(test_one_that_is_gone_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
