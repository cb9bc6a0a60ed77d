/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous.h"

#include "clock.h"
#include "fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FRAME_DATA = 0x48500001, FRAME_FAILURE = 0x48500002 };
enum { RETRY_MS = 50, HELLO_WAIT_MS = 2000, KEEPALIVE_S = 5, PEER_SILENT_MS = 30000, LEFT_GRACE_S = 3 };
#define HELLO_MAGIC UINT64_C(0x4841525050455246) /* also shows the byte order */

struct frame_head {
  uint32_t type;
  uint32_t bytes;
};
struct hello {
  uint64_t magic;
  uint64_t fingerprint;
  uint32_t rank;
  uint32_t nranks;
};
enum hello_answer { HELLO_WELCOME = 1, HELLO_OTHER_OPTIONS, HELLO_RANK_TAKEN };

/* ---- addresses ---- */

union any_address {
  struct sockaddr sa;
  struct sockaddr_in in4;
  struct sockaddr_in6 in6;
  struct sockaddr_un un;
};
struct address {
  union any_address a;
  socklen_t bytes;
};

static int resolve_local_name(const char *text, struct address *out) {
  size_t length = strlen(text); /* the '@' becomes the zero that marks an abstract name */
  memset(out, 0, sizeof *out);
  out->a.un.sun_family = AF_UNIX;
  if (length < 2 || length > sizeof out->a.un.sun_path)
    return harp_fail(HARP_EXIT_USAGE, "rendezvous %s: bad local name", text);
  memcpy(out->a.un.sun_path + 1, text + 1, length - 1);
  out->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  return 0;
}

static int resolve_path(const char *text, struct address *out) {
  memset(out, 0, sizeof *out);
  out->a.un.sun_family = AF_UNIX;
  if (strlen(text) >= sizeof out->a.un.sun_path)
    return harp_fail(HARP_EXIT_USAGE, "rendezvous %s: a path has at most %zu bytes", text,
                     sizeof out->a.un.sun_path - 1);
  strcpy(out->a.un.sun_path, text);
  out->bytes = sizeof out->a.un;
  return 0;
}

/* Resolves "HOST:PORT" or "[ADDRESS]:PORT". Returns 0; -1 for bad text (recorded); 1 with *why where the
 * resolver doesn't know the host, which may pass. */
static int resolve(const char *text, struct address *out, const char **why) {
  if (text[0] == '@') return resolve_local_name(text, out);
  if (text[0] == '/') return resolve_path(text, out);
  char host[HARP_ADDRESS_BYTES];
  snprintf(host, sizeof host, "%s", text);
  char *colon = strrchr(host, ':');
  if (!colon || colon == host || !colon[1])
    return harp_fail(HARP_EXIT_USAGE, "rendezvous %s: expected HOST:PORT", text);
  *colon = 0;
  char *name = host;
  if (name[0] == '[' && colon[-1] == ']') {
    name++;
    colon[-1] = 0;
  }
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
  int rc = getaddrinfo(name, colon + 1, &hints, &found);
  if (rc) {
    *why = gai_strerror(rc);
    return 1;
  }
  memset(out, 0, sizeof *out);
  memcpy(&out->a, found->ai_addr, HARP_MIN((size_t)found->ai_addrlen, sizeof out->a));
  out->bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return 0;
}

static void tune(int fd, int family) {
  if (family == AF_UNIX) return;
  int on = 1, idle = KEEPALIVE_S, silent_ms = PEER_SILENT_MS;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
}

int harp_rendezvous_listen_local(char *address, size_t address_bytes) {
  struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t bytes = sizeof in4;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&in4, sizeof in4) || listen(fd, HARP_RANKS_MAX) ||
      getsockname(fd, (struct sockaddr *)&in4, &bytes)) {
    harp_fail(HARP_EXIT_SYSTEM, "cannot listen on 127.0.0.1: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
  }
  snprintf(address, address_bytes, "127.0.0.1:%u", ntohs(in4.sin_port));
  return fd;
}

