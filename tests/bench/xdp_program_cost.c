/* SPDX-License-Identifier: Apache-2.0 */
/* What the XDP program costs for a packet of ours, and what its look at the token does: as it is, without
 * that look, and with a lookup of the whole token in a hash map instead.
 *
 * Not part of the product and not run by the tests: it puts the figures of docs/explanation/decisions/0005
 * there. The kernel runs each variant on one packet again and again (BPF_PROG_TEST_RUN), so all is in the
 * cache. Needs root; built and run from plugin/src:
 *
 *   cc -O2 -D_GNU_SOURCE -I. -o xdp_program_cost ../../tests/bench/xdp_program_cost.c \
 *      base/{address,assert,log}.c io/xdp/{bpf,header,program}.c
 *   ./xdp_program_cost
 *
 * Times are the best and the median of 60 alternating rounds, less those of a program that does nothing. */
#include <arpa/inet.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "io/xdp/bpf.h"
#include "io/xdp/header.h"
#include "io/xdp/program.h"

enum { PORT = 43210, REPEAT = 200000, ROUNDS = 60, CONNECTIONS = 512, PAYLOAD = 1452, VARIANTS = 4 };
#define PREFIX 0x8badf00du
#define TOKEN  ((uint64_t)PREFIX << 32 | 0x12340005)

static const char *const names[VARIANTS] = {"nothing", "no look at the token", "its upper half (the product)",
                                            "a lookup of all of it"};
static int ports_fd, sockets_fd, tokens_fd;
static _Alignas(64) uint8_t frame[2048];

static void fail(const char *what) {
  perror(what);
  exit(1);
}

/* ---- variants ---- */

/* Takes instructions out; jumps over them become shorter. */
static void cut(struct harp_xdp_program *p, int at, int count) {
  for (int i = 0; i < p->count; i++) {
    struct harp_bpf_insn *insn = &p->code[i];
    bool is_jump = BPF_CLASS(insn->code) == BPF_JMP && insn->code != (BPF_JMP | BPF_CALL) &&
                   insn->code != (BPF_JMP | BPF_EXIT);
    if (is_jump && i < at && i + 1 + insn->offset >= at + count)
      insn->offset = (int16_t)(insn->offset - count);
  }
  memmove(p->code + at, p->code + at + count, (size_t)(p->count - at - count) * sizeof p->code[0]);
  p->count -= count;
}

static void cut_check(struct harp_xdp_program *p) {
  enum { DROP_INSNS = 4 };
  for (int i = p->count - 1; i >= 0; i--) {
    const struct harp_bpf_insn *insn = &p->code[i];
    if (insn->code == (BPF_JMP | BPF_JNE | BPF_X)) { /* the load before it, it, and where it goes */
      cut(p, i + 1 + insn->offset, DROP_INSNS);
      cut(p, i - 1, 2);
      i--;
    } else if (insn->code == (BPF_LDX | BPF_MEM | BPF_W) && (insn->registers & 15) == 7) {
      cut(p, i, 1);
    }
  }
}

/* Looks for the token of a packet over IPv4, or over IPv6, in the map; passes what is too short or not
 * there. */
static void put_lookup(struct harp_xdp_program *p, int header_bytes) {
  const int at = header_bytes + 8;
  const struct harp_bpf_insn code[] = {
      {BPF_ALU64 | BPF_MOV | BPF_X, 7 | 1 << 4, 0, 0},
      {BPF_LDX | BPF_MEM | BPF_W, 2 | 1 << 4, 0, 0},
      {BPF_LDX | BPF_MEM | BPF_W, 3 | 1 << 4, 4, 0},
      {BPF_ALU64 | BPF_MOV | BPF_X, 4 | 2 << 4, 0, 0},
      {BPF_ALU64 | BPF_ADD | BPF_K, 4, 0, at + 8},
      {BPF_JMP | BPF_JGT | BPF_X, 4 | 3 << 4, 10, 0}, /* to the end of this */
      {BPF_LDX | BPF_MEM | BPF_DW, 5 | 2 << 4, (int16_t)at, 0},
      {BPF_STX | BPF_MEM | BPF_DW, 10 | 5 << 4, -32, 0},
      {BPF_LD | BPF_DW | BPF_IMM, 1 | BPF_PSEUDO_MAP_FD << 4, 0, tokens_fd},
      {0, 0, 0, 0},
      {BPF_ALU64 | BPF_MOV | BPF_X, 2 | 10 << 4, 0, 0},
      {BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, -32},
      {BPF_JMP | BPF_CALL, 0, 0, BPF_FUNC_map_lookup_elem},
      {BPF_JMP | BPF_JNE | BPF_K, 0, 2, 0},
      {BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, XDP_DROP},
      {BPF_JMP | BPF_EXIT, 0, 0, 0},
      {BPF_ALU64 | BPF_MOV | BPF_X, 1 | 7 << 4, 0, 0},
  };
  int count = (int)HARP_ARRAY_COUNT(code);
  memmove(p->code + count, p->code, (size_t)p->count * sizeof p->code[0]);
  memcpy(p->code, code, sizeof code);
  p->count += count;
}

