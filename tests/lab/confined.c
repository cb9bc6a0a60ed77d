/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a command with the rights of a container without privileges, as in docs/how-to/kubernetes.md.
 *
 * That is: another user than root, no capability, no way to get one, the resource limits of a fresh kernel,
 * and a refusal of the system calls that the default seccomp profile of container runtimes refuses to a
 * process without capabilities. */
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { USER = 65534 };

#define ANSWER(name, error)                                                                                  \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),                                                     \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define REFUSE(name) ANSWER(name, EPERM)

/* Docker's documentation, "Significant syscalls blocked by the default profile", and io_uring since. */
static struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ANSWER(clone3, ENOSYS), /* as a kernel without it, so that the C library uses clone */
    REFUSE(acct),
    REFUSE(add_key),
    REFUSE(bpf),
    REFUSE(clock_adjtime),
    REFUSE(clock_settime),
    REFUSE(delete_module),
    REFUSE(finit_module),
    REFUSE(get_mempolicy),
    REFUSE(init_module),
    REFUSE(io_uring_enter),
    REFUSE(io_uring_register),
    REFUSE(io_uring_setup),
    REFUSE(kcmp),
    REFUSE(kexec_file_load),
    REFUSE(kexec_load),
    REFUSE(keyctl),
    REFUSE(lookup_dcookie),
    REFUSE(mbind),
    REFUSE(mount),
    REFUSE(move_pages),
    REFUSE(nfsservctl),
    REFUSE(open_by_handle_at),
    REFUSE(perf_event_open),
    REFUSE(pivot_root),
    REFUSE(quotactl),
    REFUSE(reboot),
    REFUSE(request_key),
    REFUSE(set_mempolicy),
    REFUSE(setns),
    REFUSE(settimeofday),
    REFUSE(swapoff),
    REFUSE(swapon),
    REFUSE(umount2),
    REFUSE(unshare),
    REFUSE(userfaultfd),
#ifdef __x86_64__
    REFUSE(create_module),
    REFUSE(ioperm),
    REFUSE(iopl),
    REFUSE(query_module),
    REFUSE(sysfs),
    REFUSE(uselib),
    REFUSE(ustat),
#endif
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

/* Returns whether something failed. */
static int confine(void) {
  for (unsigned long capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0;) capability++;
  const struct rlimit memory = {64 << 10, 64 << 10}, files = {1024, 1024}, core = {0, 0};
  const struct sock_fprog program = {sizeof code / sizeof code[0], code};
  return setrlimit(RLIMIT_MEMLOCK, &memory) || setrlimit(RLIMIT_NOFILE, &files) ||
         setrlimit(RLIMIT_CORE, &core) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) || setgroups(0, NULL) ||
         setresgid(USER, USER, USER) || setresuid(USER, USER, USER); /* all capabilities go with the last */
}

int main(int argc, char **argv) {
  if (argc < 2 || confine()) {
    perror("confined");
    return 125;
  }
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
