/* SPDX-License-Identifier: Apache-2.0 */
/* See setting.h. */
#include "host/setting.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "host/option.h"

#define OFFSET_OF(field) offsetof(struct harp_settings, field)
#define SETTING(id, a_kind, type, field, ...)                                                                \
  [HARP_SETTING_##id] = {.kind = HARP_KIND_##a_kind, .offset = OFFSET_OF(field), __VA_ARGS__},
#define VARIABLE(id, a_kind, ...)                                                                            \
  [HARP_SETTING_##id] = {.kind = HARP_KIND_##a_kind, .offset = SIZE_MAX, __VA_ARGS__},
const struct harp_setting harp_setting_table[HARP_SETTING_COUNT] = {
#include "host/settings.def"
};
#undef SETTING
#undef VARIABLE

const char *const harp_setting_sections[] = {"eni", "engine", "memory", "transport", NULL};

/* The bytes of a value, by its kind; a row whose type has others does not compile. */
enum {
#define KIND_BYTES(kind, name, type) BYTES_##kind = sizeof(type),
  HARP_SETTING_KINDS(KIND_BYTES)
#undef KIND_BYTES
};
static const size_t kind_bytes[] = {
#define KIND_BYTES(kind, name, type) [HARP_KIND_##kind] = BYTES_##kind,
    HARP_SETTING_KINDS(KIND_BYTES)
#undef KIND_BYTES
};
#define SETTING(id, kind, type, field, ...)                                                                  \
  _Static_assert(sizeof(type) == BYTES_##kind, #id ": the type is not that of its kind");
#define VARIABLE(id, kind, ...)
#include "host/settings.def"
#undef SETTING
#undef VARIABLE
_Static_assert(HARP_SETTING_COUNT <= 64, "struct harp_settings has one bit for each");

static const struct harp_setting *row_of(enum harp_setting_id id) {
  HARP_ASSERT((unsigned)id < HARP_SETTING_COUNT);
  return &harp_setting_table[id];
}

/* ---- reading ---- */

static int find_word(const char *const *words, const char *text) {
  for (int i = 0; words[i]; i++)
    if (strcmp(words[i], text) == 0) return i;
  return -1;
}

static bool read_number(const struct harp_setting *s, const char *text, unsigned long *number) {
  return harp_option_number(text, s->min, s->max, number);
}

/* Reads a text of the row's kind into `value`, which is NULL where the text is all there is. */
static bool read_value(const struct harp_setting *s, const char *text, void *value) {
  unsigned long number;
  int word;
  switch (s->kind) {
  case HARP_KIND_NUMBER:
    if (!read_number(s, text, &number)) return false;
    *(int *)value = (int)number;
    return true;
  case HARP_KIND_SECONDS:
    if (!read_number(s, text, &number)) return false;
    *(harp_ns *)value = HARP_SEC(number);
    return true;
  case HARP_KIND_SIZE:
    return harp_option_size(text, s->min, s->max, value);
  case HARP_KIND_WORD:
    if ((word = find_word(s->words, text)) < 0) return false;
    if (value) *(unsigned *)value = (unsigned)word;
    return true;
  case HARP_KIND_INTERFACE:
    return harp_option_interface(text, value);
  case HARP_KIND_MAC:
    return harp_option_mac(text, value);
  case HARP_KIND_PCI:
    return harp_option_pci(text, value);
  case HARP_KIND_ADDRESS:
    return harp_option_ip(text, value);
  case HARP_KIND_CORES:
    return harp_option_cores(text, value);
  case HARP_KIND_PORTS:
    return harp_option_ports(text, s->min, value);
  case HARP_KIND_INTERFACES:
    return true;
  case HARP_KIND_DIRECTORY:
    return strlen(text) <= s->max;
  case HARP_KIND_OUTPUT:
    return strcmp(text, "off") == 0 || (text[0] == '/' && strlen(text) <= s->max);
  }
  HARP_ASSERT(!"no such kind");
  return false;
}

static void *value_of(struct harp_settings *settings, const struct harp_setting *s) {
  return s->offset == SIZE_MAX ? NULL : (char *)settings + s->offset;
}

void harp_settings_init(struct harp_settings *settings) {
  memset(settings, 0, sizeof *settings);
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *s = row_of(id);
    bool is_read = !s->initial || read_value(s, s->initial, value_of(settings, s));
    HARP_ASSERT(is_read);
  }
}

bool harp_settings_read(struct harp_settings *settings, enum harp_setting_id id, const char *text) {
  if (!read_value(row_of(id), text, value_of(settings, row_of(id)))) return false;
  settings->set |= UINT64_C(1) << id;
  return true;
}

void harp_settings_overlay(struct harp_settings *settings, const struct harp_settings *from,
                           enum harp_setting_scope scope) {
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *s = row_of(id);
    if (s->scope != scope || !harp_setting_is_set(from, id)) continue;
    if (s->offset != SIZE_MAX)
      memcpy((char *)settings + s->offset, (const char *)from + s->offset, kind_bytes[s->kind]);
    settings->set |= UINT64_C(1) << id;
  }
}

/* ---- words ---- */

const char *harp_setting_word(enum harp_setting_id id, unsigned value) {
  const char *const *words = row_of(id)->words;
  HARP_ASSERT(words);
  for (unsigned i = 0; words[i]; i++)
    if (i == value) return words[i];
  return "?";
}

const char *harp_settings_format(const struct harp_settings *settings, enum harp_setting_id id,
                                 char text[24]) {
  const struct harp_setting *s = row_of(id);
  const void *value = (const char *)settings + s->offset;
  HARP_ASSERT(s->offset != SIZE_MAX);
  if (s->kind == HARP_KIND_WORD) {
    snprintf(text, 24, "%s", harp_setting_word(id, *(const unsigned *)value));
  } else if (s->kind == HARP_KIND_SECONDS) {
    snprintf(text, 24, "%" PRIu64, (uint64_t)(*(const harp_ns *)value / HARP_SEC(1)));
  } else {
    HARP_ASSERT(s->kind == HARP_KIND_NUMBER); /* others are of one ENI */
    snprintf(text, 24, "%d", *(const int *)value);
  }
  return text;
}

/* Writes "a, b or c". */
static void list_words(const char *const *words, char text[HARP_EXPECTED_BYTES]) {
  size_t used = 0;
  for (unsigned i = 0; words[i]; i++) {
    const char *before = i == 0 ? "" : words[i + 1] ? ", " : " or ";
    used += (size_t)snprintf(text + used, HARP_EXPECTED_BYTES - used, "%s%s", before, words[i]);
    HARP_ASSERT(used < HARP_EXPECTED_BYTES);
  }
}

const char *harp_setting_expected(enum harp_setting_id id, char text[HARP_EXPECTED_BYTES]) {
  const struct harp_setting *s = row_of(id);
  int n = 0;
  switch (s->kind) {
  case HARP_KIND_WORD:
    list_words(s->words, text);
    break;
  case HARP_KIND_NUMBER:
    n = snprintf(text, HARP_EXPECTED_BYTES, "a number from %" PRIu64 " to %" PRIu64, s->min, s->max);
    break;
  case HARP_KIND_SECONDS:
    n = snprintf(text, HARP_EXPECTED_BYTES, "whole seconds from %" PRIu64 " to %" PRIu64, s->min, s->max);
    break;
  case HARP_KIND_SIZE:
    n = snprintf(text, HARP_EXPECTED_BYTES, "a size from %" PRIu64 "M to %" PRIu64 "G", s->min >> 20,
                 s->max >> 30);
    break;
  case HARP_KIND_INTERFACE:
    n = snprintf(text, HARP_EXPECTED_BYTES, "an interface name of 1 to %d characters",
                 HARP_ENI_NAME_BYTES - 1);
    break;
  case HARP_KIND_MAC:
    n = snprintf(text, HARP_EXPECTED_BYTES, "a MAC address such as 52:54:00:12:34:56");
    break;
  case HARP_KIND_PCI:
    n = snprintf(text, HARP_EXPECTED_BYTES, "a PCI address such as 0000:00:06.0");
    break;
  case HARP_KIND_ADDRESS:
    n = snprintf(text, HARP_EXPECTED_BYTES, "an IPv4 or IPv6 address");
    break;
  case HARP_KIND_CORES:
    n = snprintf(text, HARP_EXPECTED_BYTES, "%" PRIu64 " to %" PRIu64 " different core numbers such as 2-5,8",
                 s->min, s->max);
    break;
  case HARP_KIND_PORTS:
    n = snprintf(text, HARP_EXPECTED_BYTES, "a range LOW-HIGH within %" PRIu64 "-%" PRIu64, s->min, s->max);
    break;
  case HARP_KIND_INTERFACES:
    n = snprintf(text, HARP_EXPECTED_BYTES,
                 "a comma list of interface names, after ^ to exclude or = to match exactly");
    break;
  case HARP_KIND_DIRECTORY:
    n = snprintf(text, HARP_EXPECTED_BYTES, "a directory path of at most %" PRIu64 " characters", s->max);
    break;
  case HARP_KIND_OUTPUT:
    n = snprintf(text, HARP_EXPECTED_BYTES,
                 "off, or an absolute directory path of at most %" PRIu64 " characters", s->max);
    break;
  }
  HARP_ASSERT(n < HARP_EXPECTED_BYTES);
  return text;
}
