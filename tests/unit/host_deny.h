/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one system call of the calling process fail with an errno, as an older kernel or a refusal would: a
 * seccomp filter. It cannot be taken back, so it is installed in a forked child of the test. */
#ifndef HARP_TEST_HOST_DENY_H
#define HARP_TEST_HOST_DENY_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Denies `number` with `error` where (argument `arg`, low half, & mask) == value. Returns false where the
 * sandbox allows no filter. */
static inline bool deny_call(unsigned number, unsigned arg, uint32_t mask, uint32_t value, unsigned error) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + 8 * arg)),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Runs `body` in a child and returns its exit status, or 256 plus the signal that ended it. */
static inline int in_child(int (*body)(void)) {
  pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

enum { CHILD_NO_FILTER = 77 };

#endif
