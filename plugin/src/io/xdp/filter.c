/* SPDX-License-Identifier: Apache-2.0 */
/* See filter.h. */
#include "io/xdp/filter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/files.h"
#include "base/shortage.h"
#include "io/nic.h"
#include "io/xdp/bpf.h"

/* The number changes with the program's rules and the maps' layout: other versions of HARP cannot join. */
#define PROGRAM_NAME "harp_filter_3"

static void close_fd(int *fd) {
  if (*fd >= 0) harp_files_close(*fd);
  *fd = -1;
}

/* ---- programs of this process ---- */

/* The programs that drivers of this process hold; another driver joins them without a capability. Beyond
 * HELD_MAX they are joined like those of other processes. */
enum { HELD_MAX = 256 };
static struct held { int link_fd, ports_fd, sockets_fd; /* all 0: none */ } held[HELD_MAX];
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static void replace_held(int link_fd, const struct held *by) {
  pthread_mutex_lock(&held_lock);
  for (unsigned i = 0; i < HELD_MAX; i++) {
    if (held[i].link_fd != link_fd) continue;
    held[i] = *by;
    break;
  }
  pthread_mutex_unlock(&held_lock);
}

static void hold_descriptors(const struct harp_xdp_filter *f) {
  harp_files_own(f->link_fd);
  replace_held(0, &(struct held){f->link_fd, f->ports_fd, f->sockets_fd});
}

