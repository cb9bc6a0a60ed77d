/* SPDX-License-Identifier: Apache-2.0 */
/* The lab's fault injector: forwards Ethernet frames between two interfaces and makes faults.
 *
 *   fault_injector SOCKET SEED INSIDE OUTSIDE
 *
 * Frames from OUTSIDE to INSIDE have the direction "in", the others "out". Each direction has its own faults,
 * set through the Unix stream socket SOCKET. A request is one line for each direction to set:
 *
 *   in|out CORRUPT DUPLICATE REORDER ENTER LEAVE REORDER_NS DELAY_NS MTU
 *
 * The first five are probabilities in units of 10^-9 per packet. ENTER begins a burst of losses, LEAVE ends
 * it (Gilbert-Elliott). Longer IP packets than MTU are dropped; 0: none are. The line "end" ends the program
 * once all held frames are sent. The answer, also to an empty request, is one line of JSON with the counts so
 * far: "missed" packets overran the receive buffer, "unsent" ones were dropped by a queue or firewall behind
 * the program.
 *
 * Faults concern IP packets with TCP or UDP, the delay all frames; a superframe counts as one packet.
 * Corruption concerns UDP only: it flips one bit of the payload and corrects the checksum, as a switch with
 * faulty memory does. Superframes and partial checksums pass unchanged (PACKET_VNET_HDR; for UDP superframes
 * from Linux 6.2 on). */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

#define NS_PER_S       1000000000ull
#define HELD_MAX_BYTES (256ull << 20) /* the bytes of all held frames; further ones are dropped */

enum {
  FRAME_MAX_BYTES = 72 * 1024, /* offload header and the longest superframe */
  HELD_MAX = 1 << 17,          /* the number of held frames; further ones are dropped */
  CHANCE_UNIT = 1000000000,    /* the chance 1 */
  BUFFER_BYTES = 16 << 20,     /* each buffer of a socket, so that a pause of the program loses no frames */
  BATCH = 64,                  /* the frames of one direction before the other one is served */
  REQUEST_MAX_BYTES = 1024,
  REQUEST_MS = 1000 /* the time that a client has to send its request */
};

struct held {
  uint64_t due_ns;
  uint64_t number; /* order of arrival, for equal times */
  unsigned bytes;
  int fd;
  uint8_t frame[];
};

struct direction {
  const char *name;
  int from, to; /* sockets */
  unsigned corrupt, duplicate, reorder, enter, leave;
  uint64_t reorder_ns, delay_ns;
  unsigned mtu_bytes;
  bool in_burst;
  unsigned long forwarded, lost, doubled, reordered, corrupted, too_long, unsent, missed;
};

static struct direction directions[2] = {{.name = "in"}, {.name = "out"}};
static struct held *heap[HELD_MAX]; /* binary heap, earliest first: the children of i are 2i + 1 and 2i + 2 */
static unsigned held_count;
static uint64_t held_bytes, arrivals, rng;
static bool is_over;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint32_t random_below(uint32_t n) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return (uint32_t)((rng >> 32) * n >> 32);
}

static bool happens(unsigned chance) {
  return chance && random_below(CHANCE_UNIT) < chance;
}

/* ---- held frames ---- */

static bool is_earlier(const struct held *a, const struct held *b) {
  return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->number < b->number;
}

static void swap(unsigned a, unsigned b) {
  struct held *h = heap[a];
  heap[a] = heap[b];
  heap[b] = h;
}

static bool hold_frame(int fd, const uint8_t *frame, unsigned bytes, uint64_t due_ns) {
  if (held_count == HELD_MAX || held_bytes + bytes > HELD_MAX_BYTES) return false;
  struct held *h = malloc(sizeof *h + bytes);
  if (!h) return false;
  h->due_ns = due_ns;
  h->number = arrivals++;
  h->bytes = bytes;
  h->fd = fd;
  memcpy(h->frame, frame, bytes);
  held_bytes += bytes;
  unsigned at = held_count++;
  heap[at] = h;
  for (; at && is_earlier(heap[at], heap[(at - 1) / 2]); at = (at - 1) / 2) swap(at, (at - 1) / 2);
  return true;
}

