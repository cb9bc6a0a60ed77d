/* SPDX-License-Identifier: Apache-2.0 */
/* Runs two processes that exchange messages over the plugin, and makes calls of libc fail in the first.
 *
 *   inject PLUGIN MODE                        counts: prints how often the plugin calls each function
 *   inject PLUGIN MODE FUNCTION N on|once E   the N-th call fails with errno E, and with "on" all later ones
 *
 * MODE is the engine's, inline or thread, over loopback; or a driver with an inline engine, xdp or xdp-copy,
 * over a veth pair between two network namespaces (root). Each process listens, connects to the other one,
 * sends MESSAGES messages and receives as many, and closes everything. A run is right when each process
 * either moved all messages or got an error with a WARN, in time; when no WARN came without an error; when
 * all bytes were right; when nothing of the plugin's is left in the process; and when no call that fails for
 * good was repeated without end, nor one of the data path for which there is no memory in each pass. It
 * prints a line for each process, and on failure one that begins with "FAILURE".
 *
 * The functions of libc are defined here, so that the plugin's calls come here first: calls whose return
 * address is in the plugin are counted. All of them take integers and pointers, at most EIGHT of them. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/rank.h"

enum {
  MESSAGES = 24,
  MESSAGE_MAX_BYTES = 1 << 20,
  /* The repeats of a call that fails for good, unless NCCL's polling or the data path makes it. AF_XDP tries
   * a queue that another process has for 10 s, every 5 ms. */
  REPEATS_MAX = 3000,
  /* The repeats of a call for which the kernel has no memory, in a second: it is tried once in a millisecond,
   * on each of two sockets. */
  SHORT_REPEATS_MAX = 4000,
  POLL_US = 50,
};
/* The peer timeout of 2 s, and what a loaded machine gets beside it. */
#define WAIT_S 8.0
/* What a wait counts of the time between two polls at most: the rest is of a process that had no core. Polls
 * are 50 us apart, or 1 ms: waits are as much longer as the machine is slower. */
#define POLL_MAX_S 0.002

/* ---- the functions that may fail ---- */

/* X(function, what it returns when it fails, whether that is how it reports the error): */
/* clang-format off */
#define NULL_FAILS(X)    X(aligned_alloc) X(calloc) X(malloc) X(opendir) X(realpath) X(if_indextoname)
#define RETURNS_ERROR(X) X(posix_fallocate) X(pthread_create) X(__register_atfork)
#define MINUS_FAILS(X) \
  X(accept4) X(adjtimex) X(bind) X(connect) X(epoll_create1) \
  X(epoll_ctl) X(epoll_wait) X(eventfd) X(fcntl) X(fstat) X(fstatfs) X(ftruncate) X(gethostname) \
  X(getifaddrs) X(getrandom) X(getrlimit) X(getsockname) X(getsockopt) X(ioctl) X(listen) X(madvise) \
  X(memfd_create) X(mkdir) X(mmap) X(open) X(openat) X(pipe2) X(poll) X(ppoll) X(prctl) X(read) X(readv) \
  X(recv) X(recvfrom) X(recvmmsg) X(recvmsg) X(rename) X(sched_setaffinity) X(send) X(sendmmsg) X(sendmsg) \
  X(sendto) X(setrlimit) X(setsockopt) X(socket) X(splice) X(stat) X(syscall) X(sysconf) X(unlink) \
  X(unlinkat) X(vmsplice) X(write)
/* clang-format on */

#define NAME(function) F_##function,
#define TEXT(function) #function,
enum { NULL_FAILS(NAME) RETURNS_ERROR(NAME) MINUS_FAILS(NAME) FUNCTIONS };
static const char *const names[] = {NULL_FAILS(TEXT) RETURNS_ERROR(TEXT) MINUS_FAILS(TEXT)};

