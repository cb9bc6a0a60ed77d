/* SPDX-License-Identifier: Apache-2.0 */
/* See modes.h. */
#include "io/xdp/modes.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/shortage.h"
#include "io/nic.h"
#include "io/xdp/header.h"

enum {
  QUEUE_RX_FRAMES_MIN = 256,
  FRAMES_BYTES = 64 << 20,          /* the bytes of all queues, unless the conf sets another limit */
  FRAMES_BYTES_MIN = 16 << 20,      /* the bytes of a slow interface: enough for 16 queues */
  FRAMES_BYTES_SHARE_MIN = 4 << 20, /* the bytes of one of several engines that share the interface */
  MBPS_MS_BYTES = 125,              /* 1 Mbit/s for a millisecond */
  HEADROOM_BYTES_MAX = HARP_XDP_PACKET_HEADROOM + HARP_CACHE_LINE + 14, /* what precedes a packet */
  /* Initial fill target in copy mode: with few frames, the next one that the kernel writes is still
   * cached. */
  FILL_TARGET_COPY = 512,
  VERIFY_BYTES = 60,
  RELEASE_POLL_MS = 5,
};
#define VERIFY_NS HARP_MS(200)
/* Time limits for the kernel to release what was closed. It releases a queue from a work queue under the rtnl
 * lock, which a host that creates and deletes interfaces meanwhile may hold for seconds; locked memory took
 * up to 500 ms on a loaded host. */
#define RELEASE_QUEUE_NS  HARP_SEC(10)
#define RELEASE_MEMORY_NS HARP_SEC(2)

size_t harp_xdp_umem_bytes(const struct harp_io_xdp_config *config) {
  size_t sharers = HARP_MAX(config->sharer_count, 1u);
  size_t budget = config->memory_bytes ? config->memory_bytes / 4 * 3 : FRAMES_BYTES / sharers;
  size_t wanted = FRAMES_BYTES;
  if (config->speed_mbps > 0 && config->mtu > 0) {
    size_t packets = (size_t)config->speed_mbps * MBPS_MS_BYTES / (size_t)config->mtu;
    size_t packet_bytes = harp_align_up((size_t)config->mtu + HEADROOM_BYTES_MAX, HARP_XDP_FRAME_BYTES);
    wanted = HARP_MAX(2 * packets * packet_bytes, (size_t)FRAMES_BYTES_MIN);
  }
  wanted = HARP_MAX(wanted / sharers, (size_t)FRAMES_BYTES_SHARE_MIN);
  return HARP_MIN(wanted, budget) & ~(size_t)(HARP_XDP_FRAME_BYTES - 1);
}

uint32_t harp_xdp_share_runs(size_t umem_bytes, unsigned share) {
  return (uint32_t)(umem_bytes / share / harp_xdp_queue_umem_bytes(HARP_XDP_RUN_FRAMES, 1));
}

/* ---- the modes ---- */

struct mode {
  enum harp_io_xdp_mode choice; /* the setting that selects it */
  enum harp_xdp_mode attach;
  bool zero_copy;
  const char *name;
};

static const struct mode zero_copy = {HARP_IO_XDP_ZERO_COPY, HARP_XDP_NATIVE, true, "xdp zero-copy"};
static const struct mode native_copy = {HARP_IO_XDP_COPY, HARP_XDP_NATIVE, false, "xdp native copy"};
static const struct mode generic_copy = {HARP_IO_XDP_COPY, HARP_XDP_GENERIC, false, "xdp generic copy"};

/* Orders the modes for a NIC driver. veth has no zero-copy; in native mode its peer segments in software,
 * which is three times slower than generic mode. */
static void order_modes(const char *driver, const struct mode *modes[3]) {
  bool is_veth = !strcmp(driver, "veth");
  modes[0] = is_veth ? &generic_copy : &zero_copy;
  modes[1] = &native_copy;
  modes[2] = is_veth ? &zero_copy : &generic_copy;
}

static bool is_wanted(const struct mode *mode, enum harp_io_xdp_mode choice) {
  /* AUTO accepts zero-copy only: sockets with GSO are faster than the copy modes. */
  if (choice == HARP_IO_XDP_AUTO) return mode->zero_copy;
  return choice == HARP_IO_XDP_ANY || mode->choice == choice;
}