static struct held *take_first(void) {
  struct held *first = heap[0];
  heap[0] = heap[--held_count];
  held_bytes -= first->bytes;
  for (unsigned at = 0;;) {
    unsigned least = at;
    for (unsigned child = 2 * at + 1; child <= 2 * at + 2; child++)
      if (child < held_count && is_earlier(heap[child], heap[least])) least = child;
    if (least == at) return first;
    swap(at, least);
    at = least;
  }
}

/* ---- packets ---- */

/* Finds the TCP or UDP header of a frame. Returns the protocol, or -1 for other frames. */
static int transport(const uint8_t *frame, unsigned bytes, unsigned *at) {
  if (bytes < ETH_HLEN + sizeof(struct ip6_hdr)) return -1;
  unsigned type = (unsigned)frame[12] << 8 | frame[13];
  int protocol = -1;
  if (type == ETHERTYPE_IP) {
    *at = ETH_HLEN + (frame[ETH_HLEN] & 15u) * 4;
    protocol = frame[ETH_HLEN + 9];
  } else if (type == ETHERTYPE_IPV6) {
    *at = ETH_HLEN + sizeof(struct ip6_hdr);
    protocol = frame[ETH_HLEN + 6];
  }
  unsigned header = protocol == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr);
  return (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && *at + header <= bytes ? protocol : -1;
}

static uint32_t sum_words(const uint8_t *data, unsigned bytes, uint32_t sum) {
  for (unsigned i = 0; i + 1 < bytes; i += 2) sum += (uint32_t)data[i] << 8 | data[i + 1];
  if (bytes & 1) sum += (uint32_t)data[bytes - 1] << 8;
  return sum;
}

static void fix_checksum(const uint8_t *frame, uint8_t *udp, unsigned udp_bytes) {
  bool v6 = frame[12] == 0x86;
  udp[6] = udp[7] = 0;
  uint32_t sum = sum_words(frame + ETH_HLEN + (v6 ? 8 : 12), v6 ? 32 : 8, IPPROTO_UDP + udp_bytes);
  sum = sum_words(udp, udp_bytes, sum);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  uint16_t check = (uint16_t)~sum;
  if (!check) check = 0xffff;
  udp[6] = (uint8_t)(check >> 8);
  udp[7] = (uint8_t)check;
}

/* Flips a bit of the payload. A partial checksum (completed by the sender's NIC) needs no correction. */
static bool corrupt(uint8_t *frame, unsigned bytes, unsigned udp_at, bool has_partial_checksum) {
  uint8_t *udp = frame + udp_at;
  unsigned udp_bytes = (unsigned)udp[4] << 8 | udp[5];
  if (udp_bytes <= sizeof(struct udphdr) || udp_at + udp_bytes > bytes) return false;
  unsigned bit = random_below((udp_bytes - (unsigned)sizeof(struct udphdr)) * 8);
  udp[sizeof(struct udphdr) + bit / 8] ^= (uint8_t)(1u << bit % 8);
  if (!has_partial_checksum && (udp[6] || udp[7])) fix_checksum(frame, udp, udp_bytes);
  return true;
}

/* Returns the length of the IP packet; of a superframe, that of its longest packet. */
static unsigned packet_bytes(const struct virtio_net_hdr *vnet, const uint8_t *frame, unsigned bytes,
                             int protocol, unsigned at) {
  if (vnet->gso_type == VIRTIO_NET_HDR_GSO_NONE) return bytes - ETH_HLEN;
  unsigned header = protocol == IPPROTO_TCP ? (frame[at + 12] >> 4) * 4u : (unsigned)sizeof(struct udphdr);
  return at + header + vnet->gso_size - ETH_HLEN;
}

