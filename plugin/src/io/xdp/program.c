/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* See program.h. */
#include "io/xdp/program.h"

#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <string.h>

#include "base/assert.h"
#include "io/xdp/header.h"
#include "wire/packet.h"

/* Registers: r6 context, r2 and r3 begin and end of the packet, r7 upper half of its token, r5 and r4
 * scratch. Sizes: W 4, H 2, B 1. */
enum {
  LOAD_W = 0x61,
  LOAD_H = 0x69,
  LOAD_B = 0x71,
  LOAD_D = 0x79,
  STORE_W = 0x63, /* *(r) = register */
  STORE_D = 0x7b,
  STORE_H = 0x6b,
  ADD_ATOMIC_D = 0xdb, /* *(r) += register */
  STORE_W_IMM = 0x62,  /* *(r) = immediate */
  STORE_H_IMM = 0x6a,
  MOVE = 0xbf,
  MOVE_IMM = 0xb7,
  ADD_IMM = 0x07,
  AND_IMM = 0x57,
  SHIFT_RIGHT = 0x7f,
  JUMP = 0x05,
  JUMP_EQ_IMM = 0x15,
  JUMP_NE_IMM = 0x55,
  JUMP_NE = 0x5d,
  JUMP_GT = 0x2d,
  JUMP_GT_IMM = 0x25,
  CALL = 0x85,
  EXIT = 0x95,
  LOAD_MAP = 0x18,   /* two instructions */
  MAP_FD = 1,        /* pseudo source register */
  MAP_LOOKUP = 1,    /* helper */
  REDIRECT_MAP = 51, /* helper */
  XDP_DROP = 1,
  XDP_PASS = 2,
  PASS = 10000, /* jump targets: labels, see struct assembler */
  DROP = 10001,
  V6 = 10002,
  LOOKUP = 10003,
  CONTEXT_DATA = 0, /* offsets in struct xdp_md */
  CONTEXT_DATA_END = 4,
  CONTEXT_RX_QUEUE = 16,
  KEY = -(int)sizeof(struct harp_xdp_port_key),        /* offset from the frame pointer, r10 */
  TOKEN_AT = offsetof(struct harp_wire_prefix, token), /* in a UDP payload */
  TOKEN_PREFIX_BYTES = 4,
};

/* Offsets of header fields in the packet, and of the fields of the lookup's key on the stack. */
#define IP4_AT(field)  (ETH_HLEN + (int)offsetof(struct iphdr, field))
#define IP6_AT(field)  (ETH_HLEN + (int)offsetof(struct ip6_hdr, field))
#define UDP4_AT(field) (ETH_HLEN + (int)sizeof(struct iphdr) + (int)offsetof(struct udphdr, field))
#define UDP6_AT(field) (ETH_HLEN + (int)sizeof(struct ip6_hdr) + (int)offsetof(struct udphdr, field))
#define KEY_AT(field)  (KEY + (int)offsetof(struct harp_xdp_port_key, field))
#define PORT_AT(field) ((int)offsetof(struct harp_xdp_port_value, field))
#define V4_NO_OPTIONS  0x45   /* version and header length */
#define ETHERTYPE_V4   0x0008 /* this and the next ones as a little-endian load reads them */
#define ETHERTYPE_V6   0xdd86
#define FRAGMENT_MASK  0xff3f /* more-fragments bit and offset */
#define LABEL_MASK     0xffff0f00u
#define LABEL                                                                                                \
  (HARP_XDP_FLOW_LABEL >> 16 << 8 | (HARP_XDP_FLOW_LABEL >> 8 & 0xff) << 16 |                                \
   (HARP_XDP_FLOW_LABEL & 0xff) << 24)

struct assembler {
  struct harp_xdp_program *program;
  int v6, lookup, drop, pass; /* where the labels are */
};

static void emit_instruction(struct assembler *a, uint8_t code, int dst, int src, int offset,
                             int32_t immediate) {
  struct harp_xdp_program *p = a->program;
  HARP_ASSERT(p->count < HARP_XDP_PROGRAM_INSNS_MAX);
  p->code[p->count++] = (struct harp_bpf_insn){code, (uint8_t)(dst | src << 4), (int16_t)offset, immediate};
}

