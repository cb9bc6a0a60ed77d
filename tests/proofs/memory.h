/* SPDX-License-Identifier: Apache-2.0 */
/* The C11 memory model under code that was compiled with -fsanitize=thread: every access of it comes here
 * instead of to ThreadSanitizer, and threads are switched at each atomic one, in every order.
 *
 * An atomic location has all values that were stored, in the order of the stores. Each thread, and each
 * release, knows how far it has seen each location; a load may return any value not older than that, an
 * acquire load learns what its release knew, a read-modify-write reads the newest value. A sequentially
 * consistent access of a location sees at least what such accesses of it before have seen or stored. A plain
 * access that does not happen before or after another thread's access of the same bytes, one of them a write,
 * is a data race, and fails the proof.
 *
 * Left out: stores that become visible in another order than that in which they were made (none of the code
 * under proof has two threads that store to one location, but by read-modify-writes or under a lock), values
 * out of thin air, and fences. Where two orders differ only in steps that do not touch the same location,
 * one of them is run (sleep sets). */
#ifndef HARP_PROVE_MEMORY_H
#define HARP_PROVE_MEMORY_H

#include "proofs/prove.h"

enum { MEMORY_THREADS_MAX = 4 };

/* Runs the threads, in an order that is chosen, until all have ended (true) or those that are left wait for
 * each other (false). Atomic locations keep their last values. */
bool memory_run(void (*const threads[])(void), unsigned count);

/* In a thread: makes `count` available; takes all that is, and waits while there is none. Both synchronize as
 * system calls on an eventfd do. */
void memory_post(uint64_t *count);
void memory_wait(uint64_t *count);

/* In a thread: waits until somebody stores to an atomic location that it has accessed: in place of a loop
 * that tries again. */
void memory_await_store(const volatile void *at);

#endif
