/* Sleeping until a moment, for programs under a libfaketime before 0.9.11: that one takes every
 * moment for one of the faked clock, also where the clock is the monotonic one and not faked, and
 * Python's time.sleep fails. Preloaded before it; compiled when it is needed (fake_time.py).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <time.h>

typedef int sleeper(clockid_t, int, const struct timespec *, struct timespec *);

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    static sleeper *real; /* every thread finds the same */
    if (!real) {
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        if (!libc || !(real = (sleeper *)dlsym(libc, "clock_nanosleep")))
            return ENOSYS;
    }
    if (clock != CLOCK_REALTIME || !(flags & TIMER_ABSTIME))
        return real(clock, flags, until, left);
    /* Until a moment of the faked clock: for as long as it is until then. */
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
