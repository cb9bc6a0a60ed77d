/* SPDX-License-Identifier: Apache-2.0 */
#include "flow.h"

#include "clock.h"
#include "fail.h"
#include "pattern.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
  SLOT_ALIGN_BYTES = 64 * 1024, /* NCCL's smallest slot: that of LL */
  TAIL_SAMPLE = 13,             /* each so many messages, the slot's end behind the message is watched */
  TAIL_BYTES_MAX = 4096,        /* just behind the message, and as much at the slot's end */
  TAIL_BYTE = 0x5C,
  SPENT_BYTE = 0xC5,     /* in the buffer of a send that is done */
  CONNECT_PAUSE_MS = 20, /* the longest pause while connections are opened: that takes a dozen looks */
  HEALTH_STEPS = 512,    /* the steps of flows between two looks at the clock */
  HANDLE_GUARD_BYTE = 0x3C,
  WRONG_PRINTED_MAX = 8, /* wrong messages that are described */
  FILES_ELSE = 64,       /* open ones that are no connection's */
};
#define HEALTH_NS HARP_MS(20) /* between two looks at the other ranks */

/* What requests hold before a call: no plugin can return this address. */
static char stale_request;

static size_t slot_bytes_for(size_t bytes) {
  return harp_align_up(HARP_MAX(bytes, (size_t)1), SLOT_ALIGN_BYTES);
}

/* ---- who talks to whom ---- */

/* Returns whether `from` sends to `to`, from != to. */
static bool pair_sends(enum harp_mode mode, int nranks, int from, int to) {
  int half = nranks / 2;
  bool forward = from < half && to == from + half, backward = to < half && from == to + half;
  switch (mode) {
  case HARP_STREAM:
    return forward;
  case HARP_BIDIR:
  case HARP_PINGPONG:
    return forward || backward;
  case HARP_INCAST:
    return to == 0;
  case HARP_RING:
    return to == (from + 1) % nranks;
  default:
    return true;
  }
}

int harp_mesh_receivers(enum harp_mode mode, int nranks) {
  int receivers = 0;
  for (int to = 0; to < nranks; to++) {
    bool receives = false;
    for (int from = 0; from < nranks; from++) receives |= from != to && pair_sends(mode, nranks, from, to);
    receivers += receives;
  }
  return receivers;
}

/* Returns where the handle of this connection stands in the receiving rank's contribution to the exchange. */
static unsigned handle_slot(const struct harp_options *opt, int from, int to, unsigned index) {
  unsigned before = 0;
  for (int i = 0; i < from; i++) before += i != to && pair_sends(opt->mode, opt->nranks, i, to);
  return before * opt->connections + index;
}

static unsigned handle_slots_max(const struct harp_options *opt) {
  bool many = opt->mode == HARP_ALLTOALL || opt->mode == HARP_INCAST;
  unsigned peers = many ? (unsigned)opt->nranks - 1 : 1;
  return peers * opt->connections;
}

/* All ranks' handles go over the rendezvous in one exchange. */
static int check_handles(const struct harp_options *opt) {
  size_t bytes = (size_t)handle_slots_max(opt) * HARP_NCCL_HANDLE_BYTES * (size_t)opt->nranks;
  if (bytes <= HARP_RENDEZVOUS_BYTES_MAX) return 0;
  return harp_fail(HARP_EXIT_USAGE, "--mode %s with %d ranks takes at most %zu connections, not %u",
                   harp_mode_name(opt->mode), opt->nranks,
                   HARP_RENDEZVOUS_BYTES_MAX / (bytes / opt->connections), opt->connections);
}

static void add_flows(struct harp_mesh *mesh, int from, int to) {
  for (unsigned i = 0; i < mesh->opt->connections; i++)
    mesh->flows[mesh->flow_count++] =
        (struct harp_flow){.sends = from == mesh->opt->rank, .from = from, .to = to, .index = i};
}

