/* A disk that can fail: loaded before the C library, it counts the calls that change a store's files, and
 * at the n-th ends the process, cuts the power or is full.
 *
 * A power cut takes what was not synced. So each change is remembered with what was there before until its
 * file (for names: its folder) is synced; the cut takes all of them back, and then does some of them again,
 * whole or half, as chance will have it: a disk writes in any order. Names come and go in their order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum mode { COUNT, BEFORE, HALF, LOSE_ALL, LOSE_SOME, FULL };
enum kind { WRITE, CUT, BORN, GONE };

struct change {
    enum kind kind;
    int file;               /* our own handle on it */
    dev_t device;
    ino_t inode;
    off_t at, size_before, size_after;
    size_t n_old, n_new;
    char *old_bytes, *new_bytes;
    char path[512], kept[600];
    struct change *before, *after;
};

static char prefix[512], folder[512];
static long target = -1, calls = 0;
static enum mode mode = COUNT;
static unsigned long chance = 1;
static struct change *first, *last;
static char kinds[1 << 16]; /* of the calls: write, truncate, sync, unlink */

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static unsigned long rolled(void) {
    chance = chance * 6364136223846793005UL + 1442695040888963407UL;
    return chance >> 33;
}

/* which files */

static int is_ours(const char *path) { return prefix[0] && strncmp(path, prefix, strlen(prefix)) == 0; }

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 511);
    if (n < 0) return 0;
    path[n] = 0;
    return 1;
}

static int ours(int fd) {
    char path[512];
    return prefix[0] && path_of(fd, path) && is_ours(path);
}

static int has_memory(int fd) { /* the index of the log is shared memory: no power cut concerns it */
    char path[512];
    size_t n = path_of(fd, path) ? strlen(path) : 0;
    return n > 4 && strcmp(path + n - 4, "-shm") == 0;
}

/* what was done since the last sync */

static struct change *noted(enum kind kind, int fd) {
    struct change *one = calloc(1, sizeof *one);
    struct stat now;
    one->kind = kind;
    if (fd >= 0) {
        char link[64];
        fstat(fd, &now);
        one->device = now.st_dev, one->inode = now.st_ino, one->size_before = now.st_size;
        one->file = -1;
        for (struct change *c = first; c; c = c->after)
            if (c->kind <= CUT && c->inode == one->inode && c->device == one->device) one->file = c->file;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (one->file < 0) one->file = REAL(open64)(link, O_RDWR);  /* never closed: that would end SQLite's locks */
    }
    one->before = last;
    if (last) last->after = one; else first = one;
    last = one;
    return one;
}

static void note_write(int fd, const void *bytes, size_t n, off_t at) {
    if (mode != LOSE_ALL && mode != LOSE_SOME) return;
    if (has_memory(fd)) return;
    struct change *one = noted(WRITE, fd);
    one->at = at, one->n_new = n, one->new_bytes = malloc(n);
    memcpy(one->new_bytes, bytes, n);
    one->old_bytes = malloc(n);
    ssize_t there = pread64(one->file, one->old_bytes, n, at);
    one->n_old = there < 0 ? 0 : (size_t)there;
}

static void note_cut(int fd, off_t size) {
    if (mode != LOSE_ALL && mode != LOSE_SOME) return;
    if (has_memory(fd)) return;
    struct change *one = noted(CUT, fd);
    one->size_after = size;
    if (one->size_before > size) {
        one->at = size, one->old_bytes = malloc((size_t)(one->size_before - size));
        ssize_t there = pread64(one->file, one->old_bytes, (size_t)(one->size_before - size), size);
        one->n_old = there < 0 ? 0 : (size_t)there;
    }
}

static void synced(int fd) {
    struct stat now;
    char path[512];
    fstat(fd, &now);
    int names = S_ISDIR(now.st_mode) && path_of(fd, path) && strcmp(path, folder) == 0;
    for (struct change *c = first, *next; c; c = next) {
        next = c->after;
        int done = c->kind >= BORN ? names : c->inode == now.st_ino && c->device == now.st_dev;
        if (!done) continue;
        if (c->before) c->before->after = c->after; else first = c->after;
        if (c->after) c->after->before = c->before; else last = c->before;
    }
}

