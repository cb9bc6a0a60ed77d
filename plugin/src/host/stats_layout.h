/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of the statistics file. One file for each process, mapped, written while the process runs.
 *
 * A header, then five tables of entries of equal size. The header names the tables and holds a text that
 * describes their fields, so that a reader needs no other description (`harpctl stats --fields` shows it).
 * All numbers are in the machine's byte order; those of entries are signed 64-bit integers. Texts are
 * NUL-terminated.
 *
 * An entry begins with `sequence` (a seqlock): odd while the entry is written, and greater after each change.
 * Each entry has one writer. A copy is consistent if the reader found the same even sequence before and after
 * it. `id` is 0 in an unused entry; each use of an entry has its own, unique in the process.
 *
 * After the tables come the flight recorder's rings (base/trace.h), one for each entry of the engine table,
 * if there is memory for them. A dump is a file of the same format, with the entries and the ring of one
 * engine (docs/reference/trace.md). */
#ifndef HARP_STATS_LAYOUT_H
#define HARP_STATS_LAYOUT_H

#include <stdatomic.h>

#include "base/counters.h"
#include "base/trace.h"

#define HARP_STATS_MAGIC "HARPSTAT"
enum {
  HARP_STATS_FORMAT = 1, /* the format of header and entry heads; the schema describes the fields */
  HARP_STATS_HEADER_BYTES = 16384,
  HARP_STATS_SCHEMA_AT = 512,
  HARP_STATS_EVENTS_AT = 12288,
};

/* Lists of fields, for four macros:
 *   C(name, unit, text)   a counter: never decreases while the entry has the same id
 *   G(name, unit, text)   a gauge: a current value
 *   T(name, bytes, text)  a text */

/* clang-format off */
#define HARP_STATS_ENGINE(C, G, T) \
  T(name, 64, "interfaces of the engine") \
  T(mode, 16, "inline or thread") \
  G(number, "-", "which of its device's engines it is, from 0") \
  G(core, "-", "core that it is pinned to, -1: any") \
  G(thread, "-", "thread id of its runner, 0: none yet") \
  G(updated_ns, "nanoseconds", "when the entry was written, CLOCK_MONOTONIC") \
  G(eni_first, "-", "index of its first entry in the table eni") \
  G(eni_count, "-", "how many entries of that table are its interfaces") \
  G(session_count, "sessions", "sessions that it has, handshakes under way included") \
  G(stream_count, "streams", "NCCL connections that it has") \
  G(outstanding, "requests", "requests that NCCL waits for")
/* The entry has all of HARP_COUNTERS and HARP_DROPS, too, as counters; the latter as drop_NAME. */

#define HARP_STATS_ENI(C, G, T) \
  T(name, 16, "name of the interface") \
  T(address, 56, "its address") \
  T(driver, 32, "packet driver that it has got") \
  T(queues, 64, "NIC queues that the driver polls itself") \
  T(why_not, 128, "why there is no better driver") \
  G(engine, "-", "index of its engine's entry") \
  G(speed_mbps, "Mbit/s", "its speed as HARP knows it") \
  G(mtu, "bytes", "its MTU") \
  G(port, "-", "first UDP port") \
  G(port_count, "ports", "how many UDP ports it has") \
  C(tx_bytes, "bytes", "UDP payload or records of data sent by it") \
  C(tx_packets, "packets", "packets of data and probes sent by it") \
  C(rx_bytes, "bytes", "data received by it, with headers") \
  C(lost_packets, "packets", "packets sent by it and found lost") \
  C(resent_packets, "packets", "packets that repeat lost data, sent by it") \
  C(probe_timeouts, "timeouts", "probe timeouts of its paths")