/* ---- bytes, waiting at most until `deadline` (HARP_NEVER: as long as the connection lives) ---- */

static int wait_fd(int fd, short events, harp_ns deadline) {
  for (;;) {
    if (harp_interrupt_check()) return -1;
    int wait_ms = 500;
    if (deadline != HARP_NEVER) {
      harp_ns now = harp_clock_ns();
      if (now >= deadline) {
        errno = ETIMEDOUT;
        return -1;
      }
      wait_ms = (int)HARP_MIN((deadline - now) / 1000000 + 1, 500);
    }
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, wait_ms);
    if (n > 0) return 0;
    if (n < 0 && errno != EINTR) return -1;
  }
}

/* Returns 0, or -1 with errno (0 for an orderly end). */
static int read_all(int fd, void *data, size_t bytes, harp_ns deadline) {
  char *at = data;
  while (bytes) {
    ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= (size_t)n;
    } else if (n == 0) {
      errno = 0;
      return -1;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (wait_fd(fd, POLLIN, deadline)) return -1;
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return 0;
}

static int write_all(int fd, const void *data, size_t bytes, harp_ns deadline) {
  const char *at = data;
  while (bytes) {
    ssize_t n = send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      at += n;
      bytes -= (size_t)n;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (wait_fd(fd, POLLOUT, deadline)) return -1;
    } else if (errno != EINTR) {
      return -1;
    }
  }
  return 0;
}

/* ---- meeting ---- */

static int listen_at(const struct harp_options *opt, harp_ns deadline) {
  struct address address;
  const char *why;
  int rc = resolve(opt->rendezvous, &address, &why);
  if (rc < 0) return -1;
  if (rc) return harp_fail(HARP_EXIT_USAGE, "rendezvous %s: %s", opt->rendezvous, why);
  for (;;) {
    int fd = socket(address.a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return harp_fail(HARP_EXIT_SYSTEM, "socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!bind(fd, &address.a.sa, address.bytes) && !listen(fd, HARP_RANKS_MAX)) return fd;
    int error = errno;
    close(fd);
    if (error == EADDRNOTAVAIL)
      return harp_fail(HARP_EXIT_USAGE, "rendezvous %s is not an address of this host, which runs rank 0",
                       opt->rendezvous);
    if (error != EADDRINUSE || harp_clock_ns() > deadline)
      return harp_fail(HARP_EXIT_SYSTEM, "cannot listen at rendezvous %s: %s", opt->rendezvous,
                       strerror(error));
    if (harp_interrupt_check()) return -1;
    poll(NULL, 0, RETRY_MS); /* a run that just ended may still hold the port */
  }
}

/* Reads the hello of a new connection; accepts it as a rank, or closes it. */
static void take_in(struct harp_rendezvous *rendezvous, int fd, uint64_t fingerprint, int *present) {
  struct hello hello;
  int family = 0;
  socklen_t bytes = sizeof family;
  getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes);
  tune(fd, family);
  if (read_all(fd, &hello, sizeof hello, harp_clock_ns() + HARP_MS(HELLO_WAIT_MS)) ||
      hello.magic != HELLO_MAGIC) {
    close(fd); /* a port scan, perhaps: costs us a bounded wait */
    return;
  }
  uint32_t answer = HELLO_WELCOME;
  if (hello.fingerprint != fingerprint || hello.nranks != (uint32_t)rendezvous->nranks)
    answer = HELLO_OTHER_OPTIONS;
  else if (hello.rank == 0 || hello.rank >= hello.nranks || rendezvous->fds[hello.rank] >= 0)
    answer = HELLO_RANK_TAKEN;
  int rc = write_all(fd, &answer, sizeof answer, harp_clock_ns() + HARP_MS(HELLO_WAIT_MS));
  if (rc || answer != HELLO_WELCOME) {
    close(fd);
    return;
  }
  rendezvous->fds[hello.rank] = fd;
  ++*present;
}

static int gather_ranks(struct harp_rendezvous *rendezvous, const struct harp_options *opt, int listen_fd,
                        harp_ns deadline) {
  int present = 1;
  while (present < rendezvous->nranks) {
    if (wait_fd(listen_fd, POLLIN, deadline)) {
      int missing = 1;
      while (missing < rendezvous->nranks && rendezvous->fds[missing] >= 0) missing++;
      return harp_fail(HARP_EXIT_PEER, "%d of %d ranks came to %s within %g s; rank %d did not", present,
                       rendezvous->nranks, opt->rendezvous, opt->timeout_s, missing);
    }
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) take_in(rendezvous, fd, harp_options_fingerprint(opt), &present);
  }
  return 0;
}

