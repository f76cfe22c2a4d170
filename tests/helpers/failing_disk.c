/* A disk that fails on request, for tests: preloaded into a real process.

Watches the files below one directory, but for SQLite's shared memory. The nth write or sync of them
can be made to fail, once or from then on. Beside the files themselves, which are what the page cache
has, it keeps an image of each of what a disk would have: a page gets there when it was written and
then synced. As on Linux, a sync that failed makes pages clean all the same: a later one that
succeeds does not write them. Writes of copies that are being made are not counted. What was dirty when a process died is never written either, which is
the worst that can happen to it. Images are named by inode; names themselves are always durable. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <pthread.h>

#define PAGE 4096
#define FILES 32
#define PAGES 2048 /* of a file: 8 MiB */

enum { NONE, SYNC, WRITE };

struct file { ino_t inode; int used; unsigned char dirty[PAGES]; };

static struct file files[FILES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char watched[4096], images[4096];
static int fail_kind, fail_at, fail_on, fail_errno, counted[3], armed;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_ftruncate)(int, off_t);

__attribute__((constructor)) static void begin(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    const char *where = getenv("FAILING_DISK"), *plan = getenv("FAILING_DISK_PLAN");
    extern void failing_disk_watch(const char *, const char *);
    extern void failing_disk_arm(int, int, int, int);
    if (where) {
        char image[4200];
        snprintf(image, sizeof image, "%s.images", where);
        failing_disk_watch(where, image);
    }
    int kind, at, on, error;
    if (plan && sscanf(plan, "%d:%d:%d:%d", &kind, &at, &on, &error) == 4)
        failing_disk_arm(kind, at, on, error);
}

void failing_disk_watch(const char *directory, const char *image) {
    snprintf(watched, sizeof watched, "%s/", directory);
    snprintf(images, sizeof images, "%s", image);
    memset(files, 0, sizeof files);
}

/* The at-th call of this kind from now on fails; all after it too, if on. 0 counts and fails none. */
void failing_disk_arm(int kind, int at, int on, int error) {
    fail_kind = kind, fail_at = at, fail_on = on, fail_errno = error;
    memset(counted, 0, sizeof counted);
    armed = 1;
}

int failing_disk_counted(int kind) { return counted[kind]; }

enum { ELSEWHERE, A_FILE, A_DIRECTORY, A_COPY };

static int is_watched(int fd, struct stat *found) {
    char link[64], path[4096];
    if (!*watched) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (strncmp(path, watched, strlen(watched) - 1)) return 0;
    if (length > 4 && !strcmp(path + length - 4, "-shm")) return 0;
    if (strstr(path, ".lock")) return 0;
    if (fstat(fd, found)) return 0;
    if (S_ISDIR(found->st_mode)) return A_DIRECTORY;
    if (path[strlen(watched) - 1] != '/') return ELSEWHERE;
    return strstr(path, ".unfinished-") ? A_COPY : A_FILE;
}

static int fails(int kind) {
    if (!armed) return 0;
    int n = ++counted[kind];
    if (fail_at < 0) { /* while there is a file of the directory's name and .fail */
        char trigger[4200];
        snprintf(trigger, sizeof trigger, "%.*s.fail", (int)strlen(watched) - 1, watched);
        return kind == fail_kind && !access(trigger, F_OK);
    }
    return kind == fail_kind && fail_at && (n == fail_at || (fail_on && n > fail_at));
}

static struct file *of(const struct stat *found) {
    ino_t inode = found->st_ino;
    for (int i = 0; i < FILES; i++)
        if (files[i].used && files[i].inode == inode) return &files[i];
    for (int i = 0; i < FILES; i++)
        if (!files[i].used) {
            memset(&files[i], 0, sizeof files[i]);
            files[i].used = 1, files[i].inode = inode;
            if (!found->st_size) { /* an image may be of a file that had this inode before */
                char path[4200];
                snprintf(path, sizeof path, "%s/%lu", images, (unsigned long)inode);
                unlink(path);
            }
            return &files[i];
        }
    abort();
}

static void written(const struct stat *found, off_t at, ssize_t length) {
    struct file *file = of(found);
    for (off_t page = at / PAGE; length > 0 && page <= (at + length - 1) / PAGE; page++)
        if (page < PAGES) file->dirty[page] = 1;
}

static void synced(int fd, const struct stat *found, int failed) {
    struct file *file = of(found);
    char path[4200], buffer[PAGE], name[64];
    snprintf(path, sizeof path, "%s/%lu", images, (unsigned long)found->st_ino);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int image = failed ? -1 : open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    for (off_t page = 0; page < PAGES; page++) {
        if (!file->dirty[page]) continue;
        file->dirty[page] = 0;
        if (failed) continue;
        ssize_t got = pread(fd, buffer, PAGE, page * PAGE);
        if (got < 0) { /* it is only for writing, so it is not SQLite's */
            int source = open(name, O_RDONLY | O_CLOEXEC);
            got = pread(source, buffer, PAGE, page * PAGE);
            close(source);
        }
        if (got > 0 && real_pwrite(image, buffer, got, page * PAGE) != got) abort();
    }
    if (failed) return;
    if (real_ftruncate(image, found->st_size)) abort();
    close(image);
}

static int sync_of(int fd) {
    struct stat found;
    int what = is_watched(fd, &found);
    if (what == ELSEWHERE) return 0;
    pthread_mutex_lock(&mutex);
    int failed = fails(SYNC);
    if (what != A_DIRECTORY) synced(fd, &found, failed);
    pthread_mutex_unlock(&mutex);
    if (failed) errno = fail_errno;
    return failed ? -1 : 0;
}

int fsync(int fd) { return sync_of(fd); }
int fdatasync(int fd) { return sync_of(fd); }

static ssize_t write_of(int fd, const void *data, size_t length, off_t at, int positioned) {
    struct stat found;
    int what = is_watched(fd, &found);
    if (what != A_FILE && what != A_COPY)
        return positioned ? real_pwrite(fd, data, length, at) : real_write(fd, data, length);
    pthread_mutex_lock(&mutex);
    int failed = what == A_FILE && fails(WRITE);
    if (!positioned) at = fcntl(fd, F_GETFL) & O_APPEND ? found.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t wrote = 0;
    size_t wanted = failed ? length / 2 : length; /* what it has come to */
    if (wanted) wrote = positioned ? real_pwrite(fd, data, wanted, at) : real_write(fd, data, wanted);
    written(&found, at, wrote);
    pthread_mutex_unlock(&mutex);
    if (failed) { errno = fail_errno; return -1; }
    return wrote;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    return write_of(fd, data, length, at, 1);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    return write_of(fd, data, length, at, 1);
}
ssize_t write(int fd, const void *data, size_t length) { return write_of(fd, data, length, 0, 0); }
