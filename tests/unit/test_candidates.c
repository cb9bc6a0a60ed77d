/* SPDX-License-Identifier: Apache-2.0 */
/* In which order a connect tries its interfaces with the peer's addresses, on networks of many shapes. */
#include "engine/control/candidates.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/addresses.h"

enum { TEXT_BYTES = 400 };

static struct harp_instance enis[HARP_ENDPOINT_ENIS_MAX];
static unsigned eni_count;
static struct harp_contact contact;

static void set(const char *const *from, const char *const *to) {
  eni_count = contact.count = 0;
  for (; *from; from++, eni_count++)
    enis[eni_count] = (struct harp_instance){.addr = address(*from, 0), .index = (int)eni_count + 1};
  for (; *to; to++) contact.at[contact.count++] = address(*to, 4000);
}

/* Returns the pairs as a text, "0>0 1>1". */
static const char *order(harp_route_finder *find) {
  static char text[TEXT_BYTES];
  struct harp_candidate out[HARP_CANDIDATES_MAX];
  size_t used = 0;
  unsigned count = harp_candidates_make(enis, eni_count, &contact, find, out);
  text[0] = 0;
  for (unsigned i = 0; i < count; i++)
    used +=
        (size_t)snprintf(text + used, sizeof text - used, "%s%u>%u", i ? " " : "", out[i].from, out[i].to);
  return text;
}

static struct harp_route all_linked(const struct sockaddr_storage *from, unsigned ifindex,
                                    const struct sockaddr_storage *to) {
  (void)from, (void)ifindex, (void)to;
  return (struct harp_route){HARP_ROUTE_LINK, 0};
}

static const uint8_t *bytes_of(const struct sockaddr_storage *a) {
  return harp_address_ip(a);
}

/* Cables: the third byte is the subnet; there is nothing else. */
static struct harp_route cabled(const struct sockaddr_storage *from, unsigned ifindex,
                                const struct sockaddr_storage *to) {
  (void)ifindex;
  return (struct harp_route){bytes_of(from)[2] == bytes_of(to)[2] ? HARP_ROUTE_LINK : HARP_ROUTE_NONE, 0};
}

/* The same, and a gateway at the interface with the number 2. */
static struct harp_route with_gateway(const struct sockaddr_storage *from, unsigned ifindex,
                                      const struct sockaddr_storage *to) {
  struct harp_route route = cabled(from, ifindex, to);
  if (route.kind == HARP_ROUTE_NONE) route.kind = ifindex == 2 ? HARP_ROUTE_GATEWAY : HARP_ROUTE_OTHER;
  return route;
}

/* Each interface has a gateway; the one with the number 2 has a route to 10.0.9.0/24, the others a default
 * route. */
static struct harp_route with_gateways(const struct sockaddr_storage *from, unsigned ifindex,
                                       const struct sockaddr_storage *to) {
  (void)from;
  uint8_t bits = ifindex == 2 && bytes_of(to)[2] == 9 ? 24 : 0;
  return (struct harp_route){HARP_ROUTE_GATEWAY, bits};
}

static struct harp_route own_first(const struct sockaddr_storage *from, unsigned ifindex,
                                   const struct sockaddr_storage *to) {
  if (harp_address_has_same_ip(from, to)) return (struct harp_route){HARP_ROUTE_SELF, 0};
  return cabled(from, ifindex, to);
}

/* Where all reach all, the next pair shares no interface with the one before. */
static void test_one_network(void **state) {
  (void)state;
  set((const char *const[]){"10.0.0.1", "10.0.0.2", NULL},
      (const char *const[]){"10.0.0.3", "10.0.0.4", NULL});
  assert_string_equal(order(all_linked), "0>0 1>1 0>1 1>0");
  set((const char *const[]){"10.0.0.1", "10.0.0.2", NULL},
      (const char *const[]){"10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", NULL});
  assert_string_equal(order(all_linked), "0>0 1>1 0>1 1>2 0>2 1>3 0>3 1>0");
  set((const char *const[]){"10.0.0.3", "10.0.0.4", "10.0.0.5", NULL},
      (const char *const[]){"10.0.0.1", "10.0.0.2", NULL});
  assert_string_equal(order(all_linked), "0>0 1>1 2>0 0>1 1>0 2>1");
}

/* A triangle of cables: the pair that shares one comes first, wherever it stands in the lists. */
static void test_cables(void **state) {
  (void)state;
  set((const char *const[]){"10.0.1.1", "10.0.2.1", NULL},
      (const char *const[]){"10.0.3.2", "10.0.2.2", NULL});
  assert_string_equal(order(cabled), "1>1 0>0 0>1 1>0");
}

