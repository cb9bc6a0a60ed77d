/* SPDX-License-Identifier: Apache-2.0 */
/* A preloaded library that takes from a process what an older kernel does not have: the one that OLD_KERNEL
 * names. A seccomp filter refuses system calls, options and advice that came later, with the error that the
 * older kernel would return; TCP_INFO is as short as there. A control message that such a kernel would ignore
 * ends the process, since the datagram would leave whole.
 *
 * What is not covered: an older kernel's behaviour where it takes the call, and what distributions have
 * brought back into it. So it may lack more than a distribution's kernel of that number. x86-64 only. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOL_UDP_LEVEL = 17, UDP_SEGMENT_TYPE = 103, BIND_ADDRESS_NO_PORT = 24, CODE_MAX = 96 };

/* The last of each kind that it has. */
static const struct kernel {
  const char *name;
  unsigned call, socket_option, tcp_option, udp_option, family, advice;
  unsigned tcp_info_bytes;
  unsigned bind_no_port; /* whether it has IP_BIND_ADDRESS_NO_PORT */
} kernels[] = {
    {"3.10", 313, 45, 24, 100, 40, 17, 104, 0},
    {"4.15", 332, 60, 34, 102, 43, 19, 192, 1},
    {"4.18", 334, 60, 36, 103, 44, 19, 200, 1},
    {"5.4", 435, 68, 37, 104, 44, 21, 232, 1},
};
static const struct kernel *kernel;

/* ---- the filter ---- */

static struct sock_filter code[CODE_MAX];
static unsigned short code_count;

static void emit(unsigned short op, unsigned char if_true, unsigned char if_false, unsigned value) {
  if (code_count == CODE_MAX) abort();
  code[code_count++] = (struct sock_filter){op, if_true, if_false, value};
}

static void load(size_t offset) {
  emit(BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)offset);
}

static void load_argument(unsigned i) {
  load(offsetof(struct seccomp_data, args) + 8 * i);
}

static void refuse(int error) {
  emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | (unsigned)error);
}

/* Refuses what is loaded if it is above `last`, and below `end`. */
static void refuse_above(unsigned last, unsigned end, int error) {
  emit(BPF_JMP | BPF_JGT | BPF_K, 0, 2, last);
  emit(BPF_JMP | BPF_JGE | BPF_K, 1, 0, end);
  refuse(error);
}

/* The following, for this value of what is loaded only. Returns what end_only takes. */
static unsigned short only(unsigned value) {
  emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, value);
  return (unsigned short)(code_count - 1);
}

static void end_only(unsigned short from) {
  code[from].jf = (unsigned char)(code_count - from - 1);
}

static void refuse_options(unsigned call) {
  load(offsetof(struct seccomp_data, nr));
  unsigned short of_call = only(call);
  const struct {
    unsigned level, last;
  } levels[] = {{SOL_SOCKET, kernel->socket_option},
                {IPPROTO_TCP, kernel->tcp_option},
                {SOL_UDP_LEVEL, kernel->udp_option}};
  for (unsigned i = 0; i < sizeof levels / sizeof levels[0]; i++) {
    load_argument(1);
    unsigned short of_level = only(levels[i].level);
    load_argument(2);
    refuse_above(levels[i].last, UINT32_MAX, ENOPROTOOPT);
    end_only(of_level);
  }
  load_argument(1);
  unsigned short of_ip = only(IPPROTO_IP);
  load_argument(2);
  if (!kernel->bind_no_port) refuse_above(BIND_ADDRESS_NO_PORT - 1, BIND_ADDRESS_NO_PORT + 1, ENOPROTOOPT);
  end_only(of_ip);
  end_only(of_call);
}

static void install(void) {
  load(offsetof(struct seccomp_data, nr));
  refuse_above(kernel->call, UINT32_MAX, ENOSYS);
  unsigned short of_madvise = only(SYS_madvise);
  load_argument(2);
  refuse_above(kernel->advice, 100, EINVAL);
  end_only(of_madvise);
  load(offsetof(struct seccomp_data, nr));
  unsigned short of_socket = only(SYS_socket);
  load_argument(0);
  refuse_above(kernel->family, UINT32_MAX, EAFNOSUPPORT);
  end_only(of_socket);
  refuse_options(SYS_setsockopt);
  refuse_options(SYS_getsockopt);
  emit(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {code_count, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
    perror("old_kernel: seccomp");
    _exit(125);
  }
}

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("OLD_KERNEL");
  for (unsigned i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
    if (name && !strcmp(name, kernels[i].name)) kernel = &kernels[i];
  if (!kernel) {
    fprintf(stderr, "old_kernel: OLD_KERNEL=%s is not known\n", name ? name : "");
    _exit(125);
  }
  install();
}

/* ---- what a filter cannot do ---- */

int getsockopt(int fd, int level, int option, void *value, socklen_t *bytes) {
  if (level == IPPROTO_TCP && option == TCP_INFO && *bytes > kernel->tcp_info_bytes)
    *bytes = kernel->tcp_info_bytes;
  return (int)syscall(SYS_getsockopt, fd, level, option, value, bytes);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags) {
  struct msghdr m = *msg;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
    if (c->cmsg_level == SOL_UDP_LEVEL && c->cmsg_type == UDP_SEGMENT_TYPE &&
        kernel->udp_option < UDP_SEGMENT_TYPE) {
      fprintf(stderr, "old_kernel: a superframe is sent to a kernel that does not cut it\n");
      _exit(125);
    }
  return syscall(SYS_sendmsg, fd, msg, flags);
}
