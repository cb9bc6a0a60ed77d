/* SPDX-License-Identifier: Apache-2.0 */
/* The conf file's parser and the values it takes. */
#include "host/conf.h"
#include "unit/host_tree.h"

static struct harp_error error;
static struct harp_conf conf;

static int parse(const char *text) {
  error.text[0] = 0;
  return harp_conf_parse(&conf, "ztcp0.conf", text, strlen(text), &error);
}

#define ASSERT_ERROR(content, sentence)                                                                      \
  do {                                                                                                       \
    assert_int_equal(parse(content), -EINVAL);                                                               \
    assert_string_equal(error.text, sentence);                                                               \
  } while (0)

static void test_every_key(void **state) {
  (void)state;
  assert_int_equal(parse("# written by hand\n"
                         "[eni]\n"
                         "interface = eth1\n"
                         "mac = 52:54:00:AB:cd:ef\n"
                         "address = 10.0.0.5\n"
                         "gateway = fd00::1\n"
                         "mtu = 8500\n"
                         "pci = 0000:3B:00.1\n"
                         "numa = 1\n"
                         "speed_mbps = 25000\n"
                         "queues = 4\n"
                         "\n"
                         "[engine]\n"
                         "mode = thread\n"
                         "cores = 2-4,8\n"
                         "gpu = 3\n"
                         "; memory\n"
                         "[memory]\n"
                         "page_size = 1G\n"
                         "bytes = 2G\n"
                         "[transport]\n"
                         "driver = xdp-zc\n"
                         "ports = 40000-40063\n"
                         "paths = 5\n"
                         "peer_timeout = 30\n"
                         "congestion = reno\n"
                         "ecn = off\n"
                         "auth = mac\n"
                         "shared_clock = on\n"
                         "devices = enis\n"),
                   0);
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++)
    assert_int_equal(harp_setting_is_set(&conf.values, id), harp_setting_table[id].key != NULL);
  assert_int_equal(conf.lines[HARP_SETTING_INTERFACE], 3);
  assert_int_equal(conf.lines[HARP_SETTING_CONGESTION], 26);
  assert_string_equal(conf.values.interface, "eth1");
  assert_memory_equal(conf.values.mac, "\x52\x54\x00\xab\xcd\xef", 6);
  assert_int_equal(conf.values.address.ss_family, AF_INET);
  assert_int_equal(((struct sockaddr_in *)&conf.values.address)->sin_addr.s_addr, htonl(0x0a000005));
  assert_int_equal(conf.values.gateway.ss_family, AF_INET6);
  assert_int_equal(conf.values.mtu, 8500);
  assert_string_equal(conf.values.pci, "0000:3b:00.1");
  assert_int_equal(conf.values.numa, 1);
  assert_int_equal(conf.values.speed_mbps, 25000);
  assert_int_equal(conf.values.queues, 4);
  assert_int_equal(conf.values.mode, HARP_ENGINE_THREAD);
  assert_int_equal(conf.values.cores.count, 4);
  assert_memory_equal(conf.values.cores.at, ((uint16_t[]){2, 3, 4, 8}), 8);
  assert_int_equal(conf.values.gpu, 3);
  assert_int_equal(conf.values.page_size, HARP_PAGE_1G);
  assert_int_equal(conf.values.memory_bytes, 2UL << 30);
  assert_int_equal(conf.values.driver, HARP_DRIVER_XDP_ZC);
  assert_int_equal(conf.values.ports.low, 40000);
  assert_int_equal(conf.values.ports.high, 40063);
  assert_int_equal(conf.values.paths, 5);
  assert_int_equal(conf.values.peer_timeout_ns, HARP_SEC(30));
  assert_int_equal(conf.values.congestion, HARP_CONGESTION_RENO);
  assert_int_equal(conf.values.ecn, HARP_ECN_OFF);
  assert_int_equal(conf.values.auth, HARP_AUTH_MAC);
  assert_int_equal(conf.values.shared_clock, HARP_SHARED_CLOCK_ON);
  assert_int_equal(conf.values.devices, HARP_DEVICES_ENIS);
}