static int plan(struct harp_mesh *mesh) {
  const struct harp_options *opt = mesh->opt;
  size_t bytes = (size_t)2 * (size_t)opt->nranks * opt->connections * sizeof *mesh->flows;
  mesh->flows = aligned_alloc(HARP_CACHE_LINE, bytes);
  if (!mesh->flows) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  for (int peer = 0; peer < opt->nranks; peer++) {
    if (peer == opt->rank) continue;
    if (pair_sends(opt->mode, opt->nranks, peer, opt->rank)) add_flows(mesh, peer, opt->rank);
    if (pair_sends(opt->mode, opt->nranks, opt->rank, peer)) add_flows(mesh, opt->rank, peer);
  }
  if (opt->mode != HARP_PINGPONG || !mesh->flow_count) return 0;
  for (unsigned i = 0; i < opt->connections;
       i++) { /* one peer: its receives were added first, then the sends */
    struct harp_flow *recv = &mesh->flows[i], *send = &mesh->flows[opt->connections + i];
    send->after = recv;
    send->lead = send->from < send->to;
    if (send->lead) recv->answers = send;
    if (!opt->wait_sent) continue;
    recv->after = send;
    recv->lead = !send->lead;
  }
  return 0;
}

/* ---- connections ---- */

/* Raises the limit of open files where the plugin needs more: a connection's end has a socket at least, and a
 * receiving one a listening socket until it is accepted. */
static int allow_files(const struct harp_mesh *mesh) {
  rlim_t files = FILES_ELSE;
  struct rlimit limit;
  for (unsigned i = 0; i < mesh->flow_count; i++) files += mesh->flows[i].sends ? 1 : 2;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= files) return 0;
  limit.rlim_cur = limit.rlim_max; /* as NCCL raises it */
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max >= files) return 0;
  return harp_fail(
      HARP_EXIT_SYSTEM,
      "%u connection ends need %llu open files, the limit is %llu: raise it with `ulimit -n %llu`",
      mesh->flow_count, (unsigned long long)files, (unsigned long long)limit.rlim_max,
      (unsigned long long)files);
}

static int listen_all(struct harp_mesh *mesh, char *mine) {
  const struct harp_options *opt = mesh->opt;
  for (unsigned i = 0; i < mesh->flow_count; i++) {
    struct harp_flow *flow = &mesh->flows[i];
    if (flow->sends) continue;
    char *handle = mine + handle_slot(opt, flow->from, flow->to, flow->index) * HARP_NCCL_HANDLE_BYTES;
    memset(handle, HANDLE_GUARD_BYTE, HARP_NCCL_HANDLE_BYTES);
    enum harp_nccl_result result = harp_plugin_listen(mesh->net, opt->dev, handle, &flow->listen_comm);
    if (result) return harp_plugin_fail(mesh->net, "listen", result);
    if (!flow->listen_comm)
      return harp_fail(HARP_EXIT_PLUGIN, "%s v%d: listen left *listenComm NULL", mesh->net->name,
                       mesh->net->abi);
    for (size_t b = mesh->net->handle_bytes; b < HARP_NCCL_HANDLE_BYTES; b++)
      if (handle[b] != HANDLE_GUARD_BYTE)
        return harp_fail(HARP_EXIT_PLUGIN, "%s v%d: listen wrote behind the %zu bytes of the handle",
                         mesh->net->name, mesh->net->abi, mesh->net->handle_bytes);
  }
  return 0;
}

static int exchange_handles(struct harp_mesh *mesh) {
  const struct harp_options *opt = mesh->opt;
  size_t bytes = (size_t)handle_slots_max(opt) * HARP_NCCL_HANDLE_BYTES;
  char *mine = calloc(1, bytes), *all = calloc((size_t)opt->nranks, bytes);
  int rc = -1;
  if (!mine || !all)
    rc = harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  else if (!listen_all(mesh, mine) && !harp_rendezvous_gather(mesh->rendezvous, mine, bytes, all))
    rc = 0;
  for (unsigned i = 0; !rc && i < mesh->flow_count; i++) {
    struct harp_flow *flow = &mesh->flows[i];
    if (!flow->sends) continue;
    size_t slot = handle_slot(opt, flow->from, flow->to, flow->index);
    memcpy(flow->handle, all + (size_t)flow->to * bytes + slot * HARP_NCCL_HANDLE_BYTES,
           HARP_NCCL_HANDLE_BYTES);
  }
  free(mine);
  free(all);
  return rc;
}

