/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces: addresses, PCI place, NUMA node and speed on a tree; the real list against this host's
 * loopback. */
#include "host/eni.h"
#include "unit/host_tree.h"

/* ---- addresses ---- */

static const char *chosen(const struct harp_eni *eni, int family, bool is_explicit) {
  static char text[INET6_ADDRSTRLEN];
  struct sockaddr_storage address;
  if (harp_eni_choose_address(eni, family, is_explicit, &address) < 0) return "none";
  const void *ip = address.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)&address)->sin_addr
                                                : (void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
  assert_non_null(inet_ntop(address.ss_family, ip, text, sizeof text));
  return text;
}

static void add_ip4(struct harp_eni *eni, const char *ip) {
  struct sockaddr_in *in = &eni->ip4[eni->ip4_count++];
  in->sin_family = AF_INET;
  assert_int_equal(inet_pton(AF_INET, ip, &in->sin_addr), 1);
}

static void test_choose_address(void **state) {
  (void)state;
  struct harp_eni *eni = tree_add_eni("eth0", NULL);
  assert_string_equal(chosen(eni, AF_UNSPEC, true), "none");
  tree_add_ip6(eni, "fe80::1");
  assert_string_equal(chosen(eni, AF_UNSPEC, false), "none");
  assert_string_equal(chosen(eni, AF_UNSPEC, true), "fe80::1");
  struct sockaddr_storage address;
  assert_int_equal(harp_eni_choose_address(eni, AF_UNSPEC, true, &address), 0);
  assert_int_equal(((struct sockaddr_in6 *)&address)->sin6_scope_id, eni->index);

  add_ip4(eni, "169.254.3.4");
  assert_string_equal(chosen(eni, AF_UNSPEC, false), "169.254.3.4");
  tree_add_ip6(eni, "2001:db8::5");
  tree_add_ip6(eni, "2001:db8::6");
  assert_string_equal(chosen(eni, AF_UNSPEC, false), "2001:db8::5");
  add_ip4(eni, "10.0.0.5");
  add_ip4(eni, "10.0.0.6");
  assert_string_equal(chosen(eni, AF_UNSPEC, false), "10.0.0.5");
  assert_string_equal(chosen(eni, AF_INET6, false), "2001:db8::5");
  assert_string_equal(chosen(eni, AF_INET, true), "10.0.0.5");
}

static void test_loopback_address_needs_the_name(void **state) {
  (void)state;
  struct harp_eni *lo = tree_add_eni("lo", "127.0.0.1");
  tree_add_ip6(lo, "::1");
  assert_string_equal(chosen(lo, AF_UNSPEC, false), "none");
  assert_string_equal(chosen(lo, AF_UNSPEC, true), "127.0.0.1");
  assert_string_equal(chosen(lo, AF_INET6, true), "::1");
}

static void test_has_address(void **state) {
  (void)state;
  struct harp_eni *eni = tree_add_eni("eth0", "10.0.0.5");
  tree_add_ip6(eni, "fe80::1");
  struct sockaddr_storage want = {0}, found;
  ((struct sockaddr_in *)&want)->sin_family = AF_INET;
  ((struct sockaddr_in *)&want)->sin_addr.s_addr = htonl(0x0a000005);
  assert_true(harp_eni_has_address(eni, &want, NULL));
  ((struct sockaddr_in *)&want)->sin_addr.s_addr = htonl(0x0a000006);
  assert_false(harp_eni_has_address(eni, &want, &found));
  memset(&want, 0, sizeof want);
  ((struct sockaddr_in6 *)&want)->sin6_family = AF_INET6;
  assert_int_equal(inet_pton(AF_INET6, "fe80::1", &((struct sockaddr_in6 *)&want)->sin6_addr), 1);
  assert_true(harp_eni_has_address(eni, &want, &found));
  assert_int_equal(((struct sockaddr_in6 *)&found)->sin6_scope_id, eni->index);
}

/* ---- sysfs ---- */

#define BDF "pci0000:00/0000:00:06.0"

/* The PCI path below the tree's root, "" for none. */
static const char *pci_of(const struct harp_eni *eni) {
  static char path[HARP_ENI_PCI_BYTES];
  struct harp_eni_source source = tree_eni_source();
  harp_eni_pci_path(source.sysfs_root, eni, path);
  if (!path[0]) return "";
  assert_memory_equal(path, tree_root, strlen(tree_root));
  return path + strlen(tree_root);
}

static void test_pci_path(void **state) {
  (void)state;
  struct harp_eni *plain = tree_add_eni("eth0", NULL), *virtio = tree_add_eni("eth1", NULL);
  struct harp_eni *mmio = tree_add_eni("eth2", NULL), *veth = tree_add_eni("veth0", NULL);
  struct harp_eni *vmbus = tree_add_eni("eth3", NULL), *absent = tree_add_eni("eth4", NULL);
  tree_add_sysfs(plain, BDF, NULL);
  tree_add_sysfs(virtio, "pci0000:00/0000:00:07.0/virtio3", NULL);
  tree_add_sysfs(mmio, "platform/virtio-mmio.1/virtio1", NULL);
  tree_add_sysfs(veth, NULL, NULL);
  tree_add_sysfs(vmbus, "LNXSYSTM:00/6045bd0e-9c7f-6045-bd0e-9c7f6045bd0e", NULL);
  assert_string_equal(pci_of(plain), "/sys/devices/" BDF);
  assert_string_equal(pci_of(virtio), "/sys/devices/pci0000:00/0000:00:07.0");
  assert_string_equal(pci_of(mmio), "");
  assert_string_equal(pci_of(veth), "");
  assert_string_equal(pci_of(vmbus), "");
  assert_string_equal(pci_of(absent), "");
}

