/* The sending half of a connection, sans-IO: which packets go out when, and which messages have arrived.
 *
 * Owned by one engine, called by the thread that runs its pass. The caller posts messages (offsets into
 * NCCL's own buffers, nothing is copied), polls runs of packets to encode and hand to a driver, and feeds
 * acknowledgements and time. A message is done when the receiver's cumulative `delivered` passes its last
 * line.
 *
 * Numbering: every message takes the next lines of 128 bytes of the connection's line sequence (at least
 * one), so one 32-bit number says both how far the receiver got and how much window is left. */
#ifndef HARP_SEND_H
#define HARP_SEND_H

#include "base/counters.h"
#include "proto/loss.h"
#include "proto/stripe.h"

enum {
  HARP_PATHS_MAX = 64,     /* they fit a word of bits */
  HARP_MESSAGES_MAX = 64,  /* messages of a connection that are posted and not done; NCCL uses up to 32 */
  HARP_EARLY_MESSAGES = 8, /* that may travel before their receive is posted */
  HARP_EARLY_MAX_BYTES = 16 * 1024, /* and how large each of them may be */
  HARP_MESSAGE_MAX_BYTES = 1 << 30,
};

struct harp_sender_config {
  uint32_t first_line, first_message, first_number;
  unsigned path_count;
  struct harp_path_config paths[HARP_PATHS_MAX]; /* path_count of them */
  uint32_t window_max_bytes;                     /* per path: what the receiver's socket buffer holds */
  const struct harp_cc_ops *cc;
  bool share; /* paths between the same ENIs share what one alone would begin with, and keep */
};

struct harp_send_message {
  const uint8_t *data; /* borrowed from the poster until done */
  void *cookie;
  uint32_t bytes, line, lines;
};

/* Consecutive packets to encode: packet i has number + i, starts at line + i * lines_per_packet, and carries
 * lines_per_packet lines of data (the last one up to last_bytes). */
struct harp_tx_run {
  enum harp_packet_type type; /* DATA, or PROBE: one packet padded with last_bytes zeros */
  uint8_t path;
  bool ack_soon; /* to be flagged on the last packet */
  uint32_t count;
  uint64_t number;
  uint32_t message, line, lines_per_packet, last_bytes;
  uint32_t offset, size; /* bytes: of the first packet within the message; of the message */
  const uint8_t *data;   /* the first packet's payload */
};

struct harp_sender {
  struct harp_trace *trace;
  struct harp_counters *counters;

  /* messages: [done, oldest) delivered and not yet polled, [oldest, next) under way, [next, tail) not begun;
   * `next` may be partly sent up to sent_line */
  uint32_t done, oldest, next, tail;
  uint32_t delivered;      /* first line that the receiver lacks */
  uint32_t sent_line;      /* first line never sent */
  uint32_t tail_line;      /* first line of no message */
  uint32_t posted;         /* messages before this one have their receive posted */
  harp_ns credit_probe_ns; /* when to ask for credit again */
  uint32_t credit_probes;
  harp_ns cork_ns;          /* until then small messages wait for company; HARP_NEVER: none waits */
  harp_ns stalled_since_ns; /* first time that a path fell silent with none heard since; 0: not stalled */

  struct harp_send_message messages[HARP_MESSAGES_MAX];
  struct harp_resend resend;

  /* paths, a bit each, and their timers: life.c's */
  uint64_t eligible;   /* may carry data */
  uint64_t probes_due; /* those with probe_due */
  uint64_t sizing;     /* look for a larger packet size now and then */
  unsigned start;      /* where the search for the best path begins: differs from connection to connection */
  bool waits;          /* the last search left a path unused for a better one */
  uint32_t copy_line, copy_lines; /* to be sent once more, by the next poll: tail.c's */
  uint32_t copy_budget_bytes;
  unsigned ask_next; /* path to be asked next when another falls silent */
  harp_ns timers_ns; /* no timer of a path falls due before this */

  bool share; /* see the config */
  unsigned path_count;
  struct harp_path paths[]; /* path_count of them; behind them the records of their flights */
};

/* Returns the bytes that a sender with so many paths takes; the caller owns the memory. */
size_t harp_sender_bytes(unsigned path_count);

void harp_sender_init(struct harp_sender *s, const struct harp_sender_config *config,
                      struct harp_trace *trace, struct harp_counters *counters, harp_ns now);

/* Posts a message. The data is borrowed until poll_done gives back `cookie`. Returns -EAGAIN when
 * HARP_MESSAGES_MAX messages are under way. */
int harp_sender_post(struct harp_sender *s, const void *data, uint32_t bytes, void *cookie,
                     harp_ns now) HARP_MUST_CHECK;

/* Widens the number of an acknowledgement whose path is in range, for its CRC. */
uint64_t harp_sender_ack_number(const struct harp_sender *s, const struct harp_packet *p);

/* Feeds a decoded acknowledgement whose path is in range and whose CRC was good, with its widened number.
 * Returns why it is worthless, or HARP_DROP_NONE. */
enum harp_drop harp_sender_on_ack(struct harp_sender *s, const struct harp_packet *p, uint64_t number,
                                  harp_ns now);

/* Takes a final word about delivery that came over the control connection (the receiver is leaving). */
void harp_sender_on_final(struct harp_sender *s, uint32_t delivered, harp_ns now);

/* Runs every timer that is due. */
void harp_sender_on_timeout(struct harp_sender *s, harp_ns now);

/* Picks the path for the next superframe; NULL when there is nothing to send now. */
struct harp_path *harp_sender_pick(struct harp_sender *s, harp_ns now);

/* Returns the payload bytes of the largest packet in the run that harp_sender_poll would give for that path
 * next; -1 when it would give none. Lets the caller size a superframe's segments. */
int harp_sender_peek_bytes(const struct harp_sender *s, const struct harp_path *path, harp_ns now);

/* Takes the next run for that path, of at most max_packets packets; they count as sent. Returns false when
 * there is nothing (more) for this superframe. */
bool harp_sender_poll(struct harp_sender *s, struct harp_path *path, uint32_t max_packets,
                      struct harp_tx_run *run, harp_ns now);

/* Takes a delivered message, oldest first: returns true and its cookie. */
bool harp_sender_poll_done(struct harp_sender *s, void **cookie);

/* Returns when on_timeout or poll must be called next, HARP_NEVER if only input can bring work. */
harp_ns harp_sender_deadline_ns(const struct harp_sender *s, harp_ns now);

/* Probes a path of each of our ENIs over which nothing has come for so long: an idle one is then known to
 * work, and the receiver hears that we live. */
void harp_sender_keepalive(struct harp_sender *s, harp_ns quiet_ns, harp_ns now);

/* Takes a path down because the outside knows (link state): its flight moves to the others at once. */
void harp_sender_path_down(struct harp_sender *s, unsigned path, harp_ns now);

/* Asserts the invariants; for tests. */
void harp_sender_check(const struct harp_sender *s);

#endif