/* Polls one connect or accept once. Returns 1 when the comm is there, 0 when not yet, -1. */
static int connect_step(struct harp_mesh *mesh, struct harp_flow *flow) {
  enum harp_nccl_result result =
      flow->sends ? harp_plugin_connect(mesh->net, mesh->opt->dev, flow->handle, &flow->comm)
                  : harp_plugin_accept(mesh->net, flow->listen_comm, &flow->comm);
  if (result) return harp_plugin_fail(mesh->net, flow->sends ? "connect" : "accept", result);
  if (!flow->comm) return 0;
  if (flow->sends) return 1;
  void *listen_comm = flow->listen_comm;
  flow->listen_comm = NULL;
  result = harp_plugin_close_listen(mesh->net, listen_comm);
  return result ? harp_plugin_fail(mesh->net, "closeListen", result) : 1;
}

static int connect_all(struct harp_mesh *mesh) {
  harp_ns deadline = harp_clock_ns() + (harp_ns)(mesh->opt->timeout_s * 1e9), health_ns = 0;
  for (unsigned missing = mesh->flow_count; missing;) {
    bool moved = false;
    for (int sends = 1; sends >= 0;
         sends--) /* connects first: a v4 accept may block until somebody connected */
      for (unsigned i = 0; i < mesh->flow_count; i++) {
        struct harp_flow *flow = &mesh->flows[i];
        if (flow->sends != sends || flow->comm) continue;
        int rc = connect_step(mesh, flow);
        if (rc < 0) return -1;
        moved |= rc;
        missing -= (unsigned)rc;
      }
    harp_ns now = harp_clock_ns();
    if (now > health_ns + HEALTH_NS) {
      health_ns = now;
      if (harp_interrupt_check() || harp_rendezvous_check(mesh->rendezvous)) return -1;
      if (missing && now > deadline)
        return harp_fail(HARP_EXIT_PLUGIN, "%s v%d: %u of %u connections not there within %g s",
                         mesh->net->name, mesh->net->abi, missing, mesh->flow_count, mesh->opt->timeout_s);
    }
    harp_mesh_wait(mesh, CONNECT_PAUSE_MS, moved);
  }
  return 0;
}

/* ---- buffers ---- */

