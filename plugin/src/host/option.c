/* SPDX-License-Identifier: Apache-2.0 */
/* See option.h. */
#include "host/option.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "host/cpu.h"

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

bool harp_option_size(const char *text, uint64_t min, uint64_t max, size_t *bytes) {
  unsigned long number;
  if (!take_number(&text, max, &number)) return false;
  unsigned shift = *text == 'K' ? 10 : *text == 'M' ? 20 : *text == 'G' ? 30 : 0;
  if (shift) text++;
  if (*text || number > max >> shift) return false;
  *bytes = (size_t)number << shift;
  return *bytes >= min;
}

bool harp_option_ports(const char *text, uint64_t min, struct harp_ports *ports) {
  unsigned long first, last;
  if (!take_number(&text, UINT16_MAX, &first) || *text++ != '-') return false;
  if (!harp_option_number(text, min, UINT16_MAX, &last)) return false;
  *ports = (struct harp_ports){(uint16_t)first, (uint16_t)last};
  return first >= min && first <= last;
}

bool harp_option_cores(const char *text, struct harp_cores *cores) {
  bool is_used[HARP_CPU_MAX] = {false};
  cores->count = 0;
  for (;;) {
    unsigned long first, last;
    if (!take_number(&text, HARP_CPU_MAX - 1, &first)) return false;
    last = first;
    if (*text == '-') {
      text++;
      if (!take_number(&text, HARP_CPU_MAX - 1, &last) || last < first) return false;
    }
    for (unsigned long core = first; core <= last; core++) {
      if (is_used[core] || cores->count == HARP_CORES_MAX) return false;
      is_used[core] = true;
      cores->at[cores->count++] = (uint16_t)core;
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
  uint8_t ip[16];
  unsigned version = inet_pton(AF_INET, text, ip) == 1 ? 4 : inet_pton(AF_INET6, text, ip) == 1 ? 6 : 0;
  memset(address, 0, sizeof *address);
  if (version) *address = harp_address_make(version, ip, 0, 0);
  return version != 0;
}
