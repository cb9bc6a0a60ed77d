/* SPDX-License-Identifier: Apache-2.0 */
/* The whole configuration, from files, variables and interfaces to instances. */
#include "host/config.h"
#include "unit/host_alternative.h"

static struct harp_config cfg;
static struct harp_error error;

/* Loads from conf/ in the tree, with these variables. */
static int load_with(const char *const *environment) {
  char conf_dir[160], proc_root[160];
  snprintf(conf_dir, sizeof conf_dir, "%s/conf", tree_root);
  snprintf(proc_root, sizeof proc_root, "%s/proc", tree_root);
  struct harp_config_sources sources = {
      .conf_dir = conf_dir, .environment = environment, .eni = tree_eni_source(), .proc_root = proc_root};
  tree_log[0] = 0;
  return harp_config_load_from(&cfg, &sources, &error);
}

#define LOAD(...) load_with((const char *const[]){"PATH=/bin", ##__VA_ARGS__, NULL})

/* Asserts the sentence, in which the tree's root reads as $. */
static void assert_error(int rc, int expected_rc, const char *sentence) {
  char text[HARP_ERROR_BYTES] = "", *to = text;
  for (const char *at = error.text; *at;) {
    bool is_root = strncmp(at, tree_root, strlen(tree_root)) == 0;
    *to++ = is_root ? '$' : *at;
    at += is_root ? strlen(tree_root) : 1;
  }
  assert_string_equal(text, sentence);
  assert_int_equal(rc, expected_rc);
  assert_int_equal(cfg.instance_count, 0);
  assert_null(strstr(tree_log, "W "));
}

static int setup(void **state) {
  tree_setup(state);
  tree_add_eni("lo", "127.0.0.1")->flags |= IFF_LOOPBACK;
  struct harp_eni *eth1 = tree_add_eni("eth1", "10.0.1.1");
  tree_add_ip6(eth1, "fd00::1");
  tree_add_sysfs(eth1, "pci0000:00/0000:00:06.0", "25000\n");
  tree_write("sys/devices/pci0000:00/0000:00:06.0/numa_node", "1\n");
  struct harp_eni *eth2 = tree_add_eni("eth2", "10.0.2.1");
  tree_add_sysfs(eth2, "pci0000:00/0000:00:07.0/virtio4", "-1\n");
  struct harp_eni *veth = tree_add_eni("veth0", "10.0.3.1");
  tree_add_sysfs(veth, NULL, "10000\n");
  tree_add_eni("down0", "10.0.4.1")->flags = 0;
  return 0;
}

/* ---- not configured ---- */

#define NOT_CONFIGURED(dir)                                                                                  \
  "HARP is not configured: no ztcp*.conf in " dir "; configure it with `harpctl setup`, or set HARP_IFNAME " \
  "or NCCL_NET=HARP, or move libnccl-net.so out of the library path to use NCCL's own sockets"

static void test_not_configured(void **state) {
  (void)state;
  assert_error(LOAD(), -ENOENT, NOT_CONFIGURED("$/conf"));
  tree_write("conf/ztcp0.conf.bak", "nonsense");
  tree_write("conf/other.conf", "nonsense");
  assert_error(LOAD(), -ENOENT, NOT_CONFIGURED("$/conf"));
  assert_error(LOAD("HARP_CONF_DIR=/nonexistent/dir"), -ENOENT, NOT_CONFIGURED("/nonexistent/dir"));
  assert_error(LOAD("HARP_IFNAME="), -ENOENT, NOT_CONFIGURED("$/conf"));
}

