/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving end of a tcp path, sans-IO: cuts what comes into records, judges each head before its payload
 * is read, and says where the next bytes belong.
 *
 * A record of up to HARP_RECORD_WHOLE_BYTES is read into a buffer, checked, and then placed by the caller as
 * a packet is. The payload of a longer one is read straight to its place, piece by piece: before each read it
 * is asked anew where the rest belongs, so that nothing is written to a message that is done or a stream that
 * is closed, and lines that have arrived by another path are read to scrap. Its lines count as arrived only
 * when all of it came and its CRC is right. One buffer is read ahead: behind a payload comes the next head.
 *
 * Where two connections bring the same lines at once, the one whose head came last has them: the other might
 * write wrong bytes over right ones, and be found out too late. What is left of it goes to scrap.
 *
 * A message whose buffer is watched gets its payload out of the buffer as well, line by line: the kernel's
 * own copy keeps no order within a line.
 *
 * The loop of the caller: room, read, on_read, then next until it returns HARP_RECORDS_MORE. */
#ifndef HARP_RECORDS_H
#define HARP_RECORDS_H

#include <sys/uio.h>

#include "proto/session.h"

enum {
  HARP_RECORDS_AHEAD_BYTES = 64 << 10,
  HARP_RECORD_WHOLE_BYTES = HARP_EARLY_MAX_BYTES,
  HARP_RECORDS_PIECES_MAX = 16,
};

enum harp_records_event {
  HARP_RECORDS_MORE,   /* nothing is complete: read again */
  HARP_RECORDS_PACKET, /* a record that came whole; its payload is at record.packet.data.payload */
  HARP_RECORDS_PLACED, /* the payload of a record is in its place */
  HARP_RECORDS_SCRAP,  /* a record was read to scrap, since it was refused */
  HARP_RECORDS_BROKEN, /* what came is no record of this session: the connection is worthless */
};

struct harp_records {
  struct harp_session *session; /* that they are fed to; borrowed */
  unsigned path;
  uint8_t *ahead; /* HARP_RECORDS_AHEAD_BYTES, borrowed; [from, to) is not used yet */
  uint32_t from, to;

  struct harp_record record; /* the last one, and its number */
  uint64_t number;

  /* while a payload is read in place */
  bool in_place, refused, is_watched;
  struct harp_records *next_reading; /* of the session's */
  uint32_t done, crc;                /* bytes of it so far, and their CRC-32C */
  unsigned piece_count;
  struct iovec pieces[HARP_RECORDS_PIECES_MAX]; /* of the read under way; of them the payload's */

  enum harp_drop why; /* BROKEN, SCRAP: why */
};

void harp_records_init(struct harp_records *r, struct harp_session *session, unsigned path, uint8_t *ahead);

/* The connection has ended: the session forgets what was being read. May be called again. */
void harp_records_end(struct harp_records *r);

/* Says where to read next: fills up to HARP_RECORDS_PIECES_MAX + 1 pieces and returns how many there are.
 * `scrap` takes what belongs nowhere. Between this and on_read nothing else may be fed to the session. */
unsigned harp_records_room(struct harp_records *r, void *scrap, uint32_t scrap_bytes,
                           struct iovec room[HARP_RECORDS_PIECES_MAX + 1]);

/* Takes what was read into that room. */
void harp_records_on_read(struct harp_records *r, size_t bytes);

/* Takes the next thing that is complete. */
enum harp_records_event harp_records_next(struct harp_records *r);

#endif
