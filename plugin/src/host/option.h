/* SPDX-License-Identifier: Apache-2.0 */
/* The values that conf files and variables share: numbers, sizes, lists and words, each with its bounds.
 *
 * Owns no state. Every function takes a NUL-terminated text of any content, stores a value and returns true,
 * or returns false with the output in an unspecified state when the text is not exactly one such value.
 * Whoever calls says what was expected; the phrases stand beside the functions that they describe. */
#ifndef HARP_HOST_OPTION_H
#define HARP_HOST_OPTION_H

#include <sys/socket.h>

#include "base/base.h"
#include "host/config.h"

enum {
  HARP_MTU_MIN = 576,   /* RFC 791: what every IPv4 host takes */
  HARP_MTU_MAX = 65536, /* of the loopback interface */
  HARP_SPEED_MAX_MBPS = 10000000,
  HARP_QUEUES_MAX = 64,
  HARP_NUMA_MAX = 1023,
  HARP_GPU_MAX = 1023,
  HARP_PORT_MIN = 1024,
  HARP_PEER_TIMEOUT_MAX_SEC = 600,
  HARP_PEER_TIMEOUT_DEFAULT_SEC = 10,
  HARP_STALL_TIME_MAX_SEC = 3600,
  HARP_MEMORY_MIN_MIB = 1,
  HARP_MEMORY_MAX_MIB = 64 << 10,
};

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

/* Core numbers and ranges, "2-5,8": 1 to HARP_MAX_CORES different ones below HARP_CPU_MAX, stored in the
 * order given. */
bool harp_option_cores(const char *text, uint16_t cores[HARP_MAX_CORES], unsigned *count);

/* A size in bytes, or with K, M or G (powers of 1024), HARP_MEMORY_MIN_MIB to HARP_MEMORY_MAX_MIB. */
bool harp_option_bytes(const char *text, size_t *bytes);

/* "LOW-HIGH", both from HARP_PORT_MIN to 65535. */
bool harp_option_ports(const char *text, uint16_t *low, uint16_t *high);

/* The words of their enums. */
bool harp_option_mode(const char *text, enum harp_engine_mode *mode);
bool harp_option_driver(const char *text, enum harp_driver *driver);
bool harp_option_devices(const char *text, enum harp_device_mode *mode);
bool harp_option_zerocopy(const char *text, enum harp_zerocopy_mode *mode);
bool harp_option_page_size(const char *text, enum harp_page_rung *page_size);

/* "0" or "1". */
bool harp_option_switch(const char *text, bool *is_on);

/* The number of source ports per pair of ENIs. */
bool harp_option_paths(const char *text, unsigned *paths);

/* Whole seconds, 1 to HARP_PEER_TIMEOUT_MAX_SEC. */
bool harp_option_peer_timeout(const char *text, harp_ns *timeout_ns);

/* Whole seconds, 1 to HARP_STALL_TIME_MAX_SEC. */
bool harp_option_stall_time(const char *text, harp_ns *stall_ns);

/* The name of a congestion control of this build. */
bool harp_option_congestion(const char *text, char name[HARP_CONGESTION_BYTES]);

#define HARP_EXPECT_PATHS        "a number from 1 to 16"
#define HARP_EXPECT_PEER_TIMEOUT "whole seconds from 1 to 600"
#define HARP_EXPECT_STALL_TIME   "whole seconds from 1 to 3600"
#define HARP_EXPECT_CONGESTION   "delay or reno"
#define HARP_EXPECT_DRIVER       "auto, xdp, xdp-zc, xdp-copy, udp, tcp or udp+tcp"
#define HARP_EXPECT_MODE         "auto, inline or thread"
#define HARP_EXPECT_DEVICES      "striped or enis"
#define HARP_EXPECT_SWITCH       "0 or 1"
#define HARP_EXPECT_ZEROCOPY     "auto, on or off"

#endif
