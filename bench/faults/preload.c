/* Loaded into a service before libc: its system calls fail, and its wall clock is off, as a file says that others write.
   Built and steered by preload.py. Left out: files opened by libc itself, and calls that neither Python nor SQLite makes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct orders {
    int64_t clock_offset_s;
    int32_t error;      /* errno of every call on the folder; 0: none fails */
    int32_t writes_only;
    char folder[4080];  /* all below it, and it itself */
};
static volatile struct orders *orders;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTS_ORDERS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(struct orders), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) orders = mapped;
    close(fd);
}

static int below(const char *path) {
    const char *folder = (const char *)orders->folder;
    size_t length = strlen(folder);
    return length && strncmp(path, folder, length) == 0 && (path[length] == '/' || !path[length]);
}

static int path_fails(const char *path, int writes) {
    if (!orders || !orders->error || (orders->writes_only && !writes) || !below(path)) return 0;
    errno = orders->error;
    return 1;
}

static int file_fails(int fd, int writes) {
    char link[32 + 1], path[PATH_MAX];
    if (!orders || !orders->error || (orders->writes_only && !writes)) return 0;
    char *end = link + sizeof link - 1;
    *end = 0;
    do *--end = '0' + fd % 10; while (fd /= 10);
    end -= 14;
    memcpy(end, "/proc/self/fd/", 14);
    ssize_t length = readlink(end, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return path_fails(path, writes);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OF_FILE(type, name, writes, parameters, ...) \
    type name parameters { static __typeof__(&name) next; if (!next) next = NEXT(name); \
        return file_fails(fd, writes) ? -1 : next(__VA_ARGS__); }
#define OF_PATH(type, name, writes, parameters, ...) \
    type name parameters { static __typeof__(&name) next; if (!next) next = NEXT(name); \
        return path_fails(path, writes) ? -1 : next(__VA_ARGS__); }
#define OPENING (flags & (O_WRONLY | O_RDWR | O_CREAT))
#define WITH_MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); \
        mode = va_arg(rest, mode_t); va_end(rest); }
#define OPEN(name) \
    int name(const char *path, int flags, ...) { static __typeof__(&name) next; if (!next) next = NEXT(name); WITH_MODE \
        return path_fails(path, OPENING) ? -1 : next(path, flags, mode); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { static __typeof__(&name) next; if (!next) next = NEXT(name); \
        WITH_MODE return path_fails(path, OPENING) ? -1 : next(at, path, flags, mode); }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
OF_FILE(ssize_t, write, 1, (int fd, const void *data, size_t size), fd, data, size)
OF_FILE(ssize_t, pwrite, 1, (int fd, const void *data, size_t size, off_t offset), fd, data, size, offset)
OF_FILE(ssize_t, pwrite64, 1, (int fd, const void *data, size_t size, off64_t offset), fd, data, size, offset)
OF_FILE(ssize_t, read, 0, (int fd, void *data, size_t size), fd, data, size)
OF_FILE(ssize_t, pread, 0, (int fd, void *data, size_t size, off_t offset), fd, data, size, offset)
OF_FILE(ssize_t, pread64, 0, (int fd, void *data, size_t size, off64_t offset), fd, data, size, offset)
OF_FILE(int, fsync, 1, (int fd), fd)
OF_FILE(int, fdatasync, 1, (int fd), fd)
OF_FILE(int, ftruncate, 1, (int fd, off_t size), fd, size)
OF_FILE(int, ftruncate64, 1, (int fd, off64_t size), fd, size)
OF_PATH(int, unlink, 1, (const char *path), path)
OF_PATH(int, mkdir, 1, (const char *path, mode_t mode), path, mode)
OF_PATH(int, rename, 1, (const char *path, const char *to), path, to)
OF_PATH(int, stat, 0, (const char *path, struct stat *found), path, found)
OF_PATH(int, stat64, 0, (const char *path, struct stat64 *found), path, found)
OF_PATH(int, lstat, 0, (const char *path, struct stat *found), path, found)
OF_PATH(int, fstatat, 0, (int at, const char *path, struct stat *found, int flags), at, path, found, flags)

static time_t offset_s(void) { return orders ? (time_t)orders->clock_offset_s : 0; }

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = NEXT(clock_gettime);
    int result = next(clock, time);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += offset_s();
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    static int (*next)(struct timeval *, void *);
    if (!next) next = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int result = next(time, zone);
    if (!result && time) time->tv_sec += offset_s();
    return result;
}

time_t time(time_t *stored) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (stored) *stored = now.tv_sec;
    return now.tv_sec;
}