/* NCCL's polling or each pass makes these calls. */
static const char *const polled[] = {"clock_gettime", "epoll_wait", "poll",     "ppoll",    "recv",
                                     "recvmsg",       "recvmmsg",   "readv",    "sendmsg",  "sendmmsg",
                                     "send",          "getsockopt", "vmsplice", "splice",   "ioctl",
                                     "setsockopt",    "read",       "write",    "recvfrom", "sendto"};

static atomic_bool is_armed;
static uintptr_t plugin_low, plugin_high;
static int fails_at, error_code, failing = -1;
static bool fails_on;
static _Atomic int calls[FUNCTIONS], failures;
static _Atomic long allocations; /* the plugin's allocations that were not freed */

static bool is_plugins(const void *caller) {
  return (uintptr_t)caller >= plugin_low && (uintptr_t)caller < plugin_high;
}

/* Returns whether this call is to fail. */
static bool is_hit(int function, const void *caller) {
  if (!atomic_load(&is_armed) || !is_plugins(caller)) return false;
  int n = 1 + atomic_fetch_add(&calls[function], 1);
  if (function != failing || n < fails_at || (n > fails_at && !fails_on)) return false;
  atomic_fetch_add(&failures, 1);
  errno = error_code;
  return true;
}

typedef long function_of_libc(long, long, long, long, long, long, long, long);

static function_of_libc *real_of(int function) {
  static _Atomic(function_of_libc *) found[FUNCTIONS];
  function_of_libc *f = atomic_load(&found[function]);
  if (!f) {
    *(void **)&f = dlsym(RTLD_NEXT, names[function]);
    atomic_store(&found[function], f);
  }
  return f;
}

/* After such an error of a TCP connection there is none: neither side could use it any more. */
static void break_connection(int fd) {
  int type = 0, saved = errno;
  socklen_t n = sizeof type;
  bool is_broken = error_code == ECONNRESET || error_code == EPIPE || error_code == ETIMEDOUT;
  if (is_broken && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) && type == SOCK_STREAM)
    shutdown(fd, SHUT_RDWR);
  errno = saved;
}