static void transmit(struct direction *direction, const uint8_t *frame, unsigned bytes, uint64_t wait_ns) {
  if (wait_ns ? hold_frame(direction->to, frame, bytes, now_ns() + wait_ns)
              : send(direction->to, frame, bytes, MSG_DONTWAIT) >= 0)
    direction->forwarded++;
  else
    direction->unsent++;
}

static bool is_lost(struct direction *direction) {
  if (!direction->in_burst)
    direction->in_burst = happens(direction->enter);
  else if (happens(direction->leave))
    direction->in_burst = false;
  return direction->in_burst;
}

/* Applies the faults to one frame, which follows its offload header at `frame`. */
static void process(struct direction *direction, uint8_t *frame, unsigned bytes) {
  struct virtio_net_hdr vnet;
  memcpy(&vnet, frame, sizeof vnet);
  uint8_t *ether = frame + sizeof vnet;
  unsigned ether_bytes = bytes - (unsigned)sizeof vnet, at = 0;
  int protocol = transport(ether, ether_bytes, &at);
  uint64_t wait_ns = direction->delay_ns;
  if (protocol < 0) {
    transmit(direction, frame, bytes, wait_ns);
    return;
  }
  if (is_lost(direction)) {
    direction->lost++;
    return;
  }
  if (direction->mtu_bytes && packet_bytes(&vnet, ether, ether_bytes, protocol, at) > direction->mtu_bytes) {
    direction->too_long++;
    return;
  }
  if (happens(direction->duplicate)) {
    transmit(direction, frame, bytes, wait_ns);
    direction->doubled++;
  }
  if (protocol == IPPROTO_UDP && happens(direction->corrupt))
    direction->corrupted += corrupt(ether, ether_bytes, at, vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM);
  if (happens(direction->reorder)) {
    wait_ns += direction->reorder_ns;
    direction->reordered++;
  }
  transmit(direction, frame, bytes, wait_ns);
}

static void receive_all(struct direction *direction) {
  static uint8_t frame[FRAME_MAX_BYTES];
  for (unsigned i = 0; i < BATCH; i++) {
    ssize_t n = recv(direction->from, frame, sizeof frame, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == ENETDOWN)) return;
    if (n < (ssize_t)(sizeof(struct virtio_net_hdr) + ETH_HLEN) || (size_t)n > sizeof frame)
      direction->unsent++;
    else
      process(direction, frame, (unsigned)n);
  }
}

static void send_held_until(uint64_t until_ns) {
  while (held_count && heap[0]->due_ns <= until_ns) {
    struct held *h = take_first();
    if (send(h->fd, h->frame, h->bytes, MSG_DONTWAIT) < 0) {
      struct direction *direction = &directions[h->fd == directions[1].to];
      direction->forwarded--;
      direction->unsent++;
    }
    free(h);
  }
}

/* ---- control ---- */

static void set_faults(const char *line) {
  char name[4];
  struct direction w;
  is_over = is_over || !strcmp(line, "end");
  if (sscanf(line, "%3s %u %u %u %u %u %lu %lu %u", name, &w.corrupt, &w.duplicate, &w.reorder, &w.enter,
             &w.leave, &w.reorder_ns, &w.delay_ns, &w.mtu_bytes) != 9)
    return;
  for (unsigned i = 0; i < 2; i++) {
    struct direction *direction = &directions[i];
    if (strcmp(name, direction->name)) continue;
    direction->corrupt = w.corrupt;
    direction->duplicate = w.duplicate;
    direction->reorder = w.reorder;
    direction->enter = w.enter;
    direction->leave = w.leave;
    direction->reorder_ns = w.reorder_ns;
    direction->delay_ns = w.delay_ns;
    direction->mtu_bytes = w.mtu_bytes;
    direction->in_burst = direction->in_burst && w.enter;
  }
}

