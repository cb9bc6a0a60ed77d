/* SPDX-License-Identifier: Apache-2.0 */
/* Directories and variables of NVIDIA's driver and of launchers. See gpu.h. */
#include "host/gpu.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_file.h"
#include "host/env.h"

enum { INFORMATION_BYTES = 2048, WORD_BYTES = 64 };

#define NVIDIA  "0x10de"
#define VGA     "0x0300"
#define COMPUTE "0x0302"

struct gpu_list {
  unsigned count;
  char pci[HARP_GPUS_MAX][HARP_GPU_PCI_BYTES];
};

/* ---- the driver's procfs ---- */

static int compare_pci(const void *a, const void *b) {
  return strcmp(a, b);
}

/* Lists the GPUs by PCI address, which is CUDA's order too where all are of one kind. */
static void list_gpus(const char *proc_root, struct gpu_list *list) {
  char path[PATH_MAX];
  list->count = 0;
  int length = snprintf(path, sizeof path, "%s/driver/nvidia/gpus", proc_root);
  DIR *folder = length < (int)sizeof path ? opendir(path) : NULL;
  if (!folder) return;
  for (struct dirent *entry; list->count < HARP_GPUS_MAX && (entry = readdir(folder));) {
    if (entry->d_name[0] == '.' || strlen(entry->d_name) >= HARP_GPU_PCI_BYTES) continue;
    memcpy(list->pci[list->count++], entry->d_name, strlen(entry->d_name) + 1);
  }
  closedir(folder);
  qsort(list->pci, list->count, sizeof list->pci[0], compare_pci);
}

/* Returns whether the UUID of a GPU begins with `uuid`. */
static bool has_uuid(const char *proc_root, const char *pci, const char *uuid) {
  static const char key[] = "GPU UUID:";
  char path[PATH_MAX], text[INFORMATION_BYTES];
  int length = snprintf(path, sizeof path, "%s/driver/nvidia/gpus/%s/information", proc_root, pci);
  if (length >= (int)sizeof path || harp_text_file_read(path, text, sizeof text) < 0) return false;
  const char *found = strstr(text, key);
  if (!found) return false;
  found += strlen(key);
  found += strspn(found, " \t");
  return strncmp(found, uuid, strlen(uuid)) == 0;
}

/* Returns whether a file of a PCI device begins with a text. */
static bool begins_with(const char *sysfs_root, const char *pci, const char *file, const char *text) {
  char path[PATH_MAX], found[16];
  int length = snprintf(path, sizeof path, "%s/bus/pci/devices/%s/%s", sysfs_root, pci, file);
  if (length >= (int)sizeof path || harp_text_file_read(path, found, sizeof found) < 0) return false;
  return strncmp(found, text, strlen(text)) == 0;
}

/* Counts the GPUs of this host, visible to this process or not, whose PCI address is lower. */
static int count_lower_gpus(const char *sysfs_root, const char *pci) {
  char path[PATH_MAX];
  int number = 0;
  int length = snprintf(path, sizeof path, "%s/bus/pci/devices", sysfs_root);
  DIR *folder = length < (int)sizeof path ? opendir(path) : NULL;
  if (!folder) return 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    const char *name = entry->d_name;
    if (name[0] == '.' || strcmp(name, pci) >= 0) continue;
    number +=
        begins_with(sysfs_root, name, "vendor", NVIDIA) &&
        (begins_with(sysfs_root, name, "class", VGA) || begins_with(sysfs_root, name, "class", COMPUTE));
  }
  closedir(folder);
  return number;
}

/* ---- the GPU of this process ---- */

/* Returns the index in the list of the GPU that a word of CUDA_VISIBLE_DEVICES names; -1: none. */
static int find_visible(const char *proc_root, const struct gpu_list *list, const char *word) {
  char *end;
  if (isdigit((unsigned char)*word)) {
    errno = 0;
    unsigned long number = strtoul(word, &end, 10);
    return !errno && !*end && number < list->count ? (int)number : -1;
  }
  for (unsigned i = 0; *word && i < list->count; i++)
    if (has_uuid(proc_root, list->pci[i], word)) return (int)i;
  return -1;
}

/* Reduces the list to CUDA_VISIBLE_DEVICES, in its order; as in CUDA, an invalid word ends it. */
static void keep_visible(const char *proc_root, const char *visible, struct gpu_list *list) {
  struct gpu_list all = *list;
  list->count = 0;
  while (list->count < HARP_GPUS_MAX) {
    char word[WORD_BYTES];
    size_t length = strcspn(visible, ",");
    snprintf(word, sizeof word, "%.*s", (int)HARP_MIN(length, sizeof word - 1), visible);
    int at = find_visible(proc_root, &all, word + strspn(word, " "));
    if (at < 0) return;
    memcpy(list->pci[list->count++], all.pci[at], sizeof all.pci[0]);
    if (!visible[length]) return;
    visible += length + 1;
  }
}

unsigned harp_gpu_count(const char *proc_root) {
  struct gpu_list list;
  list_gpus(proc_root, &list);
  return list.count;
}

bool harp_gpu_of_process(const char *proc_root, const char *sysfs_root, const char *const *environment,
                         const struct harp_local *local, struct harp_gpu *gpu) {
  struct gpu_list list;
  char link[PATH_MAX], real[PATH_MAX];
  list_gpus(proc_root, &list);
  const char *visible = harp_env_find(environment, "CUDA_VISIBLE_DEVICES");
  if (visible) keep_visible(proc_root, visible, &list);
  unsigned at = list.count == 1 ? 0 : local->rank;
  if ((list.count != 1 && !local->has_rank) || at >= list.count) return false;
  memset(gpu, 0, sizeof *gpu);
  for (size_t i = 0; list.pci[at][i]; i++) gpu->pci[i] = (char)tolower((unsigned char)list.pci[at][i]);
  int length = snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sysfs_root, gpu->pci);
  if (length < (int)sizeof link && realpath(link, real) && strlen(real) < sizeof gpu->pci_path)
    memcpy(gpu->pci_path, real, strlen(real) + 1);
  gpu->numa = harp_eni_numa(gpu->pci_path);
  gpu->number = count_lower_gpus(sysfs_root, gpu->pci);
  return true;
}

/* ---- nearness ---- */

/* Counts the common leading parts of two paths from the PCI root on: 1 for the same root. */
static unsigned common_bridges(const char *a, const char *b) {
  const char *root = strstr(a, "/pci");
  unsigned count = 0;
  if (!root || !*b || strncmp(a, b, (size_t)(root - a) + 1) != 0) return 0;
  for (size_t i = (size_t)(root - a) + 1;; i++) {
    bool a_ends = !a[i] || a[i] == '/', b_ends = !b[i] || b[i] == '/';
    count += a_ends && b_ends;
    if (a[i] != b[i] || !a[i]) return count;
  }
}

unsigned harp_gpu_nearness(const struct harp_gpu *gpu, const char *pci_path, int numa) {
  bool is_same_node = numa >= 0 && numa == gpu->numa;
  return 2 * common_bridges(gpu->pci_path, pci_path) + is_same_node;
}