bool harp_io_xdp_has_zero_copy_driver(unsigned ifindex) {
  /* Drivers with zero-copy in Linux 6.18, and ENA's own release 2.13 and later. */
  static const char *const known[] = {"mlx5_core", "ice", "i40e", "ixgbe", "igc",        "igb",
                                      "idpf",      "gve", "ena",  "nfp",   "virtio_net", "stmmac"};
  char driver[HARP_NIC_DRIVER_BYTES];
  harp_nic_driver(ifindex, driver);
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(known); i++)
    if (!strcmp(driver, known[i])) return true;
  return false;
}

/* ---- open ---- */

static bool needs_sg(const struct harp_io_xdp_config *config) {
  uint32_t room = HARP_XDP_FRAME_BYTES - HARP_XDP_PACKET_HEADROOM - HARP_CACHE_LINE;
  return (uint32_t)config->mtu + 14 > room;
}

/* Returns the headroom that aligns the payload of a received data packet to a cache line. */
static uint32_t rx_headroom(int family) {
  uint32_t header = family == AF_INET6 ? HARP_XDP_HEADER_V6_BYTES : HARP_XDP_HEADER_V4_BYTES;
  uint32_t at = HARP_XDP_PACKET_HEADROOM + header + HARP_XDP_DATA_HEADER_BYTES;
  return (HARP_CACHE_LINE - at % HARP_CACHE_LINE) % HARP_CACHE_LINE;
}

static uint64_t open_queues(const struct harp_xdp_nic *nic) {
  uint64_t bits = 0;
  for (unsigned i = 0; i < nic->queue_count; i++) bits |= 1ull << nic->sockets[i].number;
  return bits;
}

static int add_ports(struct harp_xdp_nic *nic, struct harp_error *error) {
  for (unsigned i = 0; i < nic->port_count; i++) {
    int err = harp_xdp_filter_add_port(&nic->filter, &nic->local, nic->ports[i], open_queues(nic),
                                       nic->token_prefix);
    if (!err) continue;
    return harp_shortage_set(error, err, "adding a port to the XDP program's map");
  }
  return 0;
}

void harp_xdp_nic_close(struct harp_xdp_nic *nic) {
  for (unsigned i = 0; i < nic->port_count && nic->filter.ports_fd >= 0; i++)
    harp_xdp_filter_remove_port(&nic->filter, &nic->local, nic->ports[i]);
  for (unsigned i = 0; i < nic->queue_count; i++) harp_xdp_socket_close(&nic->sockets[i]);
  harp_xdp_filter_close(&nic->filter);
  nic->queue_count = 0;
}

/* Sends one frame that no host processes (to the NIC's own address, with an EtherType for experiments) and
 * waits for its completion, because some bound queues do not work. */
static int verify_queue(struct harp_xdp_nic *nic, struct harp_xdp_socket *s, struct harp_error *error) {
  uint32_t run, bytes = VERIFY_BYTES;
  harp_ns deadline = harp_clock_ns() + VERIFY_NS;
  if (!harp_xdp_queue_tx_take(&s->queue, &run)) return -EIO;
  uint8_t *frame = harp_xdp_queue_run_data(&s->queue, run);
  memset(frame, 0, VERIFY_BYTES);
  memcpy(frame, nic->mac, sizeof nic->mac);
  memcpy(frame + 6, nic->mac, sizeof nic->mac);
  frame[12] = 0x88, frame[13] = 0xb5;
  (void)harp_xdp_queue_tx_put(&s->queue, run, 1, HARP_XDP_FRAME_BYTES, 0, &bytes);
  for (bool late = false; !s->queue.tx_completed && !late;) {
    struct pollfd fd = {.fd = s->queue.fd, .events = POLLOUT};
    /* Read before the last attempt: the thread may be preempted at any time. */
    late = harp_clock_ns() >= deadline;
    (void)harp_xdp_queue_tx_flush(&s->queue);
    if (!harp_xdp_queue_reap(&s->queue)) (void)poll(&fd, 1, 1);
  }
  if (s->queue.tx_completed) return 0;
  return harp_error_set(error, -EIO, "queue %u completes no sends", s->number);
}