/* Makes one attempt to reach rank 0. Returns a descriptor or -errno. */
static int connect_once(const struct address *address, harp_ns deadline) {
  int fd = socket(address->a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  tune(fd, address->a.sa.sa_family);
  int error = 0;
  if (connect(fd, &address->a.sa, address->bytes)) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t bytes = sizeof error;
      harp_ns patience = HARP_MIN(deadline, harp_clock_ns() + HARP_MS(HELLO_WAIT_MS));
      if (wait_fd(fd, POLLOUT, patience))
        error = ETIMEDOUT;
      else
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
  }
  if (!error) return fd;
  close(fd);
  return -error;
}

static int join_rank0(struct harp_rendezvous *rendezvous, const struct harp_options *opt, harp_ns deadline) {
  struct hello hello = {HELLO_MAGIC, harp_options_fingerprint(opt), (uint32_t)rendezvous->rank,
                        (uint32_t)rendezvous->nranks};
  const char *why = "";
  do { /* rank 0 may start later than we do, and its name may not resolve yet */
    struct address address;
    int rc = resolve(opt->rendezvous, &address, &why);
    if (rc < 0) return -1;
    int fd = rc ? -1 : connect_once(&address, deadline);
    if (!rc) why = fd < 0 ? strerror(-fd) : "it closed the connection";
    if (!rc && fd >= 0) {
      uint32_t answer;
      if (!write_all(fd, &hello, sizeof hello, deadline) && !read_all(fd, &answer, sizeof answer, deadline)) {
        rendezvous->fds[0] = fd;
        if (answer == HELLO_WELCOME) return 0;
        return harp_fail(
            HARP_EXIT_USAGE,
            answer == HELLO_RANK_TAKEN
                ? "rank 0 at %s has a connection from another rank %d"
                : "rank 0 at %s was started with other options (mode, sizes, ranks, ...) than rank %d",
            opt->rendezvous, rendezvous->rank);
      }
      close(fd);
    }
    if (harp_interrupt_check()) return -1;
    poll(NULL, 0, RETRY_MS);
  } while (harp_clock_ns() < deadline);
  return harp_fail(HARP_EXIT_PEER, "no rank 0 at %s within %g s: %s", opt->rendezvous, opt->timeout_s, why);
}

void harp_rendezvous_init(struct harp_rendezvous *rendezvous) {
  *rendezvous = (struct harp_rendezvous){.nranks = 0};
  for (int i = 0; i < HARP_RANKS_MAX; i++) rendezvous->fds[i] = -1;
}

int harp_rendezvous_open(struct harp_rendezvous *rendezvous, const struct harp_options *opt, int listen_fd) {
  harp_ns deadline = harp_clock_ns() + (harp_ns)(opt->timeout_s * 1e9);
  rendezvous->rank = opt->rank;
  rendezvous->nranks = opt->nranks;
  if (opt->rank) return join_rank0(rendezvous, opt, deadline);
  if (listen_fd < 0) listen_fd = listen_at(opt, deadline);
  if (listen_fd < 0) return -1;
  int rc = gather_ranks(rendezvous, opt, listen_fd, deadline);
  close(listen_fd);
  if (opt->rendezvous[0] == '/') unlink(opt->rendezvous);
  return rc;
}

/* ---- frames ---- */

