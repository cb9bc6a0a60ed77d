/* A wire with faults: forwards Ethernet frames between two interfaces, and loses, doubles, reorders and
 * corrupts some.
 *
 *   wirebox SEED DROP DUP REORDER CORRUPT IF_A IF_B        rates in parts of 100,000
 *
 * Faults fall on IP packets that carry TCP or UDP; corruption on UDP only: one bit of the payload is turned
 * over and the checksum is made right again, as a switch with bad memory does. Both senders must compute
 * checksums themselves and send no superframes. Says "ready" when it forwards; on SIGTERM it prints what it
 * did, as JSON. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
  FRAME_MAX_BYTES = 16384,
  HELD_MAX = 8,
  RATE_UNIT = 100000,
  BUFFER_BYTES = 16 << 20,
  HOLD_MS = 1,
  BATCH = 64
};

struct held {
  unsigned bytes; /* 0: free */
  unsigned after; /* leaves when so many more have passed */
  uint8_t frame[FRAME_MAX_BYTES];
};

struct side {
  int fd;
  struct held held[HELD_MAX]; /* frames that came in here and have not left on the other side */
};

static struct side sides[2];
static uint64_t rng;
static unsigned drop_rate, dup_rate, reorder_rate, corrupt_rate;
static unsigned long forwarded, lost, doubled, reordered, corrupted, unsent;
static volatile sig_atomic_t stop;

static void on_signal(int number) {
  (void)number;
  stop = 1;
}

static uint32_t random_below(uint32_t n) {
  rng ^= rng << 13;
  rng ^= rng >> 7;
  rng ^= rng << 17;
  return (uint32_t)((rng >> 32) * n >> 32);
}

static bool happens(unsigned rate) {
  return random_below(RATE_UNIT) < rate;
}

/* Finds the transport header. Returns its protocol, or -1 where there is none. */
static int transport(const uint8_t *frame, unsigned bytes, unsigned *at) {
  unsigned type = (unsigned)frame[12] << 8 | frame[13];
  int protocol = -1;
  if (type == ETHERTYPE_IP && bytes >= ETH_HLEN + sizeof(struct iphdr)) {
    *at = ETH_HLEN + (frame[ETH_HLEN] & 15u) * 4;
    protocol = frame[ETH_HLEN + 9];
  } else if (type == ETHERTYPE_IPV6 && bytes >= ETH_HLEN + sizeof(struct ip6_hdr)) {
    *at = ETH_HLEN + sizeof(struct ip6_hdr);
    protocol = frame[ETH_HLEN + 6];
  }
  return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ? protocol : -1;
}

static uint32_t sum_words(const uint8_t *data, unsigned bytes, uint32_t sum) {
  for (unsigned i = 0; i + 1 < bytes; i += 2) sum += (uint32_t)data[i] << 8 | data[i + 1];
  if (bytes & 1) sum += (uint32_t)data[bytes - 1] << 8;
  return sum;
}

static void corrupt(uint8_t *frame, unsigned udp_at) {
  bool v6 = frame[12] == 0x86;
  uint8_t *udp = frame + udp_at;
  unsigned bytes = (unsigned)udp[4] << 8 | udp[5];
  if (bytes <= sizeof(struct udphdr)) return;
  unsigned bit = random_below((bytes - (unsigned)sizeof(struct udphdr)) * 8);
  udp[sizeof(struct udphdr) + bit / 8] ^= (uint8_t)(1u << bit % 8);
  udp[6] = udp[7] = 0;
  uint32_t sum = sum_words(frame + ETH_HLEN + (v6 ? 8 : 12), v6 ? 32 : 8, IPPROTO_UDP + bytes);
  sum = sum_words(udp, bytes, sum);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  uint16_t check = (uint16_t)~sum;
  if (!check) check = 0xffff;
  udp[6] = (uint8_t)(check >> 8);
  udp[7] = (uint8_t)check;
  corrupted++;
}

