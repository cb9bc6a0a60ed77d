/* SPDX-License-Identifier: Apache-2.0 */
/* HARP_IFNAME against a list of interfaces. */
#include "host/ifname.h"
#include "unit/host_alternative.h"

static struct harp_error error;
/* Writes what a list chooses, "eth1 eth10!", where ! marks a name given in full; or the error's sentence. */
static const char *pick_family(const char *list, int family) {
  static char text[HARP_ERROR_BYTES];
  struct harp_ifname_filter filter;
  struct harp_ifname_choice choices[HARP_INSTANCES_MAX];
  if (harp_ifname_parse(&filter, "HARP_IFNAME", list, &error) < 0) return error.text;
  int count =
      harp_ifname_select(&filter, tree_enis, tree_eni_count, family, choices, HARP_INSTANCES_MAX, &error);
  if (count < 0) return error.text;
  text[0] = 0;
  for (int i = 0; i < count; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s%s", i ? " " : "", choices[i].name,
             choices[i].is_explicit ? "!" : "");
  }
  return text;
}

static const char *pick(const char *list) {
  return pick_family(list, AF_UNSPEC);
}

static int setup(void **state) {
  tree_setup(state);
  struct harp_eni *lo = tree_add_eni("lo", "127.0.0.1");
  lo->flags |= IFF_LOOPBACK;
  tree_add_eni("eth0", "10.0.0.1");
  tree_add_eni("eth1", "10.0.1.1");
  tree_add_eni("eth10", "10.0.10.1");
  tree_add_eni("down0", "10.0.2.1")->flags = 0;
  tree_add_eni("dark0", "10.0.3.1")->flags = IFF_UP;
  tree_add_eni("bare0", NULL);
  tree_add_ip6(tree_add_eni("local0", NULL), "fe80::1");
  tree_add_eni("six0", "fd00::1");
  tree_add_eni("docker0", "172.17.0.1");
  return 0;
}

static void test_prefixes_and_names(void **state) {
  (void)state;
  assert_string_equal(pick("eth"), "eth0 eth1 eth10");
  assert_string_equal(pick("eth1"), "eth1! eth10");
  assert_string_equal(pick("=eth1"), "eth1!");
  assert_string_equal(pick("=eth10,eth0"), "eth10! eth0!");
  assert_string_equal(pick("eth1,eth"), "eth1! eth10 eth0");
  assert_string_equal(pick("eth0,,eth0,"), "eth0!");
}

static void test_blanks_beside_names(void **state) {
  (void)state;
  assert_string_equal(pick("eth0 "), "eth0!");
  assert_string_equal(pick(" eth0, eth1\n"), "eth0! eth1! eth10");
  assert_string_equal(pick(" = eth0 ,\teth1\r\n"), "eth0! eth1!");
  assert_string_equal(pick("^docker, eth1 ,six\n"), "eth0");
}

static void test_alternative_names(void **state) {
  (void)state;
  tree_alternative = "enp3s0";
  assert_string_equal(pick("enp3s0"), "eth1!");
  assert_string_equal(pick("=eth0,enp3s0"), "eth0! eth1!");
  assert_string_equal(pick("eth1,enp3s0"), "eth1! eth10");
  assert_string_equal(pick("enp3"), "HARP_IFNAME: no interface of this network namespace begins with 'enp3' "
                                    "(loopback counts only by its whole name)");
  tree_alternative = NULL;
}

static void test_exclusion(void **state) {
  (void)state;
  assert_string_equal(pick("^docker,eth1"), "eth0 six0");
  assert_string_equal(pick("^=eth1,docker0,six0"), "eth0 eth10");
  assert_string_equal(pick("^"), "eth0 eth1 eth10 six0 docker0");
  assert_string_equal(pick("^e,d,s"), "HARP_IFNAME: no interface is left that is up and has an address");
}

