/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank says when it dies of a signal: where each of its frames was, for a report. */
#ifndef HARP_BOX_CRASH_H
#define HARP_BOX_CRASH_H

/* Installs the handlers, for all threads of the process. */
void box_crash_init(void);

#endif
