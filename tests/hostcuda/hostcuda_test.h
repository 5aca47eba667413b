/* What the tests of the fakes share. */
#ifndef HOSTCUDA_TEST_H
#define HOSTCUDA_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hostcuda.h"

#define OK(call) assert_int_equal(call, 0)

static inline void *device_memory(size_t bytes) {
    void *p = NULL;
    OK(cudaMalloc(&p, bytes));
    return p;
}
static inline void *pinned_memory(size_t bytes) {
    void *p = NULL;
    OK(cudaHostAlloc(&p, bytes, 0));
    return p;
}
static inline void *to_device(const void *from, size_t bytes) {
    void *p = device_memory(bytes);
    OK(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice));
    return p;
}
static inline void to_host(void *to, const void *from, size_t bytes) {
    OK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}
/* Uniform in [-1, 1), the same at every run. */
static inline float draw(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

/* Runs `body` in a process of its own with NAME=VALUE set; returns what the body returns, or 128 + the signal. */
static inline int in_child(const char *name, const char *value, int (*body)(void)) {
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failed assertion ends the child */
        signal(SIGSEGV, SIG_DFL);
        if (name) setenv(name, value, 1);
        _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
/* The number of seeds 1..count with which `body` returns other than 0. */
static inline int found_by_seeds(int count, int (*body)(void)) {
    int found = 0;
    for (int seed = 1; seed <= count; seed++) {
        char text[16];
        snprintf(text, sizeof text, "%d", seed);
        found += in_child("HOSTCUDA_SEED", text, body) != 0;
    }
    return found;
}

#endif