/* Opens a queue with its share of the UMEM, and makes its socket the receiver of the queue. */
static int open_queue(struct harp_xdp_nic *nic, const struct mode *mode,
                      const struct harp_io_xdp_config *config, uint32_t queue, unsigned share,
                      struct harp_error *error) {
  struct harp_xdp_socket *s = &nic->sockets[nic->queue_count];
  uint32_t runs = harp_xdp_share_runs(nic->umem_bytes, share), frames = runs * HARP_XDP_RUN_FRAMES;
  struct harp_xdp_socket_config socket = {
      .ifindex = nic->ifindex,
      .queue = queue,
      .zero_copy = mode->zero_copy,
      .sg = needs_sg(config),
      .headroom = rx_headroom(nic->local.ss_family),
      .umem = nic->umem + nic->queue_count * harp_xdp_queue_umem_bytes(frames, runs),
      .rx_frames = frames,
      .tx_runs = runs,
  };
  int err = harp_xdp_socket_open(s, &socket, error);
  if (err) return err;
  if (mode->zero_copy && !s->zero_copy) { /* bind should have failed, but NIC drivers differ */
    harp_error_set(error, -EOPNOTSUPP, "queue %u was bound in copy mode", queue);
    harp_xdp_socket_close(s);
    return -EOPNOTSUPP;
  }
  err = harp_xdp_filter_add_queue(&nic->filter, queue, s->queue.fd);
  if (err) {
    harp_shortage_set(error, err, "adding queue %u to the XDP program's map", queue);
    harp_xdp_socket_close(s);
    return err;
  }
  if (!s->zero_copy) s->queue.fill_target = HARP_MIN(s->queue.fill_target, (uint32_t)FILL_TARGET_COPY);
  nic->queue_count++;
  return verify_queue(nic, s, error);
}

/* Returns how many of `all` queues this process may open: as many as are configured, else its share. */
static unsigned queues_allowed(unsigned all, const struct harp_io_xdp_config *config) {
  unsigned processes = HARP_MAX(config->process_count, 1u);
  if (config->queues) return HARP_MIN(config->queues, all);
  return HARP_MAX(all / processes + (config->process < all % processes), 1u);
}

/* Returns how many queues to open: this engine's share of the process's queues, at most what the memory is
 * enough for. 0: other engines of this process have them all. */
static unsigned queues_wanted(const struct harp_xdp_nic *nic, const struct harp_io_xdp_config *config) {
  size_t least = (size_t)2 * QUEUE_RX_FRAMES_MIN * HARP_XDP_FRAME_BYTES;
  unsigned sharers = HARP_MAX(config->sharer_count, 1u);
  unsigned all = queues_allowed(nic->filter.queue_count, config),
           wanted = all / sharers + (config->sharer < all % sharers);
  if (!wanted) return 0;
  wanted = HARP_MIN(wanted, (unsigned)HARP_XDP_NIC_QUEUES_MAX);
  return HARP_MAX(HARP_MIN(wanted, (unsigned)(nic->umem_bytes / least)), 1u);
}

/* Opens free queues in ascending order until `wanted` are open. */
static int open_free_queues(struct harp_xdp_nic *nic, const struct mode *mode,
                            const struct harp_io_xdp_config *config, unsigned wanted,
                            struct harp_error *error) {
  for (uint32_t queue = 0; queue < nic->filter.queue_count && nic->queue_count < wanted; queue++) {
    if (open_queues(nic) >> queue & 1) continue;
    int err = open_queue(nic, mode, config, queue, wanted, error);
    if (err && err != -EBUSY) return err;
  }
  if (nic->queue_count == wanted) return 0;
  return harp_error_set(error, -EBUSY, "other processes have all %u queues", nic->filter.queue_count);
}

/* Returns whether there is a queue that neither this driver nor another HARP process has. */
static bool may_be_released(const struct harp_xdp_nic *nic) {
  unsigned all = nic->filter.queue_count;
  uint64_t taken = open_queues(nic) | harp_xdp_filter_used_queues(&nic->filter);
  return ~taken & (all < 64 ? (1ull << all) - 1 : UINT64_MAX);
}

