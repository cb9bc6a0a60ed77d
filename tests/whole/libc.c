/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libc that the plugin calls, defined here: its calls come to a world's kernel. See world.h.
 *
 * Each call is counted, takes time, may let others run, and may fail or end its process as the plan says. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <malloc.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "whole/world.h"

/* clang-format off */
#define FUNCTIONS(X) \
  X(__register_atfork) X(accept4) X(adjtimex) X(aligned_alloc) X(bind) X(calloc) X(clock_gettime) \
  X(close) X(connect) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(eventfd) X(fcntl) X(flock) \
  X(fstat) X(fstatfs) X(ftruncate) X(gethostname) X(getifaddrs) X(getrandom) X(getrlimit) \
  X(getsockname) X(getsockopt) X(if_indextoname) X(if_nametoindex) X(ioctl) X(listen) X(madvise) \
  X(malloc) X(memfd_create) X(mkdir) X(mmap) X(munmap) X(nanosleep) X(open) X(openat) X(opendir) \
  X(pipe2) X(poll) X(posix_fallocate) X(ppoll) X(prctl) X(pthread_cond_wait) X(pthread_create) \
  X(pthread_join) X(pthread_mutex_lock) X(read) X(readv) X(realpath) X(recv) X(recvfrom) X(recvmmsg) \
  X(recvmsg) X(rename) X(sched_setaffinity) X(sched_yield) X(send) X(sendmmsg) X(sendmsg) X(sendto) \
  X(setrlimit) X(setsockopt) X(shutdown) X(socket) X(splice) X(stat) X(syscall) X(sysconf) X(unlink) \
  X(unlinkat) X(vmsplice) X(write)
/* clang-format on */
#define NUMBER(name) F_##name,
#define TEXT(name)   #name,
enum { FUNCTIONS(NUMBER) FUNCTION_COUNT };
static const char *const names[] = {FUNCTIONS(TEXT)};
static long counts[FUNCTION_COUNT]; /* the calls of process 0 */

int function_find(const char *name) {
  for (int i = 0; i < FUNCTION_COUNT; i++)
    if (strcmp(names[i], name) == 0) return i;
  return -1;
}

void functions_print(FILE *out) {
  for (int i = 0; i < FUNCTION_COUNT; i++)
    if (counts[i]) fprintf(out, "calls %s %ld\n", names[i], counts[i]);
}

/* What happens to process 0 at this call. */
static void strike(struct process *p) {
  const struct plan *plan = &world.plan;
  if (p->calls == plan->kill_at) kill_process(0);
  if (p->calls == plan->pause_at) p->paused_until = world.now + HARP_MS((harp_ns)plan->pause_ms);
  if (p->calls == plan->jump_at)
    p->wall_ns = (int64_t)rng_between(&world.rng, 0, HARP_SEC(7200)) - (int64_t)HARP_SEC(3600);
}

/* Begins a call; returns whether it is to fail, with errno set. */
static bool enter(int function) {
  const struct plan *plan = &world.plan;
  struct process *p = self();
  world.call_count++;
  p->calls++;
  if (world.current->process == 0) strike(p);
  pass_time(rng_between(&world.rng, 50, function == F_clock_gettime ? 100 : 1000));
  if (world.current->process) return false;
  long n = ++counts[function];
  if (function != plan->failing || n < plan->fails_at || (n > plan->fails_at && !plan->fails_on))
    return false;
  trace(names[function], -plan->fails_with);
  errno = plan->fails_with;
  return true;
}

/* Ends a call of the kernel. */
static long leave(int function, long result) {
  trace(names[function], result);
  if (result >= 0) return result;
  errno = (int)-result;
  return -1;
}

/* ---- what libc itself does ---- */

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static long real_call(long number, long a, long b, long c, long d) {
  static long (*real)(long, ...);
  if (!real) real = REAL(syscall);
  return real(number, a, b, c, d);
}

