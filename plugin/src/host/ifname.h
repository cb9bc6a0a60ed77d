/* SPDX-License-Identifier: Apache-2.0 */
/* HARP_IFNAME or NCCL_SOCKET_IFNAME: which interfaces to use. A comma list of prefixes,
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
  const char *variable; /* the variable, for messages */
  bool is_exclude, is_exact;
  unsigned count;
  char entries[HARP_IFNAME_ENTRIES_MAX][HARP_ENI_NAME_BYTES];
};

/* One interface that the filter chose. */
struct harp_ifname_choice {
  char name[HARP_ENI_NAME_BYTES];
  bool is_explicit; /* an entry is its whole name */
};

/* Parses the list that a variable has. Returns 0, or -EINVAL with the sentence in the error. */
HARP_MUST_CHECK int harp_ifname_parse(struct harp_ifname_filter *filter, const char *variable,
                                      const char *text, struct harp_error *error);

/* Selects the interfaces that match the filter and have an address of `family` (AF_UNSPEC: any); with an
 * excluding list only those that are up and have a link. An interface with its whole name in the list may
 * have no address yet, and after = it need not exist. `enis` are ascending by index, as from
 * harp_eni_list. The choices are in the order of the list of names, which is the order of the devices; with
 * an excluding list, by index. Loopback matches only by its whole name. Logs at INFO entries that select
 * nothing beside others that do. Returns the number of choices, at least 1, or -errno with the sentence in
 * the error: why the first entry selects nothing, where none does, or that there are more than `max`. */
int harp_ifname_select(const struct harp_ifname_filter *filter, const struct harp_eni *enis, unsigned count,
                       int family, struct harp_ifname_choice *choices, unsigned max,
                       struct harp_error *error);

/* Returns 0 when the interface is up and has a link; else -errno with the sentence in the error, which begins
 * with `where`: "interface 'eth1' is down". */
int harp_ifname_check_up(const struct harp_eni *eni, const char *where, struct harp_error *error);

/* Returns -ENODEV, with a sentence that lists the existing interfaces in the error. */
int harp_ifname_missing(const char *name, const char *where, const struct harp_eni *enis, unsigned count,
                        struct harp_error *error);

#endif
