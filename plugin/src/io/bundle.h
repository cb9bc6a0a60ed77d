/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that combines several: one member for each ENI of a striped device.
 *
 * A route belongs to the member that opened it, which sends for it; rx receives from the members in turn.
 * Owned by an engine and called by its thread, like every driver; owns its members, which `close` closes. */
#ifndef HARP_BUNDLE_H
#define HARP_BUNDLE_H

#include "io/io.h"

enum { HARP_BUNDLE_MAX = 8 };

/* Creates an empty bundle. NULL, with a sentence in `error`, without memory. */
struct harp_io *harp_io_bundle_make(struct harp_error *error);

/* Opens one more member with this driver and configuration, whose `is_one_of_many` is ignored. Blocks as the
 * driver's open does. Returns 0, or -errno with the driver's sentence. */
int harp_io_bundle_add(struct harp_io *io, const struct harp_io_ops *driver,
                       const struct harp_io_config *config, struct harp_error *error) HARP_MUST_CHECK;

/* Opens another driver in the place of member i, of which no route is open, and closes that one. Returns 0,
 * or -errno with the driver's sentence and nothing changed. */
int harp_io_bundle_replace(struct harp_io *io, unsigned i, const struct harp_io_ops *driver,
                           const struct harp_io_config *config, struct harp_error *error) HARP_MUST_CHECK;

/* Adds an open driver instance and takes ownership. For the simulator. */
void harp_io_bundle_take(struct harp_io *io, struct harp_io *member);

/* Returns member i, in the order in which they were added. */
struct harp_io *harp_io_bundle_member(struct harp_io *io, unsigned i);

/* Returns the `port` argument of route_open for a port of a member. */
static inline unsigned harp_io_bundle_port(unsigned member, unsigned port) {
  return member * HARP_IO_PORTS_MAX + port;
}

#endif