#define DEFINE(function, failed)                                                                             \
  long fault_##function(long a, long b, long c, long d, long e, long f, long g, long h) __asm__(#function);  \
  long fault_##function(long a, long b, long c, long d, long e, long f, long g, long h) {                    \
    if (is_hit(F_##function, __builtin_return_address(0))) return failed;                                    \
    return real_of(F_##function)(a, b, c, d, e, f, g, h);                                                    \
  }
#define DEFINE_MINUS(function) DEFINE(function, (break_connection((int)a), -1))
#define DEFINE_ERROR(function) DEFINE(function, error_code)
MINUS_FAILS(DEFINE_MINUS)
RETURNS_ERROR(DEFINE_ERROR)
DEFINE(opendir, 0)
DEFINE(realpath, 0)
DEFINE(if_indextoname, 0)

/* dlsym allocates: these go to libc by its own names, or to AddressSanitizer where it is linked. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);
#define WEAK __attribute__((weak))
extern void *__interceptor_malloc(size_t bytes) WEAK;
extern void *__interceptor_calloc(size_t count, size_t bytes) WEAK;
extern void *__interceptor_aligned_alloc(size_t alignment, size_t bytes) WEAK;
extern void __interceptor_free(void *memory) WEAK;
#define ALLOCATOR(name, libc) (__interceptor_##name ? __interceptor_##name : (libc))

static void *counted(void *memory, const void *caller) {
  if (memory && is_plugins(caller)) atomic_fetch_add(&allocations, 1);
  return memory;
}

void *malloc(size_t bytes) {
  const void *caller = __builtin_return_address(0);
  return is_hit(F_malloc, caller) ? NULL : counted(ALLOCATOR(malloc, __libc_malloc)(bytes), caller);
}

void *calloc(size_t count, size_t bytes) {
  const void *caller = __builtin_return_address(0);
  return is_hit(F_calloc, caller) ? NULL : counted(ALLOCATOR(calloc, __libc_calloc)(count, bytes), caller);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  const void *caller = __builtin_return_address(0);
  if (is_hit(F_aligned_alloc, caller)) return NULL;
  return counted(ALLOCATOR(aligned_alloc, __libc_memalign)(alignment, bytes), caller);
}

void free(void *memory) {
  if (memory && is_plugins(__builtin_return_address(0))) atomic_fetch_sub(&allocations, 1);
  ALLOCATOR(free, __libc_free)(memory);
}

/* ---- what the two processes and their parent share ---- */

struct side {
  char handle[HARP_NCCL_HANDLE_BYTES];
  atomic_bool has_handle,
      has_ended;     /* has_ended: it has closed everything, or it is about to after an error */
  int error;         /* NCCL's code; 0: all was done */
  const char *stage; /* where it is, or got the error */
  char trouble[96];  /* what is wrong; "": nothing */
  char warn[600];    /* the first */
  char driver[200];  /* the INFO line of the driver */
  int warns;
  int failures;
  double seconds;
  int calls[FUNCTIONS];
};
static struct side *sides;
static struct ends {
  atomic_bool are_there;
  _Atomic int up_count;
} * ends; /* the ends of the veth pair, which are shared, too */

static struct side *self(void) {
  return &sides[number];
}

static struct side *other(void) {
  return &sides[!number];
}

struct wait {
  double last_s, waited_s;
};

static struct wait begin_wait(void) {
  return (struct wait){now_s(), 0};
}

/* Counts the time since the last poll. Returns whether it has been polled for so long. */
static bool is_over(struct wait *w, double seconds) {
  double now = now_s(), since = now - w->last_s;
  w->last_s = now;
  w->waited_s += since < POLL_MAX_S ? since : POLL_MAX_S;
  return w->waited_s > seconds;
}

static void on_log(enum harp_nccl_log_level level, const char *text) {
  struct side *s = self();
  bool is_warn = level == HARP_NCCL_LOG_WARN;
  if (getenv("INJECT_LOG"))
    fprintf(stderr, "[%d] %.3f %s %s\n", number, now_s(), is_warn ? "WARN" : "info", text);
  if (strstr(text, ", memory in ")) (void)snprintf(s->driver, sizeof s->driver, "%.199s", text);
  if (is_warn && !s->warns++) (void)snprintf(s->warn, sizeof s->warn, "%.599s", text);
}

static bool fail(const char *trouble) {
  if (!self()->trouble[0])
    (void)snprintf(self()->trouble, sizeof self()->trouble, "%s in %s", trouble, self()->stage);
  return false;
}

/* ---- one process ---- */

struct run {
  const struct harp_nccl_net_v12 *net;
  void *ctx, *listen, *send, *receive, *send_mr, *receive_mr;
  char *out, *in;
};

/* Takes the result of a call. Returns whether to go on. */
static bool is_well(struct run *r, const char *stage, enum harp_nccl_result result) {
  (void)r;
  self()->stage = stage;
  self()->error = (int)result;
  return result == HARP_NCCL_SUCCESS;
}

/* The other process is over: what it would have to do will not happen. */
static bool is_alone(void) {
  return atomic_load(&other()->has_ended) && other()->error;
}

static bool connect_both(struct run *r) {
  struct wait wait = begin_wait();
  bool waits_alone = false;
  while (!r->send || !r->receive) {
    if (!r->send && !is_well(r, "connect", r->net->connect(r->ctx, 0, other()->handle, &r->send, NULL)))
      return false;
    if (!r->receive && !is_well(r, "accept", r->net->accept(r->listen, &r->receive, NULL))) return false;
    if (r->send && !r->receive && is_alone()) {
      if (waits_alone) return false; /* nobody will connect */
      waits_alone = true;
    }
    if (is_over(&wait, WAIT_S)) {
      self()->stage = r->send ? "accept" : "connect";
      return fail("HANG");
    }
    usleep(POLL_US);
  }
  return true;
}

static size_t message_bytes(int n) {
  static const size_t bytes[] = {8, 3000, 70000, MESSAGE_MAX_BYTES};
  return bytes[n % 4];
}

static void fill(char *at, size_t bytes, int n, int sender) {
  for (size_t i = 0; i < bytes; i++) at[i] = (char)(i * 7 + (i >> 9) + (size_t)(n * 2 + sender));
}

/* Sends the n-th message and receives the other process's. */
static bool exchange(struct run *r, int n) {
  size_t bytes = message_bytes(n), room = MESSAGE_MAX_BYTES;
  void *sending = NULL, *receiving = NULL, *to = r->in, *no_handle = NULL;
  int sent = 0, received = 0, got = -1, tag = 0;
  struct wait wait = begin_wait();
  fill(r->out, bytes, n, number);
  memset(r->in, 0, bytes);
  while (!sent || !received) {
    if (!received && !receiving &&
        !is_well(r, "irecv",
                 r->net->irecv(r->receive, 1, &to, &room, &tag, &r->receive_mr, &no_handle, &receiving)))
      return false;
    if (!sent && !sending &&
        !is_well(r, "isend", r->net->isend(r->send, r->out, bytes, tag, r->send_mr, NULL, &sending)))
      return false;
    if (receiving && !received && !is_well(r, "test of irecv", r->net->test(receiving, &received, &got)))
      return false;
    if (sending && !sent && !is_well(r, "test of isend", r->net->test(sending, &sent, NULL))) return false;
    if (is_over(&wait, WAIT_S)) {
      self()->stage = sent ? "test of irecv" : "test of isend";
      return fail("HANG");
    }
    if (!sent || !received) usleep(POLL_US);
  }
  fill(r->out, bytes, n, !number);
  return got == (int)bytes && memcmp(r->in, r->out, bytes) == 0 ? true : fail("WRONG BYTES");
}

static void work(struct run *r) {
  struct harp_nccl_comm_config_v10 config = {-1};
  if (!is_well(r, "init", r->net->init(&r->ctx, 1, &config, log_line, NULL))) return;
  if (!is_well(r, "listen", r->net->listen(r->ctx, 0, self()->handle, &r->listen))) return;
  atomic_store(&self()->has_handle, true);
  while (!atomic_load(&other()->has_handle)) {
    if (is_alone()) return;
    usleep(POLL_US);
  }
  if (!connect_both(r)) return;
  if (!is_well(r, "regMr", r->net->regMr(r->send, r->out, MESSAGE_MAX_BYTES, 1, &r->send_mr))) return;
  if (!is_well(r, "regMr", r->net->regMr(r->receive, r->in, MESSAGE_MAX_BYTES, 1, &r->receive_mr))) return;
  for (int n = 0; n < MESSAGES; n++)
    if (!exchange(r, n)) return;
}

static void close_all(struct run *r) {
  const char *stage = self()->stage;
  self()->stage = "closing";
  if (r->send_mr) r->net->deregMr(r->send, r->send_mr);
  if (r->receive_mr) r->net->deregMr(r->receive, r->receive_mr);
  if (r->send) r->net->closeSend(r->send);
  if (r->receive) r->net->closeRecv(r->receive);
  if (r->listen) r->net->closeListen(r->listen);
  if (r->ctx) r->net->finalize(r->ctx);
  self()->stage = stage;
}

static int count_in(const char *folder) {
  int count = 0;
  DIR *d = opendir(folder);
  if (!d) return -1;
  while (readdir(d)) count++;
  closedir(d);
  return count;
}

/* Returns whether the count in a folder is what it was. Threads that have ended are listed for a moment, and
 * an engine that has messages for a peer outlives their connection by the peer timeout. */
static bool is_back(const char *folder, int before) {
  struct wait wait = begin_wait();
  while (count_in(folder) > before) {
    if (is_over(&wait, WAIT_S)) return false;
    usleep(1000);
  }
  return true;
}

static int on_object(struct dl_phdr_info *info, size_t bytes, void *symbol) {
  (void)bytes;
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (at < low) low = at;
    if (at + info->dlpi_phdr[i].p_memsz > high) high = at + info->dlpi_phdr[i].p_memsz;
  }
  if ((uintptr_t)symbol < low || (uintptr_t)symbol >= high) return 0;
  plugin_low = low;
  plugin_high = high;
  return 1;
}

static bool is_polled(const char *name) {
  for (size_t i = 0; i < sizeof polled / sizeof *polled; i++)
    if (strcmp(name, polled[i]) == 0) return true;
  return false;
}

static void run_side(const char *plugin) {
  static char out[MESSAGE_MAX_BYTES], in[MESSAGE_MAX_BYTES];
  struct run r = {.out = out, .in = in};
  void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "inject: %s\n", dlerror());
    exit(2);
  }
  r.net = dlsym(library, "ncclNetPlugin_v12");
  dl_iterate_phdr(on_object, (void *)(uintptr_t)r.net);
  int files = count_in("/proc/self/fd"), threads = count_in("/proc/self/task");
  double began_s = now_s();
  atomic_store(&is_armed, true);
  if (number) failing = -1;
  work(&r);
  struct side *s = self();
  int error = s->error;
  if (error && !s->warns) fail("AN ERROR WITHOUT A WARN");
  if (!error && s->warns && !is_alone()) fail("A WARN WITHOUT AN ERROR");
  atomic_store(&s->has_ended, true);
  close_all(&r);
  s->seconds = now_s() - began_s;
  atomic_store(&is_armed, false);
  s->failures = atomic_load(&failures);
  for (int i = 0; i < FUNCTIONS; i++) s->calls[i] = atomic_load(&calls[i]);
  if (!is_back("/proc/self/fd", files)) fail("A FILE IS LEFT");
  if (!is_back("/proc/self/task", threads)) fail("A THREAD IS LEFT");
  if (atomic_load(&allocations) > 0) fail("MEMORY IS LEFT");
  if (failing >= 0 && s->failures > REPEATS_MAX && !is_polled(names[failing]))
    fail("THE CALL IS REPEATED WITHOUT END");
  if (failing >= 0 && error_code == ENOBUFS && s->failures > SHORT_REPEATS_MAX * (1 + s->seconds))
    fail("THE CALL IS REPEATED IN EACH PASS");
  exit(0);
}

