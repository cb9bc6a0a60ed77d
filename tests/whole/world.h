/* SPDX-License-Identifier: Apache-2.0 */
/* A world of processes in one thread, on a virtual clock: their threads are fibers, their calls of libc come
 * here, and a seed decides all that a kernel or a network could do one way or another.
 *
 * Each fiber has its own time, as if each had a core; the one that is behind runs, and a call takes a few
 * hundred nanoseconds. Each process has its own copy of the plugin. A world lives in a child process of the
 * test's, which ends with it: nothing is freed. */
#ifndef HARP_TESTS_WORLD_H
#define HARP_TESTS_WORLD_H

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <ucontext.h>

#include "lib/simnet.h"

enum { PROCESSES = 2, FIBERS_MAX = 64, FILES_MAX = 256, ENIS_MAX = 2, STACK_BYTES = 256 << 10 };

struct fiber {
  ucontext_t context;
  int process;
  harp_ns at;      /* when it goes on; while it waits, at the latest */
  bool is_waiting; /* until is_met, or `at` */
  bool (*is_met)(void *word);
  void *word;
  void *(*run)(void *word);
  void *run_word;
  bool is_over, is_detached, is_joined;
  int saved_errno;
};

struct file;
struct process {
  uintptr_t low, high; /* its copy of the plugin */
  struct file *files[FILES_MAX];
  long allocations, mappings; /* those of the plugin that were not freed */
  long calls;                 /* calls of libc */
  harp_ns paused_until;       /* none of its fibers runs before */
  bool is_dead;
  int64_t wall_ns; /* what its CLOCK_REALTIME is ahead */
};

/* What happens to a process at one of its calls. A number that is 0 never comes. */
struct plan {
  uint64_t seed;
  bool is_v6;                             /* all addresses are IPv6 */
  bool is_threaded, is_traced, is_uneven; /* uneven: fibers lose their core for up to 3 ms now and then */
  unsigned enis, messages, streams, paths;
  char driver[16];
  int failing, fails_at, fails_with; /* what fails in process 0: function, its n-th call, errno */
  bool fails_on;                     /* and all later ones */
  long kill_at, pause_at, jump_at;   /* calls of process 0 at which it happens */
  unsigned pause_ms;
  unsigned stop_at;                  /* process 0 gives up after so many calls of the plugin */
  unsigned loss_ppm, break_ms;       /* loss of both ways; how long nothing passes, from a drawn time on */
  uint32_t room_bytes, buffer_bytes; /* buffers of a TCP connection, of a UDP socket */
  uint32_t mtu;
  unsigned window;
};

extern struct world {
  struct plan plan;
  struct rng rng;
  harp_ns now;
  struct process processes[PROCESSES + 1]; /* the last one is the judge */
  struct fiber fibers[FIBERS_MAX];
  unsigned fiber_count;
  struct fiber *current;
  struct simnet net;
  uint64_t hash; /* the hash of all calls and their results */
  long call_count;
  bool has_changed; /* what a fiber may wait for */
  char trouble[400];
  void (*on_kill)(void);
} world;

/* ---- time and fibers ---- */

struct fiber *fiber_new(int process, void *(*run)(void *), void *word);
/* Lets the current fiber's time pass, and others run. */
void pass_time(harp_ns ns);
/* Waits until is_met(word), or `until`. Returns whether it is met. */
bool wait_for(bool (*is_met)(void *), void *word, harp_ns until);
/* Calls at that time, between the fibers' turns. */
void at_time(harp_ns at, void (*call)(void *word, uint64_t number), void *word, uint64_t number);
struct process *self(void);
/* Notes what is wrong, once. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds a call and its result to the hash. */
void trace(const char *call, long result);
/* Ends a process: its files are closed as the kernel does, its fibers stop. */
void kill_process(int process);

/* ---- the kernel (kernel.c): 0 or more, or -errno ---- */

uint32_t address_of(int process, unsigned eni);
/* Writes an address in the plan's family; returns its length. */
socklen_t put_address(uint32_t ip, uint16_t port, struct sockaddr_storage *out);
long kernel_socket(int family, int type, int protocol);
long kernel_event(void);
long kernel_epoll(void);
long kernel_pipe(int ends[2]);
long kernel_open(const char *path);
long kernel_memory(int real); /* a memfd */
int kernel_real(int fd);      /* the real file of a memfd */
long kernel_close(struct process *p, int fd);
long kernel_bind(int fd, const struct sockaddr *a);
long kernel_listen(int fd);
long kernel_connect(int fd, const struct sockaddr *a);
long kernel_accept(int fd, struct sockaddr *from, socklen_t *bytes);
long kernel_name(int fd, struct sockaddr *a, socklen_t *bytes);
long kernel_shutdown(int fd, int how);
void kernel_reset(int fd, int error); /* its TCP connection, if it has one, is over for both ends */
long kernel_set(int fd, int level, int option, const void *value, socklen_t bytes);
long kernel_get(int fd, int level, int option, void *value, socklen_t *bytes);
long kernel_ioctl(int fd, unsigned long request, void *word);
long kernel_send(int fd, const struct msghdr *m);
long kernel_receive(int fd, struct msghdr *m);
long kernel_read(int fd, void *to, size_t bytes);
long kernel_write(int fd, const void *from, size_t bytes);
long kernel_vmsplice(int fd, const struct iovec *iov);
long kernel_splice(int from, int to, size_t bytes);
long kernel_epoll_ctl(int set, int operation, int fd, const struct epoll_event *e);
long kernel_epoll_wait(int set, struct epoll_event *out, int most);
/* Returns what of `events` a file has; POLLNVAL: there is no such file. */
short kernel_poll(const struct process *p, int fd, short events);
/* Takes what simnet brings. */
void kernel_deliver(void);
unsigned kernel_count_files(const struct process *p);
/* Nothing passes between the hosts any more, or for so long. */
void kernel_break(harp_ns ns);

/* ---- libc (libc.c) ---- */

int function_find(const char *name); /* -1: none */
void functions_print(FILE *out);     /* how often process 0 called each */

#endif