/* NCCL_NET=HARP, or a plugin that was named: HARP chooses, as NCCL_SOCKET_IFNAME says if that is set. */
static void test_asked_for_by_name(void **state) {
  (void)state;
  assert_int_equal(LOAD("NCCL_NET=HARP"), 0);
  assert_int_equal(cfg.instance_count, 3);
  assert_string_equal(cfg.instances[0].ifname, "eth1");
  assert_string_equal(cfg.instances[0].name, "ifname0");
  assert_string_equal(cfg.conf_dir, "");
  assert_int_equal(LOAD("NCCL_NET_PLUGIN=harp", "NCCL_SOCKET_IFNAME=veth,eth2"), 0);
  assert_int_equal(cfg.instance_count, 2);
  assert_string_equal(cfg.instances[0].ifname, "veth0");
  assert_error(LOAD("NCCL_NET=HARP", "NCCL_SOCKET_IFNAME=down0"), -ENETDOWN,
               "NCCL_SOCKET_IFNAME: interface 'down0' is down; `ip link set down0 up` brings it up");
  assert_error(LOAD("NCCL_NET=HARP", "HARP_CONF_DIR=/nonexistent/dir"), -ENOENT,
               NOT_CONFIGURED("/nonexistent/dir"));
  assert_error(LOAD("NCCL_NET=Socket"), -ENOENT, NOT_CONFIGURED("$/conf"));
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth2\n");
  assert_int_equal(LOAD("NCCL_NET=HARP"), 0);
  assert_int_equal(cfg.instance_count, 1);
  assert_string_equal(cfg.instances[0].ifname, "eth2");
}

static void test_default_directory(void **state) {
  (void)state;
  assert_string_equal(harp_config_sources_system().conf_dir, "/usr/local/tfabric/tools/config");
}

/* ---- conf files ---- */

static void test_minimal_file(void **state) {
  (void)state;
  char conf_dir[160];
  snprintf(conf_dir, sizeof conf_dir, "%s/conf", tree_root);
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth1\n");
  assert_int_equal(LOAD(), 0);
  assert_string_equal(error.text, "");
  assert_int_equal(cfg.instance_count, 1);
  assert_string_equal(cfg.conf_dir, conf_dir);
  assert_int_equal(cfg.job.congestion, HARP_CONGESTION_TARGET);
  assert_int_equal(cfg.job.peer_timeout_ns, HARP_SEC(60));
  const struct harp_instance *one = &cfg.instances[0];
  assert_string_equal(one->name, "ztcp0");
  assert_string_equal(one->ifname, "eth1");
  assert_int_equal(one->index, 3);
  assert_int_equal(one->addr.ss_family, AF_INET);
  assert_int_equal(one->mac[5], 3);
  assert_int_equal(one->mtu, 9000);
  assert_int_equal(one->speed_mbps, 25000);
  assert_int_equal(one->speed_source, HARP_SPEED_SYSFS);
  assert_non_null(strstr(one->pci_path, "/sys/devices/pci0000:00/0000:00:06.0"));
  assert_int_equal(one->numa, 1);
  assert_int_equal(one->mode, HARP_ENGINE_INLINE);
  assert_int_equal(one->cores.count, 0);
  assert_false(harp_setting_is_set(&one->settings, HARP_SETTING_GPU));
  assert_int_equal(one->page_size, HARP_PAGE_AUTO);
  assert_int_equal(one->memory_bytes, 0);
  assert_int_equal(one->driver, HARP_DRIVER_AUTO);
  assert_int_equal(one->ports.low, 0);
  assert_int_equal(one->paths, 5);
  assert_int_equal(one->peer_timeout_ns, HARP_SEC(60));
  assert_string_equal(tree_log,
                      "I ztcp0: eth1 10.0.1.1, MTU 9000, 25000 Mbit/s (sysfs), PCI 0000:00:06.0, NUMA node "
                      "1, driver auto, 5 paths, inline engine\n");
}

static void test_full_file(void **state) {
  (void)state;
  tree_write("conf/ztcp3.conf",
             "[eni]\ninterface = eth2\nmac = 02:00:00:00:00:04\naddress = 10.0.2.1\n"
             "gateway = 10.0.2.254\nmtu = 1500\npci = 0000:00:07.0\nnuma = 0\n"
             "speed_mbps = 100000\nqueues = 4\n"
             "[engine]\ncores = 4-5\ngpu = 2\n"
             "[memory]\npage_size = 2M\nbytes = 256M\n"
             "[transport]\ndriver = auto\nports = 40000-40063\npaths = 3\npeer_timeout = 20\n"
             "congestion = reno\n");
  assert_int_equal(LOAD(), 0);
  const struct harp_instance *one = &cfg.instances[0];
  assert_string_equal(one->name, "ztcp3");
  assert_int_equal(one->mtu, 1500);
  assert_int_equal(one->speed_mbps, 100000);
  assert_int_equal(one->speed_source, HARP_SPEED_CONF);
  assert_int_equal(one->numa, 0);
  assert_int_equal(one->queues, 4);
  assert_int_equal(one->mode, HARP_ENGINE_THREAD); /* auto, with cores */
  assert_int_equal(one->cores.count, 2);
  assert_int_equal(one->gpu, 2);
  assert_int_equal(one->page_size, HARP_PAGE_2M);
  assert_int_equal(one->memory_bytes, 256 << 20);
  assert_int_equal(one->driver, HARP_DRIVER_AUTO);
  assert_int_equal(one->ports.low, 40000);
  assert_int_equal(one->ports.high, 40063);
  assert_int_equal(one->paths, 3);
  assert_int_equal(one->peer_timeout_ns, HARP_SEC(20));
  assert_int_equal(cfg.job.peer_timeout_ns, HARP_SEC(20));
  assert_int_equal(cfg.job.congestion, HARP_CONGESTION_RENO);
}