static void test_layout(void **state) {
  (void)state;
  assert_int_equal(parse("\xef\xbb\xbf[eni]\r\n  interface=eth1  \r\n\t# no newline at the end"), 0);
  assert_string_equal(conf.values.interface, "eth1");
  assert_int_equal(parse("[eni]\ninterface\t=\teth1\n[memory]\n\n[engine]"), 0);
  assert_string_equal(conf.values.interface, "eth1");
  assert_false(harp_setting_is_set(&conf.values, HARP_SETTING_MTU));
  assert_int_equal(conf.values.mtu, 0);
}

static void test_errors_name_file_line_key_value(void **state) {
  (void)state;
  ASSERT_ERROR("", "ztcp0.conf: key 'interface' is missing from [eni]: expected an interface name of 1 to 15 "
                   "characters");
  ASSERT_ERROR("[eni]\ninterface = eth1\nmtu = large\n",
               "ztcp0.conf:3: key 'mtu' = 'large': expected a number from 576 to 65536");
  ASSERT_ERROR("[eni]\nmtu =\n", "ztcp0.conf:2: key 'mtu' = '': expected a number from 576 to 65536");
  ASSERT_ERROR("[eni]\nmtu = 9000 # jumbo\n",
               "ztcp0.conf:2: key 'mtu' = '9000 # jumbo': expected a number from 576 to 65536");
  ASSERT_ERROR("[eni]\nmtu = 9000\n\nmtu = 9000\n",
               "ztcp0.conf:4: key 'mtu' = '9000': expected the key once, it is set in line 2");
  ASSERT_ERROR("[memory]\nmtu = 9000\n",
               "ztcp0.conf:2: unknown key 'mtu' = '9000' in [memory]: expected one of page_size, bytes");
  ASSERT_ERROR("mtu = 9000\n", "ztcp0.conf:1: key 'mtu' = '9000': expected a [section] line before it");
  ASSERT_ERROR("[nic]\n",
               "ztcp0.conf:1: unknown section [nic]: expected [eni], [engine], [memory] or [transport]");
  ASSERT_ERROR("[eni]\n[engine]\n[eni]\n",
               "ztcp0.conf:3: section [eni] is there twice: expected one of each");
  ASSERT_ERROR("[eni\n", "ztcp0.conf:1: '[eni': expected ] at the end of the section's line");
  ASSERT_ERROR("[\n", "ztcp0.conf:1: '[': expected ] at the end of the section's line");
  ASSERT_ERROR("[]\n", "ztcp0.conf:1: unknown section []: expected [eni], [engine], [memory] or [transport]");
  ASSERT_ERROR("[eni]\ninterface eth1\n", "ztcp0.conf:2: 'interface eth1': expected key = value");
  ASSERT_ERROR("[eni]\n= eth1\n", "ztcp0.conf:2: '= eth1': expected key = value");
  ASSERT_ERROR(
      "[transport]\ndriver = dpdk\n",
      "ztcp0.conf:2: key 'driver' = 'dpdk': expected auto, xdp, xdp-zc, xdp-copy, udp, tcp or udp+tcp");
}

static void test_messages_are_printable(void **state) {
  (void)state;
  ASSERT_ERROR("[eni]\nmtu = \x1b[31m\xff\n",
               "ztcp0.conf:2: key 'mtu' = '?[31m?': expected a number from 576 to 65536");
  char text[600] = "[eni]\nmtu = ";
  memset(text + 12, 'x', 400);
  assert_int_equal(parse(text), -EINVAL);
  assert_non_null(strstr(error.text, "xxx...'"));
  assert_true(strlen(error.text) < 160);
}

