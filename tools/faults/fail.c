/*
 * libfail.so: makes the n-th call of a kind fail. For tests, by LD_PRELOAD.
 *
 *   FAIL_CALL=write,fsync   which calls count: open opendir read pread write fsync rename close
 *   mkdir rmdir unlink mmap ftruncate symlink readlink
 *                           stat flock alloc thread; all: all but the last two, which are the
 *                           malloc, calloc, realloc and pthread_create that
 *                           the program itself calls
 *   FAIL_ON=TEXT            only those whose path contains TEXT, which is looked for in the path
 *   from the root on
 *   FAIL_AT=N               the N-th of them, counted from 1 over all threads; 0: every one
 *   FAIL_HOW=EIO            an errno by name, or: short (half of the bytes), kill, stop (the
 *   signals), sleep:MS (goes on after it)
 *   FAIL_ALWAYS=1           all after the N-th, too
 *   FAIL_WHILE=FILE         only while this file is there
 *   FAIL_RANK=R             only in this rank
 *   FAIL_SLOW=TEXT:MS       besides, every write to a path that contains TEXT takes so much longer;
 *                           FAIL_WHILE holds for it, too
 *   FAIL_STEP=MS            besides, every step of training with a line in metrics.jsonl takes so much
 *                           longer in rank 0, for which the others wait; whatever FAIL_RANK says.
 *                           FAIL_WHILE holds for it, too
 *   FAIL_PACE=US            besides, every primitive of oneDNN and every launch of a CUDA graph takes so many
 *                           microseconds longer: the work of a step is slow; how many there are
 *                           depends on the processor
 *   FAIL_NODES=1            besides, MPI says that every rank is on a node of its own
 *   FAIL_SAY=FILE           gets a line "CALL N PATH" when the N-th came
 *
 * Acts only in programs whose name begins with FAIL_PROGRAM (default "trainer"): launchers are left
 * alone.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes), *__libc_calloc(size_t count, size_t bytes),
    *__libc_realloc(void *old, size_t bytes);

static const struct {
    const char *name;
    int value;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},   {"EACCES", EACCES},
              {"EAGAIN", EAGAIN}, {"EDQUOT", EDQUOT}, {"ENOMEM", ENOMEM}, {"EMFILE", EMFILE},
              {"ESTALE", ESTALE}, {"EROFS", EROFS},   {"EBUSY", EBUSY},   {"EPERM", EPERM},   {"ENOENT", ENOENT}};

static enum { OFF, ERROR, SHORT, KILL, STOP, SLEEP } how;
static const char *calls, *on, *say, *meanwhile;
static long at, milliseconds, slow_milliseconds, step_milliseconds, pace_microseconds;
static char slow_on[256];
static int error_value, always;
static _Atomic long count;
static uintptr_t text_begin, text_end; /* the program's own code */

/* -- settings ---------------------------------------------------------------------------------- */

static int find_text(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size, (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        text_begin = info->dlpi_addr + p->p_vaddr;
        text_end = text_begin + p->p_memsz;
    }
    return 1; /* the first object is the program */
}

static int is_my_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    const char *wanted = getenv("FAIL_RANK");
    if (!wanted) return 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return strcmp(getenv(names[i]), wanted) == 0;
    return strcmp(wanted, "0") == 0;
}

static void read_how(const char *text) {
    if (strcmp(text, "short") == 0) how = SHORT;
    if (strcmp(text, "kill") == 0) how = KILL;
    if (strcmp(text, "stop") == 0) how = STOP;
    if (sscanf(text, "sleep:%ld", &milliseconds) == 1) how = SLEEP;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(text, errors[i].name) == 0) {
            error_value = errors[i].value;
            how = ERROR;
        }
}

__attribute__((constructor)) static void read_settings(void) {
    const char *program = getenv("FAIL_PROGRAM"), *number = getenv("FAIL_AT");
    if (!program) program = "trainer";
    if (strncmp(program_invocation_short_name, program, strlen(program)) != 0) return;
    meanwhile = getenv("FAIL_WHILE");
    if (getenv("FAIL_STEP")) step_milliseconds = atol(getenv("FAIL_STEP"));
    if (!is_my_rank()) return;
    calls = getenv("FAIL_CALL");
    on = getenv("FAIL_ON");
    say = getenv("FAIL_SAY");
    at = number ? atol(number) : 0;
    always = getenv("FAIL_ALWAYS") != NULL;
    if (getenv("FAIL_SLOW"))
        (void)!sscanf(getenv("FAIL_SLOW"), "%255[^:]:%ld", slow_on, &slow_milliseconds);
    if (getenv("FAIL_PACE")) pace_microseconds = atol(getenv("FAIL_PACE"));
    dl_iterate_phdr(find_text, NULL);
    if (calls && getenv("FAIL_HOW")) read_how(getenv("FAIL_HOW"));
}

