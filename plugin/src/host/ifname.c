/* SPDX-License-Identifier: Apache-2.0 */
/* See ifname.h. */
#include "host/ifname.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "host/option.h"

#define BLANKS " \t\r\n" /* spaces stand beside names where files and lists were put together */

int harp_ifname_parse(struct harp_ifname_filter *filter, const char *variable, const char *text,
                      struct harp_error *error) {
  char quote[HARP_QUOTE_BYTES];
  *filter = (struct harp_ifname_filter){.variable = variable};
  harp_error_quote(text, quote);
  text += strspn(text, BLANKS);
  if (*text == '^') {
    filter->is_exclude = true;
    text++;
  }
  if (*text == '=') {
    filter->is_exact = true;
    text++;
  }
  while (*text) {
    text += strspn(text, BLANKS);
    size_t all = strcspn(text, ","), length = all;
    while (length && strchr(BLANKS, text[length - 1])) length--;
    char *entry = filter->entries[filter->count];
    char name[HARP_ENI_NAME_BYTES] = {0};
    if (length > 0) {
      if (filter->count == HARP_IFNAME_ENTRIES_MAX)
        return harp_error_set(error, -EINVAL, "%s = '%s': expected at most %d names", variable, quote,
                              HARP_IFNAME_ENTRIES_MAX);
      if (length < sizeof name) memcpy(name, text, length);
      if (!harp_option_interface(name, entry))
        return harp_error_set(error, -EINVAL, "%s = '%s': expected names of 1 to 15 characters", variable,
                              quote);
      filter->count++;
    }
    text += all;
    if (*text == ',') text++;
  }
  if (filter->count == 0 && !filter->is_exclude)
    return harp_error_set(error, -EINVAL, "%s = '%s': expected at least one interface name", variable, quote);
  return 0;
}

int harp_ifname_check_up(const struct harp_eni *eni, const char *where, struct harp_error *error) {
  if (!(eni->flags & IFF_UP))
    return harp_error_set(error, -ENETDOWN, "%s: interface '%s' is down; `ip link set %s up` brings it up",
                          where, eni->name, eni->name);
  if (!(eni->flags & IFF_RUNNING))
    return harp_error_set(error, -ENETDOWN, "%s: interface '%s' is up but has no link (carrier)", where,
                          eni->name);
  return 0;
}

int harp_ifname_missing(const char *name, const char *where, const struct harp_eni *enis, unsigned count,
                        struct harp_error *error) {
  char list[200] = "";
  size_t used = 0;
  for (unsigned i = 0; i < count && used + 2 * HARP_ENI_NAME_BYTES < sizeof list; i++) {
    bool is_full = used + 3 * HARP_ENI_NAME_BYTES >= sizeof list;
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                             is_full ? "..." : enis[i].name);
    if (is_full) break;
  }
  return harp_error_set(error, -ENODEV,
                        "%s: interface '%s' does not exist in this network namespace, which has %s", where,
                        name, count ? list : "none");
}

static bool filter_matches(const struct harp_ifname_filter *filter, unsigned entry, const char *name) {
  const char *want = filter->entries[entry];
  return filter->is_exact ? strcmp(name, want) == 0 : strncmp(name, want, strlen(want)) == 0;
}

struct selection {
  const char *variable;
  struct harp_error *error;
  int family;
  struct harp_ifname_choice *choices;
  unsigned count, max;
};

static bool is_chosen(const struct selection *selection, const char *name) {
  for (unsigned i = 0; i < selection->count; i++)
    if (strcmp(selection->choices[i].name, name) == 0) return true;
  return false;
}

static bool has_address(const struct selection *selection, const struct harp_eni *eni, bool is_explicit) {
  struct sockaddr_storage address;
  return harp_eni_choose_address(eni, selection->family, is_explicit, &address) == 0;
}

/* Adds an interface. Returns 0, or -E2BIG with the sentence if there is no more room. */
static int add_choice(struct selection *selection, const char *name, bool is_explicit) {
  if (is_chosen(selection, name)) return 0;
  if (selection->count == selection->max)
    return harp_error_set(selection->error, -E2BIG, "%s: too many interfaces: expected at most %u",
                          selection->variable, selection->max);
  struct harp_ifname_choice *choice = &selection->choices[selection->count++];
  *choice = (struct harp_ifname_choice){.is_explicit = is_explicit};
  memcpy(choice->name, name, sizeof choice->name);
  return 0;
}

