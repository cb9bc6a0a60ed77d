/* SPDX-License-Identifier: Apache-2.0 */
/* Property: what the kernel holds by reference is accounted for, whatever it takes, acknowledges and refuses,
 * and in whichever order messages are delivered by other paths, connections end and a stream is closed:
 *   - a connection that is closed while its kernel may still read from NCCL's buffers is reset, so that
 *     nothing is sent from them later;
 *   - when a stream is closed with messages that were not delivered, no connection that was left open holds
 *     references, nor has payload of it that waits;
 *   - nothing of a message that another path has delivered is handed to the kernel;
 *   - the pipe that all connections share keeps no references for a connection that has ended;
 *   - the bytes of each connection are those of its records, in order, whoever used the pipe in between.
 *
 * Bound: two connections, records of one head byte and two of payload, by reference or copied; each system
 * call takes nothing, one byte or all, or splice refuses once; all sequences of 4 steps, with --long of 5,
 * and at the end the stream is closed. */
#include <string.h>

#include "engine/peer.h"
#include "proofs/prove.h"
#include "proofs/references.h"

#undef close
#undef open

enum {
  PATHS = 2,
  PAYLOAD = 2,
  HEAD = 0x80, /* its byte */
  RECORDS_MAX = 6,
  BYTES_MAX = RECORDS_MAX * (1 + PAYLOAD),
  FIRST_FD = 10,
  PIPE_IN = 4,
  PIPE_OUT = 5,
  NULL_FD = 3,
  STEPS = 4,
};

/* A byte that the kernel has: a copy of a value, or a reference. */
struct byte {
  const uint8_t *reference; /* NULL: a copy */
  uint8_t value;
};

static struct connection {
  struct byte due[BYTES_MAX]; /* the bytes that the records consist of, and where payload is */
  unsigned due_count, taken_count, acked_count;
  bool is_referenced[BYTES_MAX]; /* taken as a reference */
  bool is_open, is_reset, is_delivered;
} connections[PATHS];

static struct {
  const uint8_t *bytes[PAYLOAD];
  unsigned count;
} pipe_held;

static struct harp_engine engine;
static struct harp_tcp tcp;
static struct harp_peer peer;
static struct harp_tcp_path paths[PATHS];
static struct harp_tx_stream stream;
static uint8_t buffers[PATHS][PAYLOAD];
static bool has_refused;

static struct connection *of_fd(int fd) {
  PROVE(fd >= FIRST_FD && fd < FIRST_FD + PATHS);
  return &connections[fd - FIRST_FD];
}

static bool holds_references(const struct connection *c) {
  for (unsigned i = c->acked_count; i < c->taken_count; i++)
    if (c->is_referenced[i]) return true;
  return false;
}

void harp_log(enum harp_log_level level, const char *file, int line, const char *fmt, ...) {
  (void)level, (void)file, (void)line, (void)fmt;
}

/* ---- the kernel ---- */

/* Chooses how many of `bytes` bytes a call takes. */
static size_t choose_taken(size_t bytes) {
  size_t how = prove_choose(bytes > 1 ? 3 : 2);
  return how == 0 ? bytes : how == 1 ? 0 : 1;
}

static void take(struct connection *c, const uint8_t *at, bool by_reference) {
  PROVE(c->is_open && c->taken_count < c->due_count);
  const struct byte *due = &c->due[c->taken_count];
  if (due->reference)
    PROVE(at == due->reference && !c->is_delivered);
  else
    PROVE(!by_reference && *at == due->value);
  c->is_referenced[c->taken_count++] = by_reference;
}

ssize_t kernel_sendmsg(int fd, const struct msghdr *msg, int flags) {
  struct connection *c = of_fd(fd);
  size_t bytes = 0, taken = 0;
  (void)flags;
  for (size_t i = 0; i < msg->msg_iovlen; i++) bytes += msg->msg_iov[i].iov_len;
  size_t count = choose_taken(bytes);
  if (!count) return errno = EAGAIN, -1;
  for (size_t i = 0; i < msg->msg_iovlen; i++)
    for (size_t k = 0; k < msg->msg_iov[i].iov_len && taken < count; k++, taken++)
      take(c, (const uint8_t *)msg->msg_iov[i].iov_base + k, false);
  return (ssize_t)taken;
}

ssize_t kernel_vmsplice(int fd, const struct iovec *iov, size_t count, unsigned flags) {
  (void)flags;
  PROVE(fd == PIPE_IN && count == 1 && !pipe_held.count);
  size_t bytes = iov->iov_len > 1 && prove_choose(2) ? 1 : iov->iov_len;
  for (; pipe_held.count < bytes; pipe_held.count++)
    pipe_held.bytes[pipe_held.count] = (const uint8_t *)iov->iov_base + pipe_held.count;
  return (ssize_t)bytes;
}

ssize_t kernel_splice(int in, loff_t *in_at, int out, loff_t *out_at, size_t bytes, unsigned flags) {
  (void)in_at, (void)out_at, (void)flags;
  PROVE(in == PIPE_OUT && bytes && bytes <= pipe_held.count);
  if (out != NULL_FD) {
    struct connection *c = of_fd(out);
    if (!has_refused && prove_choose(2)) return has_refused = true, errno = EINVAL, -1;
    bytes = choose_taken(bytes);
    if (!bytes) return errno = EAGAIN, -1;
    for (size_t i = 0; i < bytes; i++) take(c, pipe_held.bytes[i], true);
  }
  pipe_held.count -= (unsigned)bytes;
  memmove(pipe_held.bytes, pipe_held.bytes + bytes, pipe_held.count * sizeof pipe_held.bytes[0]);
  return (ssize_t)bytes;
}