/* A function with an int or a long that a call of the kernel returns. */
#define DEFINE(type, name, parameters, result)                                                               \
  type name parameters {                                                                                     \
    if (enter(F_##name)) return -1;                                                                          \
    return (type)leave(F_##name, result);                                                                    \
  }

/* The same of a socket. After such an error of TCP there is no connection any more. */
#define DEFINE_SOCKET(type, name, parameters, result)                                                        \
  type name parameters {                                                                                     \
    if (enter(F_##name)) {                                                                                   \
      if (errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT) kernel_reset(fd, errno);              \
      return -1;                                                                                             \
    }                                                                                                        \
    return (type)leave(F_##name, result);                                                                    \
  }

/* ---- sockets and files ---- */

static struct msghdr message_of(struct iovec *iov) {
  return (struct msghdr){.msg_iov = iov, .msg_iovlen = 1};
}

static long send_to(int fd, const void *data, size_t bytes) {
  struct iovec iov = {(void *)(uintptr_t)data, bytes};
  struct msghdr m = message_of(&iov);
  return kernel_send(fd, &m);
}

static long receive_to(int fd, void *data, size_t bytes) {
  struct iovec iov = {data, bytes};
  struct msghdr m = message_of(&iov);
  return kernel_receive(fd, &m);
}

static long read_vector(int fd, const struct iovec *iov, int count) {
  struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count};
  return kernel_receive(fd, &m);
}

static long send_many(int fd, struct mmsghdr *m, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    long n = kernel_send(fd, &m[i].msg_hdr);
    if (n < 0) return i ? (long)i : n;
    m[i].msg_len = (unsigned)n;
  }
  return count;
}

static long receive_many(int fd, struct mmsghdr *m, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    long n = kernel_receive(fd, &m[i].msg_hdr);
    if (n < 0) return i ? (long)i : n;
    m[i].msg_len = (unsigned)n;
  }
  return count;
}

static long fill(uint8_t *to, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = (uint8_t)rng_next(&world.rng);
  return (long)n;
}

static long close_file(int fd) {
  long real = kernel_close(self(), fd);
  if (real > 0) real_call(SYS_close, real, 0, 0, 0);
  return real > 0 ? 0 : real;
}

DEFINE(int, socket, (int family, int type, int protocol), kernel_socket(family, type, protocol))
DEFINE(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (n ? kernel_bind(fd, a) : -EINVAL))
DEFINE(int, listen, (int fd, int n), (n ? kernel_listen(fd) : -EINVAL))
DEFINE(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (n ? kernel_connect(fd, a) : -EINVAL))
DEFINE(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags),
       (flags ? kernel_accept(fd, a, n) : -EINVAL))
DEFINE(int, getsockname, (int fd, struct sockaddr *a, socklen_t *n), kernel_name(fd, a, n))
DEFINE(int, shutdown, (int fd, int how), kernel_shutdown(fd, how))
DEFINE(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t n),
       kernel_set(fd, level, option, value, n))
DEFINE(int, getsockopt, (int fd, int level, int option, void *value, socklen_t *n),
       kernel_get(fd, level, option, value, n))
DEFINE(int, eventfd, (unsigned n, int flags), (n || !flags ? -EINVAL : kernel_event()))
DEFINE(int, epoll_create1, (int flags), (flags ? kernel_epoll() : -EINVAL))
DEFINE(int, epoll_ctl, (int set, int operation, int fd, struct epoll_event *e),
       kernel_epoll_ctl(set, operation, fd, e))
DEFINE(int, epoll_wait, (int set, struct epoll_event *e, int n, int ms),
       (ms ? -EINVAL : kernel_epoll_wait(set, e, n)))
DEFINE(int, pipe2, (int ends[2], int flags), (flags ? kernel_pipe(ends) : -EINVAL))
DEFINE(ssize_t, vmsplice, (int fd, const struct iovec *iov, size_t n, unsigned flags),
       (n == 1 && flags ? kernel_vmsplice(fd, iov) : -EINVAL))
DEFINE(ssize_t, splice, (int from, off64_t *a, int to, off64_t *b, size_t n, unsigned flags),
       (a || b || !flags ? -EINVAL : kernel_splice(from, to, n)))