static int copy_fd(int fd) {
  return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Joins a program that this process holds already; false when it holds none with this identity. */
static bool join_own(struct harp_xdp_filter *f, uint32_t program) {
  pthread_mutex_lock(&held_lock);
  for (unsigned i = 0; i < HELD_MAX && f->link_fd < 0; i++) {
    if (!held[i].link_fd || harp_bpf_link_program(held[i].link_fd) != program) continue;
    f->link_fd = copy_fd(held[i].link_fd);
    f->ports_fd = copy_fd(held[i].ports_fd);
    f->sockets_fd = copy_fd(held[i].sockets_fd);
  }
  pthread_mutex_unlock(&held_lock);
  if (f->link_fd >= 0 && f->ports_fd >= 0 && f->sockets_fd >= 0) return true;
  harp_xdp_filter_close(f);
  return false;
}

/* ---- attaching and joining ---- */

/* Opens the maps of a HARP program; false when it is another program. */
static bool open_maps(struct harp_xdp_filter *f, uint32_t program_id) {
  struct harp_bpf_program_info info;
  int fd = harp_bpf_program_open(program_id);
  if (fd < 0) return false;
  int err = harp_bpf_program_describe(fd, &info);
  close(fd);
  if (err || info.map_count != 2 || strcmp(info.name, PROGRAM_NAME)) return false;
  f->ports_fd = harp_bpf_map_open(info.maps[0]); /* in the order in which the program names them */
  f->sockets_fd = harp_bpf_map_open(info.maps[1]);
  return f->ports_fd >= 0 && f->sockets_fd >= 0;
}

/* Joins a program of another process: finds its link among those of all network namespaces. Needs
 * CAP_SYS_ADMIN. */
static bool join_other_process(struct harp_xdp_filter *f, uint32_t program) {
  uint32_t id = 0;
  while (!harp_bpf_link_next(&id)) {
    f->link_fd = harp_bpf_link_open(id);
    if (f->link_fd < 0) continue;
    if (harp_bpf_link_program(f->link_fd) == program && open_maps(f, program)) return true;
    harp_xdp_filter_close(f);
  }
  return false;
}

/* Joins the HARP program that is attached to the interface in that mode. It is found by its identity, because
 * interfaces of other network namespaces may have the same index. */
static bool join_program(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode) {
  uint32_t program;
  if (harp_nic_xdp_program(ifindex, mode == HARP_XDP_GENERIC, &program) || !program) return false;
  if (!join_own(f, program) && !join_other_process(f, program)) return false;
  int entries = harp_bpf_map_entries_max(f->sockets_fd);
  f->queue_count = HARP_MIN((unsigned)HARP_MAX(entries, 1), harp_nic_queues(ifindex));
  f->joined = true;
  hold_descriptors(f);
  return true;
}

static int set_error(int err, const char *what, struct harp_error *error) {
  if (err == -EPERM) return harp_error_set(error, err, "%s needs CAP_BPF and CAP_NET_ADMIN (or root)", what);
  return harp_shortage_set(error, err, "%s failed", what);
}

/* Sets the error of a failed attachment. NIC drivers explain their -errno in the kernel's log at best, so the
 * sentence names the usual cause. */
static int set_attach_error(int err, enum harp_xdp_mode mode, struct harp_error *error) {
  bool is_native = mode == HARP_XDP_NATIVE;
  char what[40];
  snprintf(what, sizeof what, "attaching a %s XDP program", is_native ? "native" : "generic");
  struct harp_error cause;
  (void)set_error(err, what, &cause);
  bool may_be_limit = is_native && (err == -ERANGE || err == -EINVAL || err == -ENOSPC);
  return harp_error_set(error, err, "%s%s", cause.text,
                        may_be_limit
                            ? "; often the MTU is too large for it (3498 fits), or more than half of "
                              "the channels are in use (ethtool -L)"
                            : "");
}

/* Loads and attaches; returns the link or -errno. */
static int attach_program(const struct harp_xdp_program *p, unsigned ifindex, enum harp_xdp_mode mode,
                          bool frags, struct harp_error *error) {
  int program_fd = harp_bpf_program_load(p->code, p->count, PROGRAM_NAME, frags);
  if (program_fd < 0) return set_error(program_fd, "loading the XDP program", error);
  int link_fd = harp_bpf_link_make(program_fd, ifindex,
                                   mode == HARP_XDP_NATIVE ? HARP_XDP_MODE_DRV : HARP_XDP_MODE_SKB);
  close(program_fd); /* the link holds it */
  return link_fd >= 0 ? link_fd : set_attach_error(link_fd, mode, error);
}

/* Attaches the program. If a NIC driver refuses the program, retries with one that accepts packets of several
 * buffers: the MTU may be too large for one buffer of the driver though not for one frame. */
static int attach_with_fallback(const struct harp_xdp_program *p, unsigned ifindex, enum harp_xdp_mode mode,
                                bool frags, struct harp_error *error) {
  struct harp_error second;
  int link_fd = attach_program(p, ifindex, mode, frags, error);
  if (link_fd >= 0 || frags || mode != HARP_XDP_NATIVE) return link_fd;
  if (link_fd != -ERANGE && link_fd != -EINVAL && link_fd != -EOPNOTSUPP) return link_fd;
  int other_fd = attach_program(p, ifindex, mode, true, &second);
  return other_fd >= 0 ? other_fd : link_fd;
}

static bool has_program(unsigned ifindex, bool generic) {
  uint32_t id;
  return !harp_nic_xdp_program(ifindex, generic, &id) && id;
}

/* Counts the NIC's queues before the program is attached, because some drivers then report more of them,
 * which receive nothing. The size of the map of sockets is the count for those who join later. */
static int attach_new(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode, bool frags,
                      struct harp_error *error) {
  struct harp_xdp_program program;
  if (has_program(ifindex, false) || has_program(ifindex, true)) return -EBUSY;
  f->queue_count = HARP_MIN(harp_nic_queues(ifindex), (unsigned)HARP_XDP_QUEUES_MAX);
  f->ports_fd = harp_bpf_map_make(HARP_BPF_MAP_HASH, sizeof(struct harp_xdp_port_key),
                                  sizeof(struct harp_xdp_port_value), HARP_XDP_PORTS_MAX, "harp_ports");
  if (f->ports_fd < 0) return set_error(f->ports_fd, "creating a BPF map", error);
  f->sockets_fd = harp_bpf_map_make(HARP_BPF_MAP_XSKMAP, sizeof(uint32_t), sizeof(uint32_t), f->queue_count,
                                    "harp_sockets");
  if (f->sockets_fd < 0) return set_error(f->sockets_fd, "creating an XSK map", error);
  harp_xdp_program_write(&program, mode, f->ports_fd, f->sockets_fd);
  f->link_fd = attach_with_fallback(&program, ifindex, mode, frags, error);
  if (f->link_fd < 0) return f->link_fd;
  hold_descriptors(f);
  return 0;
}

static const char *why_not_joined(unsigned ifindex, enum harp_xdp_mode mode) {
  uint32_t program = 0;
  if (harp_nic_xdp_program(ifindex, mode == HARP_XDP_GENERIC, &program) || !program)
    return mode == HARP_XDP_GENERIC ? "an XDP program is attached to the interface in native mode"
                                    : "an XDP program is attached to the interface in generic mode";
  int fd = harp_bpf_program_open(program);
  if (fd == -EPERM)
    return "an XDP program is attached to the interface; joining it, if it is HARP's, needs CAP_SYS_ADMIN";
  if (fd >= 0) close(fd);
  return "another XDP program is attached to the interface";
}

enum { ATTACH_TRIES = 20, RETRY_MS = 1 };

int harp_xdp_filter_open(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode, bool frags,
                         struct harp_error *error) {
  *f = (struct harp_xdp_filter){.link_fd = -1, .ports_fd = -1, .sockets_fd = -1};
  /* Other processes may attach or detach it meanwhile. A process that searches the links of all namespaces
   * holds each for a moment, so a program that was just closed may still be attached. */
  for (unsigned i = 0; i < ATTACH_TRIES; i++) {
    if (i) (void)poll(NULL, 0, RETRY_MS);
    if (join_program(f, ifindex, mode)) return 0;
    int err = attach_new(f, ifindex, mode, frags, error);
    if (!err) return 0;
    harp_xdp_filter_close(f);
    if (err != -EBUSY && err != -EEXIST) return err;
  }
  return harp_error_set(error, -EBUSY, "%s", why_not_joined(ifindex, mode));
}

void harp_xdp_filter_close(struct harp_xdp_filter *f) {
  if (f->link_fd > 0) replace_held(f->link_fd, &(struct held){0});
  close_fd(&f->link_fd);
  close_fd(&f->ports_fd);
  close_fd(&f->sockets_fd);
}

/* ---- tables ---- */

/* Removes a queue from all ports in the map: they are of killed processes, since the queue had no socket. */
static void clear_queue(struct harp_xdp_filter *f, uint32_t queue) {
  struct harp_xdp_port_key key, next;
  struct harp_xdp_port_value value;
  bool more = !harp_bpf_map_next(f->ports_fd, NULL, &next);
  for (unsigned i = 0; more && i < HARP_XDP_PORTS_MAX; i++) {
    key = next;
    more = !harp_bpf_map_next(f->ports_fd, &key, &next);
    if (harp_bpf_map_read(f->ports_fd, &key, &value) || !(value.queues >> queue & 1)) continue;
    value.queues &= ~(1ull << queue);
    if (!value.queues || harp_bpf_map_write(f->ports_fd, &key, &value, false))
      (void)harp_bpf_map_delete(f->ports_fd, &key);
  }
}

/* Returns whether a process has bound the port: then binding it here fails. */
static bool has_owner(const struct harp_xdp_port_key *key) {
  static const uint8_t v4_prefix[12]; /* ::1 begins like that, too, but no IPv4 address begins with 0 */
  bool is_v4 = !memcmp(key->address, v4_prefix, sizeof v4_prefix) && key->address[sizeof v4_prefix];
  const uint8_t *ip = is_v4 ? key->address + sizeof v4_prefix : key->address;
  struct sockaddr_storage local = harp_address_make(is_v4 ? 4 : 6, ip, ntohs(key->port), 0);
  int fd = socket(local.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool is_free = fd >= 0 && !bind(fd, (const struct sockaddr *)&local, harp_address_bytes(&local));
  if (fd >= 0) close(fd);
  return !is_free;
}

uint64_t harp_xdp_filter_used_queues(const struct harp_xdp_filter *f) {
  struct harp_xdp_port_key key, next;
  struct harp_xdp_port_value value;
  uint64_t used = 0;
  bool more = !harp_bpf_map_next(f->ports_fd, NULL, &next);
  for (unsigned i = 0; more && i < HARP_XDP_PORTS_MAX; i++) {
    key = next;
    more = !harp_bpf_map_next(f->ports_fd, &key, &next);
    if (!harp_bpf_map_read(f->ports_fd, &key, &value) && has_owner(&key)) used |= value.queues;
  }
  return used;
}

int harp_xdp_filter_add_queue(struct harp_xdp_filter *f, uint32_t queue, int socket_fd) {
  int err = harp_bpf_map_write(f->sockets_fd, &queue, &socket_fd, true);
  if (!err) clear_queue(f, queue);
  return err == -EEXIST ? -EBUSY : err;
}

static struct harp_xdp_port_key key_of(const struct sockaddr_storage *local, uint16_t port) {
  struct harp_xdp_port_key key = {.port = htons(port)};
  uint32_t bytes = harp_ip_bytes(local->ss_family);
  memcpy(key.address + sizeof key.address - bytes, harp_address_ip(local), bytes);
  return key;
}

int harp_xdp_filter_add_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local, uint16_t port,
                             uint64_t queues, uint32_t token_prefix) {
  struct harp_xdp_port_key key = key_of(local, port);
  struct harp_xdp_port_value value = {.queues = queues, .token_prefix = htonl(token_prefix)};
  return harp_bpf_map_write(f->ports_fd, &key, &value, false);
}

void harp_xdp_filter_remove_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                 uint16_t port) {
  struct harp_xdp_port_key key = key_of(local, port);
  (void)harp_bpf_map_delete(f->ports_fd, &key);
}

void harp_xdp_filter_count(const struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                           uint16_t port, struct harp_xdp_filter_counts *counts) {
  struct harp_xdp_port_key key = key_of(local, port);
  struct harp_xdp_port_value value = {0};
  if (harp_bpf_map_read(f->ports_fd, &key, &value)) return;
  counts->redirected += value.redirected;
  counts->dropped += value.dropped;
}