static int buffer_open(struct harp_mesh *mesh, struct harp_flow *flow, size_t bytes) {
  size_t guard_bytes = (size_t)sysconf(_SC_PAGESIZE);
  char *memory = mmap(NULL, bytes + guard_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return harp_fail(HARP_EXIT_SYSTEM, "cannot allocate a buffer of %zu bytes: %s", bytes, strerror(errno));
  flow->buffer = memory;
  flow->buffer_bytes = bytes;
  mprotect(memory + bytes, guard_bytes, PROT_NONE);
  memset(memory, 0, bytes); /* NCCL's are zeroed and pinned */
  enum harp_nccl_result result = harp_plugin_reg(mesh->net, flow->comm, memory, bytes, &flow->mhandle);
  if (result) return harp_plugin_fail(mesh->net, "regMr", result);
  flow->registered = true;
  return 0;
}

static int buffers_open(struct harp_mesh *mesh) {
  const struct harp_options *opt = mesh->opt;
  size_t slot_bytes = 0;
  for (unsigned i = 0; i < opt->size_count; i++)
    slot_bytes = HARP_MAX(slot_bytes, slot_bytes_for(opt->size_bytes[i]));
  size_t bytes = slot_bytes * opt->inflight;
  size_t memory_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  if (mesh->flow_count && bytes > memory_bytes / 2 / mesh->flow_count)
    return harp_fail(HARP_EXIT_USAGE,
                     "%u connection ends of %u slots of %zu bytes need more than half the memory",
                     mesh->flow_count, opt->inflight, slot_bytes);
  for (unsigned i = 0; i < mesh->flow_count; i++)
    if (buffer_open(mesh, &mesh->flows[i], bytes)) return -1;
  return 0;
}

int harp_mesh_open(struct harp_mesh *mesh, const struct harp_options *opt, struct harp_plugin *net,
                   struct harp_rendezvous *rendezvous) {
  *mesh = (struct harp_mesh){.opt = opt, .net = net, .rendezvous = rendezvous};
  mesh->latency = malloc(sizeof *mesh->latency);
  if (!mesh->latency) return harp_fail(HARP_EXIT_SYSTEM, "out of memory");
  harp_latency_init(mesh->latency);
  return check_handles(opt) || plan(mesh) || allow_files(mesh) || exchange_handles(mesh) ||
                 connect_all(mesh) || buffers_open(mesh)
             ? -1
             : 0;
}

/* ---- the proxy loop ---- */

static char *slot_of(const struct harp_mesh *mesh, const struct harp_flow *flow, uint64_t sequence) {
  return flow->buffer + sequence % mesh->opt->inflight * mesh->slot_bytes;
}

static uint64_t key_of(const struct harp_flow *flow, uint64_t sequence) {
  return harp_pattern_key(flow->from, flow->to, flow->index, sequence);
}

/* Marks, or verifies the marks in, the parts of a slot behind the message that are watched. */
static bool tail(const struct harp_mesh *mesh, char *slot, bool mark) {
  char *from = slot + mesh->message_bytes, *end = slot + mesh->slot_bytes;
  size_t bytes = HARP_MIN((size_t)(end - from), (size_t)TAIL_BYTES_MAX);
  char *parts[2] = {from, end - bytes};
  bool clean = true;
  for (int i = 0; i < 2; i++) {
    if (mark)
      memset(parts[i], TAIL_BYTE, bytes);
    else
      for (size_t b = 0; b < bytes; b++) clean &= parts[i][b] == TAIL_BYTE;
  }
  return clean;
}

/* The time in a message's first bytes stands where pattern stood; reading it puts the pattern back. */
static bool has_stamp(const struct harp_mesh *mesh) {
  return mesh->stamped && mesh->message_bytes >= sizeof(harp_ns);
}

static harp_ns take_stamp(char *slot, uint64_t key) {
  harp_ns stamp;
  memcpy(&stamp, slot, sizeof stamp);
  harp_pattern_fill(slot, sizeof stamp, key);
  return stamp;
}

static int broke_rule(const struct harp_mesh *mesh, const struct harp_flow *flow, const char *rule) {
  return harp_fail(HARP_EXIT_PLUGIN, "%s v%d: %s (connection %u from rank %d to %d, message %llu)",
                   mesh->net->name, mesh->net->abi, rule, flow->index, flow->from, flow->to,
                   (unsigned long long)flow->done);
}

/* Offers the next message or receive. Returns 1 when it was taken, 0 when not, -1. */
static int post(struct harp_mesh *mesh, struct harp_flow *flow) {
  struct harp_plugin *net = mesh->net;
  bool check = mesh->opt->check;
  unsigned slot_number = (unsigned)(flow->posted % mesh->opt->inflight);
  char *slot = slot_of(mesh, flow, flow->posted);
  void *request = &stale_request;
  enum harp_nccl_result result;
  if (flow->sends) {
    if (!flow->filled) {
      if (check) harp_pattern_fill(slot, mesh->message_bytes, key_of(flow, flow->posted));
      harp_ns now = has_stamp(mesh) ? harp_clock_ns() : 0;
      if (now) memcpy(slot, &now, sizeof now);
      if (flow->lead) flow->sent_ns = harp_clock_ns(); /* pingpong's */
      flow->filled = true;
    }
    result = net->send(net, flow->comm, slot, mesh->message_bytes, flow->from, flow->mhandle, &request);
  } else {
    flow->tail_marked[slot_number] = check && flow->posted % TAIL_SAMPLE == 0;
    if (flow->tail_marked[slot_number]) tail(mesh, slot, true);
    result = net->recv(net, flow->comm, slot, mesh->slot_bytes, flow->from, flow->mhandle, &request);
  }
  if (result) return harp_plugin_fail(net, flow->sends ? "isend" : "irecv", result);
  if (request == &stale_request)
    return broke_rule(mesh, flow,
                      flow->sends ? "isend left *request unwritten" : "irecv left *request unwritten");
  if (!request) return 0;
  flow->requests[slot_number] = request;
  flow->filled = false;
  flow->posted++;
  return 1;
}

/* Prints on standard error what is wrong with one of the first wrong messages. */
static void print_wrong(const struct harp_mesh *mesh, const struct harp_flow *flow, int received_bytes) {
  const char *slot = slot_of(mesh, flow, flow->done);
  uint64_t key = key_of(flow, flow->done);
  char what[128] = "bytes behind it were overwritten";
  size_t at =
      mesh->opt->check ? harp_pattern_find_wrong(slot, mesh->message_bytes, key) : mesh->message_bytes;
  if ((size_t)received_bytes != mesh->message_bytes)
    snprintf(what, sizeof what, "%d bytes were reported", received_bytes);
  else if (at < mesh->message_bytes)
    snprintf(what, sizeof what, "first wrong byte at offset %zu: %02x instead of %02x", at, (uint8_t)slot[at],
             harp_pattern_byte(at, key));
  fprintf(stderr, "harp-perf: wrong: message %llu of %zu bytes, connection %u from rank %d to %d: %s\n",
          (unsigned long long)flow->done, mesh->message_bytes, flow->index, flow->from, flow->to, what);
}

static void take_message(struct harp_mesh *mesh, struct harp_flow *flow, int received_bytes) {
  char *slot = slot_of(mesh, flow, flow->done);
  mesh->tally.messages++;
  mesh->tally.bytes += (uint64_t)HARP_MAX(received_bytes, 0);
  flow->timed_bytes += (uint64_t)HARP_MAX(received_bytes, 0);
  if (has_stamp(mesh)) {
    harp_ns now = harp_clock_ns(), sent_ns = take_stamp(slot, key_of(flow, flow->done));
    if (sent_ns <= now) harp_latency_add(mesh->latency, now - sent_ns);
  }
  bool right = (size_t)received_bytes == mesh->message_bytes;
  if (mesh->opt->check) {
    right = right && harp_pattern_check(slot, mesh->message_bytes, key_of(flow, flow->done));
    if (flow->tail_marked[flow->done % mesh->opt->inflight]) right &= tail(mesh, slot, false);
  }
  if (!right && mesh->wrong_printed < WRONG_PRINTED_MAX) {
    mesh->wrong_printed++;
    print_wrong(mesh, flow, received_bytes);
  }
  mesh->tally.wrong += !right;
}

/* Tests the oldest request. Returns 1 when it is done, 0 when not, -1. */
static int poll_oldest(struct harp_mesh *mesh, struct harp_flow *flow) {
  enum { STALE_DONE = -1, SIZES = 64 };
  int done = STALE_DONE, size_bytes[SIZES];
  size_bytes[0] = 0;
  enum harp_nccl_result result =
      mesh->net->poll(flow->requests[flow->done % mesh->opt->inflight], &done, size_bytes);
  if (result)
    return harp_plugin_fail(mesh->net, flow->sends ? "test of a send" : "test of a receive", result);
  if (done == STALE_DONE) return broke_rule(mesh, flow, "test left *done unwritten");
  if (!done) return 0;
  if (flow->answers) harp_latency_add(mesh->latency, (harp_clock_ns() - flow->answers->sent_ns) / 2);
  if (!flow->sends)
    take_message(mesh, flow, size_bytes[0]);
  else if (mesh->opt->check) /* a plugin must not read it any more */
    memset(slot_of(mesh, flow, flow->done), SPENT_BYTE, mesh->message_bytes);
  flow->done++;
  return 1;
}

/* Does at most one action for this flow. Returns 1 when something moved, 0 when not, -1. */
static int step(struct harp_mesh *mesh, struct harp_flow *flow) {
  uint64_t limit = HARP_MIN(flow->target, flow->done + mesh->opt->inflight);
  if (flow->after) limit = HARP_MIN(limit, flow->after->done + flow->lead);
  if (flow->posted < limit) {
    int rc = post(mesh, flow);
    if (rc) return rc;
  }
  return flow->done < flow->posted ? poll_oldest(mesh, flow) : 0;
}

int harp_mesh_pass(struct harp_mesh *mesh, unsigned *unfinished) {
  int moved = 0;
  *unfinished = 0;
  for (unsigned i = 0; i < mesh->flow_count; i++) {
    struct harp_flow *flow = &mesh->flows[i];
    if (flow->done == flow->target) continue;
    ++*unfinished;
    int rc = step(mesh, flow);
    if (rc < 0) return -1;
    moved |= rc;
  }
  return moved;
}

static int stalled(const struct harp_mesh *mesh) {
  const struct harp_flow *flow = mesh->flows;
  while (flow->done == flow->target) flow++;
  return harp_fail(
      HARP_EXIT_PLUGIN,
      "%s v%d: nothing moved for %g s (connection %u from rank %d to %d: %llu of %llu messages %s, "
      "%llu done)",
      mesh->net->name, mesh->net->abi, mesh->opt->timeout_s, flow->index, flow->from, flow->to,
      (unsigned long long)flow->posted, (unsigned long long)flow->target, flow->sends ? "offered" : "posted",
      (unsigned long long)flow->done);
}

void harp_mesh_begin(struct harp_mesh *mesh, size_t bytes, uint64_t count) {
  mesh->message_bytes = bytes;
  mesh->slot_bytes = slot_bytes_for(bytes);
  for (unsigned i = 0; i < mesh->flow_count; i++) mesh->flows[i].target += count;
}

void harp_mesh_wait(const struct harp_mesh *mesh, unsigned most_ms, bool moved) {
  if (mesh->opt->pause_ms)
    poll(NULL, 0, (int)HARP_MIN(mesh->opt->pause_ms, most_ms));
  else if (!moved)
    sched_yield();
}

int harp_mesh_run(struct harp_mesh *mesh, size_t bytes, uint64_t count) {
  harp_mesh_begin(mesh, bytes, count);
  harp_ns health_ns = harp_clock_ns(), moved_ns = health_ns;
  bool moved_lately = false;
  unsigned unfinished = 1;
  for (unsigned steps = 0; unfinished;) {
    int moved = harp_mesh_pass(mesh, &unfinished);
    if (moved < 0 || harp_interrupt_check()) return -1;
    if (unfinished) harp_mesh_wait(mesh, UINT_MAX, moved);
    moved_lately |= moved;
    steps += unfinished;
    if (steps < HEALTH_STEPS) continue;
    steps = 0;
    harp_ns now = harp_clock_ns();
    if (moved_lately) moved_ns = now;
    moved_lately = false;
    if (unfinished && now > moved_ns + (harp_ns)(mesh->opt->timeout_s * 1e9)) return stalled(mesh);
    if (now < health_ns + HEALTH_NS) continue;
    health_ns = now;
    if (harp_rendezvous_check(mesh->rendezvous)) return -1;
  }
  return 0;
}

/* ---- the end ---- */

void harp_mesh_close(struct harp_mesh *mesh) {
  struct harp_plugin *net = mesh->net;
  enum harp_nccl_result result;
  for (unsigned i = 0; i < mesh->flow_count; i++) {
    struct harp_flow *flow = &mesh->flows[i];
    if (flow->registered && (result = harp_plugin_dereg(net, flow->comm, flow->mhandle)))
      harp_plugin_fail(net, "deregMr", result);
    if (flow->buffer) munmap(flow->buffer, flow->buffer_bytes + (size_t)sysconf(_SC_PAGESIZE));
    if (flow->comm) {
      result =
          flow->sends ? harp_plugin_close_send(net, flow->comm) : harp_plugin_close_recv(net, flow->comm);
      if (result) harp_plugin_fail(net, flow->sends ? "closeSend" : "closeRecv", result);
    }
    /* A listenComm or connect that never completed is left to finalize, as NCCL leaves it. */
  }
  free(mesh->flows);
  free(mesh->latency);
  *mesh = (struct harp_mesh){0};
}
