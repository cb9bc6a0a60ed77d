/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces that are chosen because HARP was asked for by name. */
#include "host/choice.h"
#include "unit/host_tree.h"

static struct harp_error error;

/* Writes what is chosen, "eth1 eth2", or the error's sentence. */
static const char *choose_family(int family, unsigned max) {
  static char text[HARP_ERROR_BYTES];
  struct harp_ifname_choice choices[HARP_INSTANCES_MAX];
  struct harp_eni_source source = tree_eni_source();
  tree_log[0] = text[0] = 0;
  int count = harp_choice_make(&source, tree_enis, tree_eni_count, family, choices, max, &error);
  if (count < 0) return error.text;
  for (int i = 0; i < count; i++) {
    size_t used = strlen(text);
    assert_false(choices[i].is_explicit);
    snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", choices[i].name);
  }
  return text;
}

static const char *choose(void) {
  return choose_family(AF_UNSPEC, HARP_INSTANCES_MAX);
}

static struct harp_eni *add_virtual(const char *name, const char *ip, const char *kind, int lower) {
  struct harp_eni *eni = tree_add_eni(name, ip);
  tree_set_kind(eni, kind, lower);
  return eni;
}

/* What every host has, and what containers add to it. */
static void add_usual(void) {
  struct harp_eni *lo = tree_add_eni("lo", "127.0.0.1");
  lo->flags |= IFF_LOOPBACK;
  lo->hardware = ARPHRD_LOOPBACK;
  add_virtual("docker0", "172.17.0.1", "bridge", 0);
  add_virtual("veth1a", "10.9.0.1", "veth", 77);
  add_virtual("tap0", "10.9.1.1", "tun", 0);
  add_virtual("wg0", "10.9.2.1", "wireguard", 0)->hardware = ARPHRD_NONE;
  add_virtual("flannel.1", "10.244.0.0", "vxlan", 0);
}

static void test_nics(void **state) {
  (void)state;
  add_usual();
  tree_add_eni("eth0", "10.0.0.1");
  tree_add_eni("eth1", NULL);
  tree_add_eni("eth2", "10.0.2.1")->flags = 0;
  tree_add_eni("eth3", "10.0.3.1")->flags = IFF_UP;
  tree_add_eni("usb0", "169.254.3.1"); /* a management controller's */
  tree_add_ip6(tree_add_eni("eth4", NULL), "fe80::1");
  tree_add_eni("eth5", "fd00::1");
  tree_add_eni("ib0", "10.0.6.1")->hardware = ARPHRD_INFINIBAND;
  assert_string_equal(choose(), "eth0 eth5");
  assert_string_equal(
      tree_log,
      "I neither conf files nor HARP_IFNAME name interfaces: using eth0, eth5; left out: lo "
      "(loopback), docker0 (bridge), veth1a (veth), tap0 (tun), wg0 (wireguard), flannel.1 (vxlan), "
      "eth1 (no address), eth2 (down), eth3 (no link), usb0 (no address), eth4 (no address), ib0 "
      "(no Ethernet)\n");
  assert_string_equal(choose_family(AF_INET, HARP_INSTANCES_MAX), "eth0");
  assert_string_equal(choose_family(AF_UNSPEC, 1), "eth0");
}

static void test_slow_ones_are_for_management(void **state) {
  (void)state;
  tree_add_sysfs(tree_add_eni("eth0", "10.0.0.1"), NULL, "10000\n");
  tree_add_sysfs(tree_add_eni("eth1", "10.0.1.1"), NULL, "100000\n");
  tree_add_sysfs(tree_add_eni("eth2", "10.0.2.1"), NULL, "25000\n");
  tree_add_sysfs(tree_add_eni("eth3", "10.0.3.1"), NULL, "-1\n"); /* does not tell */
  assert_string_equal(choose(), "eth1 eth2 eth3");
  assert_non_null(
      strstr(tree_log, "using eth1 (100000 Mbit/s), eth2 (25000 Mbit/s), eth3; left out: eth0 (slow)\n"));
}

/* A bond has the addresses of its NICs, a VLAN has its own beside or in place of its lower interface's. */
static void test_what_is_above_a_nic(void **state) {
  (void)state;
  struct harp_eni *eth0 = tree_add_eni("eth0", "10.0.0.1"), *eth1 = tree_add_eni("eth1", NULL);
  add_virtual("eth0.7", "10.7.0.1", "vlan", eth0->index);
  add_virtual("eth1.7", "10.7.1.1", "vlan", eth1->index);
  add_virtual("bond0", "10.8.0.1", "bond", 0);
  add_virtual("mac0", "10.9.0.1", "macvlan", eth1->index);
  assert_string_equal(choose(), "eth0 eth1.7 bond0");
  assert_non_null(strstr(tree_log, "eth0.7 (its lower interface is used)"));
}

/* A container has no NIC, or those that it was given, in place of or beside a veth of its network. */
static void test_containers(void **state) {
  (void)state;
  add_virtual("eth0", "10.244.1.5", "veth", 12);
  assert_string_equal(choose(), "eth0");
  add_virtual("net1", "10.1.0.5", "macvlan", 0); /* above one of the host's namespace */
  add_virtual("net2", "10.2.0.5", "ipvlan", 0);
  assert_string_equal(choose(), "net1 net2");
  tree_add_eni("net3", "10.3.0.5");
  assert_string_equal(choose(), "net3");
}

static void test_nothing_fits(void **state) {
  (void)state;
  assert_string_equal(choose(), "no interface fits of this network namespace's: none; name those to use with "
                                "HARP_IFNAME");
  add_usual();
  tree_enis[2].flags = 0; /* the veth */
  assert_string_equal(choose(),
                      "no interface fits of this network namespace's: lo (loopback), docker0 (bridge), "
                      "veth1a (down), tap0 (tun), wg0 (wireguard), flannel.1 (vxlan); name those to use "
                      "with HARP_IFNAME");
}

static void test_many_names_are_cut(void **state) {
  (void)state;
  for (int i = 0; i < 39; i++) {
    char name[HARP_ENI_NAME_BYTES];
    snprintf(name, sizeof name, "veth%d", i);
    add_virtual(name, NULL, "veth", 0);
  }
  tree_add_eni("eth0", "10.0.0.1");
  assert_string_equal(choose(), "eth0");
  assert_non_null(strstr(tree_log, ", ...\n"));
}

static void test_asked_by(void **state) {
  (void)state;
  const char *none[] = {"NCCL_NET=Socket", "NCCL_NET_PLUGINS=harp", "HARP_NET=1", NULL};
  const char *net[] = {"NCCL_NET=harp", NULL}, *empty[] = {"NCCL_NET=", "NCCL_NET_PLUGIN=", NULL};
  const char *plugin[] = {"NCCL_NET_PLUGIN=/opt/libnccl-net-harp.so", NULL};
  assert_null(harp_choice_asked_by(none));
  assert_null(harp_choice_asked_by(empty));
  assert_string_equal(harp_choice_asked_by(net), "NCCL_NET");
  assert_string_equal(harp_choice_asked_by(plugin), "NCCL_NET_PLUGIN");
}

#define T(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(test_nics),
      T(test_slow_ones_are_for_management),
      T(test_what_is_above_a_nic),
      T(test_containers),
      T(test_nothing_fits),
      T(test_many_names_are_cut),
      T(test_asked_by),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
