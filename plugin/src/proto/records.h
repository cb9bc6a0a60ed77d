/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving end of a tcp path, sans-IO: splits the byte stream into records, checks each head before its
 * payload is read, and decides where the next bytes are to be read.
 *
 * Rules:
 *
 *   1. A record of up to HARP_RECORD_WHOLE_BYTES is read into a buffer, checked, and then placed by the
 *      caller as a packet is.
 *   2. A longer record for a watched buffer is read into the buffer, too, but placed here, line by line and
 *      each line once, where its lines belong by then: a GPU that polls the buffer must see nothing that is
 *      wrong, and the kernel's copy keeps no order within a line.
 *   3. The payload of any other record is read straight to its place in pieces. The place is looked up before
 *      each read, so that nothing is written to a message that is done or a stream that is closed; lines that
 *      have arrived by another path are read to scrap. Each read continues into the buffer, where the next
 *      head is.
 *   4. Lines of such a record count as arrived only when all of its payload has come, with the right CRC or
 *      MAC.
 *   5. Where two connections bring the same lines at once, the one whose head came last is placed and the
 *      rest of the other is read to scrap: its CRC would be known too late to undo what it wrote over right
 *      bytes.
 *
 * Owns and alone writes struct harp_records, and of the session the list of these that are being read in
 * place. Owned by a tcp path of the engine, which calls it in a loop: room, read, on_read, then next until
 * that returns HARP_RECORDS_MORE. */
#ifndef HARP_RECORDS_H
#define HARP_RECORDS_H

#include <sys/uio.h>

#include "proto/session.h"

enum {
  HARP_RECORDS_AHEAD_BYTES = 66 << 10, /* the most bytes that a read takes, unless a record is longer */
  /* The longest record and the next head. Only long records for watched buffers touch what is behind
   * HARP_RECORDS_AHEAD_BYTES. */
  HARP_RECORDS_BUFFER_BYTES = 2 * HARP_RECORD_HEAD_BYTES + HARP_RECORD_MAX_BYTES,
  /* Not less, or what of an early message is being read in place would stay in staging when its receive
   * comes. */
  HARP_RECORD_WHOLE_BYTES = HARP_EARLY_MAX_BYTES,
  HARP_RECORDS_PIECES_MAX = 16,
};

enum harp_records_event {
  HARP_RECORDS_MORE,   /* nothing is complete: read again */
  HARP_RECORDS_PACKET, /* a record that came whole; its payload is at record.packet.data.payload */
  HARP_RECORDS_PLACED, /* the payload of a record is in its place */
  HARP_RECORDS_SCRAP,  /* a record was read to scrap, since it was refused */
  HARP_RECORDS_BROKEN, /* no record of this session: the connection is to be ended */
};

struct harp_records {
  struct harp_session *session; /* the session of the records; borrowed */
  unsigned path;
  uint8_t *ahead; /* HARP_RECORDS_BUFFER_BYTES, borrowed; bytes [from, to) are read and not taken */
  uint32_t from, to;
  uint32_t need; /* the bytes from `from` on without which the next event is MORE */

  struct harp_record record; /* the last record, and its number */
  uint64_t number;
  uint32_t done, crc;        /* bytes of its payload that came so far, with their CRC-32C where it has one */
  struct harp_mac_state mac; /* in place of the CRC, of payload that has a MAC */

  /* while a payload is read in place */
  bool in_place, refused;
  struct harp_records *next_reading; /* the next in the session's list of these */
  unsigned piece_count;
  struct iovec pieces[HARP_RECORDS_PIECES_MAX]; /* the places of the payload of the read under way */

  enum harp_drop why; /* the reason of BROKEN or SCRAP */
};

void harp_records_init(struct harp_records *r, struct harp_session *session, unsigned path, uint8_t *ahead);

/* Ends with its connection: takes a payload that was being read off the session's list. May be called
 * again. */
void harp_records_end(struct harp_records *r);

/* Decides where to read next: fills up to HARP_RECORDS_PIECES_MAX + 1 pieces and returns how many. `scrap`
 * takes payload that is not wanted. Between this and on_read nothing else may be fed to the session. */
unsigned harp_records_room(struct harp_records *r, void *scrap, uint32_t scrap_bytes,
                           struct iovec room[HARP_RECORDS_PIECES_MAX + 1]);

/* Takes `bytes` bytes that were read into that room. */
void harp_records_on_read(struct harp_records *r, size_t bytes);

/* Returns the next event; HARP_RECORDS_MORE when nothing more is complete. */
enum harp_records_event harp_records_next(struct harp_records *r);

#endif
