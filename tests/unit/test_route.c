/* SPDX-License-Identifier: Apache-2.0 */
/* How good the kernel's routes are, in a network namespace of the test's own: two interfaces that have a
 * routing table each, as harpctl makes them. */
#include "host/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "lib/addresses.h"
#include "lib/netns.h"

/* An interface with a default route in the table of its own addresses. */
static void add_interface(unsigned i) {
  netns_run("ip link add v%u type veth peer name w%u && ip link set v%u up && ip link set w%u up", i, i, i,
            i);
  netns_run("ip address add 10.9.%u.1/24 dev v%u && ip address add fd09:%u::1/64 dev v%u nodad", i, i, i, i);
  netns_run("ip rule add from 10.9.%u.1 table 10%u && ip -6 rule add from fd09:%u::1 table 10%u", i, i, i, i);
  netns_run("ip route add default via 10.9.%u.254 dev v%u table 10%u", i, i, i);
  netns_run("ip -6 route add default via fd09:%u::fe dev v%u table 10%u", i, i, i);
}

static bool has_namespace;
static unsigned indexes[2];

static int enter(void **state) {
  (void)state;
  has_namespace = netns_enter();
  if (!has_namespace) return 0;
  for (unsigned i = 0; i < 2; i++) add_interface(i);
  netns_run("ip route add 10.10.0.0/16 via 10.9.1.253 dev v1 table 101");
  netns_run("ip -6 route add fd10::/48 via fd09:1::fd dev v1 table 101");
  indexes[0] = netns_index("v0");
  indexes[1] = netns_index("v1");
  return 0;
}

static void assert_route(const char *from, unsigned eni, const char *to, enum harp_route_kind kind,
                         unsigned prefix_bits) {
  const struct sockaddr_storage a = address(from, 0), b = address(to, 4000);
  struct harp_route route = harp_route_find(&a, indexes[eni], &b);
  assert_int_equal(route.kind, kind);
  assert_int_equal(route.prefix_bits, prefix_bits);
}

/* A gateway's route has the length of its prefix in the table that is right for that interface. */
static void test_prefixes_of_gateways(void **state) {
  (void)state;
  if (!has_namespace) skip();
  assert_route("10.9.0.1", 0, "10.10.3.4", HARP_ROUTE_GATEWAY, 0);
  assert_route("10.9.1.1", 1, "10.10.3.4", HARP_ROUTE_GATEWAY, 16);
  assert_route("10.9.1.1", 1, "10.11.3.4", HARP_ROUTE_GATEWAY, 0);
  assert_route("fd09:0::1", 0, "fd10::9", HARP_ROUTE_GATEWAY, 0);
  assert_route("fd09:1::1", 1, "fd10::9", HARP_ROUTE_GATEWAY, 48);
}

static void test_other_kinds(void **state) {
  (void)state;
  if (!has_namespace) skip();
  netns_run("ip route add 10.9.1.0/24 dev v1 table 101");
  assert_route("10.9.1.1", 1, "10.9.1.7", HARP_ROUTE_LINK, 0);
  assert_route("10.9.1.1", 0, "10.9.1.7", HARP_ROUTE_OTHER, 0);
  assert_route("10.9.1.1", 1, "10.9.0.1", HARP_ROUTE_SELF, 0);
  netns_run("ip route del default table 101");
  assert_route("10.9.1.1", 1, "192.0.2.1", HARP_ROUTE_NONE, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_prefixes_of_gateways),
      cmocka_unit_test(test_other_kinds),
  };
  return cmocka_run_group_tests(tests, enter, NULL);
}