DEFINE_SOCKET(ssize_t, send, (int fd, const void *data, size_t n, int flags),
              (flags ? send_to(fd, data, n) : -EINVAL))
DEFINE(ssize_t, sendto,
       (int fd, const void *data, size_t n, int flags, const struct sockaddr *to, socklen_t m),
       (to && m && !flags ? send_to(fd, data, n) : -EINVAL))
DEFINE_SOCKET(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags),
              (flags ? kernel_send(fd, m) : -EINVAL))
DEFINE(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags),
       (flags ? send_many(fd, m, n) : -EINVAL))

/* What came before the end of a connection is read before it, as of Linux. */
ssize_t recv(int fd, void *data, size_t n, int flags) {
  if (!enter(F_recv))
    return (ssize_t)leave(F_recv, flags & ~MSG_DONTWAIT ? -EINVAL : receive_to(fd, data, n));
  int error = errno;
  if (error != ECONNRESET && error != ETIMEDOUT) return -1;
  long got = receive_to(fd, data, n);
  kernel_reset(fd, error);
  if (got > 0) return (ssize_t)leave(F_recv, got);
  errno = error;
  return -1;
}

DEFINE(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (flags ? kernel_receive(fd, m) : -EINVAL))
DEFINE(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *t),
       (t || !flags ? -EINVAL : receive_many(fd, m, n)))
DEFINE_SOCKET(ssize_t, readv, (int fd, const struct iovec *iov, int n), read_vector(fd, iov, n))
DEFINE(ssize_t, read, (int fd, void *to, size_t n), kernel_read(fd, to, n))
DEFINE(ssize_t, write, (int fd, const void *from, size_t n), kernel_write(fd, from, n))
DEFINE(int, mkdir, (const char *path, mode_t mode), ((void)path, (void)mode, -EACCES))
DEFINE(int, rename, (const char *a, const char *b), ((void)a, (void)b, -ENOENT))
DEFINE(int, unlink, (const char *path), ((void)path, -ENOENT))
DEFINE(int, unlinkat, (int fd, const char *path, int flags), ((void)path, (void)flags, (void)fd, -ENOENT))
DEFINE(int, stat, (const char *path, struct stat *st), ((void)path, (void)st, -ENOENT))
DEFINE(int, fstat, (int fd, struct stat *st), ((void)fd, (void)st, -EIO))
DEFINE(int, flock, (int fd, int operation), ((void)fd, (void)operation, 0))
DEFINE(int, ftruncate, (int fd, off_t n), real_call(SYS_ftruncate, kernel_real(fd), n, 0, 0))
DEFINE(int, madvise, (void *at, size_t n, int advice), ((void)at, (void)n, (void)advice, 0))
DEFINE(int, gethostname, (char *text, size_t n), (snprintf(text, n, "host%d", world.current->process), 0))
DEFINE(ssize_t, getrandom, (void *to, size_t n, unsigned flags), (flags ? -EINVAL : fill(to, n)))
DEFINE(int, getrlimit, (__rlimit_resource_t what, struct rlimit *limit),
       (*limit = (struct rlimit){what == RLIMIT_NOFILE ? FILES_MAX : RLIM_INFINITY, RLIM_INFINITY}, 0))
DEFINE(int, setrlimit, (__rlimit_resource_t what, const struct rlimit *limit), ((void)what, (void)limit, 0))
DEFINE(int, sched_setaffinity, (pid_t pid, size_t n, const cpu_set_t *set),
       ((void)pid, (void)n, (void)set, 0))
DEFINE(int, adjtimex, (struct timex * t), (t->status = STA_UNSYNC, TIME_ERROR))
DEFINE(int, prctl, (int what, ...), ((void)what, 0))
DEFINE(int, sched_yield, (void), 0)
DEFINE(int, nanosleep, (const struct timespec *t, struct timespec *left),
       (left ? -EINVAL : (pass_time(HARP_SEC(t->tv_sec) + (harp_ns)t->tv_nsec + HARP_US(50)), 0)))

