/* SPDX-License-Identifier: Apache-2.0 */
/* See bpf.h. */
#include "io/xdp/bpf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The commands' arguments, each padded with zeros to what the kernel's union may grow to. */
union args {
  struct {
    uint32_t type, key_bytes, value_bytes, entries_max, flags, inner_fd, numa;
    char name[HARP_BPF_NAME_BYTES];
  } map;
  struct {
    uint32_t fd, pad;
    uint64_t key, value, flags;
  } element;
  struct {
    uint32_t type, insn_count;
    uint64_t insns, license;
    uint32_t log_level, log_bytes;
    uint64_t log;
    uint32_t kernel_version, flags;
    char name[HARP_BPF_NAME_BYTES];
    uint32_t ifindex, attach_type;
  } program;
  struct {
    uint32_t program_fd, ifindex, attach_type, flags;
  } link;
  struct {
    uint32_t id, next_id, flags;
  } by_id;
  struct {
    uint32_t fd, bytes;
    uint64_t info;
  } info;
  uint8_t zero[128];
};

/* The kernel's info structures, up to the last member that is read here. */
struct program_info {
  uint32_t type, id;
  uint8_t tag[8];
  uint32_t native_bytes, translated_bytes;
  uint64_t native, translated, load_time;
  uint32_t uid, map_count;
  uint64_t map_ids;
  char name[HARP_BPF_NAME_BYTES];
};

struct map_info {
  uint32_t type, id, key_bytes, value_bytes, entries_max, flags;
  char name[HARP_BPF_NAME_BYTES];
};

struct link_info {
  uint32_t type, id, program_id;
  uint8_t rest[128];
};
enum { LINK_TYPE_XDP = 6, UPDATE_NO_EXIST = 1 };

static uint64_t address_of(const void *at) {
  return (uint64_t)(uintptr_t)at;
}

static int call_bpf(int command, union args *args) {
  long rc = syscall(SYS_bpf, command, args, sizeof *args);
  return rc < 0 ? -errno : (int)rc;
}

/* Creates an object. Before Linux 5.11 its memory counts against RLIMIT_MEMLOCK, of root too, and the error
 * is EPERM. Only creation checks the limit, so it is raised for the call. */
static int create_object(int command, union args *args) {
  struct rlimit before, most = {RLIM_INFINITY, RLIM_INFINITY};
  int rc = call_bpf(command, args);
  if (rc != -EPERM || getrlimit(RLIMIT_MEMLOCK, &before) || before.rlim_cur == RLIM_INFINITY) return rc;
  if (setrlimit(RLIMIT_MEMLOCK, &most)) {
    most.rlim_cur = most.rlim_max = before.rlim_max;
    if (setrlimit(RLIMIT_MEMLOCK, &most)) return rc;
  }
  rc = call_bpf(command, args);
  (void)setrlimit(RLIMIT_MEMLOCK, &before);
  return rc;
}

/* ---- maps ---- */

int harp_bpf_map_make(uint32_t type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries_max,
                      const char *name) {
  union args a;
  memset(&a, 0, sizeof a);
  a.map.type = type;
  a.map.key_bytes = key_bytes;
  a.map.value_bytes = value_bytes;
  a.map.entries_max = entries_max;
  snprintf(a.map.name, sizeof a.map.name, "%s", name);
  return create_object(HARP_BPF_MAP_CREATE, &a);
}

static int change_element(int command, int map_fd, const void *key, const void *value, uint64_t flags) {
  union args a;
  memset(&a, 0, sizeof a);
  a.element.fd = (uint32_t)map_fd;
  a.element.key = address_of(key);
  a.element.value = address_of(value);
  a.element.flags = flags;
  return call_bpf(command, &a);
}

int harp_bpf_map_read(int map_fd, const void *key, void *value) {
  return change_element(HARP_BPF_MAP_LOOKUP, map_fd, key, value, 0);
}

