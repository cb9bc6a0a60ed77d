/* SPDX-License-Identifier: Apache-2.0 */
/* See option.h. */
#include "host/option.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/assert.h"
#include "host/cpu.h"

/* ---- words ---- */

static const char *const mode_names[] = {
    [HARP_ENGINE_AUTO] = "auto",
    [HARP_ENGINE_INLINE] = "inline",
    [HARP_ENGINE_THREAD] = "thread",
};

static const char *const driver_names[] = {
    [HARP_DRIVER_AUTO] = "auto",         [HARP_DRIVER_XDP] = "xdp", [HARP_DRIVER_XDP_ZC] = "xdp-zc",
    [HARP_DRIVER_XDP_COPY] = "xdp-copy", [HARP_DRIVER_UDP] = "udp", [HARP_DRIVER_TCP] = "tcp",
    [HARP_DRIVER_UDP_TCP] = "udp+tcp",
};

static const char *const device_mode_names[] = {
    [HARP_DEVICES_STRIPED] = "striped",
    [HARP_DEVICES_ENIS] = "enis",
};

static const char *const zerocopy_names[] = {
    [HARP_ZEROCOPY_MODE_AUTO] = "auto",
    [HARP_ZEROCOPY_MODE_ON] = "on",
    [HARP_ZEROCOPY_MODE_OFF] = "off",
};

static const char *const congestion_names[] = {"delay", "reno"};

static int find_word(const char *text, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(text, names[i]) == 0) return (int)i;
  return -1;
}

const char *harp_engine_mode_name(enum harp_engine_mode mode) {
  return (unsigned)mode < HARP_ARRAY_COUNT(mode_names) ? mode_names[mode] : "?";
}

const char *harp_driver_name(enum harp_driver driver) {
  return (unsigned)driver < HARP_ARRAY_COUNT(driver_names) ? driver_names[driver] : "?";
}

const char *harp_device_mode_name(enum harp_device_mode mode) {
  return (unsigned)mode < HARP_ARRAY_COUNT(device_mode_names) ? device_mode_names[mode] : "?";
}

bool harp_option_switch(const char *text, bool *is_on) {
  *is_on = strcmp(text, "1") == 0;
  return *is_on || strcmp(text, "0") == 0;
}

bool harp_option_devices(const char *text, enum harp_device_mode *mode) {
  int word = find_word(text, device_mode_names, HARP_ARRAY_COUNT(device_mode_names));
  if (word >= 0) *mode = (enum harp_device_mode)word;
  return word >= 0;
}

bool harp_option_zerocopy(const char *text, enum harp_zerocopy_mode *mode) {
  int word = find_word(text, zerocopy_names, HARP_ARRAY_COUNT(zerocopy_names));
  if (word >= 0) *mode = (enum harp_zerocopy_mode)word;
  return word >= 0;
}

bool harp_option_mode(const char *text, enum harp_engine_mode *mode) {
  int word = find_word(text, mode_names, HARP_ARRAY_COUNT(mode_names));
  if (word >= 0) *mode = (enum harp_engine_mode)word;
  return word >= 0;
}

bool harp_option_driver(const char *text, enum harp_driver *driver) {
  int word = find_word(text, driver_names, HARP_ARRAY_COUNT(driver_names));
  if (word >= 0) *driver = (enum harp_driver)word;
  return word >= 0;
}

bool harp_option_page_size(const char *text, enum harp_page_rung *page_size) {
  for (enum harp_page_rung rung = HARP_PAGE_AUTO; rung <= HARP_PAGE_4K; rung++) {
    if (strcmp(text, harp_page_rung_name(rung)) != 0) continue;
    *page_size = rung;
    return true;
  }
  return false;
}

bool harp_option_congestion(const char *text, char name[HARP_CONGESTION_BYTES]) {
  int word = find_word(text, congestion_names, HARP_ARRAY_COUNT(congestion_names));
  if (word < 0) return false;
  memcpy(name, congestion_names[word], strlen(congestion_names[word]) + 1);
  return true;
}

/* ---- numbers ---- */

/* Reads digits at *text and moves past them; false when there are none or the number exceeds max. */
static bool take_number(const char **text, unsigned long max, unsigned long *number) {
  const char *at = *text;
  *number = 0;
  for (; *at >= '0' && *at <= '9'; at++) {
    unsigned long digit = (unsigned long)(*at - '0');
    if (*number > (max - digit) / 10 || digit > max) return false;
    *number = *number * 10 + digit;
  }
  bool has_digits = at != *text;
  *text = at;
  return has_digits;
}

bool harp_option_number(const char *text, unsigned long min, unsigned long max, unsigned long *number) {
  return take_number(&text, max, number) && *text == 0 && *number >= min;
}