/* Passes a packet of fewer than `bytes` bytes. */
static void need_bytes(struct assembler *a, int bytes) {
  emit_instruction(a, MOVE, 4, 2, 0, 0);
  emit_instruction(a, ADD_IMM, 4, 0, 0, bytes);
  emit_instruction(a, JUMP_GT, 4, 3, PASS, 0);
}

/* Copies four bytes of the packet into the key on the stack. */
static void key_word(struct assembler *a, int packet_offset, int stack_offset) {
  emit_instruction(a, LOAD_W, 5, 2, packet_offset, 0);
  emit_instruction(a, STORE_W, 10, 5, stack_offset, 0);
}

/* Loads the token prefix of a packet whose headers have `header_bytes`; need_bytes has checked its length. */
static void load_token(struct assembler *a, int header_bytes) {
  emit_instruction(a, LOAD_W, 7, 2, header_bytes + TOKEN_AT, 0);
}

static void emit_v4(struct assembler *a, enum harp_xdp_mode mode) {
  need_bytes(a, HARP_XDP_HEADER_V4_BYTES + TOKEN_AT + TOKEN_PREFIX_BYTES);
  emit_instruction(a, LOAD_B, 5, 2, ETH_HLEN, 0);
  emit_instruction(a, JUMP_NE_IMM, 5, 0, PASS, V4_NO_OPTIONS);
  emit_instruction(a, LOAD_H, 5, 2, IP4_AT(frag_off), 0);
  emit_instruction(a, AND_IMM, 5, 0, 0, FRAGMENT_MASK);
  emit_instruction(a, JUMP_NE_IMM, 5, 0, PASS, 0);
  emit_instruction(a, LOAD_B, 5, 2, IP4_AT(protocol), 0);
  emit_instruction(a, JUMP_NE_IMM, 5, 0, PASS, IPPROTO_UDP);
  if (mode == HARP_XDP_GENERIC) {
    emit_instruction(a, LOAD_H, 5, 2, UDP4_AT(check), 0);
    emit_instruction(a, JUMP_NE_IMM, 5, 0, PASS, 0); /* with a UDP checksum it may be a superframe */
  }
  load_token(a, HARP_XDP_HEADER_V4_BYTES);
  for (int word = 0; word < 3; word++) emit_instruction(a, STORE_W_IMM, 10, 0, KEY_AT(address) + 4 * word, 0);
  key_word(a, IP4_AT(daddr), KEY_AT(address) + 12);
  emit_instruction(a, LOAD_H, 5, 2, UDP4_AT(dest), 0);
  emit_instruction(a, JUMP, 0, 0, LOOKUP, 0);
}

static void emit_v6(struct assembler *a, enum harp_xdp_mode mode) {
  a->v6 = a->program->count;
  emit_instruction(a, JUMP_NE_IMM, 5, 0, PASS, ETHERTYPE_V6);
  need_bytes(a, HARP_XDP_HEADER_V6_BYTES + TOKEN_AT + TOKEN_PREFIX_BYTES);
  emit_instruction(a, LOAD_B, 5, 2, IP6_AT(ip6_nxt), 0);
  emit_instruction(a, JUMP_NE_IMM, 5, 0, PASS, IPPROTO_UDP);
  if (mode == HARP_XDP_GENERIC) {
    emit_instruction(a, LOAD_W, 5, 2, ETH_HLEN, 0);
    emit_instruction(a, AND_IMM, 5, 0, 0, (int32_t)LABEL_MASK);
    emit_instruction(a, JUMP_NE_IMM, 5, 0, PASS, LABEL); /* with another flow label it may be a superframe */
  }
  load_token(a, HARP_XDP_HEADER_V6_BYTES);
  for (int word = 0; word < 4; word++) key_word(a, IP6_AT(ip6_dst) + 4 * word, KEY_AT(address) + 4 * word);
  emit_instruction(a, LOAD_H, 5, 2, UDP6_AT(dest), 0);
}

static void load_map(struct assembler *a, int dst, int fd) {
  emit_instruction(a, LOAD_MAP, dst, MAP_FD, 0, fd);
  emit_instruction(a, 0, 0, 0, 0, 0);
}