int harp_bpf_map_write(int map_fd, const void *key, const void *value, bool no_exist) {
  return change_element(HARP_BPF_MAP_UPDATE, map_fd, key, value, no_exist ? UPDATE_NO_EXIST : 0);
}

int harp_bpf_map_delete(int map_fd, const void *key) {
  return change_element(HARP_BPF_MAP_DELETE, map_fd, key, NULL, 0);
}

int harp_bpf_map_next(int map_fd, const void *key, void *next) {
  return change_element(HARP_BPF_MAP_GET_NEXT_KEY, map_fd, key, next, 0);
}

/* ---- descriptions ---- */

static int get_info(int fd, void *info, uint32_t bytes) {
  union args a;
  memset(&a, 0, sizeof a);
  a.info.fd = (uint32_t)fd;
  a.info.bytes = bytes;
  a.info.info = address_of(info);
  return call_bpf(HARP_BPF_OBJ_INFO, &a);
}

int harp_bpf_map_entries_max(int map_fd) {
  struct map_info info = {0};
  int err = get_info(map_fd, &info, sizeof info);
  return err < 0 ? err : (int)HARP_MIN(info.entries_max, (uint32_t)INT32_MAX);
}

int harp_bpf_program_describe(int program_fd, struct harp_bpf_program_info *out) {
  *out = (struct harp_bpf_program_info){0};
  struct program_info info = {.map_count = HARP_ARRAY_COUNT(out->maps), .map_ids = address_of(out->maps)};
  int err = get_info(program_fd, &info, sizeof info);
  if (err < 0) return err;
  memcpy(out->name, info.name, sizeof out->name - 1);
  out->map_count = info.map_count;
  out->native_bytes = info.native_bytes;
  return 0;
}

uint32_t harp_bpf_link_program(int link_fd) {
  struct link_info info = {0};
  bool is_xdp = get_info(link_fd, &info, sizeof info) >= 0 && info.type == LINK_TYPE_XDP;
  return is_xdp ? info.program_id : 0;
}

/* ---- programs and links ---- */

int harp_bpf_program_load(const struct harp_bpf_insn *code, int count, const char *name, bool frags) {
  static const char license[] = "Dual MIT/GPL";
  union args a;
  memset(&a, 0, sizeof a);
  a.program.type = HARP_BPF_PROG_XDP;
  a.program.insn_count = (uint32_t)count;
  a.program.insns = address_of(code);
  a.program.license = address_of(license);
  a.program.flags = frags ? HARP_BPF_XDP_HAS_FRAGS : 0;
  snprintf(a.program.name, sizeof a.program.name, "%s", name);
  return create_object(HARP_BPF_PROG_LOAD, &a);
}

int harp_bpf_link_make(int program_fd, unsigned ifindex, uint32_t mode) {
  union args a;
  memset(&a, 0, sizeof a);
  a.link.program_fd = (uint32_t)program_fd;
  a.link.ifindex = ifindex;
  a.link.attach_type = HARP_BPF_ATTACH_XDP;
  a.link.flags = mode;
  return call_bpf(HARP_BPF_LINK_CREATE, &a);
}

int harp_bpf_link_next(uint32_t *id) {
  union args a;
  memset(&a, 0, sizeof a);
  a.by_id.id = *id;
  int err = call_bpf(HARP_BPF_LINK_NEXT_ID, &a);
  *id = a.by_id.next_id;
  return err;
}

static int open_by_id(int command, uint32_t id) {
  union args a;
  memset(&a, 0, sizeof a);
  a.by_id.id = id;
  return call_bpf(command, &a);
}

int harp_bpf_program_open(uint32_t id) {
  return open_by_id(HARP_BPF_PROG_FD_BY_ID, id);
}

int harp_bpf_map_open(uint32_t id) {
  return open_by_id(HARP_BPF_MAP_FD_BY_ID, id);
}

int harp_bpf_link_open(uint32_t id) {
  return open_by_id(HARP_BPF_LINK_FD_BY_ID, id);
}