static void test_bounds(void **state) {
  (void)state;
  static char text[HARP_CONF_FILE_BYTES_MAX + 2];
  memset(text, '#', 512);
  strcpy(text + 512, "\r\n[eni]\ninterface = eth1\n");
  assert_int_equal(parse(text), 0);
  memset(text, '#', 513);
  strcpy(text + 513, "\n[eni]\ninterface = eth1\n");
  ASSERT_ERROR(text, "ztcp0.conf:1: the line is too long: expected at most 512 bytes");

  const char nul[] = "[eni]\ninter\0face = eth1\n";
  assert_int_equal(harp_conf_parse(&conf, "ztcp0.conf", nul, sizeof nul - 1, &error), -EINVAL);
  assert_string_equal(error.text, "ztcp0.conf:2: a NUL byte: expected text");

  const char head[] = "[eni]\ninterface = eth1\n";
  memset(text, '\n', sizeof text);
  memcpy(text, head, sizeof head - 1);
  assert_int_equal(harp_conf_parse(&conf, "ztcp0.conf", text, HARP_CONF_FILE_BYTES_MAX, &error), 0);
  assert_int_equal(harp_conf_parse(&conf, "ztcp0.conf", text, HARP_CONF_FILE_BYTES_MAX + 1, &error), -EINVAL);
  assert_string_equal(error.text, "ztcp0.conf: the file is too long: expected at most 64 KiB");
}

/* Each value as text, and whether the key takes it. */
static void test_values(void **state) {
  (void)state;
  static const struct {
    const char *section, *key, *value;
    bool is_good;
  } rows[] = {
      {"eni", "interface", "a", true},
      {"eni", "interface", "fifteen-letters", true},
      {"eni", "interface", "sixteen--letters", false},
      {"eni", "interface", "a/b", false},
      {"eni", "interface", "eth0:1", false},
      {"eni", "interface", "a b", false},
      {"eni", "interface", "..", false},
      {"eni", "mac", "52:54:00:12:34:56", true},
      {"eni", "mac", "52-54-00-12-34-56", false},
      {"eni", "mac", "52:54:00:12:34", false},
      {"eni", "mac", "52:54:00:12:34:5g", false},
      {"eni", "mac", "52:54:00:12:34:567", false},
      {"eni", "address", "10.0.0.256", false},
      {"eni", "address", "10.0.0.1/24", false},
      {"eni", "address", "fe80::1%eth0", false},
      {"eni", "address", "2001:db8::1", true},
      {"eni", "mtu", "575", false},
      {"eni", "mtu", "576", true},
      {"eni", "mtu", "65536", true},
      {"eni", "mtu", "65537", false},
      {"eni", "mtu", "-1500", false},
      {"eni", "mtu", "+1500", false},
      {"eni", "mtu", "0x5dc", false},
      {"eni", "mtu", "99999999999999999999999999999", false},
      {"eni", "pci", "0000:00:06.0", true},
      {"eni", "pci", "00:06.0", false},
      {"eni", "pci", "0000:00:06.g", false},
      {"eni", "pci", "0000:00:06-0", false},
      {"eni", "numa", "0", true},
      {"eni", "numa", "1024", false},
      {"eni", "speed_mbps", "0", false},
      {"eni", "speed_mbps", "10000000", true},
      {"eni", "speed_mbps", "10000001", false},
      {"eni", "queues", "0", false},
      {"eni", "queues", "64", true},
      {"eni", "queues", "65", false},
      {"engine", "mode", "auto", true},
      {"engine", "mode", "inline", true},
      {"engine", "mode", "Thread", false},
      {"engine", "cores", "0", true},
      {"engine", "cores", "0-63", true},
      {"engine", "cores", "0-64", false},
      {"engine", "cores", "4095", true},
      {"engine", "cores", "4096", false},
      {"engine", "cores", "3-2", false},
      {"engine", "cores", "1,1", false},
      {"engine", "cores", "1-3,2", false},
      {"engine", "cores", "1,", false},
      {"engine", "cores", ",1", false},
      {"engine", "cores", "1-", false},
      {"engine", "cores", "1 2", false},
      {"engine", "gpu", "0", true},
      {"engine", "gpu", "-1", false},
      {"memory", "page_size", "auto", true},
      {"memory", "page_size", "2M", true},
      {"memory", "page_size", "thp", true},
      {"memory", "page_size", "4K", true},
      {"memory", "page_size", "2m", false},
      {"memory", "bytes", "1048576", true},
      {"memory", "bytes", "1048575", false},
      {"memory", "bytes", "1024K", true},
      {"memory", "bytes", "64G", true},
      {"memory", "bytes", "65G", false},
      {"memory", "bytes", "68719476737", false},
      {"memory", "bytes", "64GiB", false},
      {"memory", "bytes", "18446744073709551615G", false},
      {"memory", "bytes", "M", false},
      {"transport", "driver", "auto", true},
      {"transport", "driver", "xdp-copy", true},
      {"transport", "ports", "1024-65535", true},
      {"transport", "ports", "5000-5000", true},
      {"transport", "ports", "1023-5000", false},
      {"transport", "ports", "5000-65536", false},
      {"transport", "ports", "5001-5000", false},
      {"transport", "ports", "5000", false},
      {"transport", "paths", "1", true},
      {"transport", "paths", "16", true},
      {"transport", "paths", "0", false},
      {"transport", "paths", "17", false},
      {"transport", "peer_timeout", "600", true},
      {"transport", "peer_timeout", "601", false},
      {"transport", "peer_timeout", "0", false},
      {"transport", "peer_timeout", "1.5", false},
      {"transport", "peer_timeout", "10s", false},
      {"transport", "congestion", "target", true},
      {"transport", "congestion", "cubic", false},
      {"transport", "ecn", "on", true},
      {"transport", "ecn", "1", false},
      {"transport", "shared_clock", "off", true},
      {"transport", "shared_clock", "ntp", false},
      {"transport", "devices", "striped", true},
      {"transport", "devices", "enis", true},
      {"transport", "devices", "both", false},
  };
  for (size_t i = 0; i < HARP_ARRAY_COUNT(rows); i++) {
    char text[256];
    bool is_interface = strcmp(rows[i].key, "interface") == 0;
    snprintf(text, sizeof text, "[%s]\n%s = %s\n%s", rows[i].section, rows[i].key, rows[i].value,
             is_interface                          ? ""
             : strcmp(rows[i].section, "eni") == 0 ? "interface = eth1\n"
                                                   : "[eni]\ninterface = eth1\n");
    int rc = parse(text);
    if ((rc == 0) != rows[i].is_good)
      fail_msg("row %zu: %s = %s: %d %s", i, rows[i].key, rows[i].value, rc, error.text);
  }
}

