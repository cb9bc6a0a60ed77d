/* SPDX-License-Identifier: Apache-2.0 */
/* Holds an XDP program on an interface until it is killed: HARP's own filter, as another process of it would,
 * or one of somebody else that passes everything.
 *
 *   xdp_hold harp|foreign native|generic IFNAME [QUEUE]
 *
 * With QUEUE, HARP's also has that queue's AF_XDP socket. Prints "ready" when it holds. */
#include <linux/bpf.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/xdp/filter.h"
#include "io/xdp/socket.h"

enum { FRAMES = 64, ATTACH_GENERIC = 1 << 1, ATTACH_NATIVE = 1 << 2 };

static void fail(const char *what) {
  fprintf(stderr, "xdp_hold: %s\n", what);
  exit(1);
}

static void hold_foreign(unsigned ifindex, bool native) {
  static const struct bpf_insn pass[] = {{.code = 0xb7, .imm = XDP_PASS}, {.code = 0x95}};
  union bpf_attr a = {.prog_type = BPF_PROG_TYPE_XDP,
                      .insn_cnt = 2,
                      .insns = (uint64_t)(uintptr_t)pass,
                      .license = (uint64_t)(uintptr_t) "GPL",
                      .prog_name = "somebody"};
  int program = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &a, sizeof a);
  if (program < 0) fail("cannot load a program");
  memset(&a, 0, sizeof a);
  a.link_create.prog_fd = (uint32_t)program;
  a.link_create.target_ifindex = ifindex;
  a.link_create.attach_type = BPF_XDP;
  a.link_create.flags = native ? ATTACH_NATIVE : ATTACH_GENERIC;
  if (syscall(SYS_bpf, BPF_LINK_CREATE, &a, sizeof a) < 0) fail("cannot attach");
}

static void hold_queue(struct harp_xdp_filter *filter, unsigned ifindex, uint32_t queue) {
  static struct harp_xdp_socket s;
  struct harp_error error = {0};
  size_t bytes = harp_xdp_queue_umem_bytes(FRAMES, FRAMES / HARP_XDP_RUN_FRAMES);
  uint8_t *umem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (umem == MAP_FAILED) fail("no memory");
  struct harp_xdp_socket_config config = {.ifindex = ifindex,
                                          .queue = queue,
                                          .umem = umem,
                                          .rx_frames = FRAMES,
                                          .tx_runs = FRAMES / HARP_XDP_RUN_FRAMES};
  if (harp_xdp_socket_open(&s, &config, &error)) fail(error.text);
  if (harp_xdp_filter_add_queue(filter, queue, s.queue.fd)) fail("the queue is taken");
}

int main(int argc, char **argv) {
  static struct harp_xdp_filter filter;
  struct harp_error error = {0};
  unsigned ifindex = argc >= 4 ? if_nametoindex(argv[3]) : 0;
  if (!ifindex) fail("usage: xdp_hold harp|foreign native|generic IFNAME [QUEUE]");
  bool native = !strcmp(argv[2], "native");
  if (!strcmp(argv[1], "foreign"))
    hold_foreign(ifindex, native);
  else if (harp_xdp_filter_open(&filter, ifindex, native ? HARP_XDP_NATIVE : HARP_XDP_GENERIC, true, &error))
    fail(error.text);
  if (argc == 5) hold_queue(&filter, ifindex, (uint32_t)atoi(argv[4]));
  puts("ready");
  fflush(stdout);
  for (;;) pause();
}