/* ---- the parent ---- */

static void shell(const char *form, ...) {
  char command[200];
  va_list arguments;
  va_start(arguments, form);
  (void)vsnprintf(command, sizeof command, form, arguments);
  va_end(arguments);
  if (!system(command)) return;
  fprintf(stderr, "inject: %s\n", command);
  exit(2);
}

static void enter_namespace(void) {
  if (!unshare(CLONE_NEWNET)) return;
  fprintf(stderr, "inject: a network namespace: %s\n", strerror(errno));
  exit(2);
}

/* Takes this process's end of the pair up, and waits for the other one: until then there is no carrier. */
static void take_end_up(void) {
  while (!atomic_load(&ends->are_there)) usleep(POLL_US);
  shell("ip link set eni0 up && ip addr add 10.255.0.%d/24 dev eni0", number + 1);
  struct ifreq request = {.ifr_name = "eni0"};
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  while (!ioctl(fd, SIOCGIFFLAGS, &request) && !(request.ifr_flags & IFF_RUNNING)) usleep(POLL_US);
  close(fd);
  atomic_fetch_add(&ends->up_count, 1);
  while (atomic_load(&ends->up_count) < 2) usleep(POLL_US);
}

/* Starts a process, with an interface to the other one if there is to be one. */
static void start(int n, const char *plugin, bool has_interface, pid_t pids[2]) {
  fflush(stdout);
  if (has_interface) enter_namespace();
  if (has_interface && n) {
    shell("ip link add eni0 type veth peer name eni0 netns %d", (int)pids[0]);
    atomic_store(&ends->are_there, true);
  }
  pids[n] = fork();
  if (pids[n]) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  number = n;
  if (has_interface) take_end_up();
  run_side(plugin);
}