static void test_read_file(void **state) {
  (void)state;
  char expected[256];
  tree_write("ztcp0.conf", "[eni]\ninterface = eth1\n");
  assert_int_equal(harp_conf_read(&conf, tree_path("ztcp0.conf"), &error), 0);
  assert_string_equal(conf.values.interface, "eth1");
  assert_string_equal(tree_log, "");

  assert_int_equal(chmod(tree_path("ztcp0.conf"), 0666), 0);
  assert_int_equal(harp_conf_read(&conf, tree_path("ztcp0.conf"), &error), 0);
  assert_non_null(strstr(tree_log, "anyone may write this file"));
  assert_int_equal(tree_log[0], 'I');

  assert_int_equal(harp_conf_read(&conf, tree_path("absent.conf"), &error), -ENOENT);
  snprintf(expected, sizeof expected, "%s/absent.conf: cannot open: No such file or directory", tree_root);
  assert_string_equal(error.text, expected);

  assert_int_equal(mkfifo(tree_path("pipe.conf"), 0600), 0);
  assert_int_equal(harp_conf_read(&conf, tree_path("pipe.conf"), &error), -EINVAL);
  assert_non_null(strstr(error.text, "expected a regular file"));

  static char big[HARP_CONF_FILE_BYTES_MAX + 100];
  memset(big, '\n', sizeof big);
  tree_write_bytes("big.conf", big, sizeof big);
  assert_int_equal(harp_conf_read(&conf, tree_path("big.conf"), &error), -EINVAL);
  assert_non_null(strstr(error.text, "the file is too long"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_key),
      cmocka_unit_test(test_layout),
      cmocka_unit_test(test_errors_name_file_line_key_value),
      cmocka_unit_test(test_messages_are_printable),
      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_values),
      cmocka_unit_test_setup_teardown(test_read_file, tree_setup, tree_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