static int load(int variant, enum harp_xdp_mode mode, int header_bytes) {
  static const struct harp_bpf_insn nothing[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, XDP_PASS},
                                                 {BPF_JMP | BPF_EXIT, 0, 0, 0}};
  struct harp_xdp_program p;
  harp_xdp_program_write(&p, mode, ports_fd, sockets_fd);
  if (variant != 2) cut_check(&p);
  if (variant == 3) put_lookup(&p, header_bytes);
  int fd = variant ? harp_bpf_program_load(p.code, p.count, "cost", true)
                   : harp_bpf_program_load(nothing, 2, "cost", true);
  if (fd < 0) fail(names[variant]);
  return fd;
}

/* ---- running ---- */

static uint8_t *packet_of(int family, uint32_t *bytes) {
  static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
  struct sockaddr_storage from = {.ss_family = (sa_family_t)family}, to = from;
  struct harp_xdp_port_key key = {.port = htons(PORT)};
  struct harp_xdp_port_value value = {.queues = 1, .token_prefix = htonl(PREFIX)};
  struct harp_xdp_header header;
  uint64_t token = __builtin_bswap64(TOKEN);
  ((struct sockaddr_in *)&to)->sin_port = htons(PORT);
  memset(frame, 0, sizeof frame);
  memcpy(frame + 128 + 8, &token, sizeof token);
  harp_xdp_header_init(&header, mac, mac, &from, &to, 0);
  harp_xdp_header_write(&header, frame + 128, PAYLOAD);
  if (harp_bpf_map_write(ports_fd, &key, &value, false)) fail("table of ports");
  *bytes = header.bytes + PAYLOAD;
  return frame + 128 - header.bytes;
}

static double run_ns(int fd, const uint8_t *packet, uint32_t bytes, uint32_t action) {
  struct timespec from, to;
  union bpf_attr a;
  memset(&a, 0, sizeof a);
  a.test.prog_fd = (uint32_t)fd;
  a.test.data_in = (uint64_t)(uintptr_t)packet;
  a.test.data_size_in = bytes;
  a.test.repeat = REPEAT;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  if (syscall(SYS_bpf, BPF_PROG_TEST_RUN, &a, sizeof a)) fail("running a program");
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
  if (a.test.retval != action) fail("wrong action");
  return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / REPEAT;
}

static int order(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void measure(const char *what, int family, enum harp_xdp_mode mode) {
  double ns[VARIANTS][ROUNDS];
  int fds[VARIANTS];
  uint32_t bytes;
  const uint8_t *packet = packet_of(family, &bytes);
  for (int v = 0; v < VARIANTS; v++) fds[v] = load(v, mode, (int)bytes - PAYLOAD);
  for (int r = 0; r < ROUNDS; r++)
    for (int v = 0; v < VARIANTS; v++) ns[v][r] = run_ns(fds[v], packet, bytes, v ? XDP_REDIRECT : XDP_PASS);
  for (int v = 0; v < VARIANTS; v++) {
    struct harp_bpf_program_info info;
    qsort(ns[v], ROUNDS, sizeof ns[v][0], order);
    if (harp_bpf_program_describe(fds[v], &info)) fail("asking for a program");
    if (v)
      printf("%s: %-30s best %5.1f ns, median %5.1f, %u bytes of machine code\n", what, names[v],
             ns[v][0] - ns[0][0], ns[v][ROUNDS / 2] - ns[0][ROUNDS / 2], info.native_bytes);
    close(fds[v]);
  }
}

int main(void) {
  uint32_t queue = 0, one = 1;
  int socket_fd = socket(HARP_AF_XDP, SOCK_RAW, 0);
  ports_fd = harp_bpf_map_make(HARP_BPF_MAP_HASH, sizeof(struct harp_xdp_port_key),
                               sizeof(struct harp_xdp_port_value), 16384, "ports");
  sockets_fd = harp_bpf_map_make(HARP_BPF_MAP_XSKMAP, 4, 4, 4, "sockets");
  tokens_fd = harp_bpf_map_make(HARP_BPF_MAP_HASH, 8, 4, 16384, "tokens");
  if (ports_fd < 0 || sockets_fd < 0 || tokens_fd < 0 || socket_fd < 0) fail("maps (needs root)");
  if (harp_bpf_map_write(sockets_fd, &queue, &socket_fd, false)) fail("table of sockets");
  for (uint64_t i = 0; i < CONNECTIONS; i++) {
    uint64_t token = __builtin_bswap64(TOKEN + i);
    if (harp_bpf_map_write(tokens_fd, &token, &one, false)) fail("table of tokens");
  }
  measure("IPv4, native", AF_INET, HARP_XDP_NATIVE);
  measure("IPv4, generic", AF_INET, HARP_XDP_GENERIC);
  measure("IPv6, native", AF_INET6, HARP_XDP_NATIVE);
  return 0;
}