static void await_end(int n, pid_t pid, struct wait *wait) {
  struct side *s = &sides[n];
  struct wait closing = begin_wait();
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    bool is_late = is_over(wait, 3 * WAIT_S) || is_over(&closing, WAIT_S);
    if (!s->stage || strcmp(s->stage, "closing")) closing = begin_wait();
    if (is_late) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      (void)snprintf(s->trouble, sizeof s->trouble, "HANG in a call of %s", s->stage);
      return;
    }
    usleep(1000);
  }
  if (WIFSIGNALED(status))
    (void)snprintf(s->trouble, sizeof s->trouble, "CRASH by signal %d in %s", WTERMSIG(status), s->stage);
  else if (WEXITSTATUS(status) && !s->trouble[0])
    (void)snprintf(s->trouble, sizeof s->trouble, "EXIT %d in %s", WEXITSTATUS(status), s->stage);
}

static int find(const char *name) {
  for (int i = 0; i < FUNCTIONS; i++)
    if (strcmp(names[i], name) == 0) return i;
  fprintf(stderr, "inject: no function %s\n", name);
  exit(2);
}

static void set_environment(const char *mode, bool is_driver, char *folder) {
  setenv("HARP_IFNAME", is_driver ? "=eni0" : "=lo", 1);
  setenv("HARP_PATHS", "2", 1);
  setenv("HARP_PEER_TIMEOUT", "2", 1);
  setenv("HARP_STALL_TIME", "3600", 1);
  setenv("HARP_ENGINE", is_driver ? "inline" : mode, 1);
  if (is_driver) setenv("HARP_DRIVER", mode, 1);
  if (!mkdtemp(folder)) exit(2);
  setenv("HARP_STATS_DIR", folder, 1);
}