static void test_files_in_numeric_order(void **state) {
  (void)state;
  tree_write("conf/ztcp10.conf", "[eni]\ninterface = eth1\n");
  tree_write("conf/ztcp9.conf", "[eni]\ninterface = veth0\n");
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth2\n");
  assert_int_equal(LOAD(), 0);
  assert_int_equal(cfg.instance_count, 3);
  assert_string_equal(cfg.instances[0].ifname, "eth2");
  assert_string_equal(cfg.instances[1].ifname, "veth0");
  assert_string_equal(cfg.instances[2].ifname, "eth1");
  assert_string_equal(cfg.instances[2].name, "ztcp10");
}

static void test_file_names(void **state) {
  (void)state;
  static const char *const names[] = {"ztcp.conf", "ztcp00.conf", "ztcp-1.conf", "ztcpA.conf",
                                      "ztcp10000.conf"};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(names); i++) {
    char path[64], sentence[128];
    snprintf(path, sizeof path, "conf/%s", names[i]);
    tree_write(path, "[eni]\ninterface = eth1\n");
    snprintf(sentence, sizeof sentence,
             "$/conf/%s: expected a name of the form ztcp<N>.conf, N from 0 to 9999", names[i]);
    assert_error(LOAD(), -EINVAL, sentence);
    assert_int_equal(unlink(tree_path(path)), 0);
  }
}

static void test_too_many_files(void **state) {
  (void)state;
  for (int i = 0; i < 17; i++) {
    char path[64];
    snprintf(path, sizeof path, "conf/ztcp%d.conf", i);
    tree_write(path, "[eni]\ninterface = eth1\n");
  }
  assert_error(LOAD(), -E2BIG, "$/conf: too many ztcp*.conf files: expected at most 16");
}

static void test_parse_error_has_the_path(void **state) {
  (void)state;
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth1\nmtu = big\n");
  assert_error(LOAD(), -EINVAL,
               "$/conf/ztcp0.conf:3: key 'mtu' = 'big': expected a number from 576 to 65536");
}

/* The file against the host; each row is the file after its first two lines. */
static void test_contradictions(void **state) {
  (void)state;
  static const struct {
    const char *file, *sentence;
    int rc;
  } rows[] = {
      {"[eni]\ninterface = eth9\n",
       "$/conf/ztcp0.conf:2: interface 'eth9' does not exist in this network namespace, which has lo, eth1, "
       "eth2, "
       "veth0, down0",
       -ENODEV},
      {"[eni]\ninterface = down0\n",
       "$/conf/ztcp0.conf:2: interface 'down0' is down; `ip link set down0 up` brings it up", -ENETDOWN},
      {"[eni]\ninterface = eth1\nmac = 02:00:00:00:00:99\n",
       "$/conf/ztcp0.conf:3: key 'mac' = '02:00:00:00:00:99': expected 02:00:00:00:00:03, which interface "
       "'eth1' "
       "has",
       -ENODEV},
      {"[eni]\ninterface = eth1\naddress = 10.0.1.2\n",
       "$/conf/ztcp0.conf:3: key 'address' = '10.0.1.2': expected an address that interface 'eth1' has",
       -EADDRNOTAVAIL},
      {"[eni]\ninterface = eth1\nmtu = 9001\n",
       "$/conf/ztcp0.conf:3: key 'mtu' = '9001': expected at most the MTU 9000, which interface 'eth1' has",
       -ENODEV},
      {"[eni]\ninterface = eth1\npci = 0000:00:07.0\n",
       "$/conf/ztcp0.conf:3: key 'pci' = '0000:00:07.0': expected 0000:00:06.0, which interface 'eth1' has",
       -ENODEV},
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    tree_write("conf/ztcp0.conf", rows[i].file);
    assert_error(LOAD(), rows[i].rc, rows[i].sentence);
  }
}