/* A subnet before a gateway, and that before a way by another interface. */
static void test_gateway(void **state) {
  (void)state;
  set((const char *const[]){"10.0.1.1", "10.0.2.1", NULL},
      (const char *const[]){"10.0.9.1", "10.0.1.2", NULL});
  assert_string_equal(order(with_gateway), "0>1 1>1 1>0 0>0");
}

/* Two interfaces of one subnet without rules for their addresses: the kernel sends all by the first. */
static struct harp_route by_the_first(const struct sockaddr_storage *from, unsigned ifindex,
                                      const struct sockaddr_storage *to) {
  (void)from, (void)to;
  return (struct harp_route){ifindex == 1 ? HARP_ROUTE_LINK : HARP_ROUTE_OTHER, 0};
}

static int diverted(harp_route_finder *find) {
  struct harp_candidate out[HARP_CANDIDATES_MAX];
  return harp_candidates_diverted(out, harp_candidates_make(enis, eni_count, &contact, find, out));
}

static void test_an_interface_that_sends_nothing(void **state) {
  (void)state;
  set((const char *const[]){"10.0.1.1", "10.0.1.2", NULL},
      (const char *const[]){"10.0.1.3", "10.0.1.4", NULL});
  assert_int_equal(diverted(by_the_first), 1);
  assert_int_equal(diverted(all_linked), -1);
  set((const char *const[]){"10.0.1.1", "10.0.2.1", NULL},
      (const char *const[]){"10.0.1.3", "10.0.2.3", NULL});
  assert_int_equal(diverted(with_gateway), -1); /* each has the peer's address of its own subnet */
}

/* Where each interface has a gateway, the one with a route to that network before those with a default
 * route. */
static void test_longest_prefix(void **state) {
  (void)state;
  set((const char *const[]){"10.0.1.1", "10.0.2.1", "10.0.3.1", NULL},
      (const char *const[]){"10.0.8.1", "10.0.9.1", NULL});
  assert_string_equal(order(with_gateways), "1>1 0>0 2>0 0>1 1>0 2>1");
}

/* Bridges of containers have the same address on all hosts: to go there leads to this host itself. */
static void test_own_address(void **state) {
  (void)state;
  set((const char *const[]){"172.17.0.1", "10.0.1.1", NULL},
      (const char *const[]){"172.17.0.1", "10.0.1.2", NULL});
  assert_string_equal(order(own_first), "1>1 0>0 0>1 1>0");
}

static void test_families_do_not_mix(void **state) {
  (void)state;
  set((const char *const[]){"fd00::1", "10.0.1.1", NULL}, (const char *const[]){"10.0.1.2", "fd00::2", NULL});
  assert_string_equal(order(all_linked), "0>1 1>0");
  set((const char *const[]){"fd00::1", NULL}, (const char *const[]){"10.0.1.2", NULL});
  assert_string_equal(order(all_linked), "");
}

/* A link-local address is the peer's on each of our interfaces with such an address, and only there. */
static void test_link_local(void **state) {
  (void)state;
  set((const char *const[]){"fe80::1", "fd00::1", NULL}, (const char *const[]){"fd00::2", "fe80::2", NULL});
  ((struct sockaddr_in6 *)&enis[0].addr)->sin6_scope_id = 7;
  assert_string_equal(order(all_linked), "0>1 1>0");
  struct sockaddr_storage to = harp_candidate_to(&enis[0], &contact.at[1]);
  assert_int_equal(harp_address_scope(&to), 7);
  to = harp_candidate_to(&enis[1], &contact.at[0]);
  assert_int_equal(harp_address_scope(&to), 0);
}

/* The kernel's own answers, over loopback. */
static void test_routes_of_loopback(void **state) {
  (void)state;
  struct sockaddr_storage here = address("127.0.0.1", 0), nowhere = address("240.0.0.1", 0);
  struct sockaddr_storage foreign = address("192.0.2.77", 0);
  assert_int_equal(harp_route_find(&here, 1, &here).kind, HARP_ROUTE_SELF);
  assert_int_equal(harp_route_find(&foreign, 1, &nowhere).kind, HARP_ROUTE_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_network),
      cmocka_unit_test(test_cables),
      cmocka_unit_test(test_gateway),
      cmocka_unit_test(test_an_interface_that_sends_nothing),
      cmocka_unit_test(test_longest_prefix),
      cmocka_unit_test(test_own_address),
      cmocka_unit_test(test_families_do_not_mix),
      cmocka_unit_test(test_link_local),
      cmocka_unit_test(test_routes_of_loopback),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
