/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the table of settings and the bounds of conf files as JSON: what harpctl and
 * docs/reference/configuration.md are made from. Run by `make settings`. */
#include <inttypes.h>
#include <stdio.h>

#include "host/conf.h"
#include "host/config.h"
#include "host/cpu.h"
#include "host/setting.h"
#include "io/bundle.h"
#include "wire/control.h"

static const char *const kinds[] = {
#define KIND_NAME(kind, name, type) [HARP_KIND_##kind] = name,
    HARP_SETTING_KINDS(KIND_NAME)
#undef KIND_NAME
};

static void put_text(const char *text) {
  if (!text) {
    fputs("null", stdout);
    return;
  }
  putchar('"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') putchar('\\');
    putchar(*text);
  }
  putchar('"');
}

static void put_member(const char *name, const char *text) {
  printf(",\n      \"%s\": ", name);
  put_text(text);
}

static void put_words(const char *const *words) {
  printf(",\n      \"words\": [");
  for (unsigned i = 0; words && words[i]; i++) {
    fputs(i ? ", " : "", stdout);
    put_text(words[i]);
  }
  putchar(']');
}

static void put_setting(enum harp_setting_id id) {
  const struct harp_setting *s = &harp_setting_table[id];
  char expected[HARP_EXPECTED_BYTES];
  printf("%s    {\n      \"kind\": \"%s\"", id ? ",\n" : "", kinds[s->kind]);
  put_member("section", s->section);
  put_member("key", s->key);
  put_member("variable", s->variable);
  put_member("scope", s->scope == HARP_SCOPE_JOB ? "job" : "eni");
  put_words(s->words);
  printf(",\n      \"min\": %" PRIu64 ",\n      \"max\": %" PRIu64, s->min, s->max);
  put_member("unit", s->unit);
  put_member("initial", s->initial);
  put_member("otherwise", s->otherwise);
  put_member("expected", harp_setting_expected(id, expected));
  put_member("help", s->help);
  printf("\n    }");
}

static const struct {
  const char *name;
  unsigned value;
} bounds[] = {
    {"conf_files_max", HARP_INSTANCES_MAX},
    {"conf_file_bytes_max", HARP_CONF_FILE_BYTES_MAX},
    {"conf_line_bytes_max", HARP_CONF_LINE_BYTES_MAX},
    {"quote_bytes", HARP_QUOTE_BYTES},
    {"core_count_max", HARP_CPU_MAX},
    {"device_enis_max", HARP_BUNDLE_MAX},
    {"mtu_min", HARP_ENDPOINT_MTU_MIN_BYTES},
};

int main(void) {
  puts("{\n  \"bounds\": {");
  for (unsigned i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
    printf("%s    \"%s\": %u", i ? ",\n" : "", bounds[i].name, bounds[i].value);
  puts("\n  },\n  \"settings\": [");
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) put_setting(id);
  puts("\n  ]\n}");
  return ferror(stdout) || fflush(stdout) ? 1 : 0;
}
