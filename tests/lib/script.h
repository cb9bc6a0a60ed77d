/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts of one side of a connection: at a time inject this, expect that, in the manner of packetdrill.
 *
 * A script is a text file. `#` starts a comment. The first line names the side that is played and its
 * settings:
 *
 *   sender   [paths=1] [lines=8] [cc=target] [new] [ecn]
 *            lines: of the largest packet; new: paths are not up yet; ecn: packets are ECN-capable
 *   receiver [paths=1]
 *
 * Every other line begins with a time: `0us`, `1.5ms`, `2s` from the start, `+50us` from the line before.
 * Timers that fall due on the way run at their own time. Numbers of packets, messages and lines count from 0
 * in scripts. A line that is no `expect` fails when the side has sent something that no `expect` took.
 *
 * - `T post BYTES...`: messages to send (sender); `T copy BYTES...`: likewise, but nobody waits for them.
 * - `T ack path=P ranges=A-B,C-D delivered=L posted=M [delay=T] [ce=B] [drop=REASON]`: B and D are one above,
 *   the highest range is first.
 * - `T down path=P`, `T final delivered=L`.
 * - `T recv CAPACITY... [early=FROM+BYTES,...]`: receives to post (receiver).
 * - `T data path=P number=N message=M line=L offset=O length=B size=S [soon] [ce] [settled]
 *   [place=FROM+BYTES,...] [drop=REASON]`
 * - `T probe path=P number=N [soon] [ce] [settled]`
 * - `T expect data|probe|ack KEY=VALUE...`: the next thing sent, at T at the latest; checks what is named.
 * - `T nothing`: until T nothing more was sent.
 * - `T done COUNT`, `T received COUNT [bytes=B]`: messages completed so far; size of the last.
 * - `T path P KEY=VALUE...`: state of a sender's path: state= lines= inflight= pto=
 *   stalled= withheld= ce=. */
#ifndef HARP_TESTS_SCRIPT_H
#define HARP_TESTS_SCRIPT_H

#include "base/base.h"

/* Runs the script in a file. Returns false after a message to stderr that names file and line. */
bool script_run(const char *file);

#endif
