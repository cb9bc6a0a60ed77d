/* SPDX-License-Identifier: Apache-2.0 */
#include "usage.h"

#include "log.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>

enum { LINE_BYTES = 256 };

static int count_entries(const char *path) {
  DIR *folder = opendir(path);
  if (!folder) box_die("%s can't be read", path);
  int count = 0;
  for (const struct dirent *e; (e = readdir(folder));) count += e->d_name[0] != '.';
  closedir(folder);
  return count;
}

static long read_memory_kib(void) {
  FILE *file = fopen("/proc/self/status", "re");
  if (!file) box_die("/proc/self/status can't be read");
  char line[LINE_BYTES];
  long all = 0, kib;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "RssAnon: %ld", &kib) == 1 || sscanf(line, "RssShmem: %ld", &kib) == 1) all += kib;
  fclose(file);
  return all;
}

struct box_usage box_usage_now(void) {
  malloc_trim(0);
  struct box_usage usage = {.threads = count_entries("/proc/self/task"), .memory_kib = read_memory_kib()};
  usage.files = count_entries("/proc/self/fd") - 1; /* the folder's own */
  return usage;
}