static void emit_lookup(struct assembler *a, int ports_fd, int sockets_fd) {
  a->lookup = a->program->count;
  emit_instruction(a, STORE_H, 10, 5, KEY_AT(port), 0);
  emit_instruction(a, STORE_H_IMM, 10, 0, KEY_AT(zero), 0);
  load_map(a, 1, ports_fd);
  emit_instruction(a, MOVE, 2, 10, 0, 0);
  emit_instruction(a, ADD_IMM, 2, 0, 0, KEY);
  emit_instruction(a, CALL, 0, 0, 0, MAP_LOOKUP);
  emit_instruction(a, JUMP_EQ_IMM, 0, 0, PASS, 0);
  emit_instruction(a, LOAD_D, 1, 0, PORT_AT(queues), 0);
  emit_instruction(a, LOAD_W, 2, 6, CONTEXT_RX_QUEUE, 0);
  emit_instruction(a, JUMP_GT_IMM, 2, 0, PASS, HARP_XDP_QUEUES_MAX - 1);
  emit_instruction(a, SHIFT_RIGHT, 1, 2, 0, 0);
  emit_instruction(a, AND_IMM, 1, 0, 0, 1);
  emit_instruction(a, JUMP_EQ_IMM, 1, 0, PASS, 0);
  emit_instruction(a, LOAD_W, 1, 0, PORT_AT(token_prefix), 0);
  emit_instruction(a, JUMP_NE, 7, 1, DROP, 0);
  emit_instruction(a, LOAD_D, 1, 0, PORT_AT(redirected), 0);
  emit_instruction(a, ADD_IMM, 1, 0, 0, 1);
  emit_instruction(a, STORE_D, 0, 1, PORT_AT(redirected), 0);
  load_map(a, 1, sockets_fd);
  emit_instruction(a, MOVE_IMM, 3, 0, 0, XDP_PASS); /* where the queue has no socket */
  emit_instruction(a, CALL, 0, 0, 0, REDIRECT_MAP);
  emit_instruction(a, EXIT, 0, 0, 0, 0);
}

static void emit_ends(struct assembler *a) {
  a->drop = a->program->count; /* r0: the port's value */
  emit_instruction(a, MOVE_IMM, 1, 0, 0, 1);
  emit_instruction(a, ADD_ATOMIC_D, 0, 1, PORT_AT(dropped), 0);
  emit_instruction(a, MOVE_IMM, 0, 0, 0, XDP_DROP);
  emit_instruction(a, EXIT, 0, 0, 0, 0);
  a->pass = a->program->count;
  emit_instruction(a, MOVE_IMM, 0, 0, 0, XDP_PASS);
  emit_instruction(a, EXIT, 0, 0, 0, 0);
}

static int place_of(const struct assembler *a, int label) {
  switch (label) {
  case PASS:
    return a->pass;
  case DROP:
    return a->drop;
  case V6:
    return a->v6;
  default:
    return label == LOOKUP ? a->lookup : -1;
  }
}

static void resolve_labels(struct assembler *a) {
  for (int i = 0; i < a->program->count; i++) {
    int16_t *offset = &a->program->code[i].offset;
    int place = place_of(a, *offset);
    if (place >= 0) *offset = (int16_t)(place - i - 1);
  }
}

void harp_xdp_program_write(struct harp_xdp_program *p, enum harp_xdp_mode mode, int ports_fd,
                            int sockets_fd) {
  struct assembler a = {.program = p};
  memset(p, 0, sizeof *p);
  emit_instruction(&a, MOVE, 6, 1, 0, 0);
  emit_instruction(&a, LOAD_W, 2, 6, CONTEXT_DATA, 0);
  emit_instruction(&a, LOAD_W, 3, 6, CONTEXT_DATA_END, 0);
  need_bytes(&a, ETH_HLEN);
  emit_instruction(&a, LOAD_H, 5, 2, offsetof(struct ether_header, ether_type), 0);
  emit_instruction(&a, JUMP_NE_IMM, 5, 0, V6, ETHERTYPE_V4);
  emit_v4(&a, mode);
  emit_v6(&a, mode);
  emit_lookup(&a, ports_fd, sockets_fd);
  emit_ends(&a);
  resolve_labels(&a);
}
