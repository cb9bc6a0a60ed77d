/* SPDX-License-Identifier: Apache-2.0 */
/* bpf(2), as far as the xdp driver uses it: maps, programs and links, by file descriptor.
 *
 * Every function returns 0 or a file descriptor, or -errno (-EPERM: a capability is missing); descriptors are
 * close-on-exec and the caller's to close. Owns nothing; called at open and close and now and then to read
 * counters, never for a packet. Sources: bpf(2), Linux include/uapi/linux/bpf.h. */
#ifndef HARP_IO_XDP_BPF_H
#define HARP_IO_XDP_BPF_H

#include "base/base.h"
#include "io/xdp/abi.h"

enum { HARP_BPF_NAME_BYTES = 16 };

/* Makes a map of type HARP_BPF_MAP_*; returns its descriptor. */
HARP_MUST_CHECK int harp_bpf_map_make(uint32_t type, uint32_t key_bytes, uint32_t value_bytes,
                                      uint32_t entries_max, const char *name);
/* Returns how many entries a map may have, or -errno. */
HARP_MUST_CHECK int harp_bpf_map_entries_max(int map_fd);

/* Reads, writes (no_exist: -EEXIST where there is one) or deletes the element of a key. */
HARP_MUST_CHECK int harp_bpf_map_read(int map_fd, const void *key, void *value);
HARP_MUST_CHECK int harp_bpf_map_write(int map_fd, const void *key, const void *value, bool no_exist);
int harp_bpf_map_delete(int map_fd, const void *key);
/* Finds the key after `key`, in no order; NULL: a first one. -ENOENT: there is none. */
HARP_MUST_CHECK int harp_bpf_map_next(int map_fd, const void *key, void *next);

/* Loads an XDP program; `frags`: it takes packets of several buffers. Returns its descriptor. */
HARP_MUST_CHECK int harp_bpf_program_load(const struct harp_bpf_insn *code, int count, const char *name,
                                          bool frags);

struct harp_bpf_program_info {
  char name[HARP_BPF_NAME_BYTES];
  uint32_t map_count;
  uint32_t maps[2]; /* the first ones, in the order in which the program names them */
  uint32_t native_bytes;
};
HARP_MUST_CHECK int harp_bpf_program_describe(int program_fd, struct harp_bpf_program_info *info);

/* Attaches an XDP program to an interface; mode: HARP_XDP_MODE_*. Returns the link, which holds it. */
HARP_MUST_CHECK int harp_bpf_link_make(int program_fd, unsigned ifindex, uint32_t mode);
/* Returns the identity of the XDP program that a link holds, 0 where it holds something else. */
uint32_t harp_bpf_link_program(int link_fd);
/* Finds the identity of the link after `*id` (0: the first) among those of all namespaces. */
HARP_MUST_CHECK int harp_bpf_link_next(uint32_t *id);

/* Opens what has an identity; takes CAP_SYS_ADMIN. */
HARP_MUST_CHECK int harp_bpf_program_open(uint32_t id);
HARP_MUST_CHECK int harp_bpf_map_open(uint32_t id);
HARP_MUST_CHECK int harp_bpf_link_open(uint32_t id);

#endif
