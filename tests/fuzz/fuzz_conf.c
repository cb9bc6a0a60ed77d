/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a conf file, and its first line as HARP_IFNAME: no crash, and either values within their
 * bounds or one printable sentence. With HARP_FUZZ_MAIN, a program that replays the files on its command
 * line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/conf.h"
#include "host/config.h"
#include "host/cpu.h"
#include "host/ifname.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define CHECK(x)                                                                                             \
  do {                                                                                                       \
    if (!(x)) {                                                                                              \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                                \
      abort();                                                                                               \
    }                                                                                                        \
  } while (0)

static void check_sentence(const char *text, size_t text_bytes, const char *begin) {
  size_t length = strnlen(text, text_bytes);
  CHECK(length < text_bytes - 1); /* finished, not cut off */
  CHECK(strncmp(text, begin, strlen(begin)) == 0);
  for (size_t i = 0; i < length; i++) CHECK(text[i] >= ' ' && text[i] <= '~');
}

static void check_number(const struct harp_setting *setting, int64_t value) {
  CHECK(value >= (int64_t)setting->min && value <= (int64_t)setting->max);
}

/* What is set lies within the bounds of its row. */
static void check_value(const struct harp_setting *setting, const void *value) {
  const struct harp_cores *cores = value;
  const struct harp_ports *ports = value;
  switch (setting->kind) {
  case HARP_KIND_NUMBER:
    check_number(setting, *(const int *)value);
    break;
  case HARP_KIND_SECONDS:
    CHECK(*(const harp_ns *)value % HARP_SEC(1) == 0);
    check_number(setting, (int64_t)(*(const harp_ns *)value / HARP_SEC(1)));
    break;
  case HARP_KIND_SIZE:
    check_number(setting, (int64_t) * (const size_t *)value);
    break;
  case HARP_KIND_WORD:
    for (unsigned i = 0; i <= *(const unsigned *)value; i++) CHECK(setting->words[i]);
    break;
  case HARP_KIND_INTERFACE:
  case HARP_KIND_PCI:
    CHECK(*(const char *)value && memchr(value, 0, 16));
    break;
  case HARP_KIND_CORES:
    CHECK(cores->count >= setting->min && cores->count <= setting->max);
    for (unsigned i = 0; i < cores->count; i++) CHECK(cores->at[i] < HARP_CPU_MAX);
    break;
  case HARP_KIND_PORTS:
    CHECK(ports->low >= setting->min && ports->low <= ports->high);
    break;
  case HARP_KIND_MAC:
  case HARP_KIND_ADDRESS:
    break;
  default:
    CHECK(!"no key is of this kind");
  }
}

static void check_conf(const struct harp_conf *conf) {
  CHECK(harp_setting_is_set(&conf->values, HARP_SETTING_INTERFACE));
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *setting = &harp_setting_table[id];
    CHECK(conf->lines[id] <= HARP_CONF_FILE_BYTES_MAX + 1);
    CHECK(harp_setting_is_set(&conf->values, id) == (conf->lines[id] != 0));
    if (conf->lines[id]) check_value(setting, (const char *)&conf->values + setting->offset);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static struct harp_conf conf;
  struct harp_error error = {0};
  int rc = harp_conf_parse(&conf, "f.conf", bytes ? (const char *)data : "", bytes, &error);
  CHECK(rc == 0 || rc == -EINVAL);
  if (rc == 0)
    check_conf(&conf);
  else
    check_sentence(error.text, sizeof error.text, "f.conf:");

  char list[256];
  size_t length = 0;
  while (length < bytes && length < sizeof list - 1 && data[length] && data[length] != '\n') length++;
  if (length) memcpy(list, data, length);
  list[length] = 0;
  struct harp_ifname_filter filter;
  rc = harp_ifname_parse(&filter, "HARP_IFNAME", list, &error);
  CHECK(rc == 0 || rc == -EINVAL);
  CHECK(filter.count <= HARP_IFNAME_ENTRIES_MAX);
  if (rc < 0) check_sentence(error.text, sizeof error.text, "HARP_IFNAME = ");
  for (unsigned i = 0; i < filter.count; i++) CHECK(memchr(filter.entries[i], 0, sizeof filter.entries[i]));
  return 0;
}

#ifdef HARP_FUZZ_MAIN
int main(int argc, char **argv) {
  static uint8_t data[1 << 20];
  for (int i = 1; i < argc; i++) {
    FILE *file = fopen(argv[i], "rb");
    if (!file) {
      perror(argv[i]);
      return 1;
    }
    size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    /* A block of exactly this size, so that a sanitizer sees a read beyond it. */
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy) return 1;
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
  }
  printf("%d files replayed\n", argc - 1);
  return 0;
}
#endif