int close(int fd) {
  if (!world.current) return (int)real_call(SYS_close, fd, 0, 0, 0);
  (void)enter(F_close);
  return (int)leave(F_close, close_file(fd));
}

int fcntl(int fd, int command, ...) {
  if (enter(F_fcntl)) return -1;
  return (int)leave(F_fcntl, fd && command ? 0 : -EINVAL);
}

int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void *word = va_arg(arguments, void *);
  va_end(arguments);
  if (enter(F_ioctl)) return -1;
  return (int)leave(F_ioctl, kernel_ioctl(fd, request, word));
}

int open(const char *path, int flags, ...) {
  if (enter(F_open)) return -1;
  return (int)leave(F_open, flags & O_CREAT ? -EACCES : kernel_open(path));
}

int openat(int folder, const char *path, int flags, ...) {
  (void)folder;
  return open(path, flags);
}

DIR *opendir(const char *path) {
  bool fails = enter(F_opendir);
  (void)path;
  if (!fails) (void)leave(F_opendir, -ENOENT);
  return NULL;
}

char *realpath(const char *path, char *out) {
  bool fails = enter(F_realpath);
  (void)path, (void)out;
  if (!fails) (void)leave(F_realpath, -ENOENT);
  return NULL;
}

int memfd_create(const char *name, unsigned flags) {
  if (enter(F_memfd_create)) return -1;
  return (int)leave(F_memfd_create, kernel_memory((int)real_call(SYS_memfd_create, (long)name, flags, 0, 0)));
}

int posix_fallocate(int fd, off_t at, off_t bytes) {
  if (enter(F_posix_fallocate)) return errno;
  return real_call(SYS_fallocate, kernel_real(fd), 0, at, bytes) ? errno : 0;
}

int fstatfs(int fd, struct statfs *fs) {
  if (enter(F_fstatfs)) return -1;
  fs->f_type = fd ? 0x01021994 : 0; /* TMPFS_MAGIC */
  return (int)leave(F_fstatfs, 0);
}

long syscall(long number, ...) {
  if (enter(F_syscall)) return -1;
  return leave(F_syscall, number == SYS_gettid ? 100 + (world.current - world.fibers) : -ENOSYS);
}

pid_t getpid(void) {
  return 1000 + world.current->process;
}

long sysconf(int name) {
  if (enter(F_sysconf)) return -1;
  return leave(F_sysconf, name == _SC_PAGESIZE ? 4096 : name == _SC_CLK_TCK ? 100 : 4);
}

int __register_atfork(void (*a)(void), void (*b)(void), void (*c)(void), void *d);
int __register_atfork(void (*a)(void), void (*b)(void), void (*c)(void), void *d) {
  (void)a, (void)b, (void)c, (void)d;
  return enter(F___register_atfork) ? errno : 0;
}

/* ---- interfaces ---- */

int getifaddrs(struct ifaddrs **out) {
  static const char *const interfaces[ENIS_MAX] = {"eth0", "eth1"};
  if (enter(F_getifaddrs)) return -1;
  struct ifaddrs *list = calloc(2 * ENIS_MAX, sizeof *list);
  struct sockaddr_storage *addresses = calloc(2 * ENIS_MAX, sizeof *addresses);
  if (!list || !addresses) abort();
  unsigned n = 0;
  for (unsigned i = 0; i < 2 * world.plan.enis; i++, n++) {
    unsigned eni = i / 2;
    struct sockaddr_ll link = {.sll_family = AF_PACKET,
                               .sll_ifindex = (int)(2 + eni),
                               .sll_hatype = ARPHRD_ETHER,
                               .sll_halen = 6,
                               .sll_addr = {2, 0, 0, 0, (uint8_t)eni, (uint8_t)world.current->process}};
    if (i % 2)
      put_address(address_of(world.current->process, eni), 0, &addresses[i]);
    else
      memcpy(&addresses[i], &link, sizeof link);
    list[i] = (struct ifaddrs){.ifa_next = i + 1 < 2 * world.plan.enis ? &list[i + 1] : NULL,
                               .ifa_name = (char *)(uintptr_t)interfaces[eni],
                               .ifa_flags = IFF_UP | IFF_RUNNING | 0x10000 /* IFF_LOWER_UP */,
                               .ifa_addr = (struct sockaddr *)&addresses[i]};
  }
  *out = list;
  return (int)leave(F_getifaddrs, 0);
}