/* What the host lacks is filled in from the file, and from an interface that works. */
static void test_what_is_absent(void **state) {
  (void)state;
  static const struct {
    const char *file, *log;
  } rows[] = {
      {"[eni]\ninterface = eth9\naddress = 10.0.9.1\nmac = 02:00:00:00:00:09\n",
       "2: interface 'eth9' does not exist in this network namespace, which has lo, eth1, eth2, veth0, "
       "down0"},
      {"[eni]\ninterface = down0\n", "2: interface 'down0' is down; `ip link set down0 up` brings it up"},
      {"[eni]\ninterface = veth0\naddress = 10.0.9.1\n",
       "3: key 'address' = '10.0.9.1': expected an address that interface 'veth0' has"},
  };
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth1\n");
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    char line[400];
    tree_write("conf/ztcp0.conf", rows[i].file);
    assert_int_equal(LOAD(), 0);
    assert_int_equal(cfg.instance_count, 2);
    assert_string_equal(error.text, "");
    const struct harp_instance *absent = &cfg.instances[0], *other = &cfg.instances[1];
    assert_true(absent->is_absent);
    assert_false(other->is_absent);
    const struct sockaddr_in *address = (const struct sockaddr_in *)&absent->addr;
    assert_int_equal(address->sin_addr.s_addr, htonl(i == 1 ? 0x0a000401 : 0x0a000901));
    assert_int_equal(absent->mtu, 9000);
    assert_int_equal(absent->speed_mbps, other->speed_mbps);
    assert_int_equal(absent->speed_source, HARP_SPEED_ASSUMED);
    assert_int_equal(absent->index, i == 0 ? 0 : i == 1 ? 6 : 5);
    assert_int_equal(absent->mac[5], i == 0 ? 9 : absent->index);
    assert_int_equal(absent->paths, i == 0 ? other->paths : 1);
    assert_int_equal(absent->numa, -1);
    snprintf(line, sizeof line,
             "I %s/conf/ztcp0.conf:%s; continuing without it until it works\nI ztcp1: ", tree_root,
             rows[i].log);
    assert_int_equal(strncmp(tree_log, line, strlen(line)), 0);
  }
  assert_int_equal(LOAD("HARP_IFNAME=down0,veth0"), 0);
  assert_int_equal(cfg.instance_count, 2);
  assert_true(cfg.instances[0].is_absent && !cfg.instances[1].is_absent);
  assert_error(LOAD("HARP_IFNAME=down0"), -ENETDOWN,
               "HARP_IFNAME: interface 'down0' is down; `ip link set down0 up` brings it up");
}

/* It joins the others once it has one of the family of those that work, or of its file. */
static void test_absent_without_an_address(void **state) {
  (void)state;
  tree_add_eni("bare0", NULL);
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth9\n[transport]\npeer_timeout = 5\n");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = bare0\n");
  tree_write("conf/ztcp2.conf", "[eni]\ninterface = eth9x\naddress = fe80::9\n");
  tree_write("conf/ztcp3.conf", "[eni]\ninterface = eth1\n[transport]\npeer_timeout = 5\n");
  assert_int_equal(LOAD(), 0);
  assert_int_equal(cfg.instance_count, 4);
  for (unsigned i = 0; i < 3; i++) {
    assert_true(cfg.instances[i].is_absent && cfg.instances[i].is_unnumbered);
    assert_int_equal(cfg.instances[i].addr.ss_family, i == 2 ? AF_INET6 : AF_INET);
    assert_int_equal(cfg.instances[i].mtu, cfg.instances[3].mtu);
  }
  assert_string_equal(cfg.instances[3].ifname, "eth1");
  assert_false(cfg.instances[3].is_absent || cfg.instances[3].is_unnumbered);
  unsigned count = 0;
  for (const char *at = tree_log; (at = strstr(at, "; continuing without it until it works\n")); at++)
    count++;
  assert_int_equal(count, 3);
  assert_non_null(strstr(tree_log, "interface 'bare0' has no IP address to use; continuing"));
  assert_int_equal(LOAD("HARP_IFNAME==eth7,eth1"), 0);
  assert_int_equal(cfg.instance_count, 2);
  assert_true(cfg.instances[0].is_unnumbered);
  assert_error(LOAD("HARP_IFNAME=bare0"), -EADDRNOTAVAIL,
               "HARP_IFNAME: interface 'bare0' has no IP address to use");
  assert_error(LOAD("HARP_IFNAME==eth7"), -ENODEV,
               "HARP_IFNAME: interface 'eth7' does not exist in this network namespace, which has lo, eth1, "
               "eth2, veth0, down0, bare0");
}

