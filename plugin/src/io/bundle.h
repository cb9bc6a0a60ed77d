/* SPDX-License-Identifier: Apache-2.0 */
/* Several drivers as one: a driver instance for each ENI of a striped device, behind the driver interface.
 *
 * The engine's pass sees one driver. A route belongs to the member that opened it, so sending goes to that
 * member; receiving takes what the members have, in turn. Owned by the engine; owns its members. */
#ifndef HARP_BUNDLE_H
#define HARP_BUNDLE_H

#include "io/io.h"

enum { HARP_BUNDLE_MAX = 8 };

/* Makes an empty bundle; NULL, with a sentence in `error`, when there is no memory or no file is left. */
struct harp_io *harp_io_bundle_make(struct harp_error *error);

/* Opens one more member with this driver and configuration (whose `ready` and `is_one_of_many` are
 * the bundle's business). Returns
 * 0, or -errno with the driver's sentence. */
int harp_io_bundle_add(struct harp_io *io, const struct harp_io_ops *driver,
                       const struct harp_io_config *config, struct harp_error *error) HARP_MUST_CHECK;

/* Adds an open driver instance, for the simulator. Takes ownership. */
void harp_io_bundle_take(struct harp_io *io, struct harp_io *member);

/* Returns member i, in the order in which they came. */
struct harp_io *harp_io_bundle_member(struct harp_io *io, unsigned i);

/* What route_open takes as `port`: port `port` of member `member`. */
static inline unsigned harp_io_bundle_port(unsigned member, unsigned port) {
  return member * HARP_IO_PORTS_MAX + port;
}

#endif
