/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of single values: numbers, sizes, addresses, lists.
 *
 * No state; any thread. Each function parses a NUL-terminated text of any content, stores the value and
 * returns true; or returns false, with the output unspecified, when the text is not exactly one such value.
 * setting.c calls the one for a setting's kind. */
#ifndef HARP_HOST_OPTION_H
#define HARP_HOST_OPTION_H

#include <sys/socket.h>

#include "base/base.h"
#include "host/setting.h"

/* Decimal digits only, from min to max. */
bool harp_option_number(const char *text, unsigned long min, unsigned long max, unsigned long *number);

/* 1 to 15 characters that Linux allows in an interface's name. */
bool harp_option_interface(const char *text, char name[HARP_ENI_NAME_BYTES]);

/* Six pairs of hex digits with colons. */
bool harp_option_mac(const char *text, uint8_t mac[6]);

/* An IPv4 or IPv6 address; the port is 0. */
bool harp_option_ip(const char *text, struct sockaddr_storage *address);

/* A PCI address, "0000:3b:00.1", stored in lower case. */
bool harp_option_pci(const char *text, char pci[16]);

/* Core numbers and ranges, "2-5,8": 1 to HARP_CORES_MAX different ones below HARP_CPU_MAX, stored in the
 * order given. */
bool harp_option_cores(const char *text, struct harp_cores *cores);

/* A size in bytes, or with K, M or G (powers of 1024), from min to max. */
bool harp_option_size(const char *text, uint64_t min, uint64_t max, size_t *bytes);

/* "LOW-HIGH", both from min to 65535. */
bool harp_option_ports(const char *text, uint64_t min, struct harp_ports *ports);

#endif
