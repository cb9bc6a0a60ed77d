/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's view: with NCCL's LL and LL128 protocols a GPU reads lines out of the receive buffer while they
 * land, and trusts each as soon as its flag is right.
 *
 *   ll_reader PLUGIN recv LAYOUT MESSAGES SEED             prints the handle, then what was seen, as JSON
 *   ll_reader PLUGIN send LAYOUT MESSAGES SEED HANDLE
 *
 * LAYOUT ll: words of 8 bytes, 4 of data and 4 of flag. ll128: lines of 128 bytes, 120 of data and 8 of flag.
 * All sizes, data and flags follow from SEED and the message's number, so that any byte can be checked at any
 * time.
 *
 * In the receiver a second thread, the GPU, polls the posted buffers. Counted as wrong:
 *   torn    a line whose flag is there and whose data is not
 *   undone  a line that was right and is so no more, before its buffer was used again
 *   beyond  bytes that were touched behind the end of the message, inside the posted size or behind it
 *   late    bytes that were touched after the receive was done; each buffer rests until its next use */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/abi.h"

enum {
  SLOTS = 16,
  POSTED = 8, /* the other slots rest */
  LINE_BYTES = 128,
  LINES_MAX = 512,
  MESSAGE_MAX_BYTES = LINES_MAX * LINE_BYTES,
  SPARE_BYTES = 512, /* posted behind each message */
  GUARD_BYTES = 512, /* and not posted */
  SLOT_BYTES = MESSAGE_MAX_BYTES + SPARE_BYTES + GUARD_BYTES,
  REST_BYTE = 0xDD,
};

struct slot {
  _Alignas(4096) uint8_t bytes[SLOT_BYTES];
  _Atomic uint32_t open; /* message that may land here, + 1; 0: none */
  uint32_t message;
  void *request;
  uint8_t seen[MESSAGE_MAX_BYTES / 8]; /* the GPU's: lines found complete for `seen_message` */
  uint32_t seen_message;
};

static const struct harp_nccl_net_v8 *net;
static struct slot *slots;
static bool is_ll128;
static uint64_t seed;
static _Atomic uint32_t gpu_at; /* slot that the GPU looks at, + 1 */
static _Atomic bool gpu_stop;
static uint64_t early, torn, undone, beyond, late;

static void die(const char *what) {
  fprintf(stderr, "ll_reader: %s\n", what);
  exit(1);
}

static void on_log(enum harp_nccl_log_level level, unsigned long flags, const char *where, int line,
                   const char *fmt, ...) {
  va_list ap;
  (void)flags, (void)where, (void)line;
  if (level != HARP_NCCL_LOG_WARN) return;
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
}

static uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/* Small ones, which may travel early, and large ones. */
static uint32_t message_bytes(uint32_t message) {
  uint64_t r = mix(seed + message * 2654435761u);
  uint32_t lines = r & 1 ? LINES_MAX : 1 + (uint32_t)(r >> 8) % (r & 2 ? 16 : LINES_MAX);
  return lines * LINE_BYTES;
}

/* The 8 bytes at word i of a message. */
static uint64_t word_of(uint32_t message, uint32_t i) {
  uint64_t r = mix(seed ^ ((uint64_t)message << 32 | i));
  if (is_ll128) return i % 16 == 15 ? message + 1 : r;
  return r >> 32 | (uint64_t)(message + 1) << 32;
}

