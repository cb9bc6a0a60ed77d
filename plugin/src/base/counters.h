/* Free-running counters of one engine, and the reasons for which a packet is dropped. One list each; the
 * owner of the engine writes, anyone may read (a torn read of a statistic is harmless). */
#ifndef HARP_COUNTERS_H
#define HARP_COUNTERS_H

#include "base/base.h"

/* name, what it means */
#define HARP_DROPS(X)                                                                                        \
  X(NONE, "not dropped")                                                                                     \
  X(SHORT, "shorter than its header says")                                                                   \
  X(VERSION, "another wire version")                                                                         \
  X(TYPE, "unknown packet type")                                                                             \
  X(FIELD, "a field is out of range")                                                                        \
  X(TOKEN, "token of no connection")                                                                         \
  X(PATH, "path that the connection does not have")                                                          \
  X(STREAM, "stream that is not open")                                                                       \
  X(CRC, "checksum does not match")                                                                          \
  X(DUPLICATE, "all of its lines had arrived")                                                               \
  X(WINDOW, "lines or message outside the window")                                                           \
  X(CREDIT, "message without a posted receive or early slot")                                                \
  X(CONTRADICTION, "contradicts an earlier packet of the message")                                           \
  X(STALE_ACK, "acknowledges packets never sent")                                                            \
  X(DIRECTION, "data to a sender or acknowledgement to a receiver")                                          \
  X(CLOSED, "connection has failed or is closing")

enum harp_drop {
#define X(name, text) HARP_DROP_##name,
  HARP_DROPS(X)
#undef X
      HARP_DROP_COUNT
};

/* Returns the counter's name in lower case, as it appears in statistics. */
const char *harp_drop_name(enum harp_drop drop);

/* clang-format off */
#define HARP_COUNTERS(X) \
  X(rx_superframes) X(rx_packets) X(rx_bytes) X(tx_superframes) X(tx_packets) X(tx_bytes) \
  X(tx_acks) X(acks_riding) X(rx_acks) X(lost_packets) X(spurious_losses) X(probe_timeouts) X(probes) X(tail_duplicates) \
  X(passes) X(passes_watchdog) X(watchdog_wakeups) X(tx_busy) X(tx_deferred) X(messages_sent) \
  X(messages_received) X(early_messages) X(absurd_windows) X(tx_records) X(rx_records) X(tcp_ends) X(tcp_avoided) X(path_down) X(path_up) X(nic_rules) X(driver_falls) \
  X(handshake_refused) X(connections) X(peers)
/* clang-format on */

struct harp_counters {
#define X(name) uint64_t name;
  HARP_COUNTERS(X)
#undef X
  uint64_t drops[HARP_DROP_COUNT];
};

#endif