static void remove_folder(const char *folder) {
  struct dirent *entry;
  char path[512];
  DIR *d = opendir(folder);
  while (d && (entry = readdir(d))) {
    (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    unlink(path); /* not the folder itself and its parent */
  }
  if (d) closedir(d);
  rmdir(folder);
}

int main(int count, char **words) {
  pid_t pids[2];
  char folder[] = "/tmp/harp-faults-XXXXXX";
  if (count != 3 && count != 7) {
    fprintf(stderr, "usage: inject PLUGIN inline|thread|xdp|xdp-copy [FUNCTION N on|once ERRNO]\n");
    return 2;
  }
  if (count == 7) {
    failing = find(words[3]);
    fails_at = atoi(words[4]);
    fails_on = strcmp(words[5], "on") == 0;
    error_code = atoi(words[6]);
  }
  sides =
      mmap(NULL, 2 * sizeof *sides + sizeof *ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (sides == MAP_FAILED) return 2;
  ends = (struct ends *)(sides + 2);
  bool is_driver = strncmp(words[2], "xdp", 3) == 0;
  set_environment(words[2], is_driver, folder);
  for (int n = 0; n < 2; n++) start(n, words[1], is_driver, pids);
  struct wait wait = begin_wait();
  for (int n = 0; n < 2; n++) await_end(n, pids[n], &wait);
  remove_folder(folder);
  bool is_right = true;
  for (int n = 0; n < 2; n++) {
    const struct side *s = &sides[n];
    printf("process %d: %s%s, %d, %.2f s, %d failed calls, %d WARN: %s\n", n,
           s->error ? "error in " : "without error, last in ", s->stage, s->error, s->seconds, s->failures,
           s->warns, s->warn);
    if (s->trouble[0]) printf("FAILURE of process %d: %s\n", n, s->trouble);
    is_right = is_right && !s->trouble[0];
  }
  if (count == 3) printf("driver %s\n", sides[0].driver);
  for (int i = 0; count == 3 && i < FUNCTIONS; i++)
    if (sides[0].calls[i]) printf("calls %s %d\n", names[i], sides[0].calls[i]);
  return is_right ? 0 : 1;
}
