/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a conf file, and its first line as HARP_IFNAME: no crash, and either values within their
 * bounds or one printable sentence. With HARP_FUZZ_MAIN, a program that replays the files on its command
 * line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/conf.h"
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

static void check_conf(const struct harp_conf *conf) {
  CHECK(harp_conf_is_set(conf, HARP_CONF_INTERFACE));
  CHECK(conf->interface[0] && memchr(conf->interface, 0, sizeof conf->interface));
  CHECK(!conf->mtu || (conf->mtu >= HARP_MTU_MIN && conf->mtu <= HARP_MTU_MAX));
  CHECK(memchr(conf->pci, 0, sizeof conf->pci));
  CHECK(conf->numa >= 0 && conf->numa <= HARP_NUMA_MAX);
  CHECK(conf->speed_mbps >= 0 && conf->speed_mbps <= HARP_SPEED_MAX_MBPS);
  CHECK(conf->queues <= HARP_QUEUES_MAX);
  CHECK(conf->mode <= HARP_ENGINE_THREAD);
  CHECK(conf->core_count <= HARP_MAX_CORES);
  for (unsigned i = 0; i < conf->core_count; i++) CHECK(conf->cores[i] < HARP_CPU_MAX);
  CHECK(conf->gpu >= 0 && conf->gpu <= HARP_GPU_MAX);
  CHECK(conf->page_size <= HARP_PAGE_4K);
  CHECK(conf->memory_bytes <= (size_t)HARP_MEMORY_MAX_MIB << 20);
  CHECK(conf->driver <= HARP_DRIVER_UDP);
  CHECK(conf->port_low <= conf->port_high && (!conf->port_low || conf->port_low >= HARP_PORT_MIN));
  CHECK(conf->paths <= HARP_MAX_PATHS);
  CHECK(conf->peer_timeout_ns <= HARP_SEC(HARP_PEER_TIMEOUT_MAX_SEC));
  CHECK(memchr(conf->congestion, 0, sizeof conf->congestion));
  for (unsigned key = 0; key < HARP_CONF_KEY_COUNT; key++)
    CHECK(conf->lines[key] <= HARP_CONF_FILE_BYTES_MAX + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static struct harp_conf conf;
  char text[HARP_CONFIG_ERROR_BYTES] = "";
  struct harp_error error = {text, sizeof text};
  int rc = harp_conf_parse(&conf, "f.conf", bytes ? (const char *)data : "", bytes, &error);
  CHECK(rc == 0 || rc == -EINVAL);
  if (rc == 0)
    check_conf(&conf);
  else
    check_sentence(text, sizeof text, "f.conf:");

  char list[256];
  size_t length = 0;
  while (length < bytes && length < sizeof list - 1 && data[length] && data[length] != '\n') length++;
  if (length) memcpy(list, data, length);
  list[length] = 0;
  struct harp_ifname_filter filter;
  rc = harp_ifname_parse(&filter, list, &error);
  CHECK(rc == 0 || rc == -EINVAL);
  CHECK(filter.count <= HARP_IFNAME_ENTRIES_MAX);
  if (rc < 0) check_sentence(text, sizeof text, "HARP_IFNAME = ");
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