static int print_counts(struct direction *direction, char *text, size_t bytes) {
  struct tpacket_stats seen;
  socklen_t seen_bytes = sizeof seen;
  if (!getsockopt(direction->from, SOL_PACKET, PACKET_STATISTICS, &seen, &seen_bytes))
    direction->missed += seen.tp_drops;
  return snprintf(text, bytes,
                  "\"%s\": {\"forwarded\": %lu, \"lost\": %lu, \"doubled\": %lu, \"reordered\": %lu, "
                  "\"corrupted\": %lu, \"too_long\": %lu, \"unsent\": %lu, \"missed\": %lu}",
                  direction->name, direction->forwarded, direction->lost, direction->doubled,
                  direction->reordered, direction->corrupted, direction->too_long, direction->unsent,
                  direction->missed);
}

/* Reads one request and answers it. A slow client stops the traffic for at most REQUEST_MS. */
static void serve(int listener) {
  int fd = accept(listener, NULL, NULL);
  if (fd < 0) return;
  struct timeval timeout = {.tv_usec = (REQUEST_MS - 1) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  char request[REQUEST_MAX_BYTES + 1], answer[REQUEST_MAX_BYTES], in[REQUEST_MAX_BYTES / 3],
      out[REQUEST_MAX_BYTES / 3];
  size_t have = 0;
  for (ssize_t n = 1; n > 0 && have<REQUEST_MAX_BYTES; have += n> 0 ? (size_t)n : 0)
    n = recv(fd, request + have, REQUEST_MAX_BYTES - have, 0);
  request[have] = 0;
  for (char *line = strtok(request, "\n"); line; line = strtok(NULL, "\n")) set_faults(line);
  print_counts(&directions[0], in, sizeof in);
  print_counts(&directions[1], out, sizeof out);
  int bytes = snprintf(answer, sizeof answer, "{%s, %s}\n", in, out);
  (void)!send(fd, answer, (size_t)bytes, MSG_NOSIGNAL);
  close(fd);
}

static void fail(const char *what) {
  fprintf(stderr, "fault_injector: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int open_control(const char *path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  errno = ENAMETOOLONG;
  if (strlen(path) >= sizeof at.sun_path) fail(path);
  memcpy(at.sun_path, path, strlen(path));
  if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 8)) fail(path);
  return fd;
}

static int open_side(const char *name) {
  int one = 1, buffer_bytes = BUFFER_BYTES;
  struct sockaddr_ll at = {
      .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
  struct packet_mreq all = {.mr_ifindex = at.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0 || !at.sll_ifindex || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
      setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) ||
      setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) ||
      setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes) ||
      setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) ||
      bind(fd, (struct sockaddr *)&at, sizeof at))
    fail(name);
  return fd;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fputs("usage: fault_injector SOCKET SEED INSIDE OUTSIDE\n", stderr);
    return 2;
  }
  rng = strtoull(argv[2], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
  int inside = open_side(argv[3]), outside = open_side(argv[4]);
  directions[0].from = directions[1].to = outside;
  directions[0].to = directions[1].from = inside;
  int control = open_control(argv[1]);
  setpriority(PRIO_PROCESS, 0, -20); /* the wire's timing must not depend on the hosts' load */
  while (!is_over) {
    struct pollfd p[3] = {{.fd = outside, .events = POLLIN},
                          {.fd = inside, .events = POLLIN},
                          {.fd = control, .events = POLLIN}};
    struct timespec wait = {0};
    if (held_count) {
      uint64_t now = now_ns(), ns = heap[0]->due_ns > now ? heap[0]->due_ns - now : 0;
      wait = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    }
    if (ppoll(p, 3, held_count ? &wait : NULL, NULL) < 0 && errno != EINTR) fail("poll");
    send_held_until(now_ns());
    for (unsigned i = 0; i < 2; i++)
      if (p[i].revents) receive_all(&directions[i]);
    if (p[2].revents) serve(control);
  }
  send_held_until(UINT64_MAX);
  return 0;
}