/* Each interface has one from the beginning: it says nothing where others have more. */
static void test_a_link_local_address_alone(void **state) {
  (void)state;
  tree_add_ip6(tree_add_eni("bare0", NULL), "fe80::1");
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = bare0\n");
  assert_int_equal(LOAD(), 0);
  assert_false(cfg.instances[0].is_absent);
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth1\n");
  assert_int_equal(LOAD(), 0);
  assert_true(cfg.instances[0].is_absent && cfg.instances[0].is_unnumbered);
  assert_int_equal(cfg.instances[0].addr.ss_family, AF_INET);
  assert_non_null(strstr(tree_log, "2: interface 'bare0' has no address to use but a link-local one; "
                                   "continuing without it until it works\n"));
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = bare0\naddress = fe80::1\n");
  assert_int_equal(LOAD(), 0);
  assert_false(cfg.instances[0].is_absent);
}

/* It takes the address of its file, or the best of its family. */
static void test_it_gets_an_address(void **state) {
  (void)state;
  struct harp_eni late = {.name = "late0", .index = 9};
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = late0\n");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = late1\naddress = fe80::9\n");
  tree_write("conf/ztcp2.conf", "[eni]\ninterface = eth1\n");
  assert_int_equal(LOAD(), 0);
  struct harp_instance *any = &cfg.instances[0], *named = &cfg.instances[1];
  assert_false(harp_instance_number(any, tree_enis, tree_eni_count));
  late.ip6_count = 1;
  late.ip6[0] = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_scope_id = 9};
  late.ip6[0].sin6_addr.s6_addr[0] = 0xfe;
  late.ip6[0].sin6_addr.s6_addr[1] = 0x80;
  late.ip6[0].sin6_addr.s6_addr[15] = 9;
  assert_false(harp_instance_number(any, &late, 1)); /* the number has an address of the other family */
  late.ip4_count = 1;
  late.ip4[0] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000909)};
  assert_true(harp_instance_number(any, &late, 1));
  assert_true(any->is_absent && !any->is_unnumbered);
  assert_int_equal(any->index, 9);
  assert_int_equal(((struct sockaddr_in *)&any->addr)->sin_addr.s_addr, htonl(0x0a000909));
  memcpy(late.name, "late1", 6);
  assert_true(harp_instance_number(named, &late, 1));
  assert_int_equal(((struct sockaddr_in6 *)&named->addr)->sin6_scope_id, 9);
}

/* ---- looking again ---- */