static uint64_t load(const uint8_t *at) {
  return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

/* ---- the GPU ---- */

/* Reads one line as a GPU does, flag first. Returns whether it was there. */
static bool look(const uint8_t *bytes, uint32_t message, uint32_t line, bool *is_right) {
  *is_right = true;
  if (is_ll128) {
    if (load(bytes + line * LINE_BYTES + 120) != message + 1) return false;
    for (uint32_t i = 0; i < 15; i++)
      *is_right &= load(bytes + line * LINE_BYTES + i * 8) == word_of(message, line * 16 + i);
    return true;
  }
  uint64_t word = load(bytes + line * 8);
  if (word >> 32 != message + 1) return false;
  *is_right = word == word_of(message, line);
  return true;
}

static void scan(struct slot *s, uint32_t message) {
  uint32_t lines = message_bytes(message) / (is_ll128 ? LINE_BYTES : 8);
  bool is_right;
  if (s->seen_message != message + 1) {
    memset(s->seen, 0, sizeof s->seen);
    s->seen_message = message + 1;
  }
  for (uint32_t line = 0; line < lines; line++) {
    bool is_there = look(s->bytes, message, line, &is_right);
    if (is_there && !is_right) torn++;
    if (s->seen[line] && !(is_there && is_right)) undone++;
    if (is_there && !s->seen[line]) {
      s->seen[line] = 1;
      early++;
    }
  }
}

static void *gpu(void *arg) {
  (void)arg;
  while (!atomic_load(&gpu_stop)) {
    for (uint32_t i = 0; i < SLOTS; i++) {
      uint32_t open;
      if (!atomic_load_explicit(&slots[i].open, memory_order_relaxed)) continue;
      atomic_store(&gpu_at, i + 1);
      if ((open = atomic_load(&slots[i].open))) scan(&slots[i], open - 1);
      atomic_store(&gpu_at, 0);
    }
  }
  return NULL;
}

/* ---- the receiver ---- */

static uint64_t count_other(const uint8_t *bytes, size_t count, uint8_t value) {
  uint64_t n = 0;
  for (size_t i = 0; i < count; i++) n += bytes[i] != value;
  return n;
}

static void post(void *comm, struct slot *s, uint32_t message) {
  void *data = s->bytes, *mhandle = NULL;
  int size = (int)message_bytes(message) + SPARE_BYTES, tag = 0;
  late += count_other(s->bytes, SLOT_BYTES, REST_BYTE);
  s->message = message;
  s->request = NULL;
  atomic_store(&s->open, message + 1);
  if (net->irecv(comm, 1, &data, &size, &tag, &mhandle, &s->request) || !s->request) die("irecv failed");
}

/* The receive is done: nothing may change any more. */
static void finish(struct slot *s) {
  uint32_t bytes = message_bytes(s->message);
  atomic_store(&s->open, 0);
  while (atomic_load(&gpu_at) == (uint32_t)(s - slots) + 1) sched_yield();
  for (uint32_t i = 0; i < bytes / 8; i++)
    if (load(s->bytes + i * 8) != word_of(s->message, i)) undone++;
  beyond += count_other(s->bytes + bytes, SLOT_BYTES - bytes, REST_BYTE);
  memset(s->bytes, REST_BYTE, SLOT_BYTES);
}

static void receive_all(uint32_t messages) {
  uint8_t handle[HARP_NCCL_HANDLE_BYTES] = {0};
  void *listen_comm, *comm = NULL;
  pthread_t thread;
  if (net->listen(0, handle, &listen_comm)) die("listen failed");
  for (size_t i = 0; i < sizeof handle; i++) printf("%02x", handle[i]);
  putchar('\n');
  fflush(stdout);
  while (!comm)
    if (net->accept(listen_comm, &comm, NULL)) die("accept failed");
  memset(slots, REST_BYTE, sizeof *slots * SLOTS);
  for (uint32_t i = 0; i < SLOTS; i++) atomic_store(&slots[i].open, 0), slots[i].seen_message = 0;
  pthread_create(&thread, NULL, gpu, NULL);
  uint32_t posted = 0, done = 0;
  while (done < messages) {
    for (; posted < messages && posted - done < POSTED; posted++) post(comm, &slots[posted % SLOTS], posted);
    int is_done = 0, size = 0;
    if (net->test(slots[done % SLOTS].request, &is_done, &size)) die("test failed");
    if (!is_done) continue;
    if ((uint32_t)size != message_bytes(done)) die("wrong size");
    finish(&slots[done++ % SLOTS]);
  }
  for (uint32_t i = 0; i < SLOTS; i++) late += count_other(slots[i].bytes, SLOT_BYTES, REST_BYTE);
  atomic_store(&gpu_stop, true);
  pthread_join(thread, NULL);
  net->closeRecv(comm);
  net->closeListen(listen_comm);
  printf("{\"early\": %llu, \"torn\": %llu, \"undone\": %llu, \"beyond\": %llu, \"late\": %llu}\n",
         (unsigned long long)early, (unsigned long long)torn, (unsigned long long)undone,
         (unsigned long long)beyond, (unsigned long long)late);
}

/* ---- the sender ---- */

static void send_all(uint32_t messages, const char *hex) {
  uint8_t handle[HARP_NCCL_HANDLE_BYTES] = {0};
  void *comm = NULL;
  for (size_t i = 0; i < sizeof handle && sscanf(hex + i * 2, "%2hhx", &handle[i]) == 1; i++) {
  }
  while (!comm)
    if (net->connect(0, handle, &comm, NULL)) die("connect failed");
  uint32_t posted = 0, done = 0;
  while (done < messages) {
    for (; posted < messages && posted - done < POSTED; posted++) {
      struct slot *s = &slots[posted % SLOTS];
      uint64_t *words = (uint64_t *)(void *)s->bytes;
      for (uint32_t i = 0; i < message_bytes(posted) / 8; i++) words[i] = word_of(posted, i);
      s->request = NULL;
      if (net->isend(comm, s->bytes, (int)message_bytes(posted), 0, NULL, &s->request) || !s->request)
        die("isend failed");
    }
    int is_done = 0, size = 0;
    if (net->test(slots[done % SLOTS].request, &is_done, &size)) die("test failed");
    if (is_done) done++;
  }
  net->closeSend(comm);
}

int main(int argc, char **argv) {
  if (argc < 6) die("usage: ll_reader PLUGIN recv|send ll|ll128 MESSAGES SEED [HANDLE]");
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) die(dlerror());
  net = dlsym(library, "ncclNetPlugin_v8");
  if (!net || net->init(on_log)) die("init failed");
  is_ll128 = !strcmp(argv[3], "ll128");
  seed = strtoull(argv[5], NULL, 10) << 20;
  slots = aligned_alloc(4096, sizeof *slots * SLOTS);
  if (!slots) die("out of memory");
  if (!strcmp(argv[2], "recv"))
    receive_all((uint32_t)atoi(argv[4]));
  else if (argc == 7)
    send_all((uint32_t)atoi(argv[4]), argv[6]);
  return 0;
}