#define HARP_STATS_SESSION(C, G, T) \
  T(host, 64, "host name of the peer") \
  T(address, 56, "address of the peer's control connection") \
  T(state, 16, "open, failed or closed") \
  T(stall, 24, "what keeps it waiting, empty: nothing") \
  T(stall_eni, 16, "interface that the stall is about, empty: none") \
  T(large, 16, "what large messages take now: tcp, datagrams, both or none") \
  T(large_why, 24, "why: no other carrier, no experiment yet, or experiments") \
  T(experiment, 16, "what is tried now: none, flows or carrier") \
  G(experiment_time, "percent", "time that a byte took on the other carrier in the last experiment, 0: there was none") \
  G(experiment_cpu, "percent", "CPU that the sender took for it") \
  G(stalled_ns, "nanoseconds", "for how long it has been waiting so") \
  G(engine, "-", "index of its engine's entry") \
  G(peer_pid, "-", "process id of the peer") \
  G(mark, "-", "number of its first packet, the same at both ends") \
  G(path_first, "-", "index of its first entry in the table path") \
  G(path_count, "paths", "how many entries of that table are its paths") \
  G(stream_count, "streams", "NCCL connections that it has") \
  G(outstanding, "requests", "requests that NCCL waits for") \
  G(last_received_ns, "nanoseconds", "when something of the peer came last, CLOCK_MONOTONIC") \
  G(rtt_ns, "nanoseconds", "smoothed RTT of its best path that is up, 0: not known") \
  G(rtt_min_ns, "nanoseconds", "lowest RTT of the last 10 to 20 seconds on any path, 0: not known") \
  G(window_bytes, "bytes", "what its paths may have in flight together") \
  G(inflight_bytes, "bytes", "sent, and neither acknowledged nor lost") \
  C(sent_bytes, "bytes", "payload of messages that the peer has acknowledged whole") \
  C(sent_messages, "messages", "messages that the peer has acknowledged whole") \
  C(received_bytes, "bytes", "payload of messages received whole") \
  C(received_messages, "messages", "messages received whole") \
  C(lost_packets, "packets", "packets found lost") \
  C(resent_packets, "packets", "packets that repeat lost data") \
  C(probe_timeouts, "timeouts", "probe timeouts") \
  C(stalls, "stalls", "times that it began to wait for the stall time (10 s) or longer")

#define HARP_STATS_PATH(C, G, T) \
  T(address, 56, "address of the peer's interface") \
  T(state, 16, "new, up, silent, down or dormant") \
  T(kind, 16, "udp, udp standby, tcp or tcp standby") \
  G(session, "-", "index of its session's entry") \
  G(eni, "-", "index of its own interface in the table eni") \
  G(peer_eni, "-", "which of the peer's interfaces it leads to, from 0") \
  G(packet_bytes, "bytes", "payload of a full packet now") \
  G(rtt_ns, "nanoseconds", "smoothed RTT, 0: not known") \
  G(rtt_min_ns, "nanoseconds", "lowest RTT of the last 10 to 20 seconds, 0: not known") \
  G(window_bytes, "bytes", "congestion window") \
  G(inflight_bytes, "bytes", "sent, and neither acknowledged nor lost") \
  C(tx_bytes, "bytes", "UDP payload or records of data and probes sent") \
  C(tx_packets, "packets", "packets or records of data and probes sent") \
  C(rx_bytes, "bytes", "data received and acknowledged, with headers") \
  C(lost_packets, "packets", "packets found lost") \
  C(resent_packets, "packets", "packets that repeat lost data of any path") \
  C(probe_timeouts, "timeouts", "probe timeouts") \
  C(ce_bytes, "bytes", "sent, and reported by the peer as marked as congested (ECN)")

#define HARP_STATS_STREAM(C, G, T) \
  T(direction, 8, "send or receive") \
  T(state, 16, "open, ended, closing or failed") \
  G(session, "-", "index of its session's entry, -1: that has none") \
  G(stream, "-", "its number in the session") \
  G(outstanding, "requests", "requests that NCCL waits for") \
  G(without_receive, "messages", "messages that wait for their receive to be posted at the peer") \
  C(bytes, "bytes", "payload of messages that are done") \
  C(messages, "messages", "messages that are done")