static void test_looking_again(void **state) {
  (void)state;
  struct harp_instance all[2] = {{.ifname = "lo", .is_absent = true}, {.ifname = "harp-none", .index = 7}};
  ((struct sockaddr_in *)&all[0].addr)->sin_family = AF_INET;
  ((struct sockaddr_in *)&all[0].addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  all[1].addr = all[0].addr;
  tree_log[0] = 0;
  harp_instances_refresh(all, 2);
  assert_false(all[0].is_absent);
  assert_int_equal(all[0].index, 1);
  assert_true(all[1].is_absent);
  assert_string_equal(tree_log, "I harp-none: this interface has no link, or not its address, any more; "
                                "continuing without it until it works\n");
  ((struct sockaddr_in *)&all[0].addr)->sin_addr.s_addr = htonl(0x0a000901);
  harp_instances_refresh(all, 1);
  assert_true(all[0].is_absent);
}

static void test_pairs(void **state) {
  (void)state;
  tree_write("conf/ztcp0.conf",
             "[eni]\ninterface = eth1\n[transport]\ncongestion = target\npeer_timeout = 5\n");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth1\n");
  assert_error(
      LOAD(), -EINVAL,
      "$/conf/ztcp1.conf:2: key 'interface' = 'eth1': expected another interface, this one is taken by "
      "$/conf/ztcp0.conf:2");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth2\n[transport]\ncongestion = reno\n");
  assert_error(LOAD(), -EINVAL,
               "$/conf/ztcp1.conf:4: key 'congestion' = 'reno': expected 'target' as in $/conf/ztcp0.conf:4");
  assert_int_equal(LOAD("HARP_CONGESTION=reno"), 0);
  assert_int_equal(cfg.job.congestion, HARP_CONGESTION_RENO);
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth2\n[transport]\npeer_timeout = 6\n");
  assert_error(LOAD(), -EINVAL,
               "$/conf/ztcp1.conf:4: key 'peer_timeout' = '6': expected '5' as in $/conf/ztcp0.conf:5");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth2\n");
  assert_int_equal(LOAD(), 0);
  assert_int_equal(cfg.instances[1].peer_timeout_ns, HARP_SEC(5));
}

static void test_pci_key_where_sysfs_is_silent(void **state) {
  (void)state;
  tree_add_eni("eth7", "10.0.7.1"); /* no sysfs entry: another namespace's */
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth7\npci = 0000:00:08.0\n");
  assert_int_equal(LOAD(), 0);
  assert_string_equal(cfg.instances[0].pci_path, "");
  assert_non_null(strstr(tree_log, "PCI device 0000:00:08.0 is not visible here"));
  tree_write("sys/devices/pci0000:00/0000:00:08.0/numa_node", "0\n");
  tree_link("sys/bus/pci/devices/0000:00:08.0", "../../../devices/pci0000:00/0000:00:08.0");
  assert_int_equal(LOAD(), 0);
  assert_non_null(strstr(cfg.instances[0].pci_path, "/sys/devices/pci0000:00/0000:00:08.0"));
  assert_int_equal(cfg.instances[0].numa, 0);
}

/* ---- variables ---- */

static void test_where_statistics_go(void **state) {
  (void)state;
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth1\n");
  assert_int_equal(LOAD("PATH=/bin"), 0);
  assert_int_equal(cfg.stats_dir_count, 1);
  assert_string_equal(cfg.stats_dirs[0], "/run/harp");
  assert_int_equal(LOAD("XDG_RUNTIME_DIR=/run/user/7"), 0);
  assert_int_equal(cfg.stats_dir_count, 2);
  assert_string_equal(cfg.stats_dirs[1], "/run/user/7/harp");
  assert_int_equal(LOAD("XDG_RUNTIME_DIR=/run/user/7", "HARP_STATS_DIR=/dev/shm"), 0);
  assert_int_equal(cfg.stats_dir_count, 1);
  assert_string_equal(cfg.stats_dirs[0], "/dev/shm");
  assert_int_equal(LOAD("HARP_STATS_DIR=off"), 0);
  assert_int_equal(cfg.stats_dir_count, 0);
  assert_int_equal(cfg.dump_dir_count, 0);
  assert_int_equal(LOAD("HARP_STATS_DIR=/dev/shm"), 0);
  assert_int_equal(cfg.dump_dir_count, 1);
  assert_string_equal(cfg.dump_dirs[0], "/dev/shm");
  assert_int_equal(LOAD("HARP_STATS_DIR=off", "HARP_DUMP_DIR=/var/tmp"), 0);
  assert_int_equal(cfg.dump_dir_count, 1);
  assert_string_equal(cfg.dump_dirs[0], "/var/tmp");
  assert_int_equal(LOAD("HARP_DUMP_DIR=off"), 0);
  assert_int_equal(cfg.stats_dir_count, 1);
  assert_int_equal(cfg.dump_dir_count, 0);
}

static void test_environment_overrides_files(void **state) {
  (void)state;
  tree_write("conf/ztcp0.conf",
             "[eni]\ninterface = eth1\n[engine]\nmode = thread\n"
             "[transport]\ndriver = xdp\npaths = 3\npeer_timeout = 20\ncongestion = target\n");
  assert_int_equal(LOAD("HARP_DRIVER=udp", "HARP_ENGINE=inline", "HARP_PATHS=7", "HARP_PEER_TIMEOUT=2",
                        "HARP_CONGESTION=reno", "HARP_STALL_TIME=4"),
                   0);
  assert_int_equal(cfg.instances[0].driver, HARP_DRIVER_UDP);
  assert_int_equal(cfg.instances[0].mode, HARP_ENGINE_INLINE);
  assert_int_equal(cfg.instances[0].paths, 7);
  assert_int_equal(cfg.instances[0].peer_timeout_ns, HARP_SEC(2));
  assert_int_equal(cfg.instances[0].stall_ns, HARP_SEC(4));
  assert_int_equal(cfg.job.congestion, HARP_CONGESTION_RENO);
  assert_int_equal(LOAD("HARP_DRIVER=xdp-zc"), 0);
  assert_int_equal(cfg.instances[0].driver, HARP_DRIVER_XDP_ZC);
  assert_int_equal(LOAD(), 0);
  assert_int_equal(cfg.instances[0].driver, HARP_DRIVER_XDP);
  assert_error(LOAD("HARP_PATHS=x"), -EINVAL, "HARP_PATHS = 'x': expected a number from 1 to 16");
}

static void test_conf_dir_variable(void **state) {
  (void)state;
  char setting[200];
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth1\n");
  tree_write("other/ztcp0.conf", "[eni]\ninterface = eth2\n");
  snprintf(setting, sizeof setting, "HARP_CONF_DIR=%s/other", tree_root);
  assert_int_equal(LOAD(setting), 0);
  assert_string_equal(cfg.instances[0].ifname, "eth2");
  assert_string_equal(cfg.conf_dir, setting + 14);
}

static void test_ifname_ignores_files(void **state) {
  (void)state;
  tree_write("conf/ztcp0.conf", "nonsense");
  assert_int_equal(LOAD("HARP_IFNAME=veth0,eth1", "HARP_ENGINE=thread"), 0);
  assert_int_equal(cfg.instance_count, 2);
  assert_string_equal(cfg.conf_dir, "");
  assert_string_equal(cfg.instances[0].name, "ifname0");
  assert_string_equal(cfg.instances[0].ifname, "veth0");
  assert_string_equal(cfg.instances[0].pci_path, "");
  assert_int_equal(cfg.instances[0].paths, 1);
  assert_int_equal(cfg.instances[0].numa, -1);
  assert_int_equal(cfg.instances[0].mode, HARP_ENGINE_THREAD);
  assert_string_equal(cfg.instances[1].ifname, "eth1");
  assert_int_equal(LOAD("HARP_IFNAME=eth1,eth9"), 0);
  assert_int_equal(cfg.instance_count, 1);
  assert_error(
      LOAD("HARP_IFNAME=eth9"), -ENODEV,
      "HARP_IFNAME: no interface of this network namespace begins with 'eth9' (loopback counts only by its "
      "whole name)");
}

static void test_alternative_names(void **state) {
  (void)state;
  tree_alternative = "enp6s0";
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = enp6s0\n");
  assert_int_equal(LOAD(), 0);
  assert_int_equal(cfg.instance_count, 1);
  assert_string_equal(cfg.instances[0].ifname, "eth1");
  assert_false(cfg.instances[0].is_absent);
  assert_int_equal(LOAD("HARP_IFNAME==enp6s0"), 0);
  assert_string_equal(cfg.instances[0].ifname, "eth1");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth1\n");
  assert_int_equal(LOAD(), -EINVAL); /* both files name one interface */
  tree_alternative = NULL;
}

static void test_loopback_by_name(void **state) {
  (void)state;
  assert_int_equal(LOAD("HARP_IFNAME=lo"), 0);
  assert_string_equal(cfg.instances[0].ifname, "lo");
  assert_int_equal(((struct sockaddr_in *)&cfg.instances[0].addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  assert_non_null(strstr(tree_log, "10000 Mbit/s (assumed)"));
}

static void test_socket_family(void **state) {
  (void)state;
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth1\n");
  assert_int_equal(LOAD("NCCL_SOCKET_FAMILY=AF_INET6"), 0);
  assert_int_equal(cfg.instances[0].addr.ss_family, AF_INET6);
  assert_int_equal(LOAD("NCCL_SOCKET_FAMILY=AF_INET"), 0);
  assert_int_equal(cfg.instances[0].addr.ss_family, AF_INET);
  assert_int_equal(LOAD("NCCL_SOCKET_FAMILY=whatever"), 0);
  assert_int_equal(cfg.instances[0].addr.ss_family, AF_INET);
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth2\n");
  assert_error(LOAD("NCCL_SOCKET_FAMILY=AF_INET6"), -EADDRNOTAVAIL,
               "$/conf/ztcp0.conf:2: interface 'eth2' has no IPv6 address to use");
}

/* The default number of paths: one flow for every begun 5 Gbit/s, on a PCI device only. */
static void test_default_paths(void **state) {
  (void)state;
  static const struct {
    unsigned speed_mbps, paths;
  } rows[] = {{1, 1}, {5000, 1}, {5001, 2}, {10000, 2}, {25000, 5}, {40000, 8}, {100000, 8}, {10000000, 8}};
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    char text[80];
    snprintf(text, sizeof text, "[eni]\ninterface = eth1\nspeed_mbps = %u\n", rows[i].speed_mbps);
    tree_write("conf/ztcp0.conf", text);
    assert_int_equal(LOAD(), 0);
    assert_int_equal(cfg.instances[0].paths, rows[i].paths);
  }
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = veth0\nspeed_mbps = 100000\n");
  assert_int_equal(LOAD(), 0);
  assert_int_equal(cfg.instances[0].paths, 1);
}

static int list_fails(struct harp_eni *enis, unsigned max) {
  (void)enis;
  (void)max;
  return -EPERM;
}

static void test_list_failure(void **state) {
  (void)state;
  struct harp_config_sources sources = {.conf_dir = "/nonexistent",
                                        .environment = (const char *const[]){"HARP_IFNAME=eth", NULL},
                                        .eni = tree_eni_source()};
  sources.eni.list = list_fails;
  assert_error(harp_config_load_from(&cfg, &sources, &error), -EPERM,
               "cannot list the network interfaces: Operation not permitted");
}

static void test_nearness_to_the_gpu(void **state) {
  (void)state;
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth1\n");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth2\n");
  assert_int_equal(LOAD(), 0);
  assert_int_equal(cfg.instances[0].gpu_nearness + cfg.instances[1].gpu_nearness, 0);
  tree_write("proc/driver/nvidia/gpus/0000:81:00.0/information", "");
  tree_write("sys/devices/pci0000:80/0000:81:00.0/numa_node", "1\n");
  tree_link("sys/bus/pci/devices/0000:81:00.0", "../../../devices/pci0000:80/0000:81:00.0");
  assert_int_equal(LOAD(), 0);
  assert_true(cfg.instances[0].gpu_nearness > cfg.instances[1].gpu_nearness); /* eth1 is on node 1 */
  tree_write("conf/ztcp0.conf", "[eni]\ninterface = eth1\n[engine]\ngpu = 1\n");
  tree_write("conf/ztcp1.conf", "[eni]\ninterface = eth2\n[engine]\ngpu = 0\n");
  assert_int_equal(LOAD(), 0);
  /* the files' word counts more */
  assert_true(cfg.instances[0].gpu_nearness < cfg.instances[1].gpu_nearness);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, setup, tree_teardown)
  const struct CMUnitTest tests[] = {
      T(test_nearness_to_the_gpu),
      T(test_not_configured),
      T(test_asked_for_by_name),
      T(test_default_directory),
      T(test_minimal_file),
      T(test_full_file),
      T(test_files_in_numeric_order),
      T(test_file_names),
      T(test_too_many_files),
      T(test_parse_error_has_the_path),
      T(test_contradictions),
      T(test_what_is_absent),
      T(test_absent_without_an_address),
      T(test_a_link_local_address_alone),
      T(test_it_gets_an_address),
      T(test_looking_again),
      T(test_pairs),
      T(test_pci_key_where_sysfs_is_silent),
      T(test_where_statistics_go),
      T(test_environment_overrides_files),
      T(test_conf_dir_variable),
      T(test_ifname_ignores_files),
      T(test_alternative_names),
      T(test_loopback_by_name),
      T(test_socket_family),
      T(test_default_paths),
      T(test_list_failure),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
