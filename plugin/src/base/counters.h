/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of one engine and the reasons for which packets are dropped, one list each. Counters never go
 * down. The holder of the engine's lock writes; any thread may read, since a torn statistic is harmless. */
#ifndef HARP_COUNTERS_H
#define HARP_COUNTERS_H

#include "base/base.h"

/* name, what it means */
#define HARP_DROPS(X)                                                                                        \
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
  X(FALSE_ACK, "acknowledges packet numbers that were skipped")                                              \
  X(DIRECTION, "data to a sender or acknowledgement to a receiver")                                          \
  X(CLOSED, "connection has failed or is closing")                                                           \
  X(REPLAY, "its number came before")                                                                        \
  X(MAC, "its MAC is wrong or missing")

enum harp_drop {
  HARP_DROP_NONE,
#define X(name, text) HARP_DROP_##name,
  HARP_DROPS(X)
#undef X
      HARP_DROP_COUNT
};

/* Returns the name of a reason, such as "SHORT"; "NONE" for HARP_DROP_NONE. */
const char *harp_drop_name(enum harp_drop drop);

/* name, unit, what it counts. All of one engine. */
#define HARP_COUNTERS(X)                                                                                     \
  X(rx_superframes, "superframes", "superframes that a driver has brought")                                  \
  X(rx_packets, "packets", "packets in them, dropped ones included")                                         \
  X(rx_bytes, "bytes", "UDP payload of those packets, and records")                                          \
  X(ce_packets, "packets", "of them data and probes that the network had marked as congested (ECN)")         \
  X(tx_superframes, "superframes", "superframes of data handed to a driver")                                 \
  X(tx_packets, "packets", "packets in them")                                                                \
  X(tx_bytes, "bytes", "UDP payload of those packets, and records")                                          \
  X(ce_reported_bytes, "bytes", "bytes sent that peers have reported as marked as congested (ECN)")          \
  X(tx_acks, "packets", "acknowledgements sent")                                                             \
  X(acks_riding, "packets", "of them those that travelled with data")                                        \
  X(rx_acks, "packets", "acknowledgements received and used")                                                \
  X(lost_packets, "packets", "packets of ours found lost")                                                   \
  X(spurious_losses, "packets", "of them those that had only been late")                                     \
  X(probe_timeouts, "timeouts", "probe timeouts: nothing was acknowledged in time")                          \
  X(probes, "packets", "probes sent without payload")                                                        \
  X(tail_duplicates, "packets", "packets sent once more on another path, because theirs fell silent")        \
  X(passes, "passes", "passes of the engine")                                                                \
  X(passes_watchdog, "passes", "of them those that the watchdog made")                                       \
  X(watchdog_wakeups, "wakeups", "times that the watchdog woke, up to its last pass")                        \
  X(tx_busy, "superframes", "superframes that the kernel refused, which counts as loss")                     \
  X(tx_deferred, "superframes", "superframes and records that waited for the kernel")                        \
  X(messages_sent, "messages", "messages that the peer has acknowledged whole")                              \
  X(messages_received, "messages", "messages received whole")                                                \
  X(early_messages, "messages", "of them those that came before their receive was posted")                   \
  X(absurd_windows, "packets", "acknowledgements with a window out of range")                                \
  X(absurd_marks, "packets", "acknowledgements with a sum of marked bytes that cannot be")                   \
  X(absurd_credits, "credits", "credits that no receiver can have given for a stream of ours")               \
  X(absurd_deliveries, "messages", "CLOSE messages with more delivered than was ever sent")                  \
  X(tx_records, "records", "records sent on TCP connections")                                                \
  X(rx_records, "records", "records received on TCP connections")                                            \
  X(tx_by_reference, "records", "records sent whose payload TCP took by reference, without a copy")          \
  X(reference_refusals, "times", "times that the kernel refused that: payload is copied from then on")       \
  X(tx_unchecked, "records", "records sent whose payload has no CRC")                                        \
  X(tcp_ends, "connections", "TCP connections of paths that ended or were given up")                         \
  X(tcp_troubles, "times", "times that the kernel of a TCP connection began to show loss or a queue")        \
  X(experiments, "experiments", "experiments that have ended: more flows or the other carrier")              \
  X(experiment_changes, "changes", "of them those that changed what a session does")                         \
  X(path_down, "changes", "paths that went down")                                                            \
  X(path_up, "changes", "paths that came up")                                                                \
  X(size_changes, "changes", "paths found to take no larger packets than a size, or larger ones again")      \
  X(driver_fallbacks, "times", "times that the xdp driver fell back to sockets")                             \
  X(handshake_refused, "handshakes", "handshakes and streams of peers that were refused")                    \
  X(log_left_out, "lines", "log lines about what others sent that were left out: too many")                  \
  X(connections, "connections", "NCCL connections opened")                                                   \
  X(peers, "peers", "peers connected")

struct harp_counters {
#define X(name, unit, text) uint64_t name;
  HARP_COUNTERS(X)
#undef X
  uint64_t drops[HARP_DROP_COUNT];
};

#endif