/* Records that the rank behind `fds[index]` is gone, with its own words where it left some. Reads what is
 * there. */
static int lost(struct harp_rendezvous *rendezvous, int index, const char *words) {
  rendezvous->failed = true;
  if (words) return harp_fail(HARP_EXIT_PEER, "%s", words);
  return harp_fail(HARP_EXIT_PEER, "rank %d left (its rendezvous connection ended%s%s)", index,
                   errno ? ": " : "", errno ? strerror(errno) : "");
}

/* Reads one frame's head; a failure frame is read whole and recorded. Returns 0 or -1. */
static int read_head(struct harp_rendezvous *rendezvous, int index, struct frame_head *head) {
  if (read_all(rendezvous->fds[index], head, sizeof *head, HARP_NEVER)) return lost(rendezvous, index, NULL);
  if (head->type == FRAME_DATA && head->bytes <= HARP_RENDEZVOUS_BYTES_MAX) return 0;
  errno = EPROTO;
  if (head->type != FRAME_FAILURE) return lost(rendezvous, index, NULL);
  char text[HARP_FAIL_TEXT_BYTES];
  size_t bytes = HARP_MIN(head->bytes, sizeof text - 1);
  if (read_all(rendezvous->fds[index], text, bytes, HARP_NEVER)) return lost(rendezvous, index, NULL);
  text[bytes] = 0;
  return lost(rendezvous, index, text);
}

static int read_frame(struct harp_rendezvous *rendezvous, int index, void *data, size_t bytes) {
  struct frame_head head;
  if (read_head(rendezvous, index, &head)) return -1;
  errno = EPROTO;
  if (head.bytes != bytes || read_all(rendezvous->fds[index], data, bytes, HARP_NEVER))
    return lost(rendezvous, index, NULL);
  return 0;
}

static int write_frame(struct harp_rendezvous *rendezvous, int index, const void *data, size_t bytes) {
  struct frame_head head = {FRAME_DATA, (uint32_t)bytes}, answer;
  if (!write_all(rendezvous->fds[index], &head, sizeof head, HARP_NEVER) &&
      !write_all(rendezvous->fds[index], data, bytes, HARP_NEVER))
    return 0;
  /* The peer may have sent why it failed before it closed the connection: read_head records that. */
  while (!read_head(rendezvous, index, &answer)) {
    char skipped[4096];
    for (size_t left = answer.bytes; left;) {
      size_t part = HARP_MIN(left, sizeof skipped);
      if (read_all(rendezvous->fds[index], skipped, part, HARP_NEVER)) return lost(rendezvous, index, NULL);
      left -= part;
    }
  }
  return -1;
}

/* Collects on rank 0. While it waits for one rank it watches all: any of them may be the one that fails. */
static int collect(struct harp_rendezvous *rendezvous, size_t bytes, char *all) {
  bool has_sent[HARP_RANKS_MAX] = {true};
  for (int missing = rendezvous->nranks - 1; missing;) {
    struct pollfd polls[HARP_RANKS_MAX];
    for (int i = 0; i < rendezvous->nranks; i++)
      polls[i] = (struct pollfd){.fd = rendezvous->fds[i], .events = has_sent[i] ? POLLRDHUP : POLLIN};
    if (harp_interrupt_check()) return -1;
    if (poll(polls, (nfds_t)rendezvous->nranks, 500) < 0 && errno != EINTR)
      return harp_fail(HARP_EXIT_SYSTEM, "poll: %s", strerror(errno));
    for (int i = 1; i < rendezvous->nranks; i++) {
      if (!polls[i].revents) continue;
      if (has_sent[i]) return harp_rendezvous_check(rendezvous);
      if (read_frame(rendezvous, i, all + (size_t)i * bytes, bytes)) return -1;
      has_sent[i] = true;
      missing--;
    }
  }
  return 0;
}