bool harp_option_paths(const char *text, unsigned *paths) {
  unsigned long number;
  if (!harp_option_number(text, 1, HARP_MAX_PATHS, &number)) return false;
  *paths = (unsigned)number;
  return true;
}

static bool take_seconds(const char *text, unsigned long max, harp_ns *time_ns) {
  unsigned long seconds;
  if (!harp_option_number(text, 1, max, &seconds)) return false;
  *time_ns = HARP_SEC(seconds);
  return true;
}

bool harp_option_peer_timeout(const char *text, harp_ns *timeout_ns) {
  return take_seconds(text, HARP_PEER_TIMEOUT_MAX_SEC, timeout_ns);
}

bool harp_option_stall_time(const char *text, harp_ns *stall_ns) {
  return take_seconds(text, HARP_STALL_TIME_MAX_SEC, stall_ns);
}

bool harp_option_bytes(const char *text, size_t *bytes) {
  const unsigned long max = (unsigned long)HARP_MEMORY_MAX_MIB << 20;
  unsigned long number;
  if (!take_number(&text, max, &number)) return false;
  unsigned shift = *text == 'K' ? 10 : *text == 'M' ? 20 : *text == 'G' ? 30 : 0;
  if (shift) text++;
  if (*text || number > max >> shift) return false;
  *bytes = (size_t)number << shift;
  return *bytes >= (size_t)HARP_MEMORY_MIN_MIB << 20;
}

bool harp_option_ports(const char *text, uint16_t *low, uint16_t *high) {
  unsigned long first, last;
  if (!take_number(&text, UINT16_MAX, &first) || *text++ != '-') return false;
  if (!harp_option_number(text, HARP_PORT_MIN, UINT16_MAX, &last)) return false;
  *low = (uint16_t)first;
  *high = (uint16_t)last;
  return first >= HARP_PORT_MIN && first <= last;
}

bool harp_option_cores(const char *text, uint16_t cores[HARP_MAX_CORES], unsigned *count) {
  bool is_used[HARP_CPU_MAX] = {false};
  *count = 0;
  for (;;) {
    unsigned long first, last;
    if (!take_number(&text, HARP_CPU_MAX - 1, &first)) return false;
    last = first;
    if (*text == '-') {
      text++;
      if (!take_number(&text, HARP_CPU_MAX - 1, &last) || last < first) return false;
    }
    for (unsigned long core = first; core <= last; core++) {
      if (is_used[core] || *count == HARP_MAX_CORES) return false;
      is_used[core] = true;
      cores[(*count)++] = (uint16_t)core;
    }
    if (*text == 0) return true;
    if (*text++ != ',') return false;
  }
}

/* ---- names and addresses ---- */

bool harp_option_interface(const char *text, char name[HARP_ENI_NAME_BYTES]) {
  size_t length = strlen(text);
  if (length == 0 || length >= HARP_ENI_NAME_BYTES || strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
    return false;
  for (size_t i = 0; i < length; i++)
    if (text[i] <= ' ' || text[i] > '~' || text[i] == '/' || text[i] == ':') return false;
  memcpy(name, text, length + 1);
  return true;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool harp_option_mac(const char *text, uint8_t mac[6]) {
  if (strlen(text) != 17) return false;
  for (unsigned i = 0; i < 6; i++) {
    int high = hex_digit(text[3 * i]), low = hex_digit(text[3 * i + 1]);
    if (high < 0 || low < 0 || (i < 5 && text[3 * i + 2] != ':')) return false;
    mac[i] = (uint8_t)(high << 4 | low);
  }
  return true;
}

bool harp_option_pci(const char *text, char pci[16]) {
  static const char shape[] = "xxxx:xx:xx.x";
  HARP_ASSERT(sizeof shape <= 16);
  if (strlen(text) != sizeof shape - 1) return false;
  for (unsigned i = 0; i < sizeof shape - 1; i++) {
    bool fits = shape[i] == 'x' ? hex_digit(text[i]) >= 0 : text[i] == shape[i];
    if (!fits) return false;
    pci[i] = (char)(text[i] >= 'A' && text[i] <= 'F' ? text[i] - 'A' + 'a' : text[i]);
  }
  pci[sizeof shape - 1] = 0;
  return true;
}

bool harp_option_ip(const char *text, struct sockaddr_storage *address) {
  struct in_addr ip4;
  struct in6_addr ip6;
  memset(address, 0, sizeof *address);
  if (inet_pton(AF_INET, text, &ip4) == 1) {
    struct sockaddr_in *in = (struct sockaddr_in *)address;
    in->sin_family = AF_INET;
    in->sin_addr = ip4;
    return true;
  }
  if (inet_pton(AF_INET6, text, &ip6) == 1) {
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;
    in6->sin6_family = AF_INET6;
    in6->sin6_addr = ip6;
    return true;
  }
  return false;
}
