/* See xdp_filter.h. */
#include "io/xdp_filter.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "io/nic.h"
#include "io/xdp_abi.h"
#include "io/xdp_header.h"

/* What the program looks up: destination address (IPv4 in the last four bytes) and port, network order. */
struct port_key {
  uint8_t address[16];
  uint16_t port;
  uint16_t zero;
};
_Static_assert(sizeof(struct port_key) == 20, "as the program builds it on its stack");

/* What it finds: on which queues packets of the port go to a socket, and how many went. Counted without a
 * lock: queues may lose each other's counts, which is enough to tell some from none. */
struct port_value {
  uint64_t queues; /* a bit each */
  uint64_t packets;
};

/* The number changes with the rules and the layout of the maps: HARP of another version can not join. */
#define PROGRAM_NAME "harp_filter_2"

/* ---- bpf(2) ---- */

/* The commands' arguments, each padded with zeros to what the kernel's union may grow to. */
union bpf_args {
  struct {
    uint32_t type, key_bytes, value_bytes, entries_max, flags, inner_fd, numa;
    char name[16];
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
    char name[16];
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

struct program_info {
  uint32_t type, id;
  uint8_t tag[8];
  uint32_t jited_bytes, xlated_bytes;
  uint64_t jited, xlated, load_time;
  uint32_t uid, map_count;
  uint64_t map_ids;
  char name[16];
};

struct link_info {
  uint32_t type, id, program_id;
  uint8_t rest[128];
};
enum { LINK_TYPE_XDP = 6 };

static int bpf(int command, union bpf_args *args) {
  long rc = syscall(SYS_bpf, command, args, sizeof *args);
  return rc < 0 ? -errno : (int)rc;
}

static int make_map(uint32_t type, uint32_t key_bytes, uint32_t value_bytes, uint32_t entries_max,
                    const char *name) {
  union bpf_args a;
  memset(&a, 0, sizeof a);
  a.map.type = type;
  a.map.key_bytes = key_bytes;
  a.map.value_bytes = value_bytes;
  a.map.entries_max = entries_max;
  snprintf(a.map.name, sizeof a.map.name, "%s", name);
  return bpf(HARP_BPF_MAP_CREATE, &a);
}

/* Updates, looks up or deletes one element of a map. */
static int element(int command, int map_fd, const void *key, void *value, uint64_t flags) {
  union bpf_args a;
  memset(&a, 0, sizeof a);
  a.element.fd = (uint32_t)map_fd;
  a.element.key = (uint64_t)(uintptr_t)key;
  a.element.value = (uint64_t)(uintptr_t)value;
  a.element.flags = flags;
  return bpf(command, &a);
}

static int by_id(int command, uint32_t id) {
  union bpf_args a;
  memset(&a, 0, sizeof a);
  a.by_id.id = id;
  return bpf(command, &a);
}

static int get_info(int fd, void *info, uint32_t bytes) {
  union bpf_args a;
  memset(&a, 0, sizeof a);
  a.info.fd = (uint32_t)fd;
  a.info.bytes = bytes;
  a.info.info = (uint64_t)(uintptr_t)info;
  return bpf(HARP_BPF_OBJ_INFO, &a);
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* ---- the program ---- */

/* Registers: r6 context, r2 and r3 begin and end of the packet, r5 and r4 scratch. Sizes: W 4, H 2, B 1. */
enum {
  LOAD_W = 0x61,
  LOAD_H = 0x69,
  LOAD_B = 0x71,
  LOAD_D = 0x79,
  STORE_W = 0x63, /* *(r) = register */
  STORE_D = 0x7b,
  STORE_H = 0x6b,
  STORE_W_IMM = 0x62, /* *(r) = immediate */
  STORE_H_IMM = 0x6a,
  MOVE = 0xbf,
  MOVE_IMM = 0xb7,
  ADD_IMM = 0x07,
  AND_IMM = 0x57,
  SHIFT_RIGHT = 0x7f,
  JUMP = 0x05,
  JUMP_EQ_IMM = 0x15,
  JUMP_NE_IMM = 0x55,
  JUMP_GT = 0x2d,
  JUMP_GT_IMM = 0x25,
  CALL = 0x85,
  EXIT = 0x95,
  LOAD_MAP = 0x18,   /* two instructions */
  MAP_FD = 1,        /* pseudo source register */
  MAP_LOOKUP = 1,    /* helper */
  REDIRECT_MAP = 51, /* helper */
  XDP_PASS = 2,
  PASS = 10000, /* jump target: the label at the end */
  V6 = 10001,
  LOOKUP = 10002,
};

#define ETHERTYPE_V4 0x0008 /* as a little-endian load reads it */
#define ETHERTYPE_V6 0xdd86
#define NOT_FRAGMENT 0xff3f /* more-fragments bit and offset */
#define LABEL_MASK   0xffff0f00u
#define LABEL                                                                                                \
  (HARP_XDP_FLOW_LABEL >> 16 << 8 | (HARP_XDP_FLOW_LABEL >> 8 & 0xff) << 16 |                                \
   (HARP_XDP_FLOW_LABEL & 0xff) << 24)

struct assembler {
  struct harp_bpf_insn code[96];
  int count;
  int v6, lookup, pass; /* where the labels are */
};

static void emit(struct assembler *a, uint8_t code, int dst, int src, int offset, int32_t immediate) {
  a->code[a->count++] = (struct harp_bpf_insn){code, (uint8_t)(dst | src << 4), (int16_t)offset, immediate};
}

/* Packet must reach `bytes`; else pass. */
static void need_bytes(struct assembler *a, int bytes) {
  emit(a, MOVE, 4, 2, 0, 0);
  emit(a, ADD_IMM, 4, 0, 0, bytes);
  emit(a, JUMP_GT, 4, 3, PASS, 0);
}

/* Copies a word of the packet into the key on the stack. */
static void key_word(struct assembler *a, int packet_offset, int stack_offset) {
  emit(a, LOAD_W, 5, 2, packet_offset, 0);
  emit(a, STORE_W, 10, 5, stack_offset, 0);
}

static void emit_v4(struct assembler *a, enum harp_xdp_mode mode) {
  need_bytes(a, 14 + 20 + 8);
  emit(a, LOAD_B, 5, 2, 14, 0);
  emit(a, JUMP_NE_IMM, 5, 0, PASS, 0x45); /* no options */
  emit(a, LOAD_H, 5, 2, 14 + 6, 0);
  emit(a, AND_IMM, 5, 0, 0, NOT_FRAGMENT);
  emit(a, JUMP_NE_IMM, 5, 0, PASS, 0);
  emit(a, LOAD_B, 5, 2, 14 + 9, 0);
  emit(a, JUMP_NE_IMM, 5, 0, PASS, IPPROTO_UDP);
  if (mode == HARP_XDP_GENERIC) {
    emit(a, LOAD_H, 5, 2, 14 + 20 + 6, 0);
    emit(a, JUMP_NE_IMM, 5, 0, PASS, 0); /* it has a UDP checksum: perhaps a superframe */
  }
  for (int word = 0; word < 3; word++) emit(a, STORE_W_IMM, 10, 0, -20 + 4 * word, 0);
  key_word(a, 14 + 16, -8);
  emit(a, LOAD_H, 5, 2, 14 + 20 + 2, 0);
  emit(a, JUMP, 0, 0, LOOKUP, 0);
}

static void emit_v6(struct assembler *a, enum harp_xdp_mode mode) {
  a->v6 = a->count;
  emit(a, JUMP_NE_IMM, 5, 0, PASS, ETHERTYPE_V6);
  need_bytes(a, 14 + 40 + 8);
  emit(a, LOAD_B, 5, 2, 14 + 6, 0);
  emit(a, JUMP_NE_IMM, 5, 0, PASS, IPPROTO_UDP);
  if (mode == HARP_XDP_GENERIC) {
    emit(a, LOAD_W, 5, 2, 14, 0);
    emit(a, AND_IMM, 5, 0, 0, (int32_t)LABEL_MASK);
    emit(a, JUMP_NE_IMM, 5, 0, PASS, LABEL); /* it is not from an xdp driver: perhaps a superframe */
  }
  for (int word = 0; word < 4; word++) key_word(a, 14 + 24 + 4 * word, -20 + 4 * word);
  emit(a, LOAD_H, 5, 2, 14 + 40 + 2, 0);
}

static void load_map(struct assembler *a, int dst, int fd) {
  emit(a, LOAD_MAP, dst, MAP_FD, 0, fd);
  emit(a, 0, 0, 0, 0, 0);
}

static void emit_lookup(struct assembler *a, int ports_fd, int sockets_fd) {
  a->lookup = a->count;
  emit(a, STORE_H, 10, 5, -4, 0);
  emit(a, STORE_H_IMM, 10, 0, -2, 0);
  load_map(a, 1, ports_fd);
  emit(a, MOVE, 2, 10, 0, 0);
  emit(a, ADD_IMM, 2, 0, 0, -20);
  emit(a, CALL, 0, 0, 0, MAP_LOOKUP);
  emit(a, JUMP_EQ_IMM, 0, 0, PASS, 0);
  emit(a, LOAD_D, 1, 0, offsetof(struct port_value, queues), 0);
  emit(a, LOAD_W, 2, 6, 16, 0); /* rx_queue_index */
  emit(a, JUMP_GT_IMM, 2, 0, PASS, HARP_XDP_QUEUES_MAX - 1);
  emit(a, SHIFT_RIGHT, 1, 2, 0, 0);
  emit(a, AND_IMM, 1, 0, 0, 1);
  emit(a, JUMP_EQ_IMM, 1, 0, PASS, 0);
  emit(a, LOAD_D, 1, 0, offsetof(struct port_value, packets), 0);
  emit(a, ADD_IMM, 1, 0, 0, 1);
  emit(a, STORE_D, 0, 1, offsetof(struct port_value, packets), 0);
  load_map(a, 1, sockets_fd);
  emit(a, MOVE_IMM, 3, 0, 0, XDP_PASS); /* where the queue has no socket */
  emit(a, CALL, 0, 0, 0, REDIRECT_MAP);
  emit(a, EXIT, 0, 0, 0, 0);
  a->pass = a->count;
  emit(a, MOVE_IMM, 0, 0, 0, XDP_PASS);
  emit(a, EXIT, 0, 0, 0, 0);
}

static void resolve_labels(struct assembler *a) {
  for (int i = 0; i < a->count; i++) {
    int16_t *offset = &a->code[i].offset;
    int target = *offset == PASS ? a->pass : *offset == V6 ? a->v6 : *offset == LOOKUP ? a->lookup : -1;
    if (target >= 0) *offset = (int16_t)(target - i - 1);
  }
}

static void assemble(struct assembler *a, int ports_fd, int sockets_fd, enum harp_xdp_mode mode) {
  memset(a, 0, sizeof *a);
  emit(a, MOVE, 6, 1, 0, 0);
  emit(a, LOAD_W, 2, 6, 0, 0); /* data */
  emit(a, LOAD_W, 3, 6, 4, 0); /* data_end */
  need_bytes(a, 14);
  emit(a, LOAD_H, 5, 2, 12, 0);
  emit(a, JUMP_NE_IMM, 5, 0, V6, ETHERTYPE_V4);
  emit_v4(a, mode);
  emit_v6(a, mode);
  emit_lookup(a, ports_fd, sockets_fd);
  resolve_labels(a);
  HARP_ASSERT(a->count <= (int)HARP_ARRAY_COUNT(a->code));
}

static int load_program(const struct assembler *a, bool frags) {
  static const char license[] = "Dual MIT/GPL";
  union bpf_args args;
  memset(&args, 0, sizeof args);
  args.program.type = HARP_BPF_PROG_XDP;
  args.program.insn_count = (uint32_t)a->count;
  args.program.insns = (uint64_t)(uintptr_t)a->code;
  args.program.license = (uint64_t)(uintptr_t)license;
  args.program.flags = frags ? HARP_BPF_XDP_HAS_FRAGS : 0;
  snprintf(args.program.name, sizeof args.program.name, PROGRAM_NAME);
  return bpf(HARP_BPF_PROG_LOAD, &args);
}

/* ---- attaching and joining ---- */

static int attach(int program_fd, unsigned ifindex, enum harp_xdp_mode mode) {
  union bpf_args a;
  memset(&a, 0, sizeof a);
  a.link.program_fd = (uint32_t)program_fd;
  a.link.ifindex = ifindex;
  a.link.attach_type = HARP_BPF_ATTACH_XDP;
  a.link.flags = mode == HARP_XDP_NATIVE ? HARP_XDP_MODE_DRV : HARP_XDP_MODE_SKB;
  return bpf(HARP_BPF_LINK_CREATE, &a);
}

/* Takes hold of the maps of a HARP program; false when it is none. */
static bool take_maps(struct harp_xdp_filter *f, uint32_t program_id) {
  uint32_t ids[2] = {0, 0};
  struct program_info info = {.map_count = 2, .map_ids = (uint64_t)(uintptr_t)ids};
  int fd = by_id(HARP_BPF_PROG_FD_BY_ID, program_id);
  if (fd < 0) return false;
  int err = get_info(fd, &info, sizeof info);
  close(fd);
  if (err < 0 || info.map_count != 2 || strncmp(info.name, PROGRAM_NAME, sizeof info.name) != 0) return false;
  f->ports_fd = by_id(HARP_BPF_MAP_FD_BY_ID, ids[0]); /* in the order in which the program names them */
  f->sockets_fd = by_id(HARP_BPF_MAP_FD_BY_ID, ids[1]);
  return f->ports_fd >= 0 && f->sockets_fd >= 0;
}

/* Looks for the link of a HARP program on the interface in that mode, and holds it. Needs CAP_SYS_ADMIN.
 * Links of all network namespaces are listed, so it is found by the program that our interface has, not by
 * its index. */
static bool join(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode) {
  uint32_t id = 0, program;
  if (harp_nic_xdp_program(ifindex, mode == HARP_XDP_GENERIC, &program) || !program) return false;
  for (;;) {
    union bpf_args a;
    struct link_info info = {0};
    memset(&a, 0, sizeof a);
    a.by_id.id = id;
    if (bpf(HARP_BPF_LINK_NEXT_ID, &a) < 0) return false;
    id = a.by_id.next_id;
    f->link_fd = by_id(HARP_BPF_LINK_FD_BY_ID, id);
    if (f->link_fd < 0) continue;
    if (get_info(f->link_fd, &info, sizeof info) >= 0 && info.type == LINK_TYPE_XDP &&
        info.program_id == program && take_maps(f, program)) {
      f->joined = true;
      return true;
    }
    harp_xdp_filter_close(f);
  }
}

static int refused(int err, const char *what, char *error, size_t error_bytes) {
  if (err == -EPERM)
    snprintf(error, error_bytes, "%s needs CAP_BPF and CAP_NET_ADMIN (or root)", what);
  else
    snprintf(error, error_bytes, "%s failed: %s", what, strerror(-err));
  return err;
}

/* Says why a program could not be attached; what NIC drivers mean by these errors they say in the kernel's
 * log at best. */
static int attach_refused(int err, enum harp_xdp_mode mode, char *error, size_t error_bytes) {
  bool is_native = mode == HARP_XDP_NATIVE;
  char what[40];
  snprintf(what, sizeof what, "attaching a %s XDP program", is_native ? "native" : "generic");
  (void)refused(err, what, error, error_bytes);
  size_t used = strlen(error);
  if (is_native && (err == -ERANGE || err == -EINVAL || err == -ENOSPC))
    snprintf(error + used, error_bytes - used,
             "; often the MTU is too large for it (3498 fits), or more than half of the channels are in use "
             "(ethtool -L)");
  return err;
}

/* Loads and attaches; returns the link or -errno. */
static int attach_program(const struct assembler *a, unsigned ifindex, enum harp_xdp_mode mode, bool frags,
                          char *error, size_t error_bytes) {
  int program_fd = load_program(a, frags);
  if (program_fd < 0) return refused(program_fd, "loading the XDP program", error, error_bytes);
  int link_fd = attach(program_fd, ifindex, mode);
  close(program_fd); /* the link holds it */
  return link_fd >= 0 ? link_fd : attach_refused(link_fd, mode, error, error_bytes);
}

/* The same; where a NIC driver takes a program only if it can do with packets of several buffers, it gets one
 * that can: the MTU is too large for one buffer of the driver's, if not for one of ours. */
static int attach_somehow(const struct assembler *a, unsigned ifindex, enum harp_xdp_mode mode, bool frags,
                          char *error, size_t error_bytes) {
  char second[200];
  int link_fd = attach_program(a, ifindex, mode, frags, error, error_bytes);
  if (link_fd >= 0 || frags || mode != HARP_XDP_NATIVE) return link_fd;
  if (link_fd != -ERANGE && link_fd != -EINVAL && link_fd != -EOPNOTSUPP) return link_fd;
  int other_fd = attach_program(a, ifindex, mode, true, second, sizeof second);
  return other_fd >= 0 ? other_fd : link_fd;
}

static int attach_new(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode, bool frags,
                      char *error, size_t error_bytes) {
  struct assembler a;
  f->ports_fd = make_map(HARP_BPF_MAP_HASH, sizeof(struct port_key), sizeof(struct port_value),
                         HARP_XDP_PORTS_MAX, "harp_ports");
  if (f->ports_fd < 0) return refused(f->ports_fd, "making a BPF map", error, error_bytes);
  f->sockets_fd =
      make_map(HARP_BPF_MAP_XSKMAP, sizeof(uint32_t), sizeof(uint32_t), HARP_XDP_QUEUES_MAX, "harp_sockets");
  if (f->sockets_fd < 0) return refused(f->sockets_fd, "making an XSK map", error, error_bytes);
  assemble(&a, f->ports_fd, f->sockets_fd, mode);
  f->link_fd = attach_somehow(&a, ifindex, mode, frags, error, error_bytes);
  return f->link_fd >= 0 ? 0 : f->link_fd;
}

static const char *why_not_joined(unsigned ifindex, enum harp_xdp_mode mode) {
  uint32_t program = 0;
  if (harp_nic_xdp_program(ifindex, mode == HARP_XDP_GENERIC, &program) || !program)
    return mode == HARP_XDP_GENERIC ? "an XDP program is attached to the interface in native mode"
                                    : "an XDP program is attached to the interface in generic mode";
  int fd = by_id(HARP_BPF_PROG_FD_BY_ID, program);
  if (fd == -EPERM)
    return "an XDP program is attached to the interface; to join it, if it is HARP's, takes CAP_SYS_ADMIN";
  if (fd >= 0) close(fd);
  return "an XDP program of somebody else is attached to the interface";
}

enum { TRIES = 20, TRY_MS = 1 };

int harp_xdp_filter_open(struct harp_xdp_filter *f, unsigned ifindex, enum harp_xdp_mode mode, bool frags,
                         char *error, size_t error_bytes) {
  *f = (struct harp_xdp_filter){-1, -1, -1, false};
  /* Other processes may attach it, or let it go, meanwhile. Who looks through the links of all namespaces
   * for its own holds each for a moment, so one that was just closed may be there still. */
  for (unsigned i = 0; i < TRIES; i++) {
    if (i) (void)poll(NULL, 0, TRY_MS);
    if (join(f, ifindex, mode)) return 0;
    int err = attach_new(f, ifindex, mode, frags, error, error_bytes);
    if (!err) return 0;
    harp_xdp_filter_close(f);
    if (err != -EBUSY && err != -EEXIST) return err;
  }
  snprintf(error, error_bytes, "%s", why_not_joined(ifindex, mode));
  return -EBUSY;
}

void harp_xdp_filter_close(struct harp_xdp_filter *f) {
  close_fd(&f->link_fd);
  close_fd(&f->ports_fd);
  close_fd(&f->sockets_fd);
}

/* ---- tables ---- */

/* Takes a queue away from the ports of whoever had it before and was killed: nobody else has any there. */
static void clear_queue(struct harp_xdp_filter *f, uint32_t queue) {
  struct port_key key, next;
  struct port_value value;
  bool more = !element(HARP_BPF_MAP_GET_NEXT_KEY, f->ports_fd, NULL, &next, 0);
  for (unsigned i = 0; more && i < HARP_XDP_PORTS_MAX; i++) {
    key = next;
    more = !element(HARP_BPF_MAP_GET_NEXT_KEY, f->ports_fd, &key, &next, 0);
    if (element(HARP_BPF_MAP_LOOKUP, f->ports_fd, &key, &value, 0) || !(value.queues >> queue & 1)) continue;
    value.queues &= ~(1ull << queue);
    if (value.queues)
      (void)element(HARP_BPF_MAP_UPDATE, f->ports_fd, &key, &value, 0);
    else
      (void)element(HARP_BPF_MAP_DELETE, f->ports_fd, &key, NULL, 0);
  }
}

uint64_t harp_xdp_filter_used_queues(const struct harp_xdp_filter *f) {
  struct port_key key, next;
  struct port_value value;
  uint64_t used = 0;
  bool more = !element(HARP_BPF_MAP_GET_NEXT_KEY, f->ports_fd, NULL, &next, 0);
  for (unsigned i = 0; more && i < HARP_XDP_PORTS_MAX; i++) {
    key = next;
    more = !element(HARP_BPF_MAP_GET_NEXT_KEY, f->ports_fd, &key, &next, 0);
    if (!element(HARP_BPF_MAP_LOOKUP, f->ports_fd, &key, &value, 0)) used |= value.queues;
  }
  return used;
}

int harp_xdp_filter_add_queue(struct harp_xdp_filter *f, uint32_t queue, int socket_fd) {
  enum { NO_EXIST = 1 };
  int err = element(HARP_BPF_MAP_UPDATE, f->sockets_fd, &queue, &socket_fd, NO_EXIST);
  if (!err) clear_queue(f, queue);
  return err == -EEXIST ? -EBUSY : err;
}

static struct port_key key_of(const struct sockaddr_storage *local, uint16_t port) {
  struct port_key key = {.port = htons(port)};
  if (local->ss_family == AF_INET6)
    memcpy(key.address, &((const struct sockaddr_in6 *)local)->sin6_addr, 16);
  else
    memcpy(key.address + 12, &((const struct sockaddr_in *)local)->sin_addr, 4);
  return key;
}

int harp_xdp_filter_add_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local, uint16_t port,
                             uint64_t queues) {
  struct port_key key = key_of(local, port);
  struct port_value value = {.queues = queues};
  return element(HARP_BPF_MAP_UPDATE, f->ports_fd, &key, &value, 0);
}

void harp_xdp_filter_remove_port(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                 uint16_t port) {
  struct port_key key = key_of(local, port);
  (void)element(HARP_BPF_MAP_DELETE, f->ports_fd, &key, NULL, 0);
}

uint64_t harp_xdp_filter_packets(struct harp_xdp_filter *f, const struct sockaddr_storage *local,
                                 uint16_t port) {
  struct port_key key = key_of(local, port);
  struct port_value value = {0};
  return element(HARP_BPF_MAP_LOOKUP, f->ports_fd, &key, &value, 0) ? 0 : value.packets;
}
