/* SPDX-License-Identifier: Apache-2.0 */
#include "fiber.h"

#include "log.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum {
  STACK_BYTES = 128 << 10,
  GUARD_BYTES = 4096,
  SAVED_WORDS = 6, /* rbp, rbx, r12 to r15 */
  PAUSES = 16,     /* rounds without progress before it yields the core: NCCL's proxy may share it */
  YIELDS = 2000    /* ... and before it sleeps */
};
#define NAP_NS 20000

struct box_fiber {
  struct box_fiber *next;
  void *stack_pointer;
  char *stack;
  void (*run)(void *word);
  void *word;
  struct box_wait wait;
  bool is_over;
};

/* Stacks of fibers that are over, for the next kernel of this thread. The first word leads to the next. */
static _Thread_local char *spare_stacks;
static _Thread_local struct box_fibers *running;

/* Saves what a callee has to preserve on the stack, writes the stack's pointer to *save, and resumes the
 * other stack where it stopped. */
void box_fiber_switch(void **save, void *to);
__asm__(".text\n"
        ".globl box_fiber_switch\n"
        ".hidden box_fiber_switch\n"
        ".type box_fiber_switch, @function\n"
        "box_fiber_switch:\n"
        "  push %rbx\n"
        "  push %rbp\n"
        "  push %r12\n"
        "  push %r13\n"
        "  push %r14\n"
        "  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n"
        "  pop %r14\n"
        "  pop %r13\n"
        "  pop %r12\n"
        "  pop %rbp\n"
        "  pop %rbx\n"
        "  ret\n"
        ".size box_fiber_switch, . - box_fiber_switch\n");

static char *take_stack(void) {
  char *stack = spare_stacks;
  if (stack) {
    spare_stacks = *(char **)(stack + GUARD_BYTES);
    return stack;
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE))
    box_die("no memory for a fiber's stack");
  return stack;
}

static void give_stack(char *stack) {
  *(char **)(stack + GUARD_BYTES) = spare_stacks;
  spare_stacks = stack;
}

static void fiber_main(void) {
  struct box_fibers *fibers = running;
  struct box_fiber *fiber = fibers->current;
  fiber->run(fiber->word);
  fiber->is_over = true;
  box_fiber_switch(&fiber->stack_pointer, fibers->scheduler_stack);
  __builtin_unreachable();
}

void box_fibers_init(struct box_fibers *fibers, const uint32_t *abort_flag) {
  *fibers = (struct box_fibers){.abort_flag = abort_flag};
}

void box_fibers_add(struct box_fibers *fibers, void (*run)(void *word), void *word) {
  struct box_fiber *fiber = box_new(sizeof *fiber);
  fiber->run = run;
  fiber->word = word;
  fiber->stack = take_stack();
  /* As if fiber_main had been called: its return address (none) keeps the ABI's alignment. */
  void **top = (void **)(fiber->stack + STACK_BYTES) - 1;
  *top = NULL;
  *--top = (void *)fiber_main;
  for (int i = 0; i < SAVED_WORDS; i++) *--top = NULL;
  fiber->stack_pointer = top;
  if (fibers->last)
    fibers->last->next = fiber;
  else
    fibers->first = fiber;
  fibers->last = fiber;
  fibers->alive++;
}

static void clear(struct box_fibers *fibers) {
  while (fibers->first) {
    struct box_fiber *fiber = fibers->first;
    fibers->first = fiber->next;
    if (fiber->stack) give_stack(fiber->stack);
    free(fiber);
  }
  fibers->last = NULL;
  fibers->alive = 0;
}

/* Resumes every fiber that can continue; returns false if none could. */
static bool take_turns(struct box_fibers *fibers) {
  bool progress = false;
  for (struct box_fiber *fiber = fibers->first; fiber; fiber = fiber->next) {
    if (fiber->is_over || (fiber->wait.is_over && !fiber->wait.is_over(&fiber->wait))) continue;
    fiber->wait.is_over = NULL;
    fibers->current = fiber;
    box_fiber_switch(&fibers->scheduler_stack, fiber->stack_pointer);
    progress = true;
    if (!fiber->is_over) continue;
    fibers->alive--;
    give_stack(fiber->stack);
    fiber->stack = NULL;
  }
  return progress;
}

bool box_fibers_run(struct box_fibers *fibers) {
  running = fibers;
  bool aborted = false;
  for (int idle = 0; fibers->alive && !aborted; idle++) {
    if (take_turns(fibers)) {
      idle = 0;
      continue;
    }
    aborted = fibers->abort_flag && __atomic_load_n(fibers->abort_flag, __ATOMIC_ACQUIRE);
    if (idle < PAUSES)
      __builtin_ia32_pause();
    else if (idle < YIELDS)
      sched_yield();
    else
      nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
  }
  clear(fibers);
  running = NULL;
  return !aborted;
}

void box_fibers_wait(struct box_fibers *fibers, const struct box_wait *wait) {
  if (wait->is_over(wait)) return;
  struct box_fiber *fiber = fibers->current;
  fiber->wait = *wait;
  box_fiber_switch(&fiber->stack_pointer, fibers->scheduler_stack);
}

static bool has_reached(const struct box_wait *wait) {
  uint64_t value = __atomic_load_n((const volatile uint64_t *)wait->at, __ATOMIC_ACQUIRE);
  return (int64_t)(value - wait->value) >= 0;
}

static bool is_zero(const struct box_wait *wait) {
  return !__atomic_load_n((const int *)wait->at, __ATOMIC_ACQUIRE);
}

void box_fibers_wait_at_least(struct box_fibers *fibers, const volatile uint64_t *at, uint64_t value) {
  box_fibers_wait(fibers, &(struct box_wait){has_reached, (const void *)at, value});
}

void box_fibers_wait_zero(struct box_fibers *fibers, const int *at) {
  box_fibers_wait(fibers, &(struct box_wait){is_zero, at, 0});
}