/* name in the schema, entries at most */
#define HARP_STATS_TABLES(X) \
  X(ENGINE, engine, 64) \
  X(ENI, eni, 512) \
  X(SESSION, session, 2048) \
  X(PATH, path, 65536) \
  X(STREAM, stream, 8192)
/* clang-format on */

enum harp_stats_table {
#define X(id, name, count) HARP_STATS_##id##S,
  HARP_STATS_TABLES(X)
#undef X
      HARP_STATS_TABLE_COUNT
};

struct harp_stats_head {
  _Atomic uint64_t sequence;
  int64_t id;
};

#define HARP_STATS_NUMBER(name, unit, text) int64_t name;
#define HARP_STATS_TEXT(name, bytes, text)  char name[bytes];
#define HARP_STATS_DROP_NUMBER(name, text)  int64_t drop_##name;
#define HARP_STATS_FIELDS(fields)                                                                            \
  struct harp_stats_head head;                                                                               \
  fields(HARP_STATS_NUMBER, HARP_STATS_NUMBER, HARP_STATS_TEXT)

struct harp_stats_engine {
  HARP_STATS_FIELDS(HARP_STATS_ENGINE)
  HARP_COUNTERS(HARP_STATS_NUMBER)
  HARP_DROPS(HARP_STATS_DROP_NUMBER)
};
struct harp_stats_eni {
  HARP_STATS_FIELDS(HARP_STATS_ENI)
};
struct harp_stats_session {
  HARP_STATS_FIELDS(HARP_STATS_SESSION)
};
struct harp_stats_path {
  HARP_STATS_FIELDS(HARP_STATS_PATH)
};
struct harp_stats_stream {
  HARP_STATS_FIELDS(HARP_STATS_STREAM)
};

/* The beginning of the file. Constant once the file has its name, but for the atomic fields. */
struct harp_stats_header {
  char magic[8];
  uint32_t format, header_bytes;
  int64_t pid;                /* as its own namespace numbers it */
  int64_t start_ticks;        /* the time when the process started: field 22 of /proc/PID/stat */
  int64_t pid_namespace;      /* inode of /proc/self/ns/pid */
  int64_t created_unix_ns;    /* CLOCK_REALTIME */
  int64_t created_ns;         /* CLOCK_MONOTONIC */
  _Atomic int64_t updated_ns; /* the time when an engine wrote its entries last, CLOCK_MONOTONIC */
  uint32_t schema_at, schema_bytes;
  char version[32], host[64];
  uint32_t table_count, reserved;
  struct harp_stats_table_header {
    uint64_t at;
    uint32_t entry_bytes, entry_max;
    _Atomic uint32_t used;    /* entries from here on were never in use */
    _Atomic uint32_t missing; /* entries that are requested now and did not fit */
  } tables[HARP_STATS_TABLE_COUNT];
  struct harp_stats_rings_header {
    uint64_t at;                     /* the place of ring 0 */
    uint32_t ring_bytes, ring_count; /* ring i is that of entry `first` + i of the table engine */
    uint32_t first;
    uint32_t head_bytes, entry_bytes;
    uint32_t events_at, events_bytes; /* a text: one line for each event, "NAME PART TEXT" */
    int32_t heads_at;                 /* the place of a ring's heads, from its beginning */
    int32_t fd;                       /* file of the process that the rings are in; -1: this one */
    uint32_t reserved;
    int64_t dumped_ns; /* the time when a dump was made, CLOCK_MONOTONIC; 0: this is no dump */
    int64_t dumped_unix_ns;
    char why[96];
  } rings;
};
_Static_assert(sizeof(struct harp_stats_header) <= HARP_STATS_SCHEMA_AT, "the schema stands behind it");

/* One line for each table, "table NAME"; below it one for each field, in order: "C NAME UNIT TEXT",
 * "G NAME UNIT TEXT" ("-": no unit) or "T NAME BYTES TEXT". */
extern const char harp_stats_schema[];
extern const uint32_t harp_stats_schema_bytes;

#endif