void freeifaddrs(struct ifaddrs *list) {
  (void)list;
}

unsigned if_nametoindex(const char *name) {
  if (enter(F_if_nametoindex)) return 0;
  return strncmp(name, "eth", 3) ? 0 : (unsigned)(2 + name[3] - '0');
}

char *if_indextoname(unsigned index, char name[IF_NAMESIZE]) {
  if (enter(F_if_indextoname)) return NULL;
  (void)snprintf(name, IF_NAMESIZE, "eth%u", (index - 2) % 10);
  return name;
}

/* ---- memory ---- */

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static bool is_plugins(const void *caller) {
  if (!world.current) return false;
  return (uintptr_t)caller >= self()->low && (uintptr_t)caller < self()->high;
}

static void *counted(int function, void *memory) {
  if (!memory) abort();
  trace(names[function], 1);
  self()->allocations++;
  return memory;
}

/* Fresh memory holds nothing, and freed memory nothing of use. */
static void *filled(void *memory, uint8_t with) {
  return memset(memory, with, malloc_usable_size(memory));
}

void *malloc(size_t bytes) {
  if (!is_plugins(__builtin_return_address(0))) return __libc_malloc(bytes);
  return enter(F_malloc) ? NULL : filled(counted(F_malloc, __libc_malloc(bytes)), 0xCC);
}