/* -- is it this one ---------------------------------------------------------------------------- */

static int counts(const char *call) {
    const size_t length = strlen(call);
    if (strcmp(calls, "all") == 0) return strcmp(call, "alloc") != 0 && strcmp(call, "thread") != 0;
    for (const char *c = strstr(calls, call); c; c = strstr(c + 1, call))
        if ((c == calls || c[-1] == ',') && (c[length] == ',' || c[length] == '\0')) return 1;
    return 0;
}

/* By system calls alone: this may be inside malloc. */
static void tell(const char *call, long number, const char *path) {
    char line[512];
    if (!say) return;
    const int length = snprintf(line, sizeof line, "%s %ld %s\n", call, number, path);
    const long fd =
        syscall(SYS_openat, AT_FDCWD, say, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    (void)!syscall(SYS_write, fd, line, length);
    syscall(SYS_close, fd);
}

static void delay(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static int is_meanwhile(void) {
    return !meanwhile || access(meanwhile, F_OK) == 0;
}

static int is_on(const char *path) {
    char whole[8192] = "";
    if (!on) return 1;
    if (path[0] == '/') return strstr(path, on) != NULL;
    if (!getcwd(whole, sizeof whole / 2)) return 0;
    strcat(whole, "/");
    strncat(whole, path, sizeof whole / 2 - 2);
    return strstr(whole, on) != NULL;
}

/* 1: the caller fails with errno set; 2: it does half; 0: it goes on. */
static int is_due(const char *call, const char *path) {
    if (how == OFF || !counts(call) || !is_on(path) || !is_meanwhile()) return 0;
    const long number = atomic_fetch_add(&count, 1) + 1;
    if (at > 0 && (always ? number < at : number != at)) return 0;
    if (number == at || at == 0) tell(call, number, path);
    if (how == KILL) kill(getpid(), SIGKILL);
    if (how == STOP) kill(getpid(), SIGSTOP);
    if (how == SLEEP) delay(milliseconds);
    if (how != ERROR) return how == SHORT ? 2 : 0;
    errno = error_value;
    return 1;
}

static void path_of(int fd, char path[4096]) {
    char name[64];
    const int kept = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const long length = syscall(SYS_readlinkat, AT_FDCWD, name, path, 4095);
    path[length > 0 ? length : 0] = '\0';
    errno = kept;
}

static int is_due_fd(const char *call, int fd) {
    char path[4096];
    if (how == OFF || !counts(call)) return 0;
    path_of(fd, path);
    return is_due(call, path);
}

static void slow_down(int fd) {
    char path[4096];
    if (slow_milliseconds == 0 || !is_meanwhile()) return;
    path_of(fd, path);
    if (strstr(path, slow_on)) delay(slow_milliseconds);
}

/* -- the calls --------------------------------------------------------------------------------- */

#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define HALF(bytes) ((bytes) > 1 ? (bytes) / 2 : (bytes))

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        NEXT(name);                                                                                \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;            \
        va_end(more);                                                                              \
        return is_due("open", path) == 1 ? -1 : next(path, flags, mode);                           \
    }
OPEN(open)
OPEN(open64)

ssize_t read(int fd, void *bytes, size_t n) {
    NEXT(read);
    const int due = is_due_fd("read", fd);
    return due == 1 ? -1 : next(fd, bytes, due ? HALF(n) : n);
}

#define PREAD(name, offset_type)                                                                   \
    ssize_t name(int fd, void *bytes, size_t n, offset_type offset) {                              \
        NEXT(name);                                                                                \
        const int due = is_due_fd("pread", fd);                                                    \
        return due == 1 ? -1 : next(fd, bytes, due ? HALF(n) : n, offset);                         \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define PWRITE(name, offset_type)                                                                  \
    ssize_t name(int fd, const void *bytes, size_t n, offset_type offset) {                        \
        NEXT(name);                                                                                \
        const int due = is_due_fd("write", fd);                                                    \
        return due == 1 ? -1 : next(fd, bytes, due ? HALF(n) : n, offset);                         \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *bytes, size_t n) {
    NEXT(write);
    slow_down(fd);
    const int due = is_due_fd("write", fd);
    return due == 1 ? -1 : next(fd, bytes, due ? HALF(n) : n);
}

int fsync(int fd) {
    NEXT(fsync);
    return is_due_fd("fsync", fd) == 1 ? -1 : next(fd);
}

/* As on Linux the descriptor is closed even so. */
int close(int fd) {
    NEXT(close);
    const int due = is_due_fd("close", fd), kept = errno, closed = next(fd);
    if (due == 1) errno = kept;
    return due == 1 ? -1 : closed;
}

int ftruncate(int fd, off_t length) {
    NEXT(ftruncate);
    return is_due_fd("ftruncate", fd) == 1 ? -1 : next(fd, length);
}

int rename(const char *from, const char *to) {
    NEXT(rename);
    return is_due("rename", to) == 1 ? -1 : next(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    NEXT(renameat2);
    return is_due("rename", to) == 1 ? -1 : next(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    return is_due("mkdir", path) == 1 ? -1 : next(path, mode);
}

int unlink(const char *path) {
    NEXT(unlink);
    return is_due("unlink", path) == 1 ? -1 : next(path);
}

int rmdir(const char *path) {
    NEXT(rmdir);
    return is_due("rmdir", path) == 1 ? -1 : next(path);
}

DIR *opendir(const char *path) {
    NEXT(opendir);
    return is_due("opendir", path) == 1 ? NULL : next(path);
}

ssize_t readlink(const char *path, char *target, size_t n) {
    NEXT(readlink);
    return is_due("readlink", path) == 1 ? -1 : next(path, target, n);
}

int stat(const char *path, struct stat *info) {
    NEXT(stat);
    return is_due("stat", path) == 1 ? -1 : next(path, info);
}

int fstat(int fd, struct stat *info) {
    NEXT(fstat);
    return is_due_fd("stat", fd) == 1 ? -1 : next(fd, info);
}

int flock(int fd, int operation) {
    NEXT(flock);
    return is_due_fd("flock", fd) == 1 ? -1 : next(fd, operation);
}

int symlink(const char *target, const char *path) {
    NEXT(symlink);
    return is_due("symlink", path) == 1 ? -1 : next(target, path);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    NEXT(mmap);
    return fd >= 0 && is_due_fd("mmap", fd) == 1
               ? MAP_FAILED
               : next(address, bytes, protection, flags, fd, offset);
}

#define FROM_PROGRAM ((uintptr_t)__builtin_return_address(0) - text_begin < text_end - text_begin)
#define IS_DUE_ALLOC (how != OFF && FROM_PROGRAM && is_due("alloc", on ? on : "") == 1)

void *malloc(size_t bytes) {
    return IS_DUE_ALLOC ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
    return IS_DUE_ALLOC ? NULL : __libc_calloc(n, bytes);
}
void *realloc(void *old, size_t bytes) {
    return IS_DUE_ALLOC ? NULL : __libc_realloc(old, bytes);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *settings, void *(*start)(void *),
                   void *arg) {
    NEXT(pthread_create);
    return how != OFF && FROM_PROGRAM && is_due("thread", on ? on : "") == 1
               ? error_value
               : next(thread, settings, start, arg);
}

/* -- nodes ------------------------------------------------------------------------------------- */

/* Instead of the ranks that share memory, this rank alone. */
int MPI_Comm_split_type(void *comm, int type, int key, void *info, void *out);
int MPI_Comm_split_type(void *comm, int type, int key, void *info, void *out) {
    const char *nodes = getenv("FAIL_NODES"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!nodes || !rank)
        return ((int (*)(void *, int, int, void *, void *))dlsym(RTLD_NEXT, "MPI_Comm_split_type"))(
            comm, type, key, info, out);
    return ((int (*)(void *, int, int, void *))dlsym(RTLD_NEXT, "MPI_Comm_split"))(comm, atoi(rank),
                                                                                   key, out);
}

/* -- slow steps -------------------------------------------------------------------------------- */

/* Each line of a step says its norm of the gradient. */
int json_object_set_new(void *object, const char *key, void *value);
int json_object_set_new(void *object, const char *key, void *value) {
    NEXT(json_object_set_new);
    if (step_milliseconds > 0 && strcmp(key, "grad_norm") == 0 && is_meanwhile())
        delay(step_milliseconds);
    return next(object, key, value);
}

/* In few long sleeps: on a busy machine each one ends late. */
static void pace(void) {
    enum { SLEEP_MICROSECONDS = 50000 };
    static _Atomic long owed;
    const long now = pace_microseconds > 0 ? atomic_fetch_add(&owed, pace_microseconds) : 0;
    if (now + pace_microseconds < SLEEP_MICROSECONDS) return;
    atomic_fetch_sub(&owed, now + pace_microseconds);
    delay((now + pace_microseconds) / 1000);
}

int dnnl_primitive_execute(const void *primitive, void *stream, int args, const void *arg);
int dnnl_primitive_execute(const void *primitive, void *stream, int args, const void *arg) {
    pace();
    return ((int (*)(const void *, void *, int, const void *))dlsym(
        RTLD_NEXT, "dnnl_primitive_execute"))(primitive, stream, args, arg);
}

int cudaGraphLaunch(void *graph, void *stream);
int cudaGraphLaunch(void *graph, void *stream) {
    void *library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) library = dlopen("libcudart.so.12", RTLD_LAZY | RTLD_NOLOAD);
    pace();
    return ((int (*)(void *, void *))dlsym(library, "cudaGraphLaunch"))(graph, stream);
}
