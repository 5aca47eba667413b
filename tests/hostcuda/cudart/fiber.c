/* Threads of a block that wait for each other run as fibers: own stacks, switched by hand. */
#include "cudart_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_FIBERS  1024
#define STACK_BYTES ((size_t)128 << 10)

static char *stacks;

/* The stack of a fiber, its lowest page closed. */
static char *stack_of(int index) {
    static bool closed[MAX_FIBERS];
    if (!stacks) {
        stacks = mmap(NULL, MAX_FIBERS * STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) {
            perror("hostcuda: stacks of fibers");
            abort();
        }
    }
    char *stack = stacks + (size_t)index * STACK_BYTES;
    if (!closed[index]) mprotect(stack, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE);
    closed[index] = true;
    return stack;
}

#ifdef __x86_64__
/* Saves the registers that a call keeps on the old stack and takes them from the new one. */
__asm__(".text\n"
        ".globl hc_fiber_switch\n"
        ".hidden hc_fiber_switch\n"
        ".type hc_fiber_switch, @function\n"
        "hc_fiber_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size hc_fiber_switch, .-hc_fiber_switch\n");

fiber_stack_t hc_fiber_new(int index, void (*entry)(void)) {
    void **top = (void **)(stack_of(index) + STACK_BYTES);
    *--top = NULL; /* where entry would return to; it never does */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++) *--top = NULL;
    return top;
}
#else
#include <ucontext.h>
static ucontext_t contexts[MAX_FIBERS];

void hc_fiber_switch(fiber_stack_t *from, fiber_stack_t to) {
    ucontext_t here;
    *from = &here;
    swapcontext(&here, to);
}
fiber_stack_t hc_fiber_new(int index, void (*entry)(void)) {
    ucontext_t *context = &contexts[index];
    getcontext(context);
    context->uc_stack.ss_sp = stack_of(index);
    context->uc_stack.ss_size = STACK_BYTES;
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    return context;
}
#endif