/* Says why a prefix selects nothing. Returns -errno. */
static int explain_prefix(const struct harp_ifname_filter *filter, unsigned entry,
                          const struct harp_eni *enis, unsigned count, struct harp_error *why) {
  const char *name = filter->entries[entry];
  bool is_matched = false;
  for (unsigned i = 0; i < count; i++)
    is_matched |= filter_matches(filter, entry, enis[i].name) && !(enis[i].flags & IFF_LOOPBACK);
  return harp_error_set(why, is_matched ? -EADDRNOTAVAIL : -ENODEV,
                        is_matched ? "%s: no interface that begins with '%s' has an address to use"
                                   : "%s: no interface of this network namespace begins with '%s' "
                                     "(loopback counts only by its whole name)",
                        filter->variable, name);
}

/* Chooses what an entry matches and has an address, or is named in full, whether it works or not. Returns 0;
 * or 1 where that is nothing; or -E2BIG. */
static int select_entry(struct selection *selection, const struct harp_ifname_filter *filter, unsigned entry,
                        const struct harp_eni *enis, unsigned count) {
  int rc = 1;
  for (unsigned i = 0; i < count && rc >= 0; i++) {
    bool is_explicit = strcmp(enis[i].name, filter->entries[entry]) == 0;
    if (!filter_matches(filter, entry, enis[i].name) || (enis[i].flags & IFF_LOOPBACK && !is_explicit))
      continue;
    if (is_explicit || has_address(selection, &enis[i], is_explicit))
      rc = add_choice(selection, enis[i].name, is_explicit);
    else
      HARP_INFO("%s: interface '%s' is left out: it has no address to use", filter->variable, enis[i].name);
  }
  const struct harp_eni *alternative = harp_eni_find(enis, count, filter->entries[entry]);
  if (rc == 1 && alternative) rc = add_choice(selection, alternative->name, true);
  return rc == 1 && filter->is_exact ? add_choice(selection, filter->entries[entry], true) : rc;
}

static int select_listed(struct selection *selection, const struct harp_ifname_filter *filter,
                         const struct harp_eni *enis, unsigned count) {
  int first_rc = 0;
  for (unsigned entry = 0; entry < filter->count; entry++) {
    struct harp_error why;
    int rc = select_entry(selection, filter, entry, enis, count);
    if (rc < 0) return rc;
    if (rc == 0) continue;
    rc = explain_prefix(filter, entry, enis, count, &why);
    if (filter->count > 1) HARP_INFO("%s; the other names count", why.text);
    if (!first_rc) *selection->error = why;
    if (!first_rc) first_rc = rc;
  }
  if (selection->count == 0) return first_rc;
  selection->error->text[0] = 0;
  return (int)selection->count;
}

static int select_not_excluded(struct selection *selection, const struct harp_ifname_filter *filter,
                               const struct harp_eni *enis, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    bool is_excluded = enis[i].flags & IFF_LOOPBACK || !harp_eni_is_up(&enis[i]);
    for (unsigned entry = 0; entry < filter->count && !is_excluded; entry++)
      is_excluded = filter_matches(filter, entry, enis[i].name);
    if (is_excluded || !has_address(selection, &enis[i], false)) continue;
    int rc = add_choice(selection, enis[i].name, false);
    if (rc < 0) return rc;
  }
  if (selection->count == 0)
    return harp_error_set(selection->error, -ENODEV, "%s: no interface is left that is up and has an address",
                          filter->variable);
  return (int)selection->count;
}

int harp_ifname_select(const struct harp_ifname_filter *filter, const struct harp_eni *enis, unsigned count,
                       int family, struct harp_ifname_choice *choices, unsigned max,
                       struct harp_error *error) {
  struct selection selection = {
      .variable = filter->variable, .error = error, .family = family, .choices = choices, .max = max};
  return filter->is_exclude ? select_not_excluded(&selection, filter, enis, count)
                            : select_listed(&selection, filter, enis, count);
}
