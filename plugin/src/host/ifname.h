/* SPDX-License-Identifier: Apache-2.0 */
/* HARP_IFNAME: which interfaces to use, in the notation of NCCL_SOCKET_IFNAME: a comma list of prefixes,
 * after ^ to exclude them, after = to match whole names (^= excludes whole names).
 *
 * Owns no state. Called by config.c at init. */
#ifndef HARP_HOST_IFNAME_H
#define HARP_HOST_IFNAME_H

#include "base/base.h"
#include "base/error.h"
#include "host/eni.h"

enum { HARP_IFNAME_ENTRIES_MAX = 32 };

struct harp_ifname_filter {
  bool is_exclude, is_exact;
  unsigned count;
  char entries[HARP_IFNAME_ENTRIES_MAX][HARP_ENI_NAME_BYTES];
};

/* One interface that the filter chose. */
struct harp_ifname_choice {
  const struct harp_eni *eni;
  bool is_explicit; /* an entry is its whole name */
};

/* Parses the list. Returns 0, or -EINVAL with the sentence in the error. */
HARP_MUST_CHECK int harp_ifname_parse(struct harp_ifname_filter *filter, const char *text,
                                      struct harp_error *error);

/* Applies the filter to the interfaces, ascending by index as harp_eni_list gives them. Chosen are those that
 * are up, have a link and an address of `family` (AF_UNSPEC: any): for a list of names in the list's order,
 * so that the operator numbers the devices; for an excluding one all others, by index. Loopback only by its
 * whole name. Returns how many, at least 1, or -errno with the sentence in the error: an interface named in
 * full is down or has no address, an entry fits nothing usable, or there are more than `max`. */
int harp_ifname_select(const struct harp_ifname_filter *filter, const struct harp_eni *enis, unsigned count,
                       int family, struct harp_ifname_choice *choices, unsigned max,
                       struct harp_error *error);

/* Explains why an interface cannot carry traffic, "interface 'eth1' is down", and returns -errno for it; 0
 * when it can. `where` begins the sentence. */
int harp_ifname_check_up(const struct harp_eni *eni, const char *where, struct harp_error *error);

/* Writes that there is no such interface, with those there are, and returns -ENODEV. */
int harp_ifname_missing(const char *name, const char *where, const struct harp_eni *enis, unsigned count,
                        struct harp_error *error);

#endif
