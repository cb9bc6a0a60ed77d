/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the xdp driver to the udp driver that it opens beside its queues. */
#ifndef HARP_IO_UDP_H
#define HARP_IO_UDP_H

#include "io/io.h"

/* Disables GRO on the ports of a udp driver; only before the first rx. */
void harp_io_udp_stop_merging(struct harp_io *io);

#endif