static void transmit(struct side *to, const uint8_t *frame, unsigned bytes) {
  if (send(to->fd, frame, bytes, MSG_DONTWAIT) < 0)
    unsent++;
  else
    forwarded++;
}

static void release(struct side *from, struct side *to, bool all) {
  for (unsigned i = 0; i < HELD_MAX; i++) {
    struct held *h = &from->held[i];
    if (!h->bytes || (!all && h->after--)) continue;
    transmit(to, h->frame, h->bytes);
    h->bytes = 0;
  }
}

static bool hold(struct side *from, const uint8_t *frame, unsigned bytes) {
  for (unsigned i = 0; i < HELD_MAX; i++) {
    struct held *h = &from->held[i];
    if (h->bytes) continue;
    memcpy(h->frame, frame, bytes);
    h->bytes = bytes;
    h->after = 1 + random_below(24);
    reordered++;
    return true;
  }
  return false;
}

static void forward(struct side *from, struct side *to, uint8_t *frame, unsigned bytes) {
  unsigned at = 0;
  int protocol = bytes >= ETH_HLEN ? transport(frame, bytes, &at) : -1;
  if (protocol < 0) {
    transmit(to, frame, bytes);
    return;
  }
  if (happens(drop_rate)) {
    lost++;
    return;
  }
  if (happens(dup_rate)) {
    transmit(to, frame, bytes);
    doubled++;
  }
  if (protocol == IPPROTO_UDP && happens(corrupt_rate)) corrupt(frame, at);
  if (!happens(reorder_rate) || !hold(from, frame, bytes)) transmit(to, frame, bytes);
  release(from, to, false);
}

static void take_all(struct side *from, struct side *to) {
  static uint8_t frame[FRAME_MAX_BYTES];
  for (unsigned i = 0; i < BATCH; i++) {
    ssize_t n = recv(from->fd, frame, sizeof frame, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0) return;
    if ((size_t)n > sizeof frame)
      unsent++;
    else
      forward(from, to, frame, (unsigned)n);
  }
}

static int open_side(const char *name) {
  int one = 1, buffer_bytes = BUFFER_BYTES;
  struct sockaddr_ll at = {
      .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
  struct packet_mreq all = {.mr_ifindex = at.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0 || !at.sll_ifindex || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
      setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) ||
      setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes) ||
      setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) ||
      bind(fd, (struct sockaddr *)&at, sizeof at)) {
    fprintf(stderr, "wirebox: %s: %s\n", name, strerror(errno));
    exit(1);
  }
  return fd;
}

int main(int argc, char **argv) {
  if (argc != 8) {
    fputs("usage: wirebox SEED DROP DUP REORDER CORRUPT IF_A IF_B\n", stderr);
    return 2;
  }
  rng = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
  drop_rate = (unsigned)atoi(argv[2]);
  dup_rate = (unsigned)atoi(argv[3]);
  reorder_rate = (unsigned)atoi(argv[4]);
  corrupt_rate = (unsigned)atoi(argv[5]);
  for (int i = 0; i < 2; i++) sides[i].fd = open_side(argv[6 + i]);
  struct sigaction sa = {.sa_handler = on_signal};
  sigaction(SIGTERM, &sa, NULL);
  puts("ready");
  fflush(stdout);
  while (!stop) {
    struct pollfd p[2] = {{.fd = sides[0].fd, .events = POLLIN}, {.fd = sides[1].fd, .events = POLLIN}};
    int n = poll(p, 2, HOLD_MS);
    for (int i = 0; i < 2; i++) {
      if (n > 0 && p[i].revents)
        take_all(&sides[i], &sides[1 - i]);
      else
        release(&sides[i], &sides[1 - i], true); /* a lull: nobody would push them out */
    }
  }
  printf("{\"forwarded\": %lu, \"lost\": %lu, \"doubled\": %lu, \"reordered\": %lu, \"corrupted\": %lu, "
         "\"unsent\": %lu}\n",
         forwarded, lost, doubled, reordered, corrupted, unsent);
  return 0;
}