/* Opens as many queues as are wanted, and retries while queues or locked memory may still be released: the
 * kernel releases those of a closed socket asynchronously, so a job that follows another may find them in
 * use. */
static int open_enough_queues(struct harp_xdp_nic *nic, const struct mode *mode,
                              const struct harp_io_xdp_config *config, struct harp_error *error) {
  unsigned wanted = queues_wanted(nic, config);
  if (!wanted)
    return harp_error_set(error, -EBUSY, "other engines of this process have all %u queues",
                          queues_allowed(nic->filter.queue_count, config));
  for (;;) {
    int err = open_free_queues(nic, mode, config, wanted, error);
    bool may_change = err == -ENOBUFS || (err == -EBUSY && may_be_released(nic));
    harp_ns limit_ns = err == -ENOBUFS ? RELEASE_MEMORY_NS : RELEASE_QUEUE_NS;
    if (!may_change || harp_clock_ns() >= nic->open_begun_ns + limit_ns)
      return err == -EBUSY && harp_xdp_nic_is_open(nic) ? 0 : err;
    (void)poll(NULL, 0, RELEASE_POLL_MS);
  }
}

static int open_mode(struct harp_xdp_nic *nic, const struct mode *mode,
                     const struct harp_io_xdp_config *config, struct harp_error *error) {
  int err = harp_xdp_filter_open(&nic->filter, nic->ifindex, mode->attach, needs_sg(config), error);
  if (err) return err;
  err = open_enough_queues(nic, mode, config, error);
  if (!err) err = add_ports(nic, error);
  if (err) {
    harp_xdp_nic_close(nic);
    return err;
  }
  for (unsigned i = 0; i < nic->queue_count; i++) harp_xdp_queue_refill(&nic->sockets[i].queue);
  return 0;
}

/* Writes the numbers of the open queues to info, as in "queues 0-3,6". */
static void name_queues(const struct harp_xdp_nic *nic, struct harp_io_info *info) {
  uint64_t bits = open_queues(nic);
  size_t used =
      (size_t)snprintf(info->queues, sizeof info->queues, nic->queue_count > 1 ? "queues" : "queue");
  for (unsigned from = 0, to; from < HARP_XDP_QUEUES_MAX && used < sizeof info->queues; from = to + 1) {
    to = from;
    if (!(bits >> from & 1)) continue;
    while (to + 1 < HARP_XDP_QUEUES_MAX && bits >> (to + 1) & 1) to++;
    bool is_first = !(bits & ((1ull << from) - 1));
    used += (size_t)snprintf(info->queues + used, sizeof info->queues - used, to > from ? "%c%u-%u" : "%c%u",
                             is_first ? ' ' : ',', from, to);
  }
}

/* Appends "mode: reason" to why_not. */
static void record_refusal(struct harp_io_info *info, const struct mode *mode, const char *reason) {
  size_t used = strlen(info->why_not);
  snprintf(info->why_not + used, sizeof info->why_not - used, "%s%s: %s", used ? "; " : "", mode->name,
           reason);
}

int harp_xdp_open_best(struct harp_xdp_nic *nic, const struct harp_io_xdp_config *config,
                       struct harp_io_info *info) {
  const struct mode *modes[3];
  char driver[HARP_NIC_DRIVER_BYTES];
  int err = -ENOTSUP;
  harp_nic_driver(nic->ifindex, driver);
  order_modes(driver, modes);
  nic->filter = (struct harp_xdp_filter){.link_fd = -1, .ports_fd = -1, .sockets_fd = -1};
  nic->open_begun_ns = harp_clock_ns();
  for (unsigned i = 0; i < HARP_ARRAY_COUNT(modes); i++) {
    struct harp_error reason = {0};
    if (!is_wanted(modes[i], config->mode)) continue;
    err = open_mode(nic, modes[i], config, &reason);
    if (!err) {
      info->mode = modes[i]->name;
      nic->is_behind_gro = modes[i] == &generic_copy && strcmp(driver, "veth") != 0;
      name_queues(nic, info);
      return 0;
    }
    record_refusal(info, modes[i], reason.text);
  }
  return err;
}