uint64_t kernel_acked(int fd, uint64_t sent_bytes) {
  const struct connection *c = of_fd(fd);
  PROVE(sent_bytes == c->taken_count);
  return c->acked_count;
}

void kernel_reset_at_close(int fd) {
  of_fd(fd)->is_reset = true;
}

void kernel_close(int fd) {
  if (fd == PIPE_IN) pipe_held.count = 0;
  if (fd < FIRST_FD) return;
  struct connection *c = of_fd(fd);
  PROVE(c->is_open && (c->is_reset || !holds_references(c)));
  c->is_open = false;
}

int kernel_pipe(int ends[2], int flags) {
  (void)flags;
  ends[0] = PIPE_OUT;
  ends[1] = PIPE_IN;
  return 0;
}

/* ---- the stream: message i goes over path i ---- */

bool stream_holds(const struct harp_tx_stream *st, uint32_t message) {
  PROVE(st == &stream && message < PATHS);
  return !connections[message].is_delivered;
}

bool stream_is_owed(const struct harp_tx_stream *st) {
  PROVE(st == &stream);
  return !connections[0].is_delivered || !connections[1].is_delivered;
}

/* ---- steps ---- */

static void begin(void) {
  memset(connections, 0, sizeof connections);
  pipe_held.count = 0;
  has_refused = false;
  engine.tcp = &tcp;
  tcp.refuses_references = false;
  tcp.open_count = PATHS;
  harp_page_pipe_init(&tcp.pages);
  PROVE(!harp_page_pipe_open(&tcp.pages, PAYLOAD));
  peer.engine = &engine;
  peer.tcp = paths;
  peer.tcp_count = PATHS;
  for (unsigned i = 0; i < PATHS; i++) {
    connections[i].is_open = true;
    paths[i].peer = &peer;
    paths[i].path = i;
    paths[i].beside = PATHS;
    paths[i].fd = FIRST_FD + (int)i;
    paths[i].connecting = false;
    harp_tcp_bytes_begin(&paths[i]);
  }
}

/* As put_record does. */
static void put(unsigned i, bool by_reference) {
  struct connection *c = &connections[i];
  struct harp_tcp_path *p = &paths[i];
  if (harp_tcp_ready(&peer, i) != p || c->is_delivered || c->due_count + 1 + PAYLOAD > BYTES_MAX)
    prove_skip();
  p->out[p->out_bytes++] = HEAD;
  p->payload = buffers[i];
  p->payload_bytes = p->payload_size = PAYLOAD;
  p->payload_of = &stream;
  p->payload_message = i;
  p->by_reference = by_reference && !tcp.refuses_references;
  c->due[c->due_count++] = (struct byte){.value = HEAD};
  for (unsigned k = 0; k < PAYLOAD; k++) c->due[c->due_count++] = (struct byte){.reference = &buffers[i][k]};
  harp_tcp_path_flush(p, 1);
}

static void flush(unsigned i) {
  if (paths[i].fd < 0 || !harp_tcp_bytes_wait(&paths[i])) prove_skip();
  harp_tcp_path_flush(&paths[i], 1);
}

static void acknowledge(unsigned i) {
  struct connection *c = &connections[i];
  if (c->acked_count == c->taken_count) prove_skip();
  c->acked_count +=
      c->taken_count - c->acked_count > 1 && prove_choose(2) ? 1 : c->taken_count - c->acked_count;
}

static void deliver(unsigned i) {
  if (connections[i].is_delivered) prove_skip();
  connections[i].is_delivered = true;
}

static void end(unsigned i) {
  if (paths[i].fd < 0) prove_skip();
  harp_tcp_path_end(&paths[i], 1, "the proof ends it");
}

static void close_stream(void) {
  bool is_owed = stream_is_owed(&stream);
  harp_tcp_forget(&peer, &stream, 1);
  for (unsigned i = 0; i < PATHS; i++) {
    PROVE(!is_owed || !connections[i].is_open || !holds_references(&connections[i]));
    PROVE(paths[i].fd < 0 || !paths[i].payload_bytes);
  }
}

static void check(void) {
  for (unsigned i = 0; i < PATHS; i++) {
    PROVE((paths[i].fd >= 0) == connections[i].is_open);
    PROVE(paths[i].fd >= 0 || !tcp.pages.bytes || tcp.pages.holder != &paths[i]);
  }
  PROVE(tcp.pages.bytes == pipe_held.count);
}

static void proof(void) {
  enum { KINDS = 6 };
  unsigned steps = STEPS + prove_is_long;
  begin();
  for (unsigned step = 0; step < steps; step++) {
    uint32_t what = prove_choose(KINDS * PATHS);
    unsigned i = what % PATHS;
    switch (what / PATHS) {
    case 0:
    case 1:
      put(i, what / PATHS == 0);
      break;
    case 2:
      flush(i);
      break;
    case 3:
      acknowledge(i);
      break;
    case 4:
      deliver(i);
      break;
    default:
      end(i);
    }
    check();
  }
  close_stream();
  check();
}

int main(int argc, char **argv) {
  return prove_main(argc, argv, proof);
}
