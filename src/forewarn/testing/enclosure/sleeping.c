/* Workaround for libfaketime before 0.9.11, which takes every absolute time of clock_nanosleep as a
 * time of the faked clock, even if the clock is the monotonic one, which is not faked; Python's
 * time.sleep fails with it. Preloaded before libfaketime; compiled when needed (fake_time.py).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <time.h>

typedef int sleeper(clockid_t, int, const struct timespec *, struct timespec *);

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    static sleeper *real; /* the same for every thread */
    if (!real) {
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        if (!libc || !(real = (sleeper *)dlsym(libc, "clock_nanosleep")))
            return ENOSYS;
    }
    if (clock != CLOCK_REALTIME || !(flags & TIMER_ABSTIME))
        return real(clock, flags, until, left);
    /* An absolute time of the faked clock: sleep for the difference. */
    struct timespec now, rest;
    clock_gettime(CLOCK_REALTIME, &now);
    rest.tv_sec = until->tv_sec - now.tv_sec;
    rest.tv_nsec = until->tv_nsec - now.tv_nsec;
    if (rest.tv_nsec < 0) {
        rest.tv_sec--;
        rest.tv_nsec += 1000000000L;
    }
    return rest.tv_sec < 0 ? 0 : real(CLOCK_MONOTONIC, 0, &rest, NULL);
}