int harp_rendezvous_gather(struct harp_rendezvous *rendezvous, const void *mine, size_t bytes, void *all) {
  char *to = all;
  size_t total = bytes * (size_t)rendezvous->nranks;
  if (total > HARP_RENDEZVOUS_BYTES_MAX)
    return harp_fail(HARP_EXIT_USAGE, "too many connections for so many ranks");
  if (rendezvous->rank)
    return write_frame(rendezvous, 0, mine, bytes) || read_frame(rendezvous, 0, all, total) ? -1 : 0;
  memcpy(to, mine, bytes);
  if (collect(rendezvous, bytes, to)) return -1;
  for (int i = 1; i < rendezvous->nranks; i++)
    if (write_frame(rendezvous, i, all, total)) return -1;
  return 0;
}

int harp_rendezvous_broadcast(struct harp_rendezvous *rendezvous, void *data, size_t bytes) {
  if (rendezvous->rank) return read_frame(rendezvous, 0, data, bytes);
  for (int i = 1; i < rendezvous->nranks; i++)
    if (write_frame(rendezvous, i, data, bytes)) return -1;
  return 0;
}

int harp_rendezvous_barrier(struct harp_rendezvous *rendezvous) {
  char mine = 1, all[HARP_RANKS_MAX];
  return harp_rendezvous_gather(rendezvous, &mine, 1, all);
}

int harp_rendezvous_check(struct harp_rendezvous *rendezvous) {
  struct pollfd polls[HARP_RANKS_MAX];
  for (int i = 0; i < rendezvous->nranks; i++)
    polls[i] = (struct pollfd){.fd = rendezvous->fds[i], .events = POLLIN | POLLRDHUP};
  if (poll(polls, (nfds_t)rendezvous->nranks, 0) <= 0) return 0;
  for (int i = 0; i < rendezvous->nranks; i++) {
    struct frame_head head = {0};
    if (rendezvous->fds[i] < 0 || !polls[i].revents) continue;
    bool failure =
        recv(rendezvous->fds[i], &head, sizeof head, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)sizeof head &&
        head.type == FRAME_FAILURE;
    if (!failure && !(polls[i].revents & (POLLRDHUP | POLLERR | POLLHUP)))
      continue; /* early at the next barrier */
    /* A rank that exited without a message may have been killed. The plugin's error for that is the result
     * of interest, so it is given some time to come first. */
    if (!rendezvous->left_ns) rendezvous->left_ns = harp_clock_ns();
    if (!failure && harp_clock_ns() - rendezvous->left_ns < HARP_SEC(LEFT_GRACE_S)) continue;
    char skipped[4096];
    errno = 0;
    while (!read_head(rendezvous, i, &head))
      for (size_t left = head.bytes; left;) {
        size_t part = HARP_MIN(left, sizeof skipped);
        if (read_all(rendezvous->fds[i], skipped, part, HARP_NEVER)) return lost(rendezvous, i, NULL);
        left -= part;
      }
    return -1;
  }
  return 0;
}

void harp_rendezvous_send_failure(struct harp_rendezvous *rendezvous, const char *text) {
  char line[HARP_FAIL_TEXT_BYTES];
  /* Rank 0 forwards another rank's text, which names that rank already. */
  int n = rendezvous->failed ? snprintf(line, sizeof line, "%s", text)
                             : snprintf(line, sizeof line, "rank %d failed: %s", rendezvous->rank, text);
  struct frame_head head = {FRAME_FAILURE, (uint32_t)HARP_MIN((size_t)HARP_MAX(n, 0), sizeof line - 1)};
  for (int i = 0; i < rendezvous->nranks; i++) {
    if (rendezvous->fds[i] < 0) continue;
    /* Best effort: a rank that doesn't read sees the connection end. */
    if (send(rendezvous->fds[i], &head, sizeof head, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof head)
      (void)!send(rendezvous->fds[i], line, head.bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

void harp_rendezvous_close(struct harp_rendezvous *rendezvous) {
  for (int i = 0; i < HARP_RANKS_MAX; i++) {
    if (rendezvous->fds[i] >= 0) close(rendezvous->fds[i]);
    rendezvous->fds[i] = -1;
  }
}