/* A namespace entered without its own sysfs sees the host's eth0 under our eth0's name. */
static void test_sysfs_of_a_namesake(void **state) {
  (void)state;
  struct harp_eni *eni = tree_add_eni("eth0", NULL);
  struct harp_eni_source source = tree_eni_source();
  enum harp_speed_source from;
  tree_add_sysfs(eni, BDF, "100000\n");
  assert_string_equal(pci_of(eni), "/sys/devices/" BDF);
  assert_int_equal(harp_eni_speed_mbps(&source, eni, &from), 100000);
  eni->mac[5] ^= 1;
  assert_string_equal(pci_of(eni), "");
  assert_int_equal(harp_eni_speed_mbps(&source, eni, &from), HARP_ENI_ASSUMED_MBPS);
  assert_int_equal(from, HARP_SPEED_ASSUMED);
  eni->mac[5] ^= 1;
  eni->index++;
  assert_string_equal(pci_of(eni), "");
}

static void test_numa(void **state) {
  (void)state;
  tree_write("one/numa_node", "1\n");
  tree_write("none/numa_node", "-1\n");
  assert_int_equal(harp_eni_numa(tree_path("one")), 1);
  assert_int_equal(harp_eni_numa(tree_path("none")), -1);
  assert_int_equal(harp_eni_numa(tree_path("absent")), -1);
  assert_int_equal(harp_eni_numa(""), -1);
}

static void test_speed_ladder(void **state) {
  (void)state;
  static const struct {
    const char *sysfs;
    int ethtool_mbps, mbps;
    enum harp_speed_source from;
  } rows[] = {
      {"25000\n", 40000, 25000, HARP_SPEED_SYSFS},
      {"-1\n", 40000, 40000, HARP_SPEED_ETHTOOL},
      {"4294967295\n", 40000, 40000, HARP_SPEED_ETHTOOL},
      {"0\n", 40000, 40000, HARP_SPEED_ETHTOOL},
      {"", 40000, 40000, HARP_SPEED_ETHTOOL},
      {"fast\n", 40000, 40000, HARP_SPEED_ETHTOOL},
      {NULL, 40000, 40000, HARP_SPEED_ETHTOOL},
      {"-1\n", -ENODATA, HARP_ENI_ASSUMED_MBPS, HARP_SPEED_ASSUMED},
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    char name[16];
    enum harp_speed_source from;
    struct harp_eni_source source = tree_eni_source();
    snprintf(name, sizeof name, "eth%zu", i);
    struct harp_eni *eni = tree_add_eni(name, NULL);
    tree_add_sysfs(eni, NULL, rows[i].sysfs);
    tree_ethtool_mbps = rows[i].ethtool_mbps;
    assert_int_equal(harp_eni_speed_mbps(&source, eni, &from), rows[i].mbps);
    assert_int_equal(from, rows[i].from);
  }
}

/* ---- this host ---- */

static void test_real_list_has_loopback(void **state) {
  (void)state;
  static struct harp_eni enis[HARP_ENI_LIST_MAX];
  int count = harp_eni_list(enis, HARP_ENI_LIST_MAX);
  assert_true(count >= 1);
  for (int i = 1; i < count; i++) assert_true(enis[i - 1].index < enis[i].index);
  const struct harp_eni *lo = harp_eni_find(enis, (unsigned)count, "lo");
  assert_non_null(lo);
  assert_int_equal(lo->index, (int)if_nametoindex("lo"));
  assert_true(lo->flags & IFF_LOOPBACK);
  if (harp_eni_is_up(lo)) {
    assert_string_equal(chosen(lo, AF_INET, true), "127.0.0.1");
    assert_true(lo->mtu >= 1500);
  }
  assert_null(harp_eni_find(enis, (unsigned)count, "no-such-eni"));
  assert_int_equal(harp_eni_list(enis, 0), 0);
}

/* Loopback has no speed; what matters is that both ways in answer and neither is taken for a number. */
static void test_real_ethtool(void **state) {
  (void)state;
  assert_true(harp_eni_ethtool_mbps("lo", (int)if_nametoindex("lo")) < 0);
  assert_true(harp_eni_ethtool_mbps("no-such-eni", 0x7ffffff0) < 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_choose_address, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_loopback_address_needs_the_name, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_has_address, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_pci_path, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_sysfs_of_a_namesake, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_numa, tree_setup, tree_teardown),
      cmocka_unit_test_setup_teardown(test_speed_ladder, tree_setup, tree_teardown),
      cmocka_unit_test(test_real_list_has_loopback),
      cmocka_unit_test(test_real_ethtool),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