static void cut_power(void) {
    for (struct change *c = last; c; c = c->before) {
        if (c->kind > CUT) continue;
        if (c->kind == CUT) (void)!REAL(ftruncate64)(c->file, c->size_before);
        if (c->n_old) (void)!REAL(pwrite64)(c->file, c->old_bytes, c->n_old, c->at);
        if (c->kind == WRITE) (void)!REAL(ftruncate64)(c->file, c->size_before);
    }
    long names = 0, kept = 0;
    for (struct change *c = first; c; c = c->after) names += c->kind >= BORN;
    if (mode == LOSE_SOME) kept = (long)(rolled() % (unsigned long)(names + 1));
    for (struct change *c = last; c; c = c->before) {
        if (c->kind < BORN || names-- <= kept) continue;
        if (c->kind == BORN) REAL(unlink)(c->path);
        else rename(c->kept, c->path);
    }
    if (mode == LOSE_ALL) return;
    for (struct change *c = first; c; c = c->after) {
        unsigned long fate = rolled() % 5;
        if (c->kind > CUT || fate < 2) continue;
        size_t n = fate == 2 ? c->n_new / 2 : c->n_new;
        if (c->kind == CUT) (void)!REAL(ftruncate64)(c->file, c->size_after);
        else (void)!REAL(pwrite64)(c->file, c->new_bytes, n, c->at);
    }
}

/* the moment */

static void end(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Count a call; 1 if it is the one to fail in the middle, -1 if it is to fail for want of space. */
static int counted(char kind) {
    int grows = kind == 'w';
    long mine = ++calls;
    if (mine < (long)sizeof kinds) kinds[mine - 1] = kind;
    if (mode == FULL) {
        if (target > 0 && mine >= target && grows) return errno = ENOSPC, -1;
        return 0;
    }
    if (mine != target || mode == COUNT) return 0;
    if (mode == HALF && grows) return 1;
    if (mode == BEFORE || mode == HALF) end();
    if (mode == LOSE_ALL) { cut_power(); end(); }
    return 1; /* LOSE_SOME: it is on its way */
}

void power_arm(const char *path, long n, int how, unsigned long seed) {
    snprintf(prefix, sizeof prefix, "%s", path);
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    target = n, mode = (enum mode)how, chance = seed * 2 + 1, calls = 0;
}

long power_calls(void) { return calls; }

const char *power_kinds(void) { return kinds; }

static ssize_t written(int fd, const void *bytes, size_t n, off_t at, int here) {
    int now = counted('w');
    if (now < 0) return -1;
    if (now && mode == HALF) {
        (void)!(here ? REAL(write)(fd, bytes, n / 2) : REAL(pwrite64)(fd, bytes, n / 2, at));
        end();
    }
    note_write(fd, bytes, n, at);
    if (now) { cut_power(); end(); }
    return here ? REAL(write)(fd, bytes, n) : REAL(pwrite64)(fd, bytes, n, at);
}

ssize_t write(int fd, const void *bytes, size_t n) {
    if (!ours(fd)) return REAL(write)(fd, bytes, n);
    return written(fd, bytes, n, lseek64(fd, 0, SEEK_CUR), 1);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    return ours(fd) ? written(fd, bytes, n, at, 0) : REAL(pwrite64)(fd, bytes, n, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }

int ftruncate64(int fd, off64_t size) {
    if (!ours(fd)) return REAL(ftruncate64)(fd, size);
    int now = counted('t');
    note_cut(fd, size);
    if (now) { cut_power(); end(); }
    return REAL(ftruncate64)(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int sync_of(int fd) {
    char path[512];
    if (!(ours(fd) || (prefix[0] && path_of(fd, path) && strcmp(path, folder) == 0))) return 2;
    if (counted('s')) { cut_power(); end(); }
    synced(fd);
    return 0; /* the process ends, not the machine: there is nothing to wait for */
}

int fsync(int fd) {
    int done = sync_of(fd);
    return done == 2 ? REAL(fsync)(fd) : done;
}

int fdatasync(int fd) {
    int done = sync_of(fd);
    return done == 2 ? REAL(fdatasync)(fd) : done;
}

int unlink(const char *path) {
    if (!is_ours(path)) return REAL(unlink)(path);
    int now = counted('u');
    if (mode == LOSE_ALL || mode == LOSE_SOME) {
        struct change *one = noted(GONE, -1);
        snprintf(one->path, sizeof one->path, "%s", path);
        snprintf(one->kept, sizeof one->kept, "%s/kept-%ld", folder, calls);
        (void)!link(path, one->kept);
    }
    if (now) { cut_power(); end(); }
    return REAL(unlink)(path);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t bits = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    int is_new = (flags & O_CREAT) && is_ours(path) && access(path, F_OK) != 0;
    int fd = REAL(open64)(path, flags, bits);
    if (fd >= 0 && is_new && (mode == LOSE_ALL || mode == LOSE_SOME)) {
        struct change *one = noted(BORN, -1);
        snprintf(one->path, sizeof one->path, "%s", path);
    }
    return fd;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t bits = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open64(path, flags, bits);
}
