/* SPDX-License-Identifier: Apache-2.0 */
/* bpf(2), as far as the xdp driver uses it: maps, programs and links, by file descriptor.
 *
 * Functions return 0 or a file descriptor, or -errno (-EPERM: a capability is missing). Descriptors are
 * close-on-exec, and the caller closes them. No state; called at open and close and to read counters, never
 * per packet. Any thread. Sources: bpf(2), Linux include/uapi/linux/bpf.h. */
#ifndef HARP_IO_XDP_BPF_H
#define HARP_IO_XDP_BPF_H

#include "base/base.h"
#include "io/xdp/abi.h"

enum { HARP_BPF_NAME_BYTES = 16 };

/* Creates a map of type HARP_BPF_MAP_*; returns its descriptor. */
HARP_MUST_CHECK int harp_bpf_map_make(uint32_t type, uint32_t key_bytes, uint32_t value_bytes,
                                      uint32_t entries_max, const char *name);
/* Returns the capacity of a map in entries, or -errno. */
HARP_MUST_CHECK int harp_bpf_map_entries_max(int map_fd);

/* Reads, writes (no_exist: -EEXIST if there is one) or deletes the element of a key. */
HARP_MUST_CHECK int harp_bpf_map_read(int map_fd, const void *key, void *value);
HARP_MUST_CHECK int harp_bpf_map_write(int map_fd, const void *key, const void *value, bool no_exist);
int harp_bpf_map_delete(int map_fd, const void *key);
/* Stores the key that follows `key` in the map's own order; NULL: the first. -ENOENT: there is none. */
HARP_MUST_CHECK int harp_bpf_map_next(int map_fd, const void *key, void *next);

/* Loads an XDP program; `frags`: it accepts packets of several buffers. Returns its descriptor. */
HARP_MUST_CHECK int harp_bpf_program_load(const struct harp_bpf_insn *code, int count, const char *name,
                                          bool frags);

struct harp_bpf_program_info {
  char name[HARP_BPF_NAME_BYTES];
  uint32_t map_count;
  uint32_t maps[2]; /* identities of the first ones, in the order in which the program refers to them */
  uint32_t native_bytes;
};
/* Reads the kernel's description of a loaded program. */
HARP_MUST_CHECK int harp_bpf_program_describe(int program_fd, struct harp_bpf_program_info *info);

/* Attaches an XDP program to an interface; mode: HARP_XDP_MODE_*. Returns the descriptor of the link; the
 * program stays attached until the last descriptor of the link is closed. */
HARP_MUST_CHECK int harp_bpf_link_make(int program_fd, unsigned ifindex, uint32_t mode);
/* Returns the identity of the XDP program of a link; 0 for a link of another kind. */
uint32_t harp_bpf_link_program(int link_fd);
/* Stores the identity of the link after `*id` (0: the first) of all namespaces. -ENOENT: there is none. */
HARP_MUST_CHECK int harp_bpf_link_next(uint32_t *id);

/* Open an object by its identity. Need CAP_SYS_ADMIN. */
HARP_MUST_CHECK int harp_bpf_program_open(uint32_t id);
HARP_MUST_CHECK int harp_bpf_map_open(uint32_t id);
HARP_MUST_CHECK int harp_bpf_link_open(uint32_t id);

#endif