static void test_loopback_and_link_local_only_in_full(void **state) {
  (void)state;
  assert_string_equal(pick("lo"), "lo!");
  assert_string_equal(pick("=lo"), "lo!");
  assert_string_equal(pick("l"), "HARP_IFNAME: no interface that begins with 'l' has an address to use");
  struct harp_eni *lo = &tree_enis[0]; /* with an address that would do */
  lo->ip4[lo->ip4_count] = lo->ip4[0];
  lo->ip4[lo->ip4_count++].sin_addr.s_addr = htonl(0x0a630001);
  assert_string_equal(pick("l"), "HARP_IFNAME: no interface that begins with 'l' has an address to use");
  assert_string_equal(pick("^eth,six,docker"),
                      "HARP_IFNAME: no interface is left that is up and has an address");
  assert_string_equal(pick("local0"), "local0!");
  assert_string_equal(pick("local"),
                      "HARP_IFNAME: no interface that begins with 'local' has an address to use");
}

static void test_unusable_is_named(void **state) {
  (void)state;
  assert_string_equal(pick("eth7"), "HARP_IFNAME: no interface of this network namespace begins with 'eth7' "
                                    "(loopback counts only by its whole name)");
  assert_string_equal(pick("bar"), "HARP_IFNAME: no interface that begins with 'bar' has an address to use");
}

/* Who lists names means them for hosts that lack some, and for interfaces that come up later. */
static void test_what_is_absent(void **state) {
  (void)state;
  assert_string_equal(pick("eth0,down0"), "eth0! down0!");
  assert_string_equal(pick("d"), "down0 dark0 docker0");
  assert_string_equal(pick("dark0"), "dark0!");
  assert_string_equal(pick("^e,s,docker"), "HARP_IFNAME: no interface is left that is up and has an address");
  assert_string_equal(tree_log, "");
  assert_string_equal(pick("=eth7,eth0"), "eth7! eth0!");
  assert_string_equal(pick("eth0,bare0"), "eth0! bare0!");
  assert_string_equal(tree_log, "");
  assert_string_equal(pick("eth7,eth0"), "eth0!");
  assert_string_equal(error.text, "");
  assert_string_equal(tree_log, "I HARP_IFNAME: no interface of this network namespace begins with 'eth7' "
                                "(loopback counts only by its whole name); the other names count\n");
  tree_log[0] = 0;
  assert_string_equal(pick("bar,eth0"), "eth0!");
  assert_string_equal(tree_log,
                      "I HARP_IFNAME: interface 'bare0' is left out: it has no address to use\n"
                      "I HARP_IFNAME: no interface that begins with 'bar' has an address to use; the other "
                      "names count\n");
}

static void test_family(void **state) {
  (void)state;
  assert_string_equal(pick_family("^", AF_INET6), "six0");
  assert_string_equal(pick_family("si", AF_INET),
                      "HARP_IFNAME: no interface that begins with 'si' has an address to use");
  assert_string_equal(pick_family("six0", AF_INET), "six0!");
}

static void test_bad_lists(void **state) {
  (void)state;
  assert_string_equal(pick("="), "HARP_IFNAME = '=': expected at least one interface name");
  assert_string_equal(pick(",,"), "HARP_IFNAME = ',,': expected at least one interface name");
  assert_string_equal(pick("eth0,sixteen--letters"),
                      "HARP_IFNAME = 'eth0,sixteen--letters': expected names of 1 to 15 characters");
  assert_string_equal(pick("eth0,e 1"), "HARP_IFNAME = 'eth0,e 1': expected names of 1 to 15 characters");
  assert_string_equal(pick(" , "), "HARP_IFNAME = ' , ': expected at least one interface name");
  assert_non_null(strstr(pick("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,A,B,C,D,E,F,G"),
                         "expected at most 32 names"));
}

static void test_too_many(void **state) {
  (void)state;
  for (unsigned i = 0; i < 17; i++) {
    char name[16];
    snprintf(name, sizeof name, "veth%u", i);
    tree_add_eni(name, "10.9.0.1");
  }
  assert_string_equal(pick("veth"), "HARP_IFNAME: too many interfaces: expected at most 16");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_prefixes_and_names, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_exclusion, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_blanks_beside_names, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_alternative_names, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_loopback_and_link_local_only_in_full, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_unusable_is_named, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_what_is_absent, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_family, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_bad_lists, setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_too_many, setup, tree_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
