/* SPDX-License-Identifier: Apache-2.0 */
/* Logs at INFO when something ends: all that an engine counted, and the sessions that lost much. */
#ifndef HARP_SUMMARY_H
#define HARP_SUMMARY_H

struct harp_engine;
struct harp_peer;

/* From so many packets lost or repeated on, and one in so many of those sent, a session has lost much. */
enum { HARP_SUMMARY_MIN_PACKETS = 64, HARP_SUMMARY_PARTS = 1000 };

/* Logs the engine's counters, drops first, in as many lines as needed. */
void harp_summary_of_engine(const struct harp_engine *e);

/* Logs how much a session lost, if that was much, and on which interface most. */
void harp_summary_of_peer(const struct harp_peer *peer);

#endif