void *calloc(size_t count, size_t bytes) {
  if (!is_plugins(__builtin_return_address(0))) return __libc_calloc(count, bytes);
  return enter(F_calloc) ? NULL : counted(F_calloc, __libc_calloc(count, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  if (!is_plugins(__builtin_return_address(0))) return __libc_memalign(alignment, bytes);
  return enter(F_aligned_alloc) ? NULL : counted(F_aligned_alloc, __libc_memalign(alignment, bytes));
}

void free(void *memory) {
  if (memory && is_plugins(__builtin_return_address(0))) {
    self()->allocations--;
    filled(memory, 0xDD);
  }
  __libc_free(memory);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static __typeof__(&mmap) real;
  if (!real) real = REAL(mmap);
  if (!is_plugins(__builtin_return_address(0))) return real(at, bytes, protection, flags, fd, offset);
  if (enter(F_mmap)) return MAP_FAILED;
  if (flags & MAP_HUGETLB) return leave(F_mmap, -ENOMEM), MAP_FAILED;
  void *p = real(at, bytes, protection, flags, fd < 0 ? fd : kernel_real(fd), offset);
  self()->mappings += p != MAP_FAILED;
  trace("mmap", p != MAP_FAILED);
  return p;
}

int munmap(void *at, size_t bytes) {
  static __typeof__(&munmap) real;
  if (!real) real = REAL(munmap);
  if (is_plugins(__builtin_return_address(0))) {
    (void)enter(F_munmap);
    self()->mappings--;
  }
  return real(at, bytes);
}

/* ---- time ---- */

int clock_gettime(clockid_t id, struct timespec *t) {
  if (!world.current) return (int)real_call(SYS_clock_gettime, id, (long)t, 0, 0);
  (void)enter(F_clock_gettime);
  int64_t at =
      (int64_t)world.now + (id == CLOCK_REALTIME ? (int64_t)HARP_SEC(1700000000) + self()->wall_ns : 0);
  *t = (struct timespec){at / 1000000000, at % 1000000000};
  return 0;
}

struct polled {
  const struct process *of;
  struct pollfd *fds;
  nfds_t count;
};

static bool is_any_ready(void *word) {
  const struct polled *p = word;
  bool any = false;
  for (nfds_t i = 0; i < p->count; i++) {
    struct pollfd *at = &p->fds[i];
    at->revents = at->fd < 0 ? 0 : kernel_poll(p->of, at->fd, at->events);
    any |= at->revents != 0;
  }
  return any;
}

static long poll_files(struct pollfd *fds, nfds_t count, harp_ns limit_ns) {
  struct polled p = {self(), fds, count};
  long n = 0;
  if (limit_ns)
    (void)wait_for(is_any_ready, &p, world.now + limit_ns);
  else
    (void)is_any_ready(&p);
  for (nfds_t i = 0; i < count; i++) n += fds[i].revents != 0;
  return n;
}

DEFINE(int, poll, (struct pollfd * fds, nfds_t n, int ms), (ms ? -EINVAL : poll_files(fds, n, 0)))
DEFINE(int, ppoll, (struct pollfd * fds, nfds_t n, const struct timespec *t, const sigset_t *mask),
       (mask ? -EINVAL : poll_files(fds, n, HARP_SEC(t->tv_sec) + (harp_ns)t->tv_nsec)))

/* ---- threads: a mutex is the number of its fiber plus 1, a condition a count ---- */

static int *word_of(void *object) {
  return object;
}

static bool is_free(void *mutex) {
  return !*word_of(mutex);
}

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
  (void)a;
  *word_of(m) = 0;
  return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *m) {
  if (*word_of(m)) report("a mutex is destroyed while it is held");
  return 0;
}

static void take_mutex(pthread_mutex_t *m) {
  while (!wait_for(is_free, m, HARP_NEVER)) {
  }
  *word_of(m) = 1 + (int)(world.current - world.fibers);
}

int pthread_mutex_lock(pthread_mutex_t *m) {
  (void)enter(F_pthread_mutex_lock);
  if (*word_of(m) == 1 + (int)(world.current - world.fibers)) report("a mutex is taken twice");
  take_mutex(m);
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *m) {
  (void)enter(F_pthread_mutex_lock);
  if (!is_free(m)) return EBUSY;
  take_mutex(m);
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *m) {
  if (*word_of(m) != 1 + (int)(world.current - world.fibers))
    report("a mutex is unlocked that another holds");
  *word_of(m) = 0;
  world.has_changed = true;
  return 0;
}

struct condition {
  pthread_cond_t *at;
  int count;
};

static bool is_signalled(void *word) {
  const struct condition *c = word;
  return *word_of(c->at) != c->count;
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *m) {
  struct condition c = {cond, *word_of(cond)};
  (void)enter(F_pthread_cond_wait);
  pthread_mutex_unlock(m);
  (void)wait_for(is_signalled, &c, HARP_NEVER);
  take_mutex(m);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t *cond) {
  ++*word_of(cond);
  world.has_changed = true;
  return 0;
}

static bool is_once_over(void *once) {
  return *word_of(once) == 2;
}

int pthread_once(pthread_once_t *once, void (*run)(void)) {
  if (!*once) {
    *once = 1;
    run();
    *once = 2;
    world.has_changed = true;
  }
  return wait_for(is_once_over, once, HARP_NEVER) ? 0 : EINVAL;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *a, void *(*run)(void *), void *word) {
  (void)a;
  if (enter(F_pthread_create)) return errno;
  *thread = 1 + (pthread_t)(fiber_new(world.current->process, run, word) - world.fibers);
  return 0;
}

pthread_t pthread_self(void) {
  return 1 + (pthread_t)(world.current - world.fibers);
}

static bool is_ended(void *fiber) {
  return ((struct fiber *)fiber)->is_over;
}

int pthread_join(pthread_t thread, void **result) {
  struct fiber *f = &world.fibers[thread - 1];
  (void)result;
  (void)enter(F_pthread_join);
  while (!wait_for(is_ended, f, HARP_NEVER)) {
  }
  f->is_joined = true;
  return 0;
}

int pthread_detach(pthread_t thread) {
  world.fibers[thread - 1].is_detached = true;
  return 0;
}

/* ---- signals: there are none ---- */

int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
  (void)how, (void)set;
  if (old) sigemptyset(old);
  return 0;
}

int sigpending(sigset_t *set) {
  return sigemptyset(set);
}

int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *t) {
  (void)set, (void)info, (void)t;
  errno = EAGAIN;
  return -1;
}
